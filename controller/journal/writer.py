"""JournalWriter: frames appended to segments on a local disk, so that a killed engine loses nothing it wrote.

Payloads are bytes made elsewhere; `frames` holds the byte format, `reader` reads it.
"""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from controller.journal.frames import (
    DATA,
    FORMAT,
    LOSS,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    OVERHEAD_BYTES,
    SEGMENT,
    Cursor,
    frame_builder,
)
from controller.journal.losses import Loss, LossLedger, LossTotals
from controller.journal.reader import JournalReader
from controller.journal.retention import KeptSegment, Retention
from controller.journal.segments import SegmentHeader, list_segments, read_header, segment_name
from controller.whole_file import FILE_MODE, make_folders
from estimator.errors import KnobError, RecordError, StorageError

LOST: Final = -1
"""What `append` returns for a frame that was counted as lost instead of written."""
DEFAULT_MAX_BYTES: Final = 2 << 30
# Removing a segment takes an engine's thread about a millisecond for each 5 MiB.
DEFAULT_SEGMENT_BYTES: Final = 8 << 20
MIN_SEGMENT_BYTES: Final = 1024
SLOW_APPEND_NS: Final = 5_000_000
SLOW_APPENDS: Final = 3
# Room kept beside the longest payload for the segment header and stated losses.
_RESERVE_BYTES: Final = 4096
_FULL_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_SEGMENT_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND


class JournalWriter:
    """Appends frames to the journal in folder, one write a frame, for one thread of one process.

    A folder that holds a journal of the same run is continued in a new segment.

    - `max_bytes` bounds all segments together, `segment_bytes` each one (default 8 MiB, at most a quarter of
      `max_bytes`). At the bound the oldest segment goes; if a sink has not passed it that is a counted loss.
    - `on_full`: when the disk refuses a frame, `lose` counts it and tries again every `retry_ns`; `raise` raises
      StorageError, and the frames before stay readable.
    - `stall`: when three appends running took over 5 ms each, `lose` counts frames instead of writing them, but for a
      try every `retry_ns`; `wait` goes on writing.
    - `clock` is the time base of the record (ns), `wall_clock` ns since the epoch, `stopwatch` (ns) times the appends.

    Raises StorageError if the journal cannot be begun, RecordError if the folder holds another run's, KnobError for
    sizes that cannot be.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        run_id: str,
        rank: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        segment_bytes: int | None = None,
        on_full: Literal["lose", "raise"] = "lose",
        stall: Literal["lose", "wait"] = "lose",
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
        stopwatch: Callable[[], int] = time.monotonic_ns,
        retry_ns: int = 1_000_000_000,
    ) -> None:
        self._folder = Path(folder)
        self._run_id, self._rank = run_id, rank
        self._max_bytes = max_bytes
        self._segment_bytes = _checked_segment_bytes(max_bytes, segment_bytes)
        self._raise_when_full, self._lose_when_slow = on_full == "raise", stall == "lose"
        self._clock, self._wall_clock, self._stopwatch = clock, wall_clock, stopwatch
        self._retry_ns, self._retry_at = retry_ns, 0
        self._trouble: str | None = None
        self._slow_appends = 0
        self._losses = LossLedger()
        self._retention = Retention(self._folder, max_bytes)
        self._write: Callable[[int, bytes], int] = os.write
        if self._lose_when_slow:  # an engine has other threads, which must not hold an append up
            from controller.journal.at_once import write_at_once  # noqa: PLC0415 - a reader needs no ctypes

            self._write = write_at_once
        self._descriptor = -1
        # Of the current segment: its number, its size, the size reserved for it, and the size up to which an append is
        # plain (-1 when something is to be done first).
        self._number = self._offset = self._reserved = 0
        self._limit = -1
        self._next_seq = 0
        try:
            make_folders(self._folder)
            self._continue_run()
            self._begin_segment(0)
        except OSError as error:
            raise StorageError(
                f"journal {self._folder} cannot be begun: {error.strerror}; free space or name a writable folder"
            ) from None
        self._set_limit()

    @property
    def folder(self) -> Path:
        """The journal's folder."""
        return self._folder

    @property
    def next_seq(self) -> int:
        """The sequence number the next append takes."""
        return self._next_seq

    @property
    def trouble(self) -> str | None:
        """Why frames are being counted as lost at present: `full`, `error` or `stall`; None while writing works."""
        return self._trouble

    @property
    def losses(self) -> LossTotals:
        """Everything lost since this writer began, whether the journal states it yet or not."""
        return self._losses.totals()

    def append(self, payload: bytes) -> int:
        """Append one frame and return its sequence number, or LOST if it was counted as lost.

        What this returned a number for survives the death of the process. Raises StorageError only with
        `on_full="raise"`.
        """
        end = self._offset + len(payload) + OVERHEAD_BYTES
        if end > self._limit:
            return self._append_with_care(payload)
        seq = self._next_seq
        frame = self._build(payload, seq)
        # Moved on before the write, so that an exception from a signal handler cannot make a number be used twice.
        self._next_seq = seq + 1
        self._offset = end
        watch = self._stopwatch
        begun = watch()
        try:
            written = self._write(self._descriptor, frame)
        except OSError:
            written = 0
        if written != len(frame):
            self._take_back(written)
            self._next_seq = seq
            return self._append_with_care(payload)
        if watch() - begun > SLOW_APPEND_NS:
            self._note_slow()
        elif self._slow_appends:
            self._slow_appends = 0
        return seq

    def collect_garbage(self) -> int:
        """Drop the oldest segments that every sink's cursor has passed; return how many went.

        With no cursor at all nothing goes. Called at each change of segment.
        """
        return self._retention.collect_garbage()

    def close(self) -> None:
        """State any loss not yet in the journal, if the disk lets it, and close the segment. Appending is over."""
        if self._descriptor < 0:
            return
        if self._losses.pending:
            with contextlib.suppress(OSError):
                self._state_losses()
        os.close(self._descriptor)
        self._descriptor = self._limit = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append_with_care(self, payload: bytes) -> int:
        """Append when something is out of the ordinary: a full segment, a loss to state, a disk that refused."""
        if self._descriptor < 0:
            raise ValueError("the journal writer is closed")
        size = len(payload) + OVERHEAD_BYTES
        if len(payload) > MAX_PAYLOAD_BYTES or size + _RESERVE_BYTES > self._max_bytes:
            if self._raise_when_full:
                limit = min(MAX_PAYLOAD_BYTES, self._max_bytes - OVERHEAD_BYTES - _RESERVE_BYTES)
                raise StorageError(
                    f"journal {self._folder}: a payload of {len(payload)} bytes is above the limit of {limit}; "
                    "raise max_bytes or record less in one frame"
                )
            return self._lose("too_large", size)
        if self._trouble is not None and self._stopwatch() < self._retry_at:
            return self._lose(self._trouble, size)
        try:
            return self._append_now(payload)
        except OSError as error:
            if self._raise_when_full:
                raise StorageError(
                    f"journal {self._folder} cannot take frame {self._next_seq} ({size} bytes): {error.strerror}; "
                    "free space and go on, the frames before it are readable"
                ) from None
            self._trouble = "full" if error.errno in _FULL_ERRNOS else "error"
            self._retry_at = self._stopwatch() + self._retry_ns
            return self._lose(self._trouble, size)

    def _append_now(self, payload: bytes) -> int:
        """State losses and write the frame, in a new segment if this one has no room. Raises OSError."""
        size = len(payload) + OVERHEAD_BYTES
        # A second time only if what went at the bound made the stated losses longer than the room there was.
        while self._offset + (wanted := sum(map(len, self._loss_frames().values())) + size) > self._reserved:
            self._begin_segment(wanted)
        seq = self._next_seq
        begun = self._stopwatch()
        self._state_losses()
        self._write_all(self._build(payload, seq))
        slow = self._stopwatch() - begun > SLOW_APPEND_NS
        self._next_seq = seq + 1
        if slow and self._trouble == "stall":
            self._retry_at = self._stopwatch() + self._retry_ns
            return seq
        self._trouble = None
        self._set_limit()
        if slow:
            self._note_slow()
        else:
            self._slow_appends = 0
        return seq

    def _loss_frames(self) -> dict[str, bytes]:
        """Return the frame that states each pending loss; they carry the number of the next frame and use up none."""
        return {
            reason: self._build_loss(loss.encode(), self._next_seq) for reason, loss in self._losses.pending.items()
        }

    def _state_losses(self) -> None:
        """Write what is pending, a frame at a time: a reader may take what is whole, which then must not be cut off."""
        for reason, frame in self._loss_frames().items():
            self._write_all(frame)
            self._losses.settle(reason)

    def _write_all(self, frame: bytes) -> None:
        """Write the bytes of a frame at once, trying twice, or none of them and raise OSError."""
        failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for _ in range(2):
            try:
                written = self._write(self._descriptor, frame)
            except OSError as error:
                failure = error
            else:
                if written == len(frame):
                    self._offset += written
                    return
                if not self._take_back(written):
                    break
            self.collect_garbage()
        raise failure

    def _take_back(self, written: int) -> bool:
        """Cut off the last `written` bytes, a part of a frame; False if that fails and a new segment is due."""
        try:
            self._offset = os.fstat(self._descriptor).st_size - written
            if written:
                os.ftruncate(self._descriptor, self._offset)
        except OSError:
            self._reserved = 0
            return False
        return True

    def _begin_segment(self, size: int) -> None:
        """Make a segment with room for frames of `size` bytes and write its header. Raises OSError."""
        # Until it succeeds the current segment, which may have gone at the bound, takes no more frames.
        self._reserved = 0
        if self._descriptor >= 0:
            self._retention.finish(os.fstat(self._descriptor).st_size)
        self._retention.collect_garbage()
        number, seq, mark, now = self._number + 1, self._next_seq, MAGIC + secrets.token_bytes(4), self._clock()
        header = SegmentHeader(
            FORMAT, self._run_id, self._rank, number, seq, now, self._wall_clock(), self._losses.stated()
        )
        frame = frame_builder(mark, SEGMENT)(header.encode(), seq)
        reserve = max(self._segment_bytes, len(frame) + size)
        for loss in self._retention.make_room(reserve, seq, now):
            self._losses.add(loss)
        path = self._folder / segment_name(number, mark)
        descriptor = os.open(path, _SEGMENT_FLAGS, FILE_MODE)
        # A reader may have opened it by now and waits there for the next number, even where the file has to go again.
        self._number = number
        with contextlib.ExitStack() as undo:
            undo.callback(path.unlink, missing_ok=True)
            undo.callback(os.close, descriptor)
            if self._write(descriptor, frame) != len(frame):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            undo.pop_all()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._offset, self._reserved = descriptor, len(frame), reserve
        self._build, self._build_loss = frame_builder(mark, DATA), frame_builder(mark, LOSS)
        self._retention.add(KeptSegment(number, path, reserve, seq))

    def _set_limit(self) -> None:
        """Allow plain appends up to the end of the segment, unless there is trouble or a loss to state."""
        self._limit = -1 if self._trouble or self._losses.pending else self._reserved

    def _note_slow(self) -> None:
        """Count a slow append, and give up writing for a while if there were too many running."""
        self._slow_appends += 1
        if self._lose_when_slow and self._slow_appends >= SLOW_APPENDS:
            self._trouble = "stall"
            self._retry_at = self._stopwatch() + self._retry_ns
            self._set_limit()

    def _lose(self, reason: str, size: int) -> int:
        """Count a frame as lost. It uses up its sequence number, so that readers see the gap."""
        seq, now = self._next_seq, self._clock()
        self._next_seq = seq + 1
        self._losses.add(Loss(reason, 1, size, seq, seq, now, now, {}))
        self._set_limit()
        return LOST

    def _continue_run(self) -> None:
        """Take in the segments an earlier writer of this run left. Raises RecordError if they are another run's."""
        segments = list_segments(self._folder)
        headers = [read_header(segment) for segment in segments]
        for header in headers:
            if header and (header.run_id, header.rank) != (self._run_id, self._rank):
                raise RecordError(
                    f"journal {self._folder} is of run {header.run_id} rank {header.rank}, "
                    f"not of run {self._run_id} rank {self._rank}; give this run a folder of its own"
                )
        if not segments:
            return
        # Read from the newest sound header: a writer killed at a change of segment leaves one without a header.
        newest = next((header for header in reversed(headers) if header), None)
        start = Cursor(newest.segment, 0, newest.first_seq) if newest else None
        with JournalReader(self._folder, start=start) as reader:
            for frame in reader:
                if frame.kind == LOSS:
                    loss = Loss.decode(frame.payload)
                    self._losses.carry_over({loss.reason: loss.frames})
            self._next_seq = reader.cursor.seq
        self._losses.carry_over(newest.lost if newest else {})
        self._number = segments[-1].number
        kept: list[KeptSegment] = []
        first_seq = self._next_seq
        for segment, header in zip(reversed(segments), reversed(headers), strict=True):
            # Where a header is damaged, its numbers are told with the segment before.
            first_seq = header.first_seq if header else first_seq
            kept.append(KeptSegment(segment.number, segment.path, segment.path.stat().st_size, first_seq))
        for kept_segment in reversed(kept):
            self._retention.add(kept_segment)


def _checked_segment_bytes(max_bytes: int, segment_bytes: int | None) -> int:
    """Return the size of a segment in bytes; raise KnobError if it or the bound cannot be."""
    least = 4 * MIN_SEGMENT_BYTES
    if max_bytes < least:
        raise KnobError(f"journal max_bytes is {max_bytes}, the least is {least}; give the journal more room")
    if segment_bytes is None:
        return min(DEFAULT_SEGMENT_BYTES, max_bytes // 4)
    if not MIN_SEGMENT_BYTES <= segment_bytes <= max_bytes // 2:
        raise KnobError(
            f"journal segment_bytes is {segment_bytes}, it must lie between {MIN_SEGMENT_BYTES} and half of max_bytes, "
            f"{max_bytes // 2}; leave it out for the default"
        )
    return segment_bytes
