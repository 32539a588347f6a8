"""How far the store is behind the journal, from the sizes of its files alone."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from controller.journal.segments import list_segments
from estimator.errors import RecordError

if TYPE_CHECKING:
    from pathlib import Path

_SIGHTINGS: Final = 1_024


class JournalEnd:
    """The end of the journal in a folder, as it was seen from time to time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: deque[tuple[int, tuple[int, int]]] = deque(maxlen=_SIGHTINGS)
        """(when, (segment, bytes)) each time it had grown; the first was there before anybody looked."""

    def look(self, now_ns: int) -> None:
        """Find the end. A journal that cannot be read is as far as it was."""
        try:
            newest = list_segments(self._folder)[-1:]
            end = (newest[0].number, newest[0].path.stat().st_size) if newest else (0, 0)
        except (RecordError, OSError):
            return
        if not self._seen or end > self._seen[-1][1]:
            self._seen.append((now_ns, end))

    def bytes_behind(self, segment: int, offset: int) -> int:
        """Bytes that stand behind a place: those of its own segment, and of the newest one if that is another."""
        if not self._seen:
            return 0
        last_segment, size = self._seen[-1][1]
        if segment == last_segment:
            return max(0, size - offset)
        return size if segment < last_segment else 0

    def since_ns(self, segment: int, offset: int, now_ns: int) -> int | None:
        """How long something has stood behind a place: 0 for nothing, None where it was there before the first look."""
        for place, (at_ns, end) in enumerate(self._seen):
            if end > (segment, offset):
                return now_ns - at_ns if place else None
        return 0
