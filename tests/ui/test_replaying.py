"""Replaying with a record: what the database's troubles do to the engine."""

from pathlib import Path

import pytest

from controller.engines.replay.traces import open_trace
from estimator.errors import StorageError
from store.collect import Collector
from store.queries import run_query
from ui import replaying


def test_a_database_that_is_locked_for_a_while_stops_no_engine(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The replay goes on, says once that the database is behind, and in the end nothing is missing from it."""
    refused = 0
    polled = Collector.poll

    def poll(collector: Collector) -> int:
        nonlocal refused
        if refused < 3:
            refused += 1
            raise StorageError("database is locked by another writer")
        return polled(collector)

    monkeypatch.setattr(Collector, "poll", poll)
    monkeypatch.setattr(replaying, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
    done = replaying.replay(open_trace(str(trace)), replaying.ReplayOptions(base=tmp_path / "runs"))
    assert refused == 3
    assert capsys.readouterr().err.count("the database is behind") == 1
    rows = run_query(Path(done.summary["database"]), "SELECT count(*) FROM passes WHERE run = :run").rows
    assert rows == [(done.summary["passes"],)]
