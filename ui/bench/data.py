"""What was measured, as CSV files in a folder: a line for each point, written as it comes."""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any, Final, Self, get_type_hints

from controller.whole_file import read_small
from estimator.errors import InputError, StorageError, shown

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_MOST_BYTES: Final = 1 << 30
_REMEDY: Final = "measure again, or restore it"


class DataFile:
    """A CSV file with one line for each `NamedTuple` of a kind. Raises StorageError where it cannot be written.

    What was written is there for others at once, so that a long measurement that is broken off leaves its data.
    """

    def __init__(self, path: Path, kind: type[tuple[Any, ...]]) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise _unwritable(path, error) from None
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._write(kind._fields)  # type: ignore[attr-defined]

    def add(self, row: tuple[Any, ...]) -> None:
        """Write one line."""
        self._write(row)

    def _write(self, row: tuple[Any, ...]) -> None:
        try:
            self._writer.writerow(row)
            self._file.flush()
        except OSError as error:
            raise _unwritable(self._path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_rows(path: Path, kind: type[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The lines that a `DataFile` of a kind holds, by column; none where there is no file. Raises InputError."""
    try:
        reader = csv.DictReader(io.StringIO(read_small(path, _MOST_BYTES).decode(), newline=""))
        rows = list(reader)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; {_REMEDY}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}; {_REMEDY}") from None
    kinds = get_type_hints(kind)
    columns = list(reader.fieldnames or ())
    if rows and columns != [*kinds]:
        raise InputError(f"{path} has the columns {shown(columns)}, not {', '.join(kinds)}; {_REMEDY}")
    found = []
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise InputError(f"{path}, line {number}: too many or too few fields; {_REMEDY}")
        try:
            found.append({name: value if kinds[name] is str else _number(value) for name, value in row.items()})
        except ValueError:
            raise InputError(f"{path}, line {number}: a field that is no number; {_REMEDY}") from None
    return found


def _number(text: str) -> float:
    """A number that can be drawn. Raises ValueError."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be written: {error.strerror}; free space or name a writable folder")
