"""`glassgate collect` as an operator runs it: what it prints, how it ends, and what it says of where sinks stand."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from controller.journal import JournalReader, JournalWriter
from controller.recorder import Recorder
from controller.records import Arrival
from controller.run_directory import RunDirectory

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def recorded(glassgate: Run, trace: Path, tmp_path: Path) -> RunDirectory:
    """A replayed run, of which nobody has collected anything yet."""
    done = glassgate("replay", str(trace), "--database", str(tmp_path / "replayed.db"), "--json")
    assert done.returncode == 0, done.stderr
    run = RunDirectory(Path(json.loads(done.stdout)["journal"]).parent)
    (run.journal / "cursors" / "sqlite").unlink()
    return run


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[RunDirectory, Recorder]]:
    """A run whose engine lives in this process, and its recorder."""
    run = RunDirectory.create(tmp_path / "live", engine="test", version="1", run_id="alive")
    with JournalWriter(run.journal, run_id="alive") as writer:
        recorder = Recorder(writer)
        recorder.note(Arrival(0, "a", 1, 10, 1))
        recorder.flush()
        yield run, recorder
    run.release()


@contextmanager
def started(command: tuple[str, ...], environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command while it runs."""
    process = subprocess.Popen(
        [*command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def counts(database: Path) -> tuple[int, ...]:
    """Rows of the tables that matter."""
    with closing(sqlite3.connect(database)) as connection:
        query = (
            "SELECT (SELECT count(*) FROM passes), (SELECT count(*) FROM decisions), (SELECT count(*) FROM requests)"
        )
        row: tuple[int, ...] = connection.execute(query).fetchone()
        return row


def wait_for(path: Path) -> None:
    """Wait until somebody has collected something."""
    deadline = time.monotonic() + 15
    while not path.exists() or b'"delivered":0' in path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_is_collected_by_name(glassgate: Run, recorded: RunDirectory, tmp_path: Path):
    """The database filled by `collect` holds what the one filled along with the replay holds; stdout stays empty."""
    other = tmp_path / "collected.db"
    done = glassgate("collect", recorded.info.run_id[:6], "--database", str(other))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert counts(other) == counts(tmp_path / "replayed.db")
    assert counts(other)[1] >= 200
    again = glassgate("collect", str(recorded.path), "--database", str(other), "--json")
    (standing,) = json.loads(again.stdout)
    assert counts(other) == counts(tmp_path / "replayed.db")
    assert (standing["sink"], standing["frames_behind"], standing["losses"]) == ("sqlite", 0, {})


def test_a_folder_of_runs_is_collected(glassgate: Run, recorded: RunDirectory):
    """A folder stands for every run in it, each into the database its own run names."""
    done = glassgate("collect", str(recorded.path.parent), "--once", "--json")
    assert [each["run"] for each in json.loads(done.stdout)] == [recorded.info.run_id]


def test_where_sinks_stand_is_shown(glassgate: Run, recorded: RunDirectory):
    """`--status` says how far each sink is behind, as a table and as JSON that agree, and collects nothing."""
    with JournalReader(recorded.journal) as reader:
        end = list(reader)[-1].cursor.seq
    (recorded.journal / "cursors").mkdir(exist_ok=True)
    (recorded.journal / "cursors" / "otlp").write_text('{"segment": 1, "offset": 0, "seq": 0}\n')
    done = glassgate("collect", str(recorded.path), "--status", "--json")
    standings = {each["sink"]: each for each in json.loads(done.stdout)}
    assert standings["otlp"]["frames_behind"] == end
    assert standings["otlp"]["bytes_behind"] == sum(each.stat().st_size for each in recorded.journal.glob("*.journal"))
    assert (standings["otlp"]["engine"], standings["otlp"]["collected"]) == ("ended", False)
    table = glassgate("collect", str(recorded.path), "--status").stdout
    assert re.search(rf"otlp +1:0 +{end:,} ", table)
    gone = glassgate("collect", str(recorded.path), "--once", "--forget", "otlp")
    assert gone.returncode == 0
    assert not (recorded.journal / "cursors" / "otlp").exists()


def test_a_run_that_cannot_be_read_is_not_left_out_of_the_status(glassgate: Run, recorded: RunDirectory):
    """Of a folder with a damaged run.json the other runs are told, the damaged one is named, and the code is 5."""
    damaged = recorded.path.parent / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    done = glassgate("collect", str(recorded.path.parent), "--status", "--json")
    assert done.returncode == 5
    assert {each["run"] for each in json.loads(done.stdout)} == {recorded.info.run_id}
    assert f"1 run cannot be told of: {damaged / 'run.json'} is not a run's" in done.stderr


def test_a_second_collector_is_refused(glassgate: Run, recorded: RunDirectory):
    """A run that somebody else collects is one clear line and exit code 6."""
    with recorded.hold_collector_lock():
        done = glassgate("collect", recorded.info.run_id)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (6, "", 1)
    assert "is held by process" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nothing-like-it",), 7, "no run 'nothing-like-it'"),
        (("no/such/folder",), 5, "is no run"),
        ((".", "--prometheus", "here"), 2, "which is no HOST:PORT"),
        ((".", "--forget", "sqlite"), 2, "'sqlite' is not one of"),
        ((".", "--shutdown-seconds", "0"), 2, "0.0 is not in the range"),
        ((".", "--max-size", "0"), 2, "'0' is less than 1.00 MiB; write that or more"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_is_told(glassgate: Run, arguments: tuple[str, ...], code: int, words: str):
    """What is no run, no address or no sink is named, with its exit code and without a traceback."""
    done = glassgate("collect", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_folder_has_nothing_to_catch_up(glassgate: Run, tmp_path: Path):
    """`--once` in a folder without runs ends at once."""
    (tmp_path / "none").mkdir()
    assert glassgate("collect", str(tmp_path / "none"), "--once").returncode == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_end_it(
    command: tuple[str, ...],
    environment: dict[str, str],
    live: tuple[RunDirectory, Recorder],
    sent: signal.Signals,
    code: int,
):
    """Beside a live engine it goes on until it is told to end, and then has taken what was there."""
    run, _ = live
    with started(command, environment, "collect", str(run.path)) as process:
        wait_for(run.path / "collector.json")
        assert process.poll() is None
        process.send_signal(sent)
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (code, "")
    assert counts(run.path / "glassgate.db") == (0, 0, 1)


def test_metrics_are_served_while_it_goes(
    command: tuple[str, ...], environment: dict[str, str], live: tuple[RunDirectory, Recorder]
):
    """The endpoint's address is told on stderr, and what is collected shows there."""
    run, recorder = live
    with started(command, environment, "collect", str(run.path), "--prometheus", "0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"metrics at (http://127\.0\.0\.1:\d+/metrics)\n", line)
        assert found, line
        recorder.note(Arrival(1, "b", 2, 10, 1))
        recorder.flush()
        deadline = time.monotonic() + 10
        wanted = re.compile(r'glassgate_sink_delivered_total{[^}]*glassgate_sink_name="sqlite"[^}]*} 3\.0')
        text = ""
        while not wanted.search(text):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
            with urllib.request.urlopen(found[1], timeout=60) as answer:  # noqa: S310 - our own address
                text = answer.read().decode()
        assert 'glassgate_run_engine_live{glassgate_run_id="alive"' in text


def test_without_telemetry_the_sdk_is_not_loaded():
    """Where nothing asks for OpenTelemetry the command does not pay for importing it."""
    program = "import sys, ui.commands.collect; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
