"""Check and stats: whether a database is sound, and what is in it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, NamedTuple

from store.database import failures, open_for_reading, wal_bytes
from store.schema import APPLICATION_ID, TABLE_NAMES, VERSION, version_of
from store.words import count, counted, size

if TYPE_CHECKING:
    from pathlib import Path

_SHOWN: Final = 5


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    sound: bool
    found: str


class TableSize(NamedTuple):
    """One table with its indexes. Bytes are of whole pages; None where SQLite was built without `dbstat`."""

    table: str
    rows: int
    table_bytes: int | None
    index_bytes: int | None


class Stats(NamedTuple):
    """What a database holds. `free_bytes` are inside the file and not in use."""

    tables: tuple[TableSize, ...]
    file_bytes: int
    free_bytes: int
    wal_bytes: int
    decisions: int
    bytes_a_decision: float | None
    """The file's bytes in use by its decisions, everything included; None without decisions."""


def check(database: Path) -> tuple[Finding, ...]:
    """Look whether a database is sound: a finding for each thing looked at. Reads all of it.

    Raises RecordError and StorageError for a file that cannot be opened as a database of ours.
    """
    connection = open_for_reading(database)
    try:
        with failures(database):
            damage = _damage(connection)
            orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN + 1) if not damage else []
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = version_of(connection)
            log = wal_bytes(database)
            pages, free, page = _pages(connection)
    finally:
        connection.close()
    parents = ", ".join(f"{table} without its {parent}" for table, _, parent, _ in orphans[:_SHOWN])
    return (
        Finding("integrity", not damage, "; ".join(damage) or "every page and index is sound"),
        Finding("foreign keys", not orphans and not damage, _orphans(parents, damage, len(orphans))),
        Finding("application id", application == APPLICATION_ID, f"{application:#x}"),
        Finding("schema version", version == VERSION, str(version)),
        Finding("size", True, f"{size(pages * page)}, of which {size(free * page)} free"),
        Finding("write-ahead log", True, size(log)),
    )


def stats(database: Path) -> Stats:
    """Rows and bytes by table, the largest first. Raises as opening does."""
    connection = open_for_reading(database)
    try:
        with failures(database):
            connection.execute("BEGIN")
            held = [_table(connection, name) for name in TABLE_NAMES]
            pages, free, page = _pages(connection)
    finally:
        connection.close()
    decisions = next(each.rows for each in held if each.table == "decisions")
    return Stats(
        tuple(sorted(held, key=lambda each: -((each.table_bytes or 0) + (each.index_bytes or 0)))),
        pages * page,
        free * page,
        wal_bytes(database),
        decisions,
        (pages - free) * page / decisions if decisions else None,
    )


def _damage(connection: sqlite3.Connection) -> list[str]:
    """What SQLite says is wrong, some of it."""
    try:
        said = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
    except sqlite3.DatabaseError as error:
        return [str(error)]
    return [] if said == ["ok"] else said


def _orphans(parents: str, damage: list[str], found: int) -> str:
    if damage:
        return "not looked at"
    if not found:
        return "every row has its parents"
    return f"{counted(found, 'row') if found <= _SHOWN else f'more than {count(_SHOWN)} rows'}: {parents}"


def _pages(connection: sqlite3.Connection) -> tuple[int, int, int]:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, page = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return pages, free, page


def _table(connection: sqlite3.Connection, name: str) -> TableSize:
    rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608 - our own tables
    try:
        sizes = dict(
            connection.execute(
                "SELECT m.type, sum(d.pgsize) FROM sqlite_master m "
                "JOIN dbstat d ON d.name = m.name AND d.aggregate = 1 WHERE m.tbl_name = ? GROUP BY 1",
                (name,),
            ).fetchall()
        )
    except sqlite3.OperationalError:  # dbstat is a choice of whoever built SQLite
        return TableSize(name, rows, None, None)
    return TableSize(name, rows, sizes.get("table", 0), sizes.get("index", 0))
