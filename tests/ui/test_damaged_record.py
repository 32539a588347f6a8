"""A record that has lost something says so, and claims nothing about what it no longer holds."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64")


@pytest.fixture
def segment(glassgate: Run, trace: Path) -> Path:
    """The journal segment of a finished replay whose database is gone."""
    summary = json.loads(glassgate("replay", str(trace), *SMALL, "--json").stdout)
    for path in Path(summary["database"]).parent.glob("glassgate.db*"):
        path.unlink()
    (found,) = Path(summary["journal"]).glob("*.journal")
    return found


def flip(path: Path, first: int, last: int) -> None:
    """Spoil the bytes from first to last, counted from the end where negative."""
    content = bytearray(path.read_bytes())
    chosen = slice(first, last or None)
    content[chosen] = bytes(byte ^ 0x5A for byte in content[chosen])
    path.write_bytes(content)


def test_a_damaged_end_is_told_and_kept(glassgate: Run, segment: Path):
    """Bytes at a journal's end that are no frame are said on stderr, once a question, and stand in the losses once."""
    flip(segment, -3000, 0)
    for _ in range(2):
        done = glassgate("query", "losses", "--json")
        assert done.returncode == 0
        assert "damaged bytes" in done.stderr
        (loss,) = json.loads(done.stdout)
        assert (loss["reason"], loss["frames"]) == ("damaged_end", 1)
        assert loss["bytes"] >= 3000


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"not a journal" * 500])
def test_a_journal_with_nothing_readable_is_told(glassgate: Run, segment: Path, content: bytes):
    """A run whose journal holds no sound frame answers with nothing, and says why."""
    segment.write_bytes(content)
    done = glassgate("query", "stops")
    assert done.returncode == 0
    assert "holds nothing that can be read" in done.stderr


def test_a_torn_end_is_told_and_costs_nothing(glassgate: Run, segment: Path):
    """A frame that a killed writer had begun is told, and nobody's life is doubted for it."""
    segment.write_bytes(segment.read_bytes()[:-5])
    done = glassgate("why", "r0")
    assert "a frame that was never finished" in done.stderr
    assert "not known" not in done.stdout


def test_why_claims_nothing_about_what_was_lost(glassgate: Run, segment: Path):
    """Of a request whose admission is lost, `why` tells the wait up to its last sign and that the rest is not known."""
    size = len(segment.read_bytes())
    flip(segment, size // 2, 0)
    rows = json.loads(glassgate("query", "SELECT id FROM requests WHERE admit_pass IS NULL", "--json").stdout)
    assert rows
    for row in rows:
        told = glassgate("why", row["id"]).stdout
        assert "not known" in told
        for claim in ("still waits", "overtaken", "finished"):
            assert claim not in told


def test_an_id_used_twice_in_one_run_is_told(glassgate: Run, trace: Path):
    """Where several requests of a run have one id, `why` says which of them it tells."""
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    trace.write_text("".join(json.dumps({**line, "id": "same"}) + "\n" for line in lines))
    assert glassgate("replay", str(trace), *SMALL).returncode == 0
    assert "199 earlier requests of this run had the same id" in glassgate("why", "same").stdout
