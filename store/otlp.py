"""The OTLP sink: one run's frames as spans to a collector, at least once, with bounded memory and no hold on anybody.

A worker thread makes spans of the frames taken, sends them in batches and tries again until they are delivered. The
cursor moves only past frames whose every span was delivered, sampled out, left out on purpose or given up, and what
span-making needs of the frames before it is kept with it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import msgspec

from controller.journal import DATA, SEGMENT, Cursor, JournalReader, SegmentHeader, read_cursor, write_cursor
from controller.records import decode
from controller.whole_file import write_whole
from estimator.errors import RecordError, StorageError
from store.delivery import FINAL, TOO_LARGE, Outlet, otlp_wanted
from store.sinks import SinkStatus
from store.span_state import SpanState
from store.spans import SPANS_PER_SECOND, SpanMaker, resource_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

    from controller.journal import Frame
    from controller.run_directory import RunDirectory

SINK: Final = "otlp"
BATCH_SPANS: Final = 512
QUEUE_FRAMES: Final = 2_000
"""Frames held at most; beyond that `wants` is 0."""
ATTEMPTS: Final = 5
"""A batch that is refused for good is tried this often before it is given up."""
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 10.0
"""Between attempts: the first wait, doubled each time up to the longest."""
KEEP_EVERY_S: Final = 1.0
"""The place is kept this often, so that a killed collector sends at most about this much twice."""
UNREADABLE: Final = "unreadable"
REJECTED: Final = "rejected"
STORAGE: Final = "storage"


class _Kept(msgspec.Struct):
    """What the file beside the run holds."""

    cursor: Cursor
    state: SpanState


class OtlpSink:
    """Sends one run's spans. `take`, `wants`, `status` return at once; `settle` and `close` within their bound.

    Raises UsageError for OTEL_* settings that cannot be used, RecordError for a run or cursor that cannot be read.
    """

    def __init__(
        self,
        run: RunDirectory,
        exporter: SpanExporter | None = None,
        *,
        sampler: Sampler | None = None,
        spans_per_second: int = SPANS_PER_SECOND,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        info = run.info
        self.name = SINK
        self._run, self._rank = info.run_id, info.rank
        self._journal = run.journal
        self._file = run.path / "otlp.state"
        self._first_wait_s = first_wait_s
        self._cursor, state = self._kept()
        state.model = state.model or info.model or ""
        self._maker = SpanMaker(
            info.run_id,
            info.rank,
            resource=resource_of(info.run_id, info.rank, info.engine, _version()),
            sampler=sampler,
            state=state,
            spans_per_second=spans_per_second,
        )
        if state.origin_ns is None and self._cursor is not None:
            self._anchor(self._cursor)
        self._outlet = Outlet(exporter)
        self._frames: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._worker: threading.Thread | None = None
        self._stopping = self._given_up = self._hurry = False
        self._unkept = False
        self._kept_at = 0.0
        self._most = BATCH_SPANS
        self._delivered = self._failures = self._last_delivery_ns = 0
        self._last_error = ""
        self._lost_by: dict[str, int] = {}
        self._failed_by: dict[str, int] = {}
        if self._cursor is None:
            with suppress(StorageError):  # a journal kept on a read-only disk frees nothing
                self._tell_journal(Cursor(0, 0, 0))

    @property
    def cursor(self) -> Cursor | None:
        """Everything before this place has been delivered for good."""
        return self._cursor

    @property
    def wants(self) -> int:
        """Frames it can take at this moment."""
        return max(0, QUEUE_FRAMES - len(self._frames))

    @property
    def left_out_by_reason(self) -> dict[str, int]:
        """Spans left out on purpose, `sampled` or `repeated`."""
        return dict(self._maker.left_out)

    @property
    def lost_by_reason(self) -> dict[str, int]:
        """Spans given up for good, and frames that could not be read."""
        return dict(self._lost_by)

    @property
    def failures_by_reason(self) -> dict[str, int]:
        """Attempts that failed, by the words of `store.delivery`, or `storage`."""
        return dict(self._failed_by)

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames in order."""
        with self._changed:
            self._frames.extend(frames)
            if self._worker is None and not self._stopping:
                # Begun here and not before: a thread does not outlive a fork.
                self._worker = threading.Thread(target=self._work, name=f"otlp {self._run}/{self._rank}", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    def settle(self, seconds: float) -> bool:
        """Deliver what was taken, for at most so many seconds; False when something is still undelivered."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            settled = self._changed.wait_for(lambda: self._settled or not self._working, timeout=max(0.0, seconds))
            self._hurry = False
            return settled and self._settled

    def status(self) -> SinkStatus:
        """Where it stands."""
        return SinkStatus(
            sink=self.name,
            run=self._run,
            rank=self._rank,
            cursor=self._cursor,
            delivered=self._delivered,
            left_out=sum(self._maker.left_out.values()),
            lost=sum(self._lost_by.values()),
            failures=self._failures,
            last_error=self._outlet.trying or self._last_error,
            last_delivery_ns=self._last_delivery_ns,
        )

    def close(self, seconds: float) -> None:
        """Settle for at most so many seconds and let go; what is undelivered stays in the journal for the next time."""
        until = time.monotonic() + seconds
        self.settle(seconds)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        # The exporter's own shutdown keeps no bound, and cuts short what the worker may be in.
        letting_go = threading.Thread(target=self._outlet.close, name="otlp close", daemon=True)
        letting_go.start()
        for thread in (self._worker, letting_go):
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))
        with self._changed:
            self._given_up = True
        if self._worker is None:
            self._outlet.hush()

    @property
    def _settled(self) -> bool:
        return not self._frames and not self._unkept

    @property
    def _working(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _work(self) -> None:
        try:
            self._send_on()
        finally:
            self._outlet.hush()

    def _send_on(self) -> None:
        """What the thread does: frames to spans, spans to the endpoint, then the cursor."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._frames or (self._unkept and self._hurry),
                    timeout=KEEP_EVERY_S if self._unkept else None,
                )
                if self._stopping:
                    return
                frames = list(self._frames)
            spans: list[ReadableSpan] = []
            done = 0
            place = self._cursor
            for frame in frames:
                spans += self._spans_of(frame)
                place = frame.cursor
                done += 1
                if len(spans) >= BATCH_SPANS:
                    break
            if not self._deliver(spans):
                return
            with self._changed:
                if self._given_up:
                    return
                for _ in range(done):
                    self._frames.popleft()
                if done:
                    self._cursor, self._unkept = place, True
            if self._unkept:  # outside the lock: a slow disk holds nobody who calls `take`
                self._keep()
            with self._changed:
                self._changed.notify_all()

    def _spans_of(self, frame: Frame) -> list[ReadableSpan]:
        try:
            if frame.kind == SEGMENT:
                header = SegmentHeader.decode(frame.payload)
                self._maker.anchor(header.monotonic_ns, header.wall_ns)
            return self._maker.spans_of(decode(frame.payload)) if frame.kind == DATA else []
        except Exception as error:  # noqa: BLE001 - checksums fit and records do not; one such frame stops nobody
            _count(self._lost_by, UNREADABLE)
            self._last_error = f"frame {frame.seq} of segment {frame.segment} cannot be read: {error}"
            return []

    def _deliver(self, spans: list[ReadableSpan]) -> bool:
        """Send all of them, however long it takes; False when told to stop before that."""
        sent = attempts = 0
        while sent < len(spans):
            batch = spans[sent : sent + self._most]
            answer = self._outlet.send(batch)
            if not answer.failure:
                sent += len(batch)
                attempts = 0
                self._took(len(batch), answer.rejected, answer.detail)
                continue
            attempts += 1
            self._failures += 1
            _count(self._failed_by, answer.failure)
            self._last_error = f"{answer.failure}: {answer.detail}"
            if answer.failure == TOO_LARGE and len(batch) > 1:
                self._most = (len(batch) + 1) // 2
            elif answer.failure in FINAL and attempts >= ATTEMPTS:
                _count(self._lost_by, answer.failure, len(batch))
                sent += len(batch)
                attempts = 0
            elif not self._wait(attempts):
                return False
        return True

    def _took(self, spans: int, rejected: int, why: str) -> None:
        rejected = min(rejected, spans)
        self._delivered += spans - rejected
        self._last_delivery_ns = time.time_ns()
        if rejected:
            _count(self._lost_by, REJECTED, rejected)
            self._last_error = f"{REJECTED}: {why or 'the endpoint threw spans away'}"

    def _wait(self, attempts: int) -> bool:
        """Wait before the next attempt; False when told to stop."""
        seconds = min(LONGEST_WAIT_S, self._first_wait_s * 2 ** min(attempts - 1, 10))
        with self._changed:
            hurried = self._hurry
            self._changed.wait_for(lambda: self._stopping or (self._hurry and not hurried), timeout=seconds)
            return not self._stopping

    def _keep(self) -> None:
        """Keep the place, and what span-making knows at it, if that is due."""
        now = time.monotonic()
        if self._cursor is None or (now - self._kept_at < KEEP_EVERY_S and not (self._hurry and not self._frames)):
            return
        self._kept_at = now
        kept = msgspec.msgpack.encode(_Kept(self._cursor, self._maker.state))
        try:
            write_whole(self._file, kept)
            self._tell_journal(self._cursor)
        except (OSError, StorageError) as error:
            self._last_error = f"the place cannot be kept at {self._file}: {error}"
            self._failures += 1
            _count(self._failed_by, STORAGE)
            self._hurry = False
            return
        self._unkept = False

    def _kept(self) -> tuple[Cursor | None, SpanState]:
        """The place and the state kept last. Without the journal's cursor it is as if nothing had been sent."""
        begun = SpanState(self._run, self._rank)
        cursor = read_cursor(self._journal, SINK)
        if cursor is None or cursor == Cursor(0, 0, 0):
            return None, begun
        with suppress(OSError, msgspec.DecodeError):
            kept = msgspec.msgpack.decode(self._file.read_bytes(), type=_Kept)
            state = kept.state
            if (state.run, state.rank) == (self._run, self._rank) and kept.cursor >= cursor:
                return kept.cursor, state
        return cursor, begun

    def _tell_journal(self, cursor: Cursor) -> None:
        """Say in the journal's folder what it need not keep for this sink."""
        write_cursor(self._journal, SINK, cursor)

    def _anchor(self, cursor: Cursor) -> None:
        """Where the run's start is behind the cursor and its state is gone, a segment's header ties the clock down."""
        with suppress(RecordError), JournalReader(self._journal, start=cursor) as reader:
            if reader.header is not None:
                self._maker.anchor(reader.header.monotonic_ns, reader.header.wall_ns)


def open_otlp(run: RunDirectory) -> OtlpSink | None:
    """The sink that the environment asks for, None if it asks for none. Raises as `OtlpSink` does."""
    return OtlpSink(run) if otlp_wanted() else None


def _count(counts: dict[str, int], reason: str, number: int = 1) -> None:
    counts[reason] = counts.get(reason, 0) + number


def _version() -> str:
    try:
        return version("glassgate")
    except PackageNotFoundError:
        return ""
