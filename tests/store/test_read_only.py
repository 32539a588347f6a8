"""A query reads and does nothing else, for no longer and in no more room than told."""

import os
from pathlib import Path

import pytest

from estimator.errors import GlassgateError, UsageError
from store import queries
from store.database import open_for_reading
from store.queries import run_query

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
WRITES = (
    "INSERT INTO runs (name) VALUES ('x')", "UPDATE runs SET name = 'x'", "DELETE FROM runs", "DROP TABLE runs",
    "CREATE TABLE t (a)", "CREATE TEMP TABLE t AS SELECT * FROM passes", "CREATE TEMP VIEW t AS SELECT 1",
    "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END", "CREATE VIRTUAL TABLE t USING fts5(a)",
    "ALTER TABLE runs RENAME TO x", "REINDEX", "ANALYZE", "VACUUM", "VACUUM INTO 'copy.db'",
    "ATTACH 'other.db' AS other",
    "DETACH main", "BEGIN IMMEDIATE", "SAVEPOINT a", "REPLACE INTO runs (id, name) VALUES (1, 'x')",
    "WITH x AS (SELECT 1 AS a) INSERT INTO runs (name) SELECT a FROM x", "WITH x AS (SELECT 1) DELETE FROM runs",
    "INSERT INTO runs (name) VALUES ('x') RETURNING name", "UPDATE sqlite_master SET sql = ''",
    "PRAGMA writable_schema = ON", "PRAGMA journal_mode = DELETE", "PRAGMA user_version = 9",
    "PRAGMA application_id = 9",
    "PRAGMA query_only = OFF", "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA incremental_vacuum", "PRAGMA optimize",
    "PRAGMA temp_store_directory = '/'", "PRAGMA hard_heap_limit = 1", "SELECT 1; DELETE FROM runs",
    "SELECT 1; PRAGMA query_only = OFF", "EXPLAIN DELETE FROM runs", "/* */ -- \n DELETE FROM runs",
    "\ufeffDELETE FROM runs",
    "SELECT load_extension('x')", "SELECT writefile('file', 'x')", "SELECT readfile('/etc/passwd')", "SELECT edit('x')",
    "SELECT fts3_tokenizer('x', x'00')", "SELECT * FROM pragma_journal_mode('DELETE')", "SELECT * FROM sqlite_dbpage",
    "SELECT sqlite_rename_table('main', 'runs', 'x', 'y', 'z', 0, 0, 0, 0)", "SELECT pragma_wal_checkpoint('TRUNCATE')",
)  # fmt: skip


@pytest.fixture
def database(world, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with a few passes in a folder of its own, which is the current one."""
    engine = world()
    engine.arrive("a", 0, 100)
    engine.step(10)
    engine.end(20)
    monkeypatch.chdir(tmp_path)
    return engine.into(tmp_path / "glassgate.db")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the log and its index, which SQLite keeps beside a database that is read."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


@pytest.mark.parametrize("sql", WRITES)
def test_what_does_more_than_read_is_refused_and_leaves_no_trace(database: Path, sql: str):
    """Each way to write, attach, load code or reach a file ends in an error, and nothing on the disk differs."""
    before = contents(database.parent)
    with pytest.raises(GlassgateError):
        run_query(database, sql, seconds=5)
    assert contents(database.parent) == before


@pytest.mark.parametrize("sql", [sql for sql in WRITES if "heap_limit" not in sql])  # that one is for the process
def test_the_connection_that_reads_could_not_write_either(database: Path, sql: str):
    """Without the authorizer of queries, as the screen reads, the file is still opened so that nothing reaches it."""
    before = database.read_bytes()
    connection = open_for_reading(database)
    for each in sql.split(";"):
        try:
            connection.execute(each).fetchall()
        except Exception:  # noqa: BLE001, S112 - whatever it says, the file is what counts
            continue
    connection.close()
    assert database.read_bytes() == before
    assert not (database.parent / "file").exists()


def test_an_answer_is_bounded_in_memory(database: Path, monkeypatch: pytest.MonkeyPatch):
    """Rows are counted by what they hold, so that a few great ones are refused as many small ones would be."""
    monkeypatch.setattr(queries, "MOST_ANSWER_BYTES", 100_000)
    with pytest.raises(UsageError, match="holds more than"):
        run_query(database, f"{ENDLESS} SELECT hex(zeroblob(500)) FROM c")
    with pytest.raises(UsageError, match="too big"):
        run_query(database, "SELECT zeroblob(100000000)")


def test_a_query_is_bounded_in_disk(database: Path, monkeypatch: pytest.MonkeyPatch):
    """What SQLite puts aside while it sorts is looked at as it grows; the query ends when it is too much."""
    monkeypatch.setattr(queries, "MOST_PASSING_BYTES", 1 << 20)
    monkeypatch.setattr(queries, "_LOOK_SECONDS", 0.0)
    with pytest.raises(UsageError, match="of disk and was stopped"):
        run_query(database, f"{ENDLESS} SELECT randomblob(1000) AS b FROM c ORDER BY b", seconds=600)


def test_passing_files_are_told_from_others(tmp_path: Path):
    """A file without a name counts, one with a name does not."""
    before = queries._passing_bytes()
    with (tmp_path / "named").open("wb") as named, (tmp_path / "gone").open("wb") as gone:
        named.write(b"x" * 5_000)
        gone.write(b"x" * 7_000)
        named.flush()
        gone.flush()
        os.unlink(gone.name)  # noqa: PTH108 - by the name it was opened by
        assert queries._passing_bytes() - before == 7_000


def test_endless_sql_ends_in_its_time(database: Path):
    """Recursion without end, in the answer or behind it, is stopped."""
    for sql in (f"{ENDLESS} SELECT count(*) FROM c", "SELECT count(*) FROM (" + ENDLESS + " SELECT x FROM c)"):
        with pytest.raises(UsageError, match=r"longer than 0\.2 s"):
            run_query(database, sql, seconds=0.2)


@pytest.mark.parametrize(
    "sql",
    ["SELECT '\ud800'", "SELECT 'a\0b'", "SELECT " + "(" * 5_000, "", ";", "--", "SELECT ?", "SELECT @a, $b"],
    ids=range(8),
)
def test_sql_that_is_none_is_told(database: Path, sql: str):
    """Text that SQLite or Python cannot take is a plain error."""
    with pytest.raises(GlassgateError):
        run_query(database, sql)


@pytest.mark.parametrize("limit", [-1, 1 << 62, 10**400], ids=range(3))
def test_a_limit_beyond_every_table_is_told(database: Path, limit: int):
    """A number of rows that no table has is refused before SQLite sees it."""
    with pytest.raises(UsageError, match="--limit"):
        run_query(database, "stops", limit=limit)
