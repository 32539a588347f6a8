"""Asking a record while others write it, ask it, or have lost part of it."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
COUNT = "SELECT (SELECT count(*) FROM passes) + (SELECT coalesce(sum(count), 0) FROM repeats) AS n"


@pytest.fixture
def killed(command: tuple[str, ...], environment: dict[str, str], tmp_path: Path) -> Path:
    """The folder of a run whose engine was killed in the middle."""
    with subprocess.Popen(
        [*command, "replay", "--sessions", "20000"],
        env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        home = Path(environment["GLASSGATE_HOME"])
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in home.glob("runs/*/journal/*") if path.is_file()) < 300_000:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    return next(home.glob("runs/*"))


def test_questions_during_a_replay_lose_and_double_nothing(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, glassgate: Run
):
    """Questions asked while a replay runs are answered, and the record has every pass once and no loss."""
    with subprocess.Popen(
        [*command, "replay", "--sessions", "150", "--json"],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        asked = 0
        while process.poll() is None:
            done = glassgate("query", "stops")
            assert done.returncode in (0, 5, 7), done.stderr  # 5 and 7: before the record has begun
            asked += done.returncode == 0
        assert process.stdout is not None
        summary = json.loads(process.stdout.read())
    assert asked > 0
    assert json.loads(glassgate("query", "losses", "--json").stdout) == []
    assert json.loads(glassgate("query", COUNT, "--json").stdout)[0]["n"] == summary["passes"]


def test_several_questions_at_once_on_a_killed_run_are_all_answered(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, killed: Path
):
    """Whoever asks first collects; the others wait for it and give the same answer."""
    assert not (killed / "glassgate.db").exists() or (killed / "glassgate.db").unlink() is None
    asking = [
        subprocess.Popen([*command, "query", COUNT, "--json"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    answers = [process.communicate()[0] for process in asking]
    assert [process.returncode for process in asking] == [0, 0, 0, 0]
    assert len(set(answers)) == 1
    assert json.loads(answers[0])[0]["n"] > 0


def test_a_run_on_a_full_disk_can_be_asked(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, glassgate: Run
):
    """Where the database cannot be written the journal is read into a passing one, and that is said."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        full = {**environment, "GLASSGATE_HOME": str(small)}
        done = subprocess.run([*command, "replay", "--sessions", "3000"], env=full, capture_output=True, check=False)
        assert done.returncode == 6
        told = glassgate("why", "s0.t0", GLASSGATE_HOME=str(small))
        assert told.returncode == 0, told.stderr
        assert "entered pass" in told.stdout
        assert "passing database" in told.stderr
    finally:
        subprocess.run(["/bin/umount", str(small)], check=True)


def test_a_damaged_database_beside_a_sound_journal_says_what_to_do(glassgate: Run, trace: Path):
    """A run's database that is damaged gets one line that says how to have it made again."""
    summary = json.loads(glassgate("replay", str(trace), "--json").stdout)
    database = Path(summary["database"])
    before = glassgate("query", COUNT, "--json").stdout
    for path in database.parent.glob("glassgate.db*"):
        path.unlink()
    database.write_bytes(b"this is no database" * 1000)
    done = glassgate("query", COUNT)
    assert done.returncode == 5
    assert "aside" in done.stderr
    shutil.move(database, database.with_suffix(".broken"))
    assert glassgate("query", COUNT, "--json").stdout == before


def test_ctrl_c_in_a_long_query_is_an_interrupt(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path, glassgate: Run, trace: Path
):
    """Ctrl-C ends a long query with code 130; only the time limit says that the query was too long."""
    assert glassgate("replay", str(trace)).returncode == 0
    with subprocess.Popen(
        [*command, "query", ENDLESS], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, b"glassgate: interrupted")
    slow = glassgate("query", ENDLESS, "--seconds", "0.2")
    assert slow.returncode == 2
    assert "ran longer than 0.2 s" in slow.stderr


def test_a_refused_replay_leaves_no_run(glassgate: Run, environment: dict[str, str], trace: Path):
    """A replay whose options do not fit together is refused before it becomes the newest run."""
    assert glassgate("replay", str(trace)).returncode == 0
    for refused in (("--context-parallel", "8"), ("--page-size", "48"), ("--device-tokens", "1")):
        assert glassgate("replay", str(trace), *refused).returncode != 0
    assert len(list(Path(environment["GLASSGATE_HOME"]).glob("runs/*"))) == 1
    assert len(json.loads(glassgate("runs", "--json").stdout)) == 1


def test_runs_tells_the_state_of_each(glassgate: Run, killed: Path, trace: Path):
    """`glassgate runs` lists the newest first and tells an ended run from one whose engine is gone."""
    assert glassgate("replay", str(trace)).returncode == 0
    rows = json.loads(glassgate("runs", "--json").stdout)
    assert [row["state"] for row in rows] == ["ended", "engine_gone"]
    assert rows[1]["run"] == killed.name


def test_a_knob_that_does_nothing_is_told(glassgate: Run, trace: Path):
    """A replay says which of the operator's knobs is dead or clamped, and why."""
    done = glassgate("replay", str(trace), "--model", "none", "--max-buffer-bytes", "1GiB", "--data-parallel", "8",
                     "--chunked-prefill-size", "32768")  # fmt: skip
    assert done.returncode == 0
    assert "max_buffer_bytes is 1,073,741,824, in force - (dead): no model is named" in done.stderr
    assert "chunked_prefill_size is 32,768, in force 4,096 (clamped)" in done.stderr


def test_requests_that_can_never_fit_are_in_the_summary(glassgate: Run, trace: Path):
    """The summary for people counts the requests that were refused because they can never fit."""
    done = glassgate("replay", str(trace), "--device-tokens", "1000")
    assert done.returncode == 0
    assert "refused at once" in done.stdout


@pytest.mark.parametrize("arguments", [("decide", "-"), ("query",), ("replay", "--sessions", "1"), ("--help",)])
def test_a_closed_output_is_one_line(command: tuple[str, ...], environment: dict[str, str], arguments: tuple[str, ...]):
    """A command started with stdout closed says so in one line, with the storage code."""
    line = " ".join([*command, *arguments])
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {line} >&-"], env=environment, input=b"{}", capture_output=True, check=False
    )
    assert done.returncode == 6
    assert done.stderr.count(b"\n") == 1


def test_an_ascii_terminal_shows_what_it_can(glassgate: Run):
    """Where the output takes only ASCII, JSON escapes and tables replace what does not fit."""
    case = json.dumps({"queue": [{"id": "é", "prompt_tokens": 5}]})
    for form in ((), ("--table",)):
        done = glassgate("decide", "-", *form, stdin=case, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
    plain = json.loads(glassgate("decide", "-", stdin=case, PYTHONIOENCODING="ascii").stdout)
    assert plain["batch"][0]["id"] == "é"


def test_arguments_that_are_not_utf_8_are_said(command: tuple[str, ...], environment: dict[str, str]):
    """Bytes that are no UTF-8 in an argument are one line and the usage code."""
    done = subprocess.run(
        [*(os.fsencode(word) for word in command), b"why", b"\xff\xfe"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == b"glassgate: an argument is not UTF-8; write it as UTF-8\n"


def test_control_characters_never_reach_a_terminal(glassgate: Run):
    """An id with an escape sequence in it is shown escaped, and brackets in it are no markup."""
    case = json.dumps({"queue": [{"id": "\x1b[31m[bold]x", "prompt_tokens": 5}]})
    done = glassgate("decide", "-", "--table", stdin=case)
    assert "\x1b" not in done.stdout
    assert "[bold]x" in done.stdout


def test_a_column_is_named_as_it_was_asked_for(glassgate: Run, trace: Path):
    """A name with an escape sequence in it is shown escaped, and brackets in it are no markup."""
    glassgate("replay", str(trace), "--limit", "3")
    done = glassgate("query", 'SELECT 1 AS "\x1b[31m[bold]x"')
    assert done.stdout.splitlines()[0].strip() == r"\x1b[31m[bold]x"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "--limit", "3"), "--limit goes with a TRACE"),
        (("replay", "TRACE", "--seed", "3"), "--seed goes with the built-in workload"),
        (("replay", "/dev/zero"), "is a device"),
        (("replay", "--role", "prefill", "--context-parallel", "1000000"), "at most 4096"),
    ],
)
def test_what_would_be_ignored_or_never_end_is_refused(
    glassgate: Run, trace: Path, arguments: tuple[str, ...], words: str
):
    """Options that the workload would ignore, devices without an end, and sizes no machine has are refused."""
    done = glassgate(*(str(trace) if word == "TRACE" else word for word in arguments))
    assert done.returncode in (2, 3, 4)
    assert words in done.stderr


def test_a_trace_is_read_from_standard_input(glassgate: Run, trace: Path):
    """`glassgate replay -` reads the trace from standard input."""
    done = glassgate("replay", "-", "--json", stdin=trace.read_text())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requests"] == 200
