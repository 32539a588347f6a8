"""Opening a database: ours, carried forward, foreign, locked, full, unwritable."""

import os
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from controller.vocabulary import GATE_REASONS, Gate, HostHit, Outcome, Reason, Verdict, unit_of
from estimator.errors import RecordError, StorageError
from store import database as opening
from store import schema, tables, tables_2, tables_3, tables_4
from store.database import open_for_reading, open_for_writing, reading
from store.ingest import Ingest
from store.named import NAMED
from store.queries import run_query


def test_a_database_is_made_for_its_owner_alone(database):
    """The database and the files SQLite keeps beside it can be read and written by their owner alone."""
    before = os.umask(0)
    try:
        connection = open_for_writing(database)
    finally:
        os.umask(before)
    connection.execute("INSERT INTO runs (name, rank) VALUES ('r', 0)")
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in database.parent.iterdir()}
    connection.close()
    assert modes == {"glassgate.db": 0o600, "glassgate.db-wal": 0o600, "glassgate.db-shm": 0o600}


def test_a_new_database_has_what_a_long_life_needs(database):
    """A database has write-ahead logging and incremental vacuum from its first day, and knows its schema version."""
    with sqlite3.connect(database) as connection:  # an empty file of SQLite's own is taken for a new database
        connection.execute("VACUUM")
    open_for_writing(database).close()
    with reading(database) as connection:
        pragmas = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "auto_vacuum", "application_id", "user_version")
        }
        recorded = [row[0] for row in connection.execute("SELECT name FROM _sqlite_migrations ORDER BY id")]
    assert pragmas == {
        "journal_mode": "wal", "auto_vacuum": 2, "application_id": schema.APPLICATION_ID,
        "user_version": schema.VERSION,
    }  # fmt: skip
    assert recorded == [name for name, _ in schema.MIGRATIONS]


def test_every_word_of_the_vocabulary_has_its_name_in_the_database(database):
    """Each gate, reason, outcome, verdict and host-hit answer is named in its table."""
    open_for_writing(database).close()
    with reading(database) as connection:
        for table, words in (
            ("gates", Gate), ("reasons", Reason), ("outcomes", Outcome), ("verdicts", Verdict), ("host_hits", HostHit)
        ):  # fmt: skip
            found = dict(row[:2] for row in connection.execute(f"SELECT * FROM {table}"))
            assert found == {word.value: word.word for word in words}


def test_every_index_is_named_for_what_it_serves():
    """Each CREATE INDEX in the schema stands under a comment that names a query, `why` or the screen."""
    names = ("why", "screen", *NAMED)
    for module in (tables, tables_2, tables_3, tables_4):
        source = [line.strip() for line in Path(module.__file__).read_text().splitlines()]
        places = [place for place, line in enumerate(source) if line.startswith('"CREATE INDEX')]
        assert len(places) == len(module.INDEXES)
        for place in places:
            comment = source[place - 2 if source[place - 2].startswith("#") else place - 1]
            assert comment.startswith(tuple(f"# {name}" for name in names))


def test_a_decision_has_the_unit_of_its_gate_and_reason(database):
    """Whatever gate told a request to wait, the view of decisions gives its numbers the unit that `why` gives them."""
    pairs = [(gate, reason) for gate, reasons in GATE_REASONS.items() for reason in reasons]
    with closing(open_for_writing(database)) as connection:
        columns = [each[1:4:2] for each in connection.execute("PRAGMA table_info(decisions)")]
        connection.execute("INSERT INTO runs (name, rank) VALUES ('r', 0)")
        connection.execute("INSERT INTO requests (run, number) VALUES (1, 0)")
        wanted = [each[1] for each in connection.execute("PRAGMA table_info(passes)") if each[3]]
        values = ", ".join(["1"] * len(wanted))
        connection.execute(f"INSERT INTO passes ({', '.join(wanted)}) VALUES ({values})")
        for place, (gate, reason) in enumerate(pairs):
            row = {name: 0 for name, needed in columns if needed} | {"run": 1, "pass": 1, "position": place}
            row |= {"outcome": Outcome.WAIT, "gate": gate, "reason": reason, "checks": ""}
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO decisions ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        found = connection.execute("SELECT unit FROM v_decisions ORDER BY position").fetchall()
    assert [unit for (unit,) in found] == [unit_of(gate, reason) for gate, reason in pairs]


@pytest.fixture
def version_1(database):
    """A database as schema version 1 made it: a run of six passes with a parked chunk."""
    with sqlite3.connect(database) as connection:
        connection.executescript((Path(__file__).parent / "version_1.sql").read_text())
        connection.execute("PRAGMA journal_mode = WAL")
    return database


def test_an_older_database_is_carried_forward(version_1):
    """A database of version 1, opened for writing, is brought to the present with every row and goes on from there."""
    with pytest.raises(RecordError, match=f"schema version 1, this Glassgate reads {schema.VERSION}; .*carry-forward"):
        open_for_reading(version_1)
    with sqlite3.connect(version_1) as connection:
        connection.execute("INSERT INTO knob_changes VALUES (NULL, 1, 5, 'ann', 1, 'max_requests', 1, 2, 1, '')")
        before = {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("runs", "passes", "decisions", "requests", "repeats", "cursors", "v_decisions", "checks")
        }
    before["requests"] = [(*row, None, None, None, None) for row in before["requests"]]  # what version 3 adds
    open_for_writing(version_1).close()
    with reading(version_1) as connection:
        assert {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in before} == before
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        recorded = [row[0] for row in connection.execute("SELECT name FROM _sqlite_migrations ORDER BY id")]
        assert recorded == [name for name, _ in schema.MIGRATIONS]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert run_query(version_1, "alarms").rows == []
    assert run_query(version_1, "SELECT who, request FROM v_knob_changes").rows == [("ann", "")]
    with Ingest(version_1, "run-1") as ingest:
        assert ingest.cursor.seq == before["cursors"][0][3]
        assert (ingest._watch.state.pool_tokens, ingest._watch.state.slots) == (1_000_000, 2048)


def test_a_carried_database_has_the_schema_of_a_fresh_one(version_1, tmp_path):
    """Tables, indexes and views are the same however a database came to the present version."""
    fresh = tmp_path / "fresh.db"
    for path in (version_1, fresh):
        open_for_writing(path).close()
    schemas = []
    for path in (version_1, fresh):
        with reading(path) as connection:
            found = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE '%sqlite_%'")
            schemas.append(sorted(found.fetchall()))
    assert schemas[0] == schemas[1]


def test_a_migration_that_fails_changes_nothing(database, monkeypatch):
    """When a migration fails, the database stays at the version it had, whole."""
    open_for_writing(database).close()
    version = schema.VERSION

    def break_off(carried):
        carried.conn.execute("CREATE TABLE halfway (x)")
        carried.conn.execute("CREATE TABLE runs (x)")

    later = (*schema.MIGRATIONS, ("9999_broken", break_off))
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    for module in (schema, opening):
        monkeypatch.setattr(module, "VERSION", len(later))
    with pytest.raises(StorageError, match="runs already exists"):
        open_for_writing(database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'halfway'").fetchone() == (0,)


@pytest.mark.parametrize("open_it", [open_for_writing, open_for_reading])
def test_a_newer_database_is_refused(database, open_it):
    """A database of a newer schema version is refused with both versions and the remedy, and left as it is."""
    open_for_writing(database).close()
    with sqlite3.connect(database) as connection:
        connection.execute(f"PRAGMA user_version = {schema.VERSION + 6}")
    with pytest.raises(
        RecordError, match=f"version {schema.VERSION + 6}, this Glassgate reads up to {schema.VERSION}; open it with"
    ):
        open_it(database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION + 6,)


@pytest.mark.parametrize("open_it", [open_for_writing, open_for_reading])
def test_a_file_that_is_no_database_is_refused(database, open_it):
    """A file that is not a database is refused as one, and not touched."""
    content = b"requests,tokens\n1,2\n" * 100
    database.write_bytes(content)
    with pytest.raises(RecordError, match="not a sound SQLite database"):
        open_it(database)
    assert database.read_bytes() == content


@pytest.mark.parametrize("open_it", [open_for_writing, open_for_reading])
def test_a_foreign_database_is_refused(database, open_it):
    """Another program's database is refused and gets no table of ours."""
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(RecordError, match="not one of Glassgate's"):
        open_it(database)
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_missing_or_empty_database_is_told_when_it_is_to_be_read(database):
    """Reading a database that is missing or empty says so, and makes none."""
    with pytest.raises(RecordError, match="no database at"):
        open_for_reading(database)
    assert not database.exists()
    database.touch()
    with pytest.raises(RecordError, match="is empty; record a run into it first"):
        open_for_reading(database)


def test_a_folder_that_cannot_hold_it_is_told(tmp_path):
    """A database in a place that is no folder is refused with the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="name one in a writable folder"):
        open_for_writing(tmp_path / "file" / "x.db")


def test_a_damaged_page_is_told_as_such(database, world):
    """A database whose pages are overwritten is refused as not sound, without a traceback."""
    engine = world()
    for number in range(300):
        engine.arrive(f"request-{number}", number, 1000)
        engine.step(number + 0.5)
    engine.into(database)
    content = bytearray(database.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    database.write_bytes(content)
    with pytest.raises(RecordError, match="not a sound SQLite database"):
        run_query(database, "SELECT * FROM v_decisions")


def test_a_locked_database_is_told(database):
    """While another program holds the database for writing, a writer gives up with a plain word, and readers go on."""
    with Ingest(database, "run-1", busy_ms=10):
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked by another writer"), Ingest(database, "run-2", busy_ms=10):
            pass
        assert run_query(database, "SELECT name FROM runs").rows == [("run-1",)]
        other.close()


def test_a_locked_database_loses_nothing(database, world):
    """Frames that met a lock are not in the database, and are taken in whole once it is free."""
    engine = world()
    engine.arrive("a", 1, 100)
    engine.step(2)
    frames = engine.frames()
    with Ingest(database, "run-1", busy_ms=10) as ingest:
        other = sqlite3.connect(database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            ingest.feed(frames)
        assert ingest.cursor is None
        other.execute("ROLLBACK")
        other.close()
        assert ingest.feed(frames) == 1
    assert run_query(database, "SELECT count(*) FROM decisions").rows == [(1,)]


def test_a_full_database_keeps_what_it_had(database, world):
    """When the database cannot grow, the error says so, and cursor and rows stay as they were, readable."""
    engine = world()
    for number in range(2000):
        engine.arrive(f"request-{number}", number, 1000)
        engine.step(number + 0.5)
    frames = engine.frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[:50])
        pages = ingest._connection.execute("PRAGMA page_count").fetchone()[0]
        ingest._connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        with pytest.raises(StorageError, match="cannot grow: the disk is full"):
            ingest.feed(frames[50:])
        assert run_query(database, "SELECT count(*) FROM passes").rows == [(50,)]
        assert ingest.cursor.seq == 50
        ingest._connection.execute("PRAGMA max_page_count = 1000000")
        ingest.feed(frames[50:])
    assert run_query(database, "SELECT count(*) FROM passes").rows == [(2000,)]


def test_a_full_disk_is_told(tmp_path, world):
    """On a disk with no room left, ingest says so and what was written before stays readable."""
    mount = shutil.which("mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [str(mount), "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if mount is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        engine = world()
        for number in range(3000):
            engine.arrive(f"request-{number}", number, 1000)
            engine.step(number + 0.5)
        frames = engine.frames()
        with Ingest(disk / "x.db", "run-1") as ingest:
            ingest.feed(frames[:20])
            with pytest.raises(StorageError, match=r"x\.db"):
                ingest.feed(frames[20:])
            assert run_query(disk / "x.db", "SELECT count(*) FROM passes").rows == [(20,)]
    finally:
        subprocess.run([str(shutil.which("umount")), str(disk)], check=True)


def test_a_database_in_a_folder_nobody_writes_to_can_be_read(database, world, monkeypatch):
    """Where a write-ahead log cannot be kept beside it, a finished database is still read."""
    engine = world()
    engine.arrive("a", 1, 100)
    engine.step(2)
    engine.into(database)
    tried = []
    real = opening._open_read_only

    def refuse_log(path, options, busy_ms):
        tried.append(options)
        if "immutable" not in options:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return real(path, options, busy_ms)

    monkeypatch.setattr(opening, "_open_read_only", refuse_log)
    assert run_query(database, "SELECT count(*) FROM decisions").rows == [(1,)]
    assert tried == ["mode=ro", "mode=ro&immutable=1"]


def test_a_reader_cannot_write(database):
    """A connection for reading refuses every change."""
    open_for_writing(database).close()
    connection = open_for_reading(database)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM runs")
    connection.close()


def test_a_database_that_has_gone_is_said_to_have(database):
    """Where somebody removed the file under its writer, that is what the error says, whatever SQLite calls it."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    assert "has gone: somebody removed or moved it" in str(opening.explained(database, error))
    open_for_writing(database).close()
    assert "failed: disk I/O error" in str(opening.explained(database, error))
