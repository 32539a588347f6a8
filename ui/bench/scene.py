"""What a pass is measured with: waiting requests, limits, an engine and a journal that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.admission import AdmissionPass, LoadAnswer
from controller.knobs import Knobs
from controller.limits import Limits, Setting, effective
from controller.request import Candidate, Capacity, PrefixMatch

if TYPE_CHECKING:
    from controller.decision import PassResult
    from controller.plan import Plan
    from estimator.batch import BatchEstimator

PAGE: Final = 64
CAPACITY: Final = Capacity(pool_tokens=8_000_000, free_tokens=4_000_000, evictable_tokens=2_000_000)


class NullJournal:
    """A journal that keeps nothing, to measure the record without the write."""

    def append(self, payload: bytes) -> int:
        """Take a frame and forget it."""
        return len(payload)


class FreeEngine:
    """An engine whose loads succeed and which keeps nothing."""

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """Load everything."""
        del candidate
        return LoadAnswer(tokens)

    def commit(self, candidate: Candidate, plan: Plan) -> None:
        """Keep nothing."""


def candidates(count: int) -> list[Candidate]:
    """Waiting requests with a device hit, a host hit and something to compute."""
    match = PrefixMatch(device_tokens=8_192, unlocked_tokens=4_096, host_tokens=4_096, resident_tokens=4_096)
    return [Candidate(number, 14_000 + 64 * (number % 7), 512, match) for number in range(count)]


def limits_for(members: int) -> Limits:
    """Every gate on, and a batch that `members` requests fill."""
    knobs = Knobs.parse(
        {
            "page_size": PAGE,
            "max_requests": members,
            "max_extend_tokens": 1 << 30,
            "max_cached_tokens": 1 << 30,
            "max_buffer_bytes": "1TiB",
            "max_prefill_tokens": 1 << 30,
            "chunked_prefill_size": 1 << 30,
        }
    )
    return effective(knobs, Setting())


def one_pass(
    limits: Limits, queue: list[Candidate], estimator: BatchEstimator | None, capacity: Capacity = CAPACITY
) -> PassResult:
    """One pass that fills its batch and then turns one request away."""
    return AdmissionPass(limits, capacity, estimator).run(iter(queue), FreeEngine())
