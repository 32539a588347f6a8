"""`glassgate trace export`, and `glassgate replay` of what it wrote."""

import gzip
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64", "--max-requests", "3")
DECIDED = "SELECT pass, position, request, outcome, checks FROM decisions ORDER BY 1, 2"


def decisions(summary: dict):
    """Every decision of a replay, in order."""
    with sqlite3.connect(summary["database"]) as connection:
        found = connection.execute(DECIDED).fetchall()
    connection.close()
    return found


def test_a_run_exported_and_replayed_decides_the_same(glassgate: Run, trace: Path, tmp_path: Path):
    """Nothing but the file is needed: knobs, sizes and steps are in it, and a knob set here goes before."""
    first = json.loads(glassgate("replay", str(trace), *SMALL, "--json").stdout)
    done = glassgate("trace", "export", first["run"][:4], "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == (
        "", f"200 requests of run {first['run']}, replayed from the run's start\n",
    )  # fmt: skip
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 200
    assert all(line.keys() >= {"timestamp", "input_length", "output_length", "hash_ids"} for line in lines)
    again = glassgate("replay", "out.jsonl", "--json")
    assert again.returncode == 0, again.stderr
    assert f"served as run {first['run']} was (replay " in again.stderr
    assert decisions(json.loads(again.stdout)) == decisions(first)
    other = glassgate("replay", "out.jsonl", "--max-requests", "1", "--device-tokens", "30k", "--json")
    assert "but for max_requests 1, device_tokens" in other.stderr
    assert json.loads(other.stdout)["batch_size"]["max"] == 1


def test_no_names_leave_unless_asked_for(glassgate: Run, trace: Path, tmp_path: Path):
    """Ids of requests stay here without --ids; the file may be packed, and stdout is the trace where there is none."""
    named = tmp_path / "named.jsonl"
    named.write_text("".join(
        json.dumps({**json.loads(line), "id": f"secret-{number}"}) + "\n"
        for number, line in enumerate(trace.read_text().splitlines()[:20])
    ))  # fmt: skip
    glassgate("replay", str(named), *SMALL)
    plain = glassgate("trace", "export")
    assert plain.returncode == 0
    assert "secret" not in plain.stdout
    assert plain.stdout.count("\n") == 20
    packed = glassgate("trace", "export", "--ids", "-o", "out.jsonl.gz")
    assert packed.returncode == 0
    lines = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"secret-{number}" for number in range(20)]
    assert glassgate("replay", "out.jsonl.gz").returncode == 0


def test_a_window_brings_what_was_before_it(glassgate: Run, trace: Path):
    """The requests before the window stand in the file too, and the first line says where the window begins."""
    glassgate("replay", str(trace), *SMALL)
    done = glassgate("trace", "export", "--since", "+4s", "--until", "+6s")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["glassgate"]["since_ns"] == 4_000_000_000
    assert lines[0]["timestamp"] == 0
    assert len(lines) >= 150


def test_what_it_is_written_to_stays_what_it_is(glassgate: Run, trace: Path, tmp_path: Path):
    """A pipe is written to and a link goes on pointing to its file; neither becomes a file of its own."""
    glassgate("replay", str(trace), *SMALL)
    pipe, link = tmp_path / "pipe", tmp_path / "link.jsonl"
    os.mkfifo(pipe)
    link.symlink_to("real.jsonl")
    with ThreadPoolExecutor() as reader:
        read = reader.submit(pipe.read_bytes)
        assert glassgate("trace", "export", "-o", str(pipe)).returncode == 0
        assert read.result(60).count(b"\n") == 200
    assert pipe.is_fifo()
    assert glassgate("trace", "export", "-o", str(link)).returncode == 0
    assert link.is_symlink()
    assert (tmp_path / "real.jsonl").read_bytes().count(b"\n") == 200


def test_a_name_that_ends_in_gz_is_packed(glassgate: Run, trace: Path, tmp_path: Path):
    """Also where there is nothing before the ending."""
    glassgate("replay", str(trace), *SMALL)
    for name in "run.jsonl.gz", ".gz":
        assert glassgate("trace", "export", "-o", str(tmp_path / name)).returncode == 0
        assert gzip.decompress((tmp_path / name).read_bytes()).count(b"\n") == 200


def test_what_cannot_be_exported_is_one_line(glassgate: Run, trace: Path, tmp_path: Path):
    """No run, an unknown one, a moment that is none, an empty window, a folder that is not there, a ring of links."""

    def told(*arguments: str) -> tuple[int, str]:
        done = glassgate("trace", "export", *arguments)
        assert done.stderr.count("\n") == 1, done.stderr
        return done.returncode, done.stderr

    code, words = told()
    assert (code, "no run is recorded" in words) == (7, True)
    glassgate("replay", str(trace), *SMALL)
    assert told("nobody")[0] == 7
    code, words = told("--since", "noon")
    assert (code, "'noon' is no moment of a run; write 10m" in words) == (2, True)
    code, words = told("--since", "+1h")
    assert (code, "the span would begin after that" in words) == (2, True)
    code, words = told("--since", "1ms")
    assert (code, "no batch was formed in that span; the run lasted" in words) == (7, True)
    code, words = told("-o", str(tmp_path / "nowhere" / "out.jsonl"))
    assert (code, "cannot be written: No such file or directory" in words) == (6, True)
    ring = tmp_path / "ring.jsonl"
    ring.symlink_to(ring.name)
    code, words = told("-o", str(ring))
    assert (code, "cannot be written: Too many levels of symbolic links" in words) == (6, True)
