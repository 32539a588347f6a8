"""Terms: what is in force for one pass, and the gates that Glassgate adds to those of the engine.

Order and words are those of `controller.gates`; a gate here judges the shape that SGLang selected for a candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.engines.sglang.look import Stop
from controller.gates import EXEMPT, OFF, PASS, REFUSE, WOULD_REFUSE
from controller.vocabulary import Gate, Reason

if TYPE_CHECKING:
    from controller.limits import Limits
    from estimator.batch import BatchEstimator

Triple = tuple[int, int, int]
"""Verdict, observed, limit."""


class UncutShape(NamedTuple):
    """A shape as `PrefillAdder._select_prefill_admission` answers it, where the engine selects none."""

    prefix_len: int
    extend_len: int
    is_chunked: bool


def triple(observed: int, limit: int | None, members: int, refuse: int) -> Triple:
    """A soft gate's check of a candidate that finds `members` in the batch; `refuse` is what it says over the limit."""
    if limit is None:
        return OFF, observed, 0
    return (PASS if observed <= limit else refuse if members else EXEMPT), observed, limit


class Terms:
    """The limits of one knob revision. A change puts another one in its place, between two passes."""

    __slots__ = ("after", "bare", "before", "estimator", "limits", "page", "park", "refuse")

    def __init__(self, limits: Limits, estimator: BatchEstimator | None, *, park: bool) -> None:
        self.limits = limits
        self.estimator = estimator
        self.park = park
        """A continuing chunk without room for one page waits for room."""
        self.page = limits.page
        self.refuse: Final = REFUSE if limits.enforce else WOULD_REFUSE
        self.before = limits.single_request or (limits.max_requests is not None and limits.enforce)
        """Something may stop a candidate before the engine looks at it."""
        soft: tuple[int | None, ...] = (limits.max_extend, limits.max_cached, limits.max_buffer)
        self.after = limits.shared_path or (limits.enforce and any(limit is not None for limit in soft))
        """Something may stop a candidate once the engine has selected its shape."""

        soft = (*soft, limits.max_requests)
        self.bare: Final = not (limits.single_request or limits.shared_path) and all(each is None for each in soft)
        """No gate of Glassgate's is on."""

    def judge_turn(self, members: int) -> Stop | None:
        """What stops a candidate whatever it is, with `members` in the batch already."""
        limits = self.limits
        if limits.single_request:
            return Stop(Gate.BATCH_MODE, Reason.SINGLE_REQUEST, members + 1, 1)
        most = limits.max_requests
        if limits.enforce and most is not None and members >= most:
            return Stop(Gate.REQUEST_COUNT, Reason.LIMIT, members + 1, most)
        return None

    def judge_shape(self, adder: Any, look: Any, shape: Any, whole: int) -> Stop | None:
        """What stops a candidate of the shape that the engine selected; `whole` is all it would compute uncut.

        Only where there are members: none of these gates keeps a lone request out.
        """
        limits, prefix = self.limits, shape.prefix_len
        if limits.max_buffer is not None and self.estimator is not None:
            look.estimate = self.estimator.add(adder.estimate, prefix, shape.extend_len, prefix - look.hit)
        if not look.members:
            return None
        if limits.enforce:
            most = limits.max_extend
            if most is not None:
                charged = adder.extend_sum + self.aligned(whole if limits.shared_path else shape.extend_len)
                if charged > most:
                    return Stop(Gate.EXTEND_TOKENS, limits.extend_reason, charged, most)
            most = limits.max_cached
            if most is not None and adder.cached_sum + prefix > most:
                return Stop(Gate.CACHED_TOKENS, Reason.LIMIT, adder.cached_sum + prefix, most)
            most = limits.max_buffer
            if most is not None and look.estimate is not None and look.estimate.peak_bytes > most:
                return Stop(Gate.BUFFER_BYTES, Reason.LIMIT, look.estimate.peak_bytes, most)
        if limits.shared_path and shape.is_chunked:  # there a later member enters whole or waits
            budget = adder.chunk_budget
            return Stop(Gate.CHUNK_TOKENS, Reason.BUDGET, budget - look.chunk_left + self.aligned(whole), budget)
        return None

    def aligned(self, tokens: int) -> int:
        """Tokens in whole pages."""
        return -(-tokens // self.page) * self.page
