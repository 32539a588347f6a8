"""The schema: numbered migrations, recorded in the database, that make it ours and carry an older one forward."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from controller.vocabulary import SOFT_GATES, Gate, HostHit, Outcome, Reason, Verdict, unit_of
from estimator import PARTS
from store import tables, tables_2, tables_3, tables_4, views
from store.alarms import ALARMS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping

    from sqlite_utils import Database

APPLICATION_ID: Final = 0x474C4753
"""`GLGS` in the file's header: by it a database is known as ours."""


def _step(statements: Iterable[str], made: Mapping[str, str]) -> Callable[[Database], None]:
    """A migration that runs statements, and then makes or makes anew some views."""

    def migrate(database: Database) -> None:
        for statement in statements:
            database.conn.execute(statement)
        for name, sql in made.items():
            database.create_view(name, sql, replace=True)

    return migrate


def _without(indexes: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"DROP INDEX {index}" for index in indexes)


MIGRATIONS: Final[tuple[tuple[str, Callable[[Database], None]], ...]] = (
    ("0001_first", _step((*tables.TABLES, *tables.INDEXES), views.VIEWS)),
    (
        "0002_alarms_and_pruning",
        _step((*_without(tables_2.DROPPED), *tables_2.TABLES, *tables_2.INDEXES), tables_2.VIEWS),
    ),
    ("0003_requests_of_changes", _step((*tables_3.STATEMENTS, *tables_3.TABLES, *tables_3.INDEXES), tables_3.VIEWS)),
    ("0004_causes_and_units", _step((*_without(tables_4.DROPPED), *tables_4.INDEXES), tables_4.VIEWS)),
)
"""Name and function of each migration. One that was released is never changed; a change of the schema adds one."""

VERSION: Final = len(MIGRATIONS)

TABLE_NAMES: Final = tuple(
    re.findall(r"CREATE TABLE (\w+)", " ".join((*tables.TABLES, *tables_2.TABLES, *tables_3.TABLES)))
)
VIEW_NAMES: Final = tuple(dict.fromkeys((*views.VIEWS, *tables_2.VIEWS, *tables_3.VIEWS)))


def carry_forward(connection: sqlite3.Connection) -> None:
    """Bring a database of ours, or an empty file, to VERSION. Raises sqlite3.Error, and then has changed nothing."""
    from sqlite_utils import Database, Migrations  # noqa: PLC0415 - 0.1 s to import, needed for a migration alone

    migrations = Migrations("glassgate")
    for name, function in MIGRATIONS:
        migrations(name=name)(function)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version_of(connection) < VERSION:  # another process may have been faster
            migrations.apply(Database(connection))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        _name_words(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version_of(connection: sqlite3.Connection) -> int:
    """The schema version of a database, 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _name_words(connection: sqlite3.Connection) -> None:
    """Give every word of the vocabulary its row."""
    execute = connection.executemany
    execute("INSERT OR IGNORE INTO gates VALUES (?, ?, ?, ?)", [(g, g.word, unit_of(g), g in SOFT_GATES) for g in Gate])
    execute("INSERT OR IGNORE INTO reasons VALUES (?, ?)", [(each, each.word) for each in Reason])
    execute("INSERT OR IGNORE INTO outcomes VALUES (?, ?)", [(each, each.word) for each in Outcome])
    execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?)", [(each, each.word) for each in Verdict])
    execute("INSERT OR IGNORE INTO host_hits VALUES (?, ?, ?)", [(each, each.word, each.status) for each in HostHit])
    execute("INSERT OR IGNORE INTO parts VALUES (?, ?)", list(enumerate(PARTS)))
    execute("INSERT OR REPLACE INTO alarm_kinds VALUES (?, ?, ?, ?)", ALARMS)
