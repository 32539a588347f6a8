"""The cursors of a journal: how far each sink has taken it, in small files beside the segments."""

import json
import re
from pathlib import Path

import msgspec

from controller.journal.frames import Cursor
from controller.journal.segments import Count
from controller.whole_file import FOLDER_MODE, read_json, write_whole
from estimator.errors import RecordError, StorageError

CURSOR_FOLDER = "cursors"
_SINK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class _Kept(msgspec.Struct):
    """A cursor as its file holds it."""

    segment: Count
    offset: Count
    seq: Count


def write_cursor(folder: Path | str, sink: str, cursor: Cursor) -> None:
    """Keep the place up to which a sink has taken the journal in folder; seen whole or not at all.

    A sink that writes Cursor(0, 0, 0) before it reads holds segments back from garbage collection.
    Raises StorageError if it cannot be written, ValueError for a sink name that is no plain file name.
    """
    path = _cursor_path(folder, sink)
    try:
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        write_whole(path, json.dumps(cursor._asdict()).encode() + b"\n")
    except OSError as error:
        raise StorageError(
            f"cursor {path} cannot be written: {error.strerror}; free space or make the folder writable"
        ) from None


def read_cursor(folder: Path | str, sink: str) -> Cursor | None:
    """Return the kept place of a sink, None if it has none; raise RecordError if the file is not a cursor."""
    path = _cursor_path(folder, sink)
    try:
        kept = read_json(path, _Kept)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"cursor {path} cannot be read: {error.strerror}; mend its permissions") from None
    except msgspec.DecodeError:
        raise RecordError(
            f"cursor {path} is not a cursor; remove it and the sink reads the journal from its start"
        ) from None
    return Cursor(kept.segment, kept.offset, kept.seq)


def read_cursors(folder: Path | str) -> dict[str, Cursor]:
    """Return every sink's place, by name. A file that is no cursor counts as a sink that has read nothing."""
    try:
        names = sorted(entry.name for entry in (Path(folder) / CURSOR_FOLDER).iterdir())
    except OSError:
        return {}
    cursors: dict[str, Cursor] = {}
    for name in filter(_SINK_NAME.fullmatch, names):
        try:
            cursor = read_cursor(folder, name)
        except RecordError:
            cursor = Cursor(0, 0, 0)
        if cursor is not None:
            cursors[name] = cursor
    return cursors


def remove_cursor(folder: Path | str, sink: str) -> None:
    """Forget a sink, so that it holds no segment back. Raises StorageError if its file cannot be removed."""
    path = _cursor_path(folder, sink)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cursor {path} cannot be removed: {error.strerror}; make the folder writable") from None


def _cursor_path(folder: Path | str, sink: str) -> Path:
    if not _SINK_NAME.fullmatch(sink):
        raise ValueError(f"sink name {sink!r} must be 1 to 64 letters, digits, '_', '-' or '.', not '.' first")
    return Path(folder) / CURSOR_FOLDER / sink
