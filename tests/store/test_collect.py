"""A run's journal into a database: from where it stands, to the end, once."""

import sqlite3
import stat

import pytest

from controller.journal import JournalReader, JournalWriter, read_cursor
from controller.recorder import Recorder
from controller.records import Arrival
from controller.run_directory import RunDirectory
from estimator.errors import RecordError, StorageError
from store.collect import SINK, Collector, collect_run
from store.queries import run_query


@pytest.fixture
def run(tmp_path):
    """The folder of a run that lives in this process."""
    directory = RunDirectory.create(tmp_path / "runs", engine="test", version="1", run_id="r1")
    yield directory
    directory.release()


def journal(run, **options):
    """A writer of the run's journal."""
    return JournalWriter(run.journal, run_id="r1", **{"max_bytes": 8 << 20, **options})


def append(writer, frames):
    """Write frames of a world into a real journal."""
    for frame in frames:
        writer.append(frame.payload)


def passes(database):
    """How many passes the database holds, how many differ, and its losses."""
    return run_query(database, "SELECT count(*), max(number), (SELECT count(*) FROM losses) FROM passes").rows[0]


def long_run(world, number):
    """Frames of a world with so many passes."""
    engine = world("r1")
    for each in range(number):
        engine.arrive(f"request-{each}", each, 1000)
        engine.step(each + 0.5)
    return engine.frames()


def test_a_journal_is_collected_as_it_grows(run, database, world):
    """Each poll takes what has been written since, across segments, and tells the journal what it may drop."""
    frames = long_run(world, 600)
    with journal(run, segment_bytes=16_384) as writer, Collector(run, database) as collector:
        assert read_cursor(run.journal, SINK) == (0, 0, 0)
        append(writer, frames[:100])
        assert collector.poll() > 100
        assert passes(database) == (100, 100, 0)
        assert collector.poll() == 0
        append(writer, frames[100:])
        collector.poll()
        assert passes(database) == (600, 600, 0)
        assert read_cursor(run.journal, SINK).seq == 600
        assert writer.collect_garbage() > 0


def test_collecting_again_adds_nothing(run, database, world):
    """A run collected twice is in the database once; what came in between is added."""
    frames = long_run(world, 50)
    with journal(run) as writer:
        append(writer, frames[:30])
        assert collect_run(run, database) == 31
        assert collect_run(run, database) == 0
        append(writer, frames[30:])
        assert collect_run(run.path, database) == 20
    assert passes(database) == (50, 50, 0)
    assert run_query(database, "SELECT name, rank FROM runs").rows == [("r1", 0)]


def test_a_database_of_its_own_gets_everything(run, database, world):
    """The place reached is kept in each database, so a second one is filled from the start."""
    with journal(run) as writer:
        append(writer, long_run(world, 20))
    collect_run(run, database)
    other = database.with_name("other.db")
    collect_run(run, other)
    assert passes(other) == passes(database) == (20, 20, 0)


def test_after_a_lock_the_collector_goes_on(run, database, world):
    """A collector that met a locked database says so, and at the next poll takes in what it missed."""
    with journal(run) as writer, Collector(run, database) as collector:
        collector._ingest._connection.execute("PRAGMA busy_timeout = 5")
        append(writer, long_run(world, 20))
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked by another writer"):
            collector.poll()
        other.execute("ROLLBACK")
        other.close()
        assert collector.poll() == 21
    assert passes(database) == (20, 20, 0)


def test_damage_in_the_journal_is_counted(run, database, world):
    """A journal with a damaged frame gives all others, and the damage is one loss row."""
    with journal(run) as writer:
        append(writer, long_run(world, 20))
    (segment,) = run.journal.glob("*.journal")
    with JournalReader(run.journal) as reader:
        payload = list(reader)[10].payload
    content = bytearray(segment.read_bytes())
    place = content.index(payload) + len(payload) // 2
    content[place : place + 8] = bytes(byte ^ 0xFF for byte in content[place : place + 8])
    segment.write_bytes(content)
    collect_run(run, database)
    assert passes(database)[:2] == (19, 20)
    (loss,) = run_query(database, "SELECT reason, frames, bytes > 0 FROM losses").rows
    assert loss == ("missing", 1, 1)


def test_frames_the_bound_took_are_told(run, database, world):
    """Frames that left the journal before they were collected are counted as missing, with the reason beside them."""
    with journal(run, max_bytes=40_000, segment_bytes=8192) as writer:
        append(writer, long_run(world, 600))
    collect_run(run, database)
    held, last, _ = passes(database)
    losses = run_query(database, "SELECT reason, sum(frames) FROM losses GROUP BY reason ORDER BY reason").rows
    assert last == 600
    assert losses == [("bound", 0), ("missing", 600 - held)]


def test_a_journal_on_a_read_only_disk_is_collected(run, database, world, monkeypatch):
    """Where the journal's folder takes no cursor file, the run is still collected."""
    with journal(run) as writer:
        append(writer, long_run(world, 5))

    def refuse(*_):
        raise StorageError("read-only")

    monkeypatch.setattr("store.collect.write_cursor", refuse)
    collect_run(run, database)
    assert passes(database) == (5, 5, 0)


def test_a_folder_that_is_no_run_is_told(tmp_path, database):
    """Collecting a folder that holds no run is refused, and no database is made."""
    with pytest.raises(RecordError, match="is no run"):
        collect_run(tmp_path, database)
    assert not database.exists()


def test_a_real_recorder_writes_what_collect_reads(run, database):
    """Records that go through the real recorder and journal come out as rows."""
    with journal(run) as writer:
        recorder = Recorder(writer)
        recorder.note(Arrival(0, "a", 1, 10, 1))
        recorder.flush()
    collect_run(run, database)
    assert run_query(database, "SELECT id, arrival_ns FROM requests").rows == [("a", 1)]
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
