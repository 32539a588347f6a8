"""Reading a journal, after the fact or while it is being written."""

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from controller.journal.frames import LOSS, SEGMENT, Cursor, Frame, Parsed, Tail, parse_frames
from controller.journal.losses import Loss
from controller.journal.segments import SegmentFile, SegmentHeader, list_segments, read_header
from estimator.errors import RecordError

WINDOW_BYTES = 1 << 20


class Skipped(NamedTuple):
    """What a reader could not hand over.

    `damaged_bytes` in `stretches` damaged places; `missing`: sequence numbers no frame carried; `stated`: how many
    frames the writer itself declared not written (LOSS frames other than `bound`), which are among the missing.
    """

    damaged_bytes: int
    stretches: int
    missing: int
    stated: int


class JournalReader:
    """Reads the frames of a journal in order and keeps its place, so that it can follow a live writer.

    `start` is where to begin (by default the oldest segment). Iterating hands over the frames there at that moment;
    iterating or polling again goes on from there. Frames of every kind are handed over: DATA, SEGMENT and LOSS.
    Raises RecordError if the folder holds no journal or one of a newer format version, or a file cannot be read.
    """

    def __init__(self, folder: Path | str, *, start: Cursor | None = None) -> None:
        self._folder = Path(folder)
        self._ready: deque[Frame] = deque()
        self._damaged_bytes = self._stretches = self._missing = self._stated = 0
        self._segment: SegmentFile | None = None
        self._descriptor = -1
        self._offset = 0
        self._tail: Tail = "clean"
        self._tail_bytes = 0
        self._header: SegmentHeader | None = None
        # The sequence number expected next; -1 where a damaged header hides it.
        self._expected = -1
        self._begin(start)

    @property
    def cursor(self) -> Cursor:
        """The place just behind the last frame handed over."""
        if self._ready:
            first = self._ready[0]
            return Cursor(first.segment, first.offset, first.seq)
        return Cursor(self._segment.number if self._segment else 0, self._offset, max(self._expected, 0))

    @property
    def skipped(self) -> Skipped:
        """What damage and the writer's stated losses have cost so far; a tail that may yet grow is not in it."""
        return Skipped(self._damaged_bytes, self._stretches, self._missing, self._stated)

    @property
    def tail(self) -> Tail:
        """The end of the newest segment as last seen.

        `clean`; `torn`: a frame's beginning, which a live writer may be finishing and a killed one left behind;
        `corrupt`: bytes that no unfinished frame looks like. It becomes part of `skipped` once frames follow it.
        """
        return self._tail

    @property
    def tail_bytes(self) -> int:
        """Bytes in the tail."""
        return self._tail_bytes

    @property
    def header(self) -> SegmentHeader | None:
        """What heads the segment read up to, or the nearest before it that could be read; None if none could.

        Who polls across segments takes the SEGMENT frames, which come in their place among the others.
        """
        return self._header

    def __iter__(self) -> Iterator[Frame]:
        """Hand over every frame there is, in order."""
        ready = self._ready
        while True:
            while ready:
                yield ready.popleft()
            if not self._fill():
                return

    def poll(self, limit: int | None = None) -> list[Frame]:
        """Return the frames there are by this moment, at most `limit` of them; an empty list if there are none."""
        ready = self._ready
        while (limit is None or len(ready) < limit) and self._fill():
            pass
        if limit is None or limit >= len(ready):
            frames = list(ready)
            ready.clear()
            return frames
        return [ready.popleft() for _ in range(limit)]

    def close(self) -> None:
        """Close the segment file. The reader hands over nothing afterwards."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._segment = None
        self._ready.clear()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, start: Cursor | None) -> None:
        """Open the segment to start in, or the one after it if that has gone."""
        segments = list_segments(self._folder)
        if not segments:
            raise RecordError(f"no journal at {self._folder}: it holds no segment; name a run's journal folder")
        wanted = start.segment if start else 0
        if not any(self._open(segment) for segment in segments if segment.number >= wanted) or not self._segment:
            raise RecordError(
                f"journal {self._folder} ends with segment {segments[-1].number}, reading was to start in {wanted}; "
                "the cursor is another journal's: remove it and read from the start"
            )
        if start is None:
            self._expected = self._header.first_seq if self._header else -1
            return
        self._expected = start.seq
        if self._segment.number == wanted:
            self._offset = start.offset
        if self._offset > os.fstat(self._descriptor).st_size:
            raise RecordError(
                f"journal segment {self._segment.path} ends before byte {self._offset} where reading is to start; "
                "the cursor is another journal's: remove it and read from the start"
            )

    def _open(self, segment: SegmentFile) -> bool:
        """Make segment the one being read; False if it has gone since it was listed."""
        with ExitStack() as refused:
            try:
                descriptor = os.open(segment.path, os.O_RDONLY | os.O_NONBLOCK)
                refused.callback(os.close, descriptor)
                regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
                header = read_header(segment) if regular else None
            except FileNotFoundError:
                return False
            except OSError as error:
                raise RecordError(f"journal segment {segment.path} cannot be read: {error.strerror}") from None
            if not regular:
                raise RecordError(f"journal segment {segment.path} is no regular file; remove it")
            refused.pop_all()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._segment = segment
        self._offset = 0
        self._header = header or self._header
        return True

    def _fill(self) -> bool:
        """Read on until at least one frame is ready; False if there is none yet."""
        while self._segment is not None:
            # Listed before reading: a segment is finished once its successor exists, so its end is then final.
            gone: RecordError | None = None
            successors: list[SegmentFile] = []
            try:
                successors = list_segments(self._folder, self._segment.number)
            except RecordError as error:  # the folder has gone: what is open is still read to its end, and handed over
                gone = error
            if self._read_window(self._segment):
                return True
            if gone is not None and not self._ready:
                raise gone
            if not successors:
                return False
            self._leave_tail()
            if not any(self._open(successor) for successor in successors):
                return False
        return False

    def _read_window(self, segment: SegmentFile) -> bool:
        """Parse from the reader's place to the end of a window, a wider one while it settles nothing."""
        window = WINDOW_BYTES
        while True:
            try:
                buffer = os.pread(self._descriptor, window, self._offset)
            except OSError as error:
                raise RecordError(f"journal segment {segment.path} cannot be read: {error.strerror}") from None
            at_end = len(buffer) < window
            parsed = parse_frames(buffer, segment.mark, segment.number, self._offset, self._expected, at_end=at_end)
            if parsed.frames or at_end:
                self._take(parsed)
                self._tail = parsed.tail if at_end else "clean"
                self._tail_bytes = len(buffer) - parsed.used if at_end else 0
                return bool(parsed.frames)
            window *= 2

    def _take(self, parsed: Parsed) -> None:
        """Count what a window held and move the reader's place behind it."""
        for frame in parsed.frames:
            if frame.kind == SEGMENT:
                self._header = SegmentHeader.decode(frame.payload)
            elif frame.kind == LOSS:
                loss = Loss.decode(frame.payload)
                self._stated += 0 if loss.reason == "bound" else loss.frames
        if self._expected < 0 and parsed.frames:
            # The first segment's header is damaged: what came before its first sound frame is not known.
            self._missing -= parsed.frames[0].seq + 1
        self._ready.extend(parsed.frames)
        self._offset += parsed.used
        self._expected = parsed.expected
        self._missing += parsed.missing
        self._stretches += parsed.stretches
        self._damaged_bytes += parsed.damaged

    def _leave_tail(self) -> None:
        """Count what is left of a finished segment as damage: nothing will complete it."""
        if self._tail_bytes:
            self._stretches += 1
            self._damaged_bytes += self._tail_bytes
        self._tail = "clean"
        self._tail_bytes = 0
