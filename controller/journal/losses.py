"""What a journal could not keep: counted, stated in the journal, and shown."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from controller.journal.segments import Count, Nanoseconds, own_frame


@dataclass(frozen=True, slots=True)
class Loss:
    """Frames the journal does not hold, as its writer states them in a LOSS frame.

    `reason`: `full` (no space), `error` (another failure of the disk), `stall` (appends stayed slow), `too_large`
    (a payload above the limit), `bound` (a segment went at the size bound before every sink had passed it).
    `lost_bytes` counts whole frames, payload and overhead; times are ns of the writer's time base. For `bound`,
    `sinks` holds how many frames each sink had not passed yet; it is empty when no sink has a cursor.
    """

    reason: str
    frames: Count
    lost_bytes: Count
    first_seq: Count
    last_seq: Count
    first_ns: Nanoseconds
    last_ns: Nanoseconds
    sinks: dict[str, Count]

    def encode(self) -> bytes:
        """Return the payload of a LOSS frame."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> "Loss":
        """Read the payload of a LOSS frame; raise RecordError if it is not one."""
        return own_frame(payload, cls, "loss")

    def joined(self, other: "Loss") -> "Loss":
        """Return one loss that covers this one and a later one of the same reason."""
        sinks = {sink: self.sinks.get(sink, 0) + other.sinks.get(sink, 0) for sink in sorted(self.sinks | other.sinks)}
        return Loss(
            reason=self.reason,
            frames=self.frames + other.frames,
            lost_bytes=self.lost_bytes + other.lost_bytes,
            first_seq=min(self.first_seq, other.first_seq),
            last_seq=max(self.last_seq, other.last_seq),
            first_ns=min(self.first_ns, other.first_ns),
            last_ns=max(self.last_ns, other.last_ns),
            sinks=sinks,
        )


@dataclass(frozen=True, slots=True)
class LossTotals:
    """Everything a writer could not keep so far: frames, bytes, first and last time (ns of its time base), reasons.

    With nothing lost the times are 0. `by_reason` counts frames.
    """

    frames: int
    lost_bytes: int
    first_ns: int
    last_ns: int
    by_reason: dict[str, int]


class LossLedger:
    """A writer's losses: those the journal does not state yet, one for each reason, and those it does."""

    __slots__ = ("_before", "_stated", "pending")

    def __init__(self) -> None:
        # Frames by reason that earlier writers of the run stated.
        self._before: dict[str, int] = {}
        self.pending: dict[str, Loss] = {}
        self._stated: dict[str, Loss] = {}

    def add(self, loss: Loss) -> None:
        """Count a loss that the journal is to state."""
        _join(self.pending, (loss,))

    def settle(self, reason: str) -> None:
        """Note that the journal states the pending loss of a reason."""
        _join(self._stated, (self.pending.pop(reason),))

    def carry_over(self, frames_by_reason: dict[str, int]) -> None:
        """Take in what earlier writers of the run stated."""
        for reason, frames in frames_by_reason.items():
            self._before[reason] = self._before.get(reason, 0) + frames

    def stated(self) -> dict[str, int]:
        """Return the frames by reason that the run's journal has stated so far, segments that went included."""
        stated = dict(self._before)
        for reason, loss in self._stated.items():
            stated[reason] = stated.get(reason, 0) + loss.frames
        return stated

    def totals(self) -> LossTotals:
        """Return the sum of all losses, stated or not."""
        losses = [*self._stated.values(), *self.pending.values()]
        by_reason: dict[str, int] = {}
        for loss in losses:
            by_reason[loss.reason] = by_reason.get(loss.reason, 0) + loss.frames
        return LossTotals(
            frames=sum(loss.frames for loss in losses),
            lost_bytes=sum(loss.lost_bytes for loss in losses),
            first_ns=min((loss.first_ns for loss in losses), default=0),
            last_ns=max((loss.last_ns for loss in losses), default=0),
            by_reason=by_reason,
        )


def _join(kept: dict[str, Loss], losses: Iterable[Loss]) -> None:
    for loss in losses:
        kept[loss.reason] = kept[loss.reason].joined(loss) if loss.reason in kept else loss
