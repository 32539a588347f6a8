"""Export: every table as one file, Parquet or CSV, for tools that work on many databases at once.

Rows are read in short transactions in the order of the key, so that an export of any length holds up no writer; tables
that refer to others go first, so that every row exported has its parents exported too.
"""

from __future__ import annotations

import csv
import os
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from controller.whole_file import make_folders
from estimator.errors import StorageError, UsageError
from store.database import failures, open_for_reading
from store.runs import find_run
from store.schema import TABLE_NAMES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FORMATS: Final = ("parquet", "csv")
_BATCH_ROWS: Final = 50_000
_MADE_FOR_US: Final = frozenset({"alarm_watch", "cursors", "digests", "pruned_requests", "rank_marks"})
"""Tables that mean nothing outside the database."""

# Children before the tables they refer to; words and runs last.
_LAST: Final = ("requests", "passes", "alarm_kinds", "gates", "reasons", "outcomes", "verdicts", "host_hits", "parts")
EXPORTED: Final = (
    *(name for name in TABLE_NAMES if name not in {*_LAST, *_MADE_FOR_US, "runs"}), *_LAST, "runs"
)  # fmt: skip
"""The tables that are exported, in that order."""


class Exported(NamedTuple):
    """One file of an export."""

    table: str
    file: Path
    rows: int


class _Writer(Protocol):
    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take some rows."""


def export(database: Path, folder: Path, *, form: str = "parquet", run: str | None = None) -> tuple[Exported, ...]:
    """Write every table of a database, or what belongs to one run, into a folder: `passes.parquet` and so on.

    Raises UsageError for an unknown form, files that are there already, or Parquet without pyarrow; StorageError where
    the folder cannot be written; NotFoundError for an unknown run; RecordError as opening does. A file is there whole
    or not at all.
    """
    if form not in FORMATS:
        raise UsageError(f"--format is {form!r}; it is one of {', '.join(FORMATS)}")
    if form == "parquet":
        _pyarrow()
    files = {name: folder / f"{name}.{form}" for name in EXPORTED}
    # Those of the other form too: who reads the folder would not know which belong together.
    there = [name for table in EXPORTED for each in FORMATS if (folder / (name := f"{table}.{each}")).exists()]
    if there:
        raise UsageError(f"{folder} holds {', '.join(there[:3])} already; name another folder or remove them")
    connection = open_for_reading(database)
    try:
        with failures(database), _writing(folder):
            make_folders(folder)
            runs = None
            if run is not None:
                name = find_run(connection, run).name
                runs = [row[0] for row in connection.execute("SELECT id FROM runs WHERE name = ?", (name,))]
            return tuple(_export_table(connection, name, files[name], form, runs) for name in EXPORTED)
    finally:
        connection.close()


def _export_table(
    connection: sqlite3.Connection, table: str, file: Path, form: str, runs: list[int] | None
) -> Exported:
    info = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
    columns = [(name, kind) for _, name, kind, *_ in info]
    key = [name for _, name, _, _, _, place, _ in sorted(info, key=lambda column: column[5]) if place]
    part = file.with_name(f".{file.name}.part")
    rows = 0
    try:
        with ExitStack() as stack:
            make = _parquet if form == "parquet" else _csv
            writer: _Writer = stack.enter_context(make(part, columns))
            for batch in _batches(connection, table, [name for name, _ in columns], key, runs):
                writer.write(batch)
                rows += len(batch)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return Exported(table, file, rows)


def _batches(
    connection: sqlite3.Connection, table: str, columns: list[str], key: list[str], runs: list[int] | None
) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in the order of the key; each batch is a transaction of its own."""
    of_run = "id" if table == "runs" else "run"
    wanted = [] if runs is None or of_run not in columns else [f"{of_run} IN ({', '.join(map(str, runs))})"]
    at = [columns.index(name) for name in key]
    place: tuple[Any, ...] | None = None
    while True:
        behind = [] if place is None else [f"({', '.join(key)}) > ({', '.join('?' * len(key))})"]
        where = f"WHERE {' AND '.join(wanted + behind)}" if wanted or behind else ""
        rows = connection.execute(
            f"SELECT {', '.join(columns)} FROM {table} {where} ORDER BY {', '.join(key)} LIMIT {_BATCH_ROWS}",  # noqa: S608 - names of our own schema
            place or (),
        ).fetchall()
        if rows:
            yield rows
        if len(rows) < _BATCH_ROWS:
            return
        place = tuple(rows[-1][each] for each in at)


class _CsvWriter:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take some rows."""
        self._writer.writerows(rows)


@contextmanager
def _csv(file: Path, columns: list[tuple[str, str]]) -> Iterator[_Writer]:
    with _opened(file) as descriptor, os.fdopen(descriptor, "w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(name for name, _ in columns)
        yield _CsvWriter(writer)


class _ParquetWriter:
    def __init__(self, arrow: Any, writer: Any, schema: Any) -> None:
        self._arrow, self._writer, self._schema = arrow, writer, schema

    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take some rows."""
        arrays = [
            self._arrow.array(column, type=field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))


@contextmanager
def _parquet(file: Path, columns: list[tuple[str, str]]) -> Iterator[_Writer]:
    arrow, parquet = _pyarrow()
    kinds = {"INTEGER": arrow.int64(), "TEXT": arrow.string()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in columns])
    with _opened(file) as descriptor, os.fdopen(descriptor, "wb") as sink:
        writer = parquet.ParquetWriter(sink, schema, compression="zstd")
        yield _ParquetWriter(arrow, writer, schema)
        writer.close()


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    """A file of our own for writing: like the database it can be read by its owner alone."""
    yield os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"export into {folder} failed: {error.strerror or error}; free space or name a writable folder"
        ) from None


def _pyarrow() -> tuple[Any, Any]:
    """Pyarrow and its Parquet module. Raises UsageError without them."""
    try:
        pyarrow, parquet = (import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ImportError:
        raise UsageError("Parquet needs pyarrow: install glassgate[export], or export with --format csv") from None
    return pyarrow, parquet
