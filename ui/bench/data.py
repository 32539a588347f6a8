"""What was measured, as CSV files in a folder: a line for each point, written as it comes."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, Self

from estimator.errors import InputError, StorageError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


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


def read_rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file by column; none where there is no file. Raises InputError for one that is no CSV."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}; measure again, or restore it") from None


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be written: {error.strerror}; free space or name a writable folder")
