"""QuietRecorder: what happened in a replay, kept in memory as far as figures need it, and nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from controller.engines.replay.summary import Summary, Times
from controller.records import Finish, Retract, StepEnd
from controller.vocabulary import Outcome

if TYPE_CHECKING:
    from controller.decision import PassResult
    from controller.records import AnyRecord
    from controller.request import Capacity
    from estimator.batch import BatchEstimator

_REFUSE = int(Outcome.REFUSE)


class QuietPass(NamedTuple):
    """One pass as far as figures need it."""

    number: int
    start_ns: int
    batch: tuple[tuple[int, ...], ...]
    """Members, see `controller.decision.PassResult`."""
    closed_gate: int
    """-1 when nothing closed the pass."""
    peak_bytes: int
    """Estimated peak; -1 without a model."""


class QuietSummary(Summary):
    """What the loop and its progress need of a summary; the rest is added up from what a QuietRecorder keeps."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.first_token_times = _NoTimes()

    def passed(self, result: PassResult) -> None:
        """Count one pass."""
        del result
        self.passes += 1

    def admitted(self, prompt: int, device_hit: int, host_hit: int, waited_ns: int) -> None:
        """Nothing is added up."""


class _NoTimes(Times):
    """Durations nobody asks for."""

    __slots__ = ()

    def add(self, ns: int) -> None:
        """Nothing is kept."""


class QuietRecorder:
    """Keeps what happened from `from_ns` on, simulated ns, and nothing that is only for reading about decisions."""

    __slots__ = (
        "ends", "estimator", "first_tokens", "from_ns", "passes", "refused", "retractions", "revision", "seen",
    )  # fmt: skip

    def __init__(self, from_ns: int = 0) -> None:
        self.from_ns = from_ns
        self.estimator: BatchEstimator | None = None
        self.passes = 0
        self.revision = 0
        self.seen: list[QuietPass] = []
        """Passes that admitted somebody, in order."""
        self.first_tokens: dict[int, int] = {}
        """By request number, when it had its first token."""
        self.ends: dict[int, tuple[int, int]] = {}
        """By request number, when it was done and how many tokens it had generated."""
        self.refused: list[int] = []
        """Numbers of requests that can never fit."""
        self.retractions = 0

    def note(self, record: AnyRecord) -> None:
        """Keep what there is of a record in it."""
        if isinstance(record, StepEnd):
            for number in record.first_tokens:
                self.first_tokens.setdefault(number, record.end_ns)
        elif isinstance(record, Finish):
            self.ends[record.number] = (record.at_ns, record.generated_tokens)
        elif isinstance(record, Retract) and record.at_ns >= self.from_ns:
            self.retractions += 1

    def passed(
        self, capacity: Capacity, result: PassResult, *, start_ns: int, decide_ns: int, queue: int, queued_tokens: int
    ) -> int:
        """Keep a pass that admitted somebody; its number."""
        del capacity, decide_ns, queue, queued_tokens
        self.passes = number = self.passes + 1
        if start_ns < self.from_ns:
            return number
        batch, decisions, closed, _, estimate, _, _ = result
        if batch:
            peak = -1 if estimate is None else estimate.peak_bytes
            self.seen.append(QuietPass(number, start_ns, batch, -1 if closed is None else closed[0], peak))
        for decision in decisions:
            if decision[1] == _REFUSE:
                self.refused.append(decision[0])
        return number

    def flush(self) -> None:
        """Nothing is pending."""

    def end_repeats(self) -> None:
        """Nothing was held back."""
