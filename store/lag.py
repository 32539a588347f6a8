"""How far a sink is behind: the end of a run's journal, and the distance from any place in it to that end."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.journal import Cursor, JournalReader
from controller.journal.segments import list_segments
from estimator.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIGHTINGS: Final = 1024


class Behind(NamedTuple):
    """The distance from a place to the journal's end."""

    frames: int
    bytes: int
    seconds: float
    """Since the oldest frame behind the place was first seen in the journal; 0.0 with none."""


NOT_BEHIND: Final = Behind(0, 0, 0.0)


class JournalHead:
    """The end of the journal in folder, as last looked at. Only sound frames count: a torn tail is not waited for.

    It reads the newest segment once and then follows, so that looking again costs what was written since. `clock` is
    in seconds and only ever goes forward.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._reader: JournalReader | None = None
        self._sightings: deque[tuple[float, int]] = deque()
        self.cursor = Cursor(0, 0, 0)

    def look(self) -> None:
        """Find the end. A journal that is not begun, or cannot be read, is as far as it was."""
        with suppress(RecordError):
            if self._reader is None:
                segments = list_segments(self._folder)
                if not segments:
                    return
                self._reader = JournalReader(self._folder, start=Cursor(segments[-1].number, 0, 0))
            for _ in self._reader:
                pass
            self.cursor = self._reader.cursor
            if not self._sightings or self.cursor.seq > self._sightings[-1][1]:
                self._sightings.append((self._clock(), self.cursor.seq))
                self._thin()

    def behind(self, place: Cursor | None) -> Behind:
        """How far a place is behind the end; None is the journal's beginning."""
        end = self.cursor
        segments = list_segments(self._folder)
        if place is None:
            place = self._beginning(segments[0].number) if segments else end
        frames = max(0, end.seq - place.seq)
        if place.segment >= end.segment:
            size = max(0, end.offset - place.offset) if place.segment == end.segment else 0
        else:
            size = end.offset
            for segment in segments:
                if place.segment <= segment.number < end.segment:
                    with suppress(OSError):
                        size += segment.path.stat().st_size
            size -= place.offset if any(each.number == place.segment for each in segments) else 0
        return Behind(frames, max(0, size), self._since(place.seq) if frames else 0.0)

    def close(self) -> None:
        """Close the journal."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _since(self, seq: int) -> float:
        """Seconds since a frame numbered `seq` or above was first seen."""
        for at, end in self._sightings:
            if end > seq:
                return max(0.0, self._clock() - at)
        return 0.0

    def _thin(self) -> None:
        """Keep a bounded number of sightings: the newer half whole, of the older half every other one."""
        if len(self._sightings) > _SIGHTINGS:
            held = list(self._sightings)
            half = len(held) // 2
            self._sightings = deque([*held[:half:2], *held[half:]])

    def _beginning(self, segment: int) -> Cursor:
        """Where the oldest segment there begins."""
        with suppress(RecordError), JournalReader(self._folder) as reader:
            first = reader.header.first_seq if reader.header is not None else 0
            return Cursor(segment, 0, first)
        return Cursor(segment, 0, 0)
