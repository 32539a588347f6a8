"""Queries: the named ones and SQL of one's own, read-only and with a time limit."""

from __future__ import annotations

import re
import sqlite3
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import msgspec

from estimator.errors import GlassgateError, NotFoundError, UsageError
from store.database import explained, open_for_reading
from store.named import NAMED, Column
from store.runs import find_run

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_ROWS: Final = 20
"""Rows of a named query unless told otherwise."""
DEFAULT_SECONDS: Final = 30.0
MOST_ROWS: Final = 1_000_000
"""Rows of an answer to SQL unless told otherwise, so that it fits in memory."""


_LONGEST_VALUE_BYTES: Final = 16 << 20
_STEPS_BETWEEN_LOOKS: Final = 10_000
_READS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_READING_PRAGMAS: Final = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
_USERS_FAULT: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_MISMATCH}
)


class Answer(msgspec.Struct, frozen=True):
    """What a query found. `more` says that rows beyond the limit were left out of an answer to SQL."""

    name: str | None
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    more: bool = False

    def as_dicts(self) -> list[dict[str, Any]]:
        """The rows by column name; of columns named alike the last one stands."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def run_query(
    database: Path, text: str, *, run: str | None = None, limit: int | None = None, seconds: float = DEFAULT_SECONDS
) -> Answer:
    """Answer a named query, or one SELECT of the user's own, which may use `:run` and `:limit`.

    `run` names the run asked about, by default the one begun last. Raises NotFoundError for an unknown name or run,
    UsageError for SQL that is wrong, writes, or runs longer than `seconds`, RecordError and StorageError as opening
    does.
    """
    if limit is not None and limit < 0:
        raise UsageError(f"--limit is {limit}; it is a whole number >= 0")
    named = None
    if re.fullmatch(r"[A-Za-z0-9_-]+", text.strip()):
        named = NAMED.get(text.strip())
        if named is None:
            raise NotFoundError(_unknown(text.strip()))
    sql = named.sql if named else text
    deadline = time.monotonic() + seconds
    connection = open_for_reading(database)
    try:
        values: dict[str, Any] = {}
        if re.search(r":run\b", sql):
            values["run"] = find_run(connection, run).id
        elif run is not None and named is None:
            raise UsageError("--run is given but the SQL does not use :run; write `WHERE run = :run`")
        most = (DEFAULT_ROWS if named else MOST_ROWS) if limit is None else limit
        values["limit"] = most
        _guard(connection, deadline)
        found = connection.execute(sql, values)
        if found.description is None:
            raise UsageError("the SQL asks for nothing; write one SELECT")
        rows = found.fetchmany(most + 1)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT and time.monotonic() < deadline:
            raise KeyboardInterrupt from None  # Ctrl-C lands in the progress handler, which can only interrupt
        raise _refusal(database, error, seconds) from None
    finally:
        connection.close()
    if named:
        return Answer(named.name, named.columns, rows)
    columns = tuple(Column(each[0]) for each in found.description)
    return Answer(None, columns, rows[:most], len(rows) > most)


def _unknown(name: str) -> str:
    close = get_close_matches(name, NAMED, n=2, cutoff=0.5)
    meant = f", did you mean {' or '.join(close)}?" if close else ";"
    return f"no query is named {name!r}{meant} there are {', '.join(NAMED)}; anything longer is read as SQL"


def _guard(connection: sqlite3.Connection, deadline: float) -> None:
    """Let the connection read and nothing else, until a moment, and make no value that fills the memory."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    # Their first use declares these functions, which the authorizer would take for a change of the schema.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]'), pragma_table_info('runs')").fetchall()
    connection.set_authorizer(_allow)


def _allow(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    allowed = action in _READS or (action == sqlite3.SQLITE_PRAGMA and first in _READING_PRAGMAS)
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        allowed = False
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _refusal(database: Path, error: sqlite3.Error, seconds: float) -> GlassgateError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return UsageError(f"the query ran longer than {seconds:g} s and was stopped; narrow it by run, pass or request")
    if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        return UsageError("the SQL does more than read; write one SELECT over the store's tables and views")
    if code in _USERS_FAULT or isinstance(error, (sqlite3.ProgrammingError, sqlite3.Warning)):
        return UsageError(f"the SQL is not right: {error}; the tables and views are in docs/store.md")
    return explained(database, error)
