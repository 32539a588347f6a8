"""A database held open, with what is remembered of its runs for as long as it stays the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from estimator.errors import RecordError
from store.database import open_for_reading
from store.schema import VERSION, version_of
from ui.view.memory import Memory
from ui.view.presence import Pulse
from ui.view.source import folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from ui.view.clock import Clock
    from ui.view.moment import RunRow
    from ui.view.source import Place

BUSY_MS: Final = 500
"""A database that is locked whole is tried so long before the screen says so, milliseconds."""
PRUNED_SQL: Final = "SELECT coalesce(max(id), 0) FROM pruned"


class Opened:
    """One database at a place. Raises RecordError and StorageError as opening does."""

    def __init__(self, place: Place, base: Path, clock: Clock) -> None:
        self.place = place
        self._base = base
        self._clock = clock
        self._file = _file_of(place.database)
        self.connection = open_for_reading(place.database, busy_ms=BUSY_MS)
        self._pruned = -1
        self._version = -1
        self._memories: dict[int, Memory] = {}
        self._pulses: dict[tuple[str, int], Pulse] = {}

    @property
    def replaced(self) -> bool:
        """Whether another file stands at the path by now."""
        return _file_of(self.place.database) != self._file

    @property
    def changed(self) -> bool:
        """Whether somebody has written since the last `look`. Raises sqlite3.Error."""
        return self._data_version() != self._version

    def look(self) -> None:
        """Note what is read from here on; forget what was pruned. Raises sqlite3.Error, RecordError."""
        self._version = self._data_version()
        version = version_of(self.connection)
        if version != VERSION:
            raise RecordError(
                f"database {self.place.database} was carried to schema version {version} while it was open, this "
                f"Glassgate reads {VERSION}; open it with the one that did that"
            )
        pruned = int(self.connection.execute(PRUNED_SQL).fetchone()[0])
        if pruned != self._pruned:
            self._memories.clear()
        self._pruned = pruned

    def memory(self, run: RunRow) -> Memory:
        """What is remembered of a run; of one run at a time."""
        memory = self._memories.get(run.id)
        if memory is None:
            self._memories.clear()
            memory = self._memories[run.id] = Memory()
        return memory

    def pulse(self, run: RunRow) -> Pulse:
        """The presence of a run."""
        key = run.name, run.rank
        pulse = self._pulses.get(key)
        if pulse is None:
            own = self.place.folder
            if own is None or key != (self.place.run, self.place.rank):
                own = folder_of(run, self.place.database, self._base)
            pulse = self._pulses[key] = Pulse(own, self._clock)
        return pulse

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def _data_version(self) -> int:
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])


def _file_of(path: Path) -> tuple[int, int] | None:
    """What tells one file at a path from another; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
