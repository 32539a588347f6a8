"""Readers, writers and pruning beside one another: nobody is held up, and the log stays short."""

import sqlite3
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest

from estimator.errors import StorageError
from store import ingest as ingesting
from store.check import check
from store.database import open_for_writing, reading, wal_bytes
from store.export import export
from store.ingest import Ingest
from store.pruning import prune
from store.queries import run_query
from store.schema import VERSION

ROOT = Path(__file__).resolve().parents[2]


def frames_of(world, passes, name="run-1"):
    """Frames of a run with a request and a pass each ms."""
    engine = world(name)
    for number in range(passes):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
        engine.finish(f"r{number}", number + 0.7)
    return engine.frames()


def test_a_long_reader_only_delays_the_emptying_of_the_log(database, world, monkeypatch):
    """While a reader keeps its picture, the writer goes on and the log grows; once it is gone the log is emptied."""
    monkeypatch.setattr(ingesting, "WAL_BYTES", 40_000)
    frames = frames_of(world, 1200)
    with Ingest(database, "run-1", busy_ms=0) as ingest:
        ingest.feed(frames[:10])
        with reading(database) as connection:
            before = connection.execute("SELECT count(*) FROM passes").fetchone()
            for begin in range(10, 600, 50):
                ingest.feed(frames[begin : begin + 50])
            grown = wal_bytes(database)
            assert grown > 40_000
            assert connection.execute("SELECT count(*) FROM passes").fetchone() == before
        for begin in range(610, len(frames), 10):
            ingest.feed(frames[begin : begin + 10])
        assert wal_bytes(database) <= grown + 200_000
    assert wal_bytes(database) == 0


def test_the_log_stays_short_without_readers(database, world, monkeypatch):
    """With nobody reading, the log is begun anew each time it is longer than its bound."""
    monkeypatch.setattr(ingesting, "WAL_BYTES", 100_000)
    frames = frames_of(world, 2000)
    longest = 0
    with Ingest(database, "run-1") as ingest:
        ingest._connection.execute("PRAGMA wal_autocheckpoint = 0")
        for begin in range(0, len(frames), 40):
            ingest.feed(frames[begin : begin + 40])
            longest = max(longest, wal_bytes(database))
    assert 100_000 < longest < 1_000_000


def together(*works):
    """Do several things at once, and return what went wrong in any of them."""
    errors = []

    def guarded(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the test shows whatever went wrong in a thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_everybody_at_once(database, world, tmp_path):
    """Two writers of one file, a reader, an export and a pruning go on together, and every row is there once."""
    runs = {name: frames_of(world, 400, name) for name in ("one", "two")}
    Ingest(database, "one").close()

    def write(name):
        with Ingest(database, name) as ingest:
            for begin in range(0, len(runs[name]), 25):
                ingest.feed(runs[name][begin : begin + 25])

    def read():
        while run_query(database, "SELECT count(*) FROM passes").rows[0][0] < 800:
            run_query(database, "stops")

    def look_after():
        export(database, tmp_path / "out", form="csv")
        prune(database, max_bytes=1 << 40)
        check(database)

    assert together(partial(write, "one"), partial(write, "two"), read, look_after) == []
    rows = run_query(database, "SELECT r.name, count(*) FROM passes p JOIN runs r ON r.id = p.run GROUP BY 1").rows
    assert rows == [("one", 400), ("two", 400)]
    assert all(each.sound for each in check(database))


_AS_NOBODY = """import os, sys
from pathlib import Path
from estimator.errors import StorageError
from store.database import open_for_writing
from store.queries import run_query
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
path = Path(sys.argv[1])
try:
    open_for_writing(path)
except StorageError as error:
    print(error)
print(run_query(path, "SELECT count(*) FROM passes").rows)
"""


@pytest.mark.parametrize("folder_mode", [0o755, 0o555])
def test_a_database_without_permission_is_told(world, folder_mode):
    """Where permissions forbid it, writing is refused with the remedy, and what is there can still be read."""
    # Not in tmp_path, which another user cannot enter.
    with tempfile.TemporaryDirectory(prefix="glassgate-test-") as folder:
        database = Path(folder) / "glassgate.db"
        with Ingest(database, "run-1") as ingest:
            ingest.feed(frames_of(world, 5))
        database.chmod(0o444)
        Path(folder).chmod(folder_mode)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(database)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        Path(folder).chmod(0o755)
    assert done.stdout.splitlines() == [
        f"database {database} cannot be written: Permission denied; name one in a writable folder", "[(5,)]"
    ], done.stderr  # fmt: skip


def test_two_processes_may_make_a_database_at_once(tmp_path):
    """Of two that make one database at the same time both succeed, and it is made once."""
    database = tmp_path / "x.db"
    program = (
        "import sys; from pathlib import Path; from store.database import open_for_writing as o\n"
        "o(Path(sys.argv[1])).close()"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(database)], cwd=ROOT) for _ in range(4)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM _sqlite_migrations").fetchone() == (VERSION,)


def test_a_lock_while_alarms_are_written_loses_nothing(database, world):
    """Frames that met a lock are taken in whole afterwards, alarms and all."""
    engine = world(pool=50_000)
    engine.arrive("a", 0, 5000)
    engine.step(1, free=50_000, reserved=49_000)
    frames = engine.frames()
    with Ingest(database, "run-1", busy_ms=5) as ingest:
        other = open_for_writing(database)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked by another writer"):
            ingest.feed(frames)
        assert ingest.standing == []
        other.execute("ROLLBACK")
        other.close()
        ingest.feed(frames)
        assert [alarm.name for alarm in ingest.standing] == ["idle_refusal"]
    assert run_query(database, "SELECT alarm, count FROM alarms").rows == [("idle_refusal", 1)]
