"""The collector beside an engine: a process that takes all ranks, survives the engine, and ends by itself."""

import os
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import pytest

from controller.engines.plugin import PluginSettings, read_status
from controller.engines.plugin.collector import NICENESS, start_collector
from controller.liveness import is_held
from estimator.errors import StorageError


def until(condition, seconds=20.0):
    """Wait for something that is to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def fields_of(pid):
    """State, parent and so on of a process, as the kernel lists them."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def gone(pid):
    """Whether a process has ended; one that waits to be buried has."""
    try:
        return fields_of(pid)[0] == "Z"
    except FileNotFoundError:
        return True


def environment_of(pid):
    """The environment a process began with."""
    text = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    return dict(each.partition("=")[::2] for each in text.split("\0") if each)


@pytest.fixture
def collected(engine, monkeypatch):
    """An engine of two ranks with a collector beside it, as in an engine's process; whatever runs is ended."""
    monkeypatch.setenv("GLASSGATE", "1")
    zero = engine(run_id="beside01", ranks=2, settings={"collector": True}, engine_key="secret-key")
    one = engine(run_id="beside01", rank=1, ranks=2, leads=False, settings={"collector": True})
    pid = read_status(zero.record.run.path).collector_pid
    yield zero, one, pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until(lambda: gone(pid))


def passes(run):
    """(rank, passes) in the run's database."""
    with suppress(sqlite3.Error), sqlite3.connect(f"file:{run.path / 'glassgate.db'}?mode=ro", uri=True) as connection:
        return connection.execute(
            "SELECT rank, coalesce(m.seen, 0) FROM runs LEFT JOIN rank_marks m ON m.run = runs.id ORDER BY rank"
        ).fetchall()
    return []


def test_it_takes_every_rank_and_ends_with_the_run(collected):
    """Both ranks stand in one database while the engine serves; once they have ended the collector ends too."""
    zero, one, pid = collected
    for _ in range(5):
        zero.step(100)
        one.step(100)
    run = zero.record.run
    until(lambda: passes(run) == [(0, 5), (1, 5)])
    assert is_held(run.path / "collector.lock")
    zero.record.close()
    assert not gone(pid)
    one.record.close()
    until(lambda: gone(pid))
    assert (run.path / "collector.log").read_text() == ""


def test_it_stands_back_and_belongs_to_nobody(collected):
    """It has its own session, low priority, another parent, the plug-in off, and the key, which stands in no file."""
    zero, _, pid = collected
    assert os.getpriority(os.PRIO_PROCESS, pid) == NICENESS
    assert os.getsid(pid) != os.getsid(0)
    assert int(fields_of(pid)[1]) != os.getpid()
    environ = environment_of(pid)
    assert "GLASSGATE" not in environ
    assert environ["GLASSGATE_ENGINE_KEY"] == "secret-key"
    assert Path(f"/proc/{pid}/cwd").readlink() == zero.record.run.path.resolve()
    held = [path for path in zero.record.run.path.rglob("*") if path.is_file() and b"secret-key" in path.read_bytes()]
    assert held == []


def test_a_killed_collector_is_started_again_by_hand(collected):
    """After kill -9 another collector goes on where it stopped, and nothing is lost or doubled."""
    zero, one, pid = collected
    zero.step(100)
    one.step(100)
    run = zero.record.run
    until(lambda: passes(run) == [(0, 1), (1, 1)])
    os.kill(pid, signal.SIGKILL)
    until(lambda: run.state == "collector_gone")
    for _ in range(3):
        zero.step(100)
        one.step(100)
    again = start_collector(run, PluginSettings())
    until(lambda: passes(run) == [(0, 4), (1, 4)])
    zero.record.close()
    one.record.close()
    until(lambda: gone(again))


def test_a_folder_called_store_where_the_engine_runs_does_not_shadow_ours(engine, tmp_path):
    """The collector does not start in the engine's working folder, so that what lies there is not imported."""
    for name in ("store", "ui", "controller"):
        (tmp_path / "cwd" / name).mkdir()
        (tmp_path / "cwd" / name / "__init__.py").write_text("raise SystemExit('shadowed')")
    one = engine(settings={"collector": True})
    pid = read_status(one.record.run.path).collector_pid
    one.step(100)
    until(lambda: passes(one.record.run))
    one.record.close()
    until(lambda: gone(pid))
    assert (one.record.run.path / "collector.log").read_text() == ""


def test_one_that_cannot_be_started_is_told_with_what_to_do(engine, monkeypatch):
    """Without an interpreter to start, the fault names the command to run by hand, and the record goes on."""
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    one = engine()
    run = one.record.run
    (run.path / "collector.log").mkdir()
    with pytest.raises(StorageError, match=f"glassgate collect {run.path}"):
        start_collector(run, PluginSettings())
    two = engine(settings={"collector": False})
    assert read_status(two.record.run.path).collector_pid == 0
