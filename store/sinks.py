"""What a sink is: something that takes a run's frames in order, at its own pace, and says where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.journal import Cursor, Frame


class SinkStatus(NamedTuple):
    """Where one sink of one run stands. Counts since the collector began, times in unix ns."""

    sink: str
    run: str
    rank: int
    cursor: Cursor | None
    """Everything before this place has been delivered for good."""
    delivered: int
    """Records, spans or points, as the sink counts them."""
    left_out: int
    """Left out on purpose: not sampled, or repeated verdicts above the rate a core can send."""
    lost: int
    """Given up for good; each is also counted by reason in the sink's metrics."""
    failures: int
    """Attempts that failed and were, or will be, tried again."""
    last_error: str = ""
    last_delivery_ns: int = 0


class Sink(Protocol):
    """One destination of one run's journal.

    `take` may keep frames and return at once; it must never block for longer than a stated bound, whatever the
    destination does. It may raise StorageError; reading then goes on from `cursor`. `cursor` moves only past what was
    delivered for good, so that a restart begins there, and the sink writes it into the journal itself. A sink may also
    have `left_out_by_reason`, `lost_by_reason` and `failures_by_reason`, which the metrics then show.
    """

    name: str
    """The name under which the journal keeps this sink's cursor."""

    @property
    def cursor(self) -> Cursor | None:
        """Where to begin reading; None at the journal's begin."""

    @property
    def wants(self) -> int:
        """Frames it can take at this moment; 0 while it is behind."""

    def take(self, frames: Sequence[Frame]) -> None:
        """Take the next frames in order."""

    def settle(self, seconds: float) -> bool:
        """Deliver what was taken, for at most so many seconds; False when something is still undelivered."""

    def status(self) -> SinkStatus:
        """Where it stands."""

    def close(self, seconds: float) -> None:
        """Settle for at most so many seconds and let go of everything."""
