"""`glassgate replay`: the summary, the record it leaves, and what happens to the record when something goes wrong."""

import gzip
import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.journal import DATA, JournalReader
from controller.records import Pass, decode

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64")


def decisions_kept(summary: dict) -> dict[str, int]:
    """Decisions in the database by outcome, the repeats of coalesced refusals counted in."""
    with sqlite3.connect(f"file:{summary['database']}?mode=ro", uri=True) as connection:
        found = dict(
            connection.execute(
                "SELECT o.outcome, count(*) FROM decisions d JOIN outcomes o ON o.id = d.outcome GROUP BY 1"
            ).fetchall()
        )
        repeats = connection.execute("SELECT coalesce(sum(count), 0) FROM repeats").fetchone()[0]
    connection.close()
    return {**found, "repeats": repeats}


def test_the_summary_has_its_keys_and_agrees_with_the_record(glassgate: Run, trace: Path):
    """--json names what the issue names, and the database holds exactly the decisions the summary counts."""
    done = glassgate("replay", str(trace), *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    for key in (
        "requests", "passes", "decisions", "prompt_tokens", "device_hit_tokens", "host_hit_tokens", "computed_tokens",
        "hit_ratio", "batch_size", "queue_seconds", "ttft_seconds", "simulated_seconds", "wall_seconds", "database",
        "journal",
    ):  # fmt: skip
        assert key in summary
    assert summary["requests"] == summary["finished"] == 200
    assert summary["host_hit_tokens"] > 0
    kept = decisions_kept(summary)
    by_outcome = summary["decisions"]["by_outcome"]
    assert kept["admit"] == by_outcome["admit"]
    assert kept.get("wait", 0) + kept.get("park", 0) + kept["repeats"] == by_outcome["wait"] + by_outcome["park"]
    assert Path(summary["journal"]).is_dir()


def test_the_summary_for_people_is_on_stdout_and_the_narration_on_stderr(glassgate: Run, trace: Path):
    """What stopped the batches and where the record is stand on stdout; the run and its largest prompt on stderr."""
    done = glassgate("replay", str(trace), *SMALL)
    assert done.returncode == 0
    for words in ("closed by", "hit ratio", "TTFT", "database"):
        assert words in done.stdout
    assert "largest prompt that can be served: 19,934 tokens" in done.stderr


def test_a_gzip_trace_replays_alike(glassgate: Run, trace: Path, tmp_path: Path):
    """A trace is known by its content, compressed or not, and the same requests give the same figures."""
    packed = tmp_path / "packed.txt"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    plain, unpacked = (json.loads(glassgate("replay", str(path), *SMALL, "--json").stdout) for path in (trace, packed))
    changing = {"run", "database", "journal", "wall_seconds", "collect_seconds", "requests_per_second"}
    assert {k: v for k, v in plain.items() if k not in changing} == {
        k: v for k, v in unpacked.items() if k not in changing
    }


def test_knobs_come_from_options_environment_and_file(glassgate: Run, trace: Path, tmp_path: Path):
    """A knob set by option, variable or glassgate.toml is in force, and recorded with where it stands."""
    (tmp_path / "glassgate.toml").write_text("max_extend_tokens = 4096\n")
    done = glassgate("replay", str(trace), *SMALL, "--max-requests", "2", "--json", GLASSGATE_MAX_CACHED_TOKENS="8192")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batch_size"]["max"] <= 2
    rows = json.loads(glassgate("query", "knobs", "--json").stdout)
    values = {row["knob"]: row["set_to"] for row in rows}
    assert str(values["max_requests"]) == "2"
    assert str(values["max_extend_tokens"]) == "4096"
    assert str(values["max_cached_tokens"]) == "8192"


def test_bad_lines_are_counted_and_reported_when_asked(glassgate: Run, trace: Path):
    """A bad line stops a replay with file, line and field; --skip-bad-lines counts it and names it on stderr."""
    lines = trace.read_text().splitlines()
    lines[16] = lines[16].replace('"input_length": ', '"input_length": -')
    trace.write_text("\n".join(lines) + "\n")
    stopped = glassgate("replay", str(trace), *SMALL)
    assert stopped.returncode == 4
    assert f"{trace.name}:17: input_length" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    skipped = glassgate("replay", str(trace), *SMALL, "--skip-bad-lines", "--json")
    assert skipped.returncode == 0
    summary = json.loads(skipped.stdout)
    assert (summary["requests"], summary["skipped_lines"]) == (199, 1)
    assert f"{trace.name}:17: input_length" in skipped.stderr


def test_what_was_recorded_before_a_bad_line_stays_readable(glassgate: Run, trace: Path):
    """A replay that stops at a bad line leaves a record of everything before it."""
    with trace.open("a") as file:
        file.write("{]\n")
    assert glassgate("replay", str(trace), *SMALL).returncode == 4
    count = json.loads(glassgate("query", "SELECT count(*) AS n FROM requests", "--json").stdout)[0]["n"]
    assert count > 150


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere.jsonl",), 4, "nowhere.jsonl"),
        (("--max-requests", "0"), 3, "max_requests is 0"),
        (("--max-buffer-bytes", "lots"), 3, "max_buffer_bytes"),
        (("--context-parallel", "8"), 2, "role prefill"),
        (("--page-size", "48"), 4, "48"),
        (("--device-tokens", "many"), 2, "many"),
        (("--model", "gpt-9"), 4, "gpt-9"),
        (("--sessions", "0"), 2, "sessions"),
        (("--step-time", "x"), 2, "x"),
        (("--host-tokens", "-5"), 2, "-5"),
    ],
)
def test_bad_arguments_are_one_clear_line_and_the_documented_code(
    glassgate: Run, arguments: tuple[str, ...], code: int, words: str
):
    """An argument that cannot be gives its own exit code and names the value, and leaves no run behind."""
    done = glassgate("replay", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_home_that_cannot_be_written_is_said(glassgate: Run, trace: Path, tmp_path: Path):
    """Where no run can be kept, one line names the place, with the storage code."""
    (tmp_path / "file").write_text("")
    done = glassgate("replay", str(trace), GLASSGATE_HOME=str(tmp_path / "file"))
    assert done.returncode == 6
    assert str(tmp_path / "file") in done.stderr
    assert done.stderr.count("\n") == 1


def start(command: tuple[str, ...], environment: dict[str, str], tmp_path: Path) -> subprocess.Popen[str]:
    """A long replay, started and seen to record."""
    process = subprocess.Popen(
        [*command, "replay", "--sessions", "20000", "--json"],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    home = Path(environment["GLASSGATE_HOME"])
    while sum(path.stat().st_size for path in home.glob("runs/*/journal/*") if path.is_file()) < 300_000:
        assert time.monotonic() < deadline, "the replay recorded nothing"
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    return process


def test_ctrl_c_ends_the_run_in_order(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, glassgate: Run
):
    """Ctrl-C ends a replay at a pass boundary: the summary is printed, the exit code is 130, the record is whole."""
    process = start(command, environment, tmp_path)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    summary = json.loads(out)
    assert summary["interrupted"]
    rows = json.loads(glassgate("query", "SELECT count(*) AS n FROM passes", "--json").stdout)
    repeats = json.loads(glassgate("query", "SELECT coalesce(sum(count), 0) AS n FROM repeats", "--json").stdout)
    assert rows[0]["n"] + repeats[0]["n"] == summary["passes"]


def test_kill_9_leaves_a_record_that_why_can_read(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, glassgate: Run
):
    """After kill -9 in the middle of a replay, why and query read everything up to the last pass."""
    process = start(command, environment, tmp_path)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    told = glassgate("why", "s0.t0")
    assert told.returncode == 0, told.stderr
    assert "entered pass" in told.stdout
    stops = json.loads(glassgate("query", "stops", "--json").stdout)
    assert sum(row["passes"] for row in stops) > 0
    gaps = json.loads(
        glassgate("query", "SELECT max(number) - min(number) + 1 - count(*) AS gaps FROM passes", "--json").stdout
    )[0]["gaps"]
    repeated = json.loads(glassgate("query", "SELECT coalesce(sum(count), 0) AS n FROM repeats", "--json").stdout)
    assert gaps <= repeated[0]["n"] + 1_000


def test_a_full_disk_is_said_and_loses_nothing_before(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path
):
    """A replay whose disk fills up stops with the storage code, and what was recorded before stays readable."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        done = subprocess.run(
            [*command, "replay", "--sessions", "3000"],
            env={**environment, "GLASSGATE_HOME": str(small)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 6, done.stderr
        assert "Traceback" not in done.stderr
        journal = next(small.glob("runs/*/journal"))
        with JournalReader(journal) as reader:
            passes = [r for frame in reader if frame.kind == DATA for r in decode(frame.payload) if isinstance(r, Pass)]
        assert passes
    finally:
        subprocess.run(["/bin/umount", str(small)], check=True)
