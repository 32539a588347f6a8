"""Queries: the named ones and SQL of one's own, read-only and with a time limit."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from estimator.errors import GlassgateError, NotFoundError, UsageError, shown
from store.database import explained, open_for_reading
from store.named import NAMED, Column, NamedQuery
from store.runs import StoredRun, find_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFAULT_ROWS: Final = 20
"""Rows of a named query unless told otherwise."""
DEFAULT_SECONDS: Final = 30.0
MOST_ROWS: Final = 1_000_000
"""Rows of an answer to SQL unless told otherwise, so that it fits in memory."""


MOST_ANSWER_BYTES: Final = 256 << 20
"""Text and bytes in an answer, all rows together."""
MOST_PASSING_BYTES: Final = 4 << 30
"""Of files that SQLite makes while it sorts or joins, and that are gone with the query."""
_LONGEST_VALUE_BYTES: Final = 1 << 20  # functions such as instr() take the square of it, and nothing stops them midway
_LONGEST_PATTERN_BYTES: Final = 1_000
_LOOK_SECONDS: Final = 0.25
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
    """What a query found. `more` says that rows beyond the limit were left out of an answer to SQL.

    `run` is the run asked about, if any; moments in the rows are of its clock.
    """

    name: str | None
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    more: bool = False
    run: StoredRun | None = None

    def as_dicts(self) -> list[dict[str, Any]]:
        """The rows by column name; of columns named alike the last one stands."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def run_query(
    database: Path, text: str, *, run: str | None = None, limit: int | None = None, seconds: float = DEFAULT_SECONDS
) -> Answer:
    """Answer a named query, or one SELECT of the user's own, which may use `:run` and `:limit`.

    `run` names the run asked about, by default the one begun last. Raises NotFoundError for an unknown name or run,
    UsageError for SQL that is wrong, writes, or takes more than `seconds`, MOST_ANSWER_BYTES or MOST_PASSING_BYTES,
    RecordError and StorageError as opening does.
    """
    if limit is not None and not 0 <= limit < 1 << 62:
        raise UsageError(f"--limit is {shown(limit)}; it is a whole number >= 0")
    named = _named(text)
    sql = named.sql if named else text
    bounds = _Bounds(seconds)
    with closing(open_for_reading(database)) as connection, _failures(database, bounds):
        values: dict[str, Any] = {}
        about = None
        if re.search(r":run\b", sql):
            about = find_run(connection, run)
            values["run"] = about.id
        elif run is not None and named is None:
            raise UsageError("--run is given but the SQL does not use :run; write `WHERE run = :run`")
        most = (DEFAULT_ROWS if named else MOST_ROWS) if limit is None else limit
        values["limit"] = most
        _guard(connection, bounds)
        found = connection.execute(sql, values)
        if found.description is None:
            raise UsageError("the SQL asks for nothing; write one SELECT")
        rows = _rows(found, most + 1)
    if named:
        return Answer(named.name, named.columns, rows, run=about)
    columns = tuple(Column(each[0]) for each in found.description)
    return Answer(None, columns, rows[:most], len(rows) > most, about)


def _named(text: str) -> NamedQuery | None:
    """The named query that one word names, None for SQL. Raises NotFoundError."""
    word = text.strip()
    if not re.fullmatch(r"[A-Za-z0-9_-]+", word):
        return None
    if word not in NAMED:
        raise NotFoundError(_unknown(word))
    return NAMED[word]


def _rows(found: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """At most so many rows. Raises UsageError where they hold more than MOST_ANSWER_BYTES."""
    rows: list[tuple[Any, ...]] = []
    held = 0
    for row in islice(found, most):
        rows.append(row)
        held += sum(len(value) for value in row if isinstance(value, str | bytes))
        if held > MOST_ANSWER_BYTES:
            raise UsageError(
                f"the answer holds more than {MOST_ANSWER_BYTES >> 20} MiB after {len(rows):,} rows; ask for fewer "
                "columns or rows, or write tables to files with `glassgate db export`"
            )
    return rows


def _unknown(name: str) -> str:
    close = get_close_matches(name, NAMED, n=2, cutoff=0.5)
    meant = f", did you mean {' or '.join(close)}?" if close else ";"
    return f"no query is named {name!r}{meant} there are {', '.join(NAMED)}; anything longer is read as SQL"


class _Bounds:
    """What ends a query: its time, and the disk it takes for what it has in hand."""

    def __init__(self, seconds: float) -> None:
        self.passed: str | None = None
        """The bound that ended it, in words."""
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def look(self) -> bool:
        """Whether it is to end; asked often, so that the disk is looked at now and then."""
        now = time.monotonic()
        if now > self._deadline:
            self.passed = f"the query ran longer than {self._seconds:g} s and was stopped"
        elif now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if _passing_bytes() > MOST_PASSING_BYTES:
                self.passed = f"the query took more than {MOST_PASSING_BYTES >> 30} GiB of disk and was stopped"
        if self.passed is None:
            return False
        self.passed += "; narrow it by run, pass or request"
        return True


def _passing_bytes() -> int:
    """Bytes of this process's open files that have no name any more, as SQLite's passing files are."""
    held = 0
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names alone are wanted
            with suppress(OSError):
                status = os.fstat(int(name))
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode):
                    held += status.st_size
    return held


def _guard(connection: sqlite3.Connection, bounds: _Bounds) -> None:
    """Let the connection read and nothing else, until a moment, and make no value that fills the memory."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN_BYTES)
    connection.set_progress_handler(bounds.look, _STEPS_BETWEEN_LOOKS)
    # Their first use declares these functions, which the authorizer would take for a change of the schema.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]'), pragma_table_info('runs')").fetchall()
    connection.set_authorizer(_allow)


def _allow(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    allowed = action in _READS or (action == sqlite3.SQLITE_PRAGMA and first in _READING_PRAGMAS)
    if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
        allowed = False
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@contextmanager
def _failures(database: Path, bounds: _Bounds) -> Iterator[None]:
    """Turn what becomes of a query into errors that whoever asked can mend."""
    try:
        yield
    except UnicodeEncodeError:
        raise UsageError("what is asked holds half a surrogate pair; write it as UTF-8") from None
    except MemoryError:
        raise UsageError("the query takes more memory than there is; narrow it by run, pass or request") from None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            if bounds.passed is None:
                raise KeyboardInterrupt from None  # Ctrl-C lands in the progress handler, which can only interrupt
            raise UsageError(bounds.passed) from None
        raise _refusal(database, error) from None


def _refusal(database: Path, error: sqlite3.Error) -> GlassgateError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        return UsageError("the SQL does more than read; write one SELECT over the store's tables and views")
    if code in _USERS_FAULT or isinstance(error, (sqlite3.ProgrammingError, sqlite3.Warning)):
        return UsageError(f"the SQL is not right: {error}; the tables and views are in docs/store.md")
    return explained(database, error)
