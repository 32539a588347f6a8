"""A pipe: one sink of one run, with its own place in the run's journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.journal import JournalReader
from controller.journal.segments import list_segments
from estimator.errors import GlassgateError
from store.lag import NOT_BEHIND, Behind

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.journal import Cursor
    from controller.run_directory import RunDirectory
    from store.sinks import Sink, SinkStatus

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 4.0
_SETTLE_SECONDS: Final = 0.2


class Reasons(NamedTuple):
    """What a sink left out, lost and failed at, by reason."""

    left_out: dict[str, int]
    lost: dict[str, int]
    failures: dict[str, int]


class Pipe:
    """Moves frames from a run's journal into a sink, never more than the sink wants.

    `turn` and `close` are for one thread alone. What goes wrong is kept in `error` and tried again,
    from the sink's own place, after a pause that grows to 4 s.
    """

    def __init__(self, run: RunDirectory, sink: Sink, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.sink = sink
        self.error: GlassgateError | None = None
        self.behind: Behind = NOT_BEHIND
        self.run_is_over = False
        """Set from outside: nothing more will be written into the journal."""
        self.done = False
        """The run is over and all of it is delivered."""
        self.settled = True
        """False once it was closed with something taken and not delivered."""
        self._clock = clock
        self._reader: JournalReader | None = None
        self._place: Cursor | None = sink.cursor
        self._resume_at = self._pause = 0.0

    def turn(self) -> int:
        """Move what the sink wants at this moment, and return how many frames that was."""
        if self.done or self._clock() < self._resume_at:
            return 0
        over = self.run_is_over  # read before the journal is, so that an end is looked for after the last write
        try:
            moved = self._move()
        except GlassgateError as error:
            self._fail(error)
            return 0
        except Exception as error:  # noqa: BLE001 - one sink's defect must not take the other sinks with it
            self._fail(GlassgateError(f"sink {self.sink.name} of run {self.run.path.name} failed: {error!r}"))
            return 0
        if moved is None:
            return 0
        self.error, self._pause = None, 0.0
        if moved == 0 and self.sink.settle(_SETTLE_SECONDS):
            self.done = over
        return moved

    def reasons(self) -> Reasons:
        """What a sink counts by reason, where it does."""
        found = (getattr(self.sink, f"{counted}_by_reason", {}) for counted in Reasons._fields)
        return Reasons(*(dict(by_reason) for by_reason in found))

    def standing(self) -> SinkStatus:
        """What the sink says of itself, with what stopped the pipe if it was not the sink."""
        status = self.sink.status()
        return status if self.error is None else status._replace(last_error=str(self.error))

    def close(self, seconds: float) -> None:
        """Deliver what was taken for at most so many seconds and let go."""
        deadline = self._clock() + seconds
        self._forget_reader()
        self.settled = False
        try:
            self.settled = self.sink.settle(seconds)
            self.sink.close(max(0.0, deadline - self._clock()))
        except GlassgateError as error:
            self.error = error

    def _move(self) -> int | None:
        """Frames moved; None while the sink wants none."""
        wants = self.sink.wants
        if wants <= 0:
            return None
        if self._reader is None:
            if not list_segments(self.run.journal):
                return 0
            self._reader = JournalReader(self.run.journal, start=self._place)
        frames = self._reader.poll(wants)
        if frames:
            self._place = self._reader.cursor
            try:
                self.sink.take(frames)
            except BaseException:
                self._place = self.sink.cursor
                raise
        return len(frames)

    def _fail(self, error: GlassgateError) -> None:
        self._forget_reader()
        self.error = error
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause or _FIRST_PAUSE)
        self._resume_at = self._clock() + self._pause

    def _forget_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
