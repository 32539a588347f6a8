"""Opening a database, for writing or for reading, and saying plainly why it cannot be."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from controller.whole_file import FILE_MODE, is_strangers
from estimator.errors import GlassgateError, RecordError, StorageError
from store import span_ids
from store.schema import APPLICATION_ID, VERSION, carry_forward, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_MS: Final = 5_000
"""How long one writer waits for another before it gives up, milliseconds."""

_WAL_KEPT_BYTES: Final = 64 << 20
_CACHE_KIB: Final = 64 << 10
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NOT_OURS: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})
# What a missing table or column, a broken constraint, and text that is no UTF-8 give.
_DAMAGED: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH})
_NO_LOG: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
_CANNOT_WRITE: Final = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})


def open_for_writing(path: Path, *, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection to the database at path, which is made (for its owner alone) or carried forward where need be.

    It commits by itself; a transaction begins with BEGIN IMMEDIATE. Raises RecordError for a file that is no database,
    not ours or newer, StorageError where it cannot be written.
    """
    try:
        _refuse_strange_link(path)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    except OSError as error:
        raise StorageError(
            f"database {path} cannot be written: {error.strerror}; name one in a writable folder"
        ) from None
    with failures(path), _closed_on_error(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        version = _recognise(connection, path, may_be_empty=True)
        if version == 0:
            # Takes hold in a file that has no page yet, or with the next VACUUM.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            if path.stat().st_size:
                connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")
        if version < VERSION:
            carry_forward(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        # Not enforced on each row, which takes a fifth of the time: the rows of one frame bring their own parents.
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return connection


def _refuse_strange_link(path: Path) -> None:
    """Raise OSError for a link that belongs to another user: it would have us write where that user wants."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) and is_strangers(status):
            raise OSError(errno.ELOOP, f"it is a link of user {status.st_uid}'s")


def open_for_reading(path: Path, *, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection that cannot change the database at path and never blocks its writer.

    `busy_ms`: how long it waits for somebody who has locked the whole file, milliseconds.

    Raises RecordError for a file that is missing, no database, not ours, or of another version.
    """
    if not path.is_file():
        raise RecordError(f"no database at {path}; name one, or record a run into it first")
    with failures(path):
        try:
            connection = _open_read_only(path, "mode=ro", busy_ms)
        except sqlite3.OperationalError as error:
            # A write-ahead log wants a writable folder even of readers; with no log there, none is needed.
            code = error.sqlite_errorcode & 0xFF
            if code not in _NO_LOG or path.with_name(path.name + "-wal").exists():
                raise
            connection = _open_read_only(path, "mode=ro&immutable=1", busy_ms)
        with _closed_on_error(connection):
            version = _recognise(connection, path, may_be_empty=False)
            if version < VERSION:
                raise RecordError(
                    f"database {path} has schema version {version}, this Glassgate reads {VERSION}; "
                    "`glassgate db check --carry-forward`, or recording into it, brings it up to date"
                )
        return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """One short read-only transaction on the database at path. Raises RecordError and StorageError."""
    connection = open_for_reading(path)
    try:
        with failures(path):
            connection.execute("BEGIN")
            yield connection
    finally:
        connection.close()


def wal_bytes(path: Path) -> int:
    """Bytes of the write-ahead log beside the database at path; 0 without one."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


@contextmanager
def failures(path: Path) -> Iterator[None]:
    """Turn what SQLite says of the database at path into errors an operator can mend."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained(path, error) from None


def explained(path: Path, error: sqlite3.Error) -> GlassgateError:
    """The error an operator can mend that a failure of SQLite stands for."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code not in _BUSY and not path.exists():
        return StorageError(
            f"database {path} has gone: somebody removed or moved it; begin again, or name another file"
        )
    if code in _NOT_OURS:
        return RecordError(f"{path} is not a sound SQLite database: {error}; restore it, or name another file")
    if code in _BUSY:
        return StorageError(f"database {path} is locked by another writer; let that one finish, or name another file")
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"database {path} cannot grow: the disk is full; free space, what it holds stays readable")
    if code in _CANNOT_WRITE:
        return StorageError(f"database {path} cannot be opened or written: {error}; name one in a writable folder")
    if code in _DAMAGED:
        why = f"holds something else than Glassgate wrote: {error}; `glassgate db check` looks into it"
    else:
        why = f"failed: {error}; check the disk and the folder's permissions"
    return StorageError(f"database {path} {why}")


def _open_read_only(path: Path, options: str, busy_ms: int) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    with _closed_on_error(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        span_ids.register(connection)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return connection


def _recognise(connection: sqlite3.Connection, path: Path, *, may_be_empty: bool) -> int:
    """The schema version of a database of ours, 0 for an empty file. Raises RecordError for any other."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == APPLICATION_ID:
        version = version_of(connection)
        if version > VERSION:
            raise RecordError(
                f"database {path} has schema version {version}, this Glassgate reads up to {VERSION}; "
                "open it with the Glassgate that wrote it or a newer one"
            )
        return version
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if empty and application == 0 and may_be_empty:
        return 0
    if empty and application == 0:
        raise RecordError(f"database {path} is empty; record a run into it first")
    raise RecordError(f"{path} is a SQLite database, but not one of Glassgate's; name another file")


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
