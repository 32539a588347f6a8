"""Which segments of a journal are kept: its size bound, and the sinks that have yet to pass each segment."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from controller.journal.cursors import read_cursors
from controller.journal.frames import Cursor
from controller.journal.losses import Loss


@dataclass(slots=True)
class KeptSegment:
    """A segment as its writer knows it: number, path, size in bytes, sequence number of its first frame."""

    number: int
    path: Path
    size: int
    first_seq: int


class Retention:
    """The segments a journal's writer keeps, oldest first, and how the oldest go."""

    __slots__ = ("_folder", "_max_bytes", "_segments")

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._segments: deque[KeptSegment] = deque()

    def add(self, segment: KeptSegment) -> None:
        """Take in the segment that is written from here on."""
        self._segments.append(segment)

    def finish(self, size: int) -> None:
        """Note the final size of the newest segment, in bytes."""
        if self._segments:
            self._segments[-1].size = size

    def collect_garbage(self) -> int:
        """Drop the oldest segments that every sink has passed, never the newest; return how many went.

        With no cursor at all nothing goes. A file that cannot be removed stays, for the next time.
        """
        cursors = read_cursors(self._folder)
        dropped = 0
        while cursors and len(self._segments) > 1 and not self._unread(cursors):
            try:
                self._drop_oldest()
            except OSError:
                break
            dropped += 1
        return dropped

    def make_room(self, reserve: int, next_seq: int, now_ns: int) -> list[Loss]:
        """Drop the oldest segments until `reserve` bytes fit below the bound; return what sinks lose by it.

        `next_seq` is the sequence number behind the newest segment. Raises OSError if a file cannot be removed.
        """
        losses = []
        while self._segments and sum(segment.size for segment in self._segments) + reserve > self._max_bytes:
            loss = self._loss_of_oldest(next_seq, now_ns)
            self._drop_oldest()
            if loss.frames:
                losses.append(loss)
        return losses

    def _drop_oldest(self) -> None:
        self._segments[0].path.unlink(missing_ok=True)
        self._segments.popleft()

    def _unread(self, cursors: dict[str, Cursor]) -> dict[str, Cursor]:
        """Return the sinks, by name, that have not passed the oldest segment."""
        oldest = self._segments[0]
        return {
            sink: cursor
            for sink, cursor in cursors.items()
            if cursor.segment < oldest.number or (cursor.segment == oldest.number and cursor.offset < oldest.size)
        }

    def _loss_of_oldest(self, next_seq: int, now_ns: int) -> Loss:
        """Return what is lost with the oldest segment: all of it without a cursor, else what the slowest sink lacks."""
        oldest = self._segments[0]
        behind = self._segments[1].first_seq if len(self._segments) > 1 else next_seq
        cursors = read_cursors(self._folder)
        unread = self._unread(cursors)
        slowest = min(unread.values(), default=Cursor(0, 0, 0))
        first_seq = max(oldest.first_seq, slowest.seq)
        lost = not cursors or unread
        return Loss(
            reason="bound",
            frames=behind - first_seq if lost else 0,
            lost_bytes=oldest.size - (slowest.offset if slowest.segment == oldest.number else 0),
            first_seq=first_seq,
            last_seq=behind - 1,
            first_ns=now_ns,
            last_ns=now_ns,
            sinks={sink: behind - max(oldest.first_seq, cursor.seq) for sink, cursor in unread.items()},
        )
