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

    __slots__ = (
        "after", "bare", "estimator", "limits", "most_buffer", "most_cached", "most_extend", "most_members", "ordinary",
        "page", "park", "refuse", "shared",
    )  # fmt: skip

    def __init__(self, limits: Limits, estimator: BatchEstimator | None, *, park: bool) -> None:
        self.limits = limits
        self.estimator = estimator
        self.park = park
        """A continuing chunk without room for one page waits for room."""
        self.page = limits.page
        self.refuse: Final = REFUSE if limits.enforce else WOULD_REFUSE
        self.most_members = 1 if limits.single_request else limits.max_requests if limits.enforce else None
        """With so many members nobody is tried; None is no limit."""
        self.shared: Final = limits.shared_path
        watches = limits.max_buffer is not None and estimator is not None
        self.most_extend = limits.max_extend if limits.enforce else None
        self.most_cached = limits.max_cached if limits.enforce else None
        self.most_buffer = limits.max_buffer if limits.enforce and watches else None
        enforced = (self.most_extend, self.most_cached, self.most_buffer)
        self.after: Final = self.shared or any(limit is not None for limit in enforced)
        """Something may stop a candidate once the engine has selected its shape."""
        self.ordinary: Final = not (limits.single_request or self.shared)
        """Prefill is not context-parallel."""
        soft = (limits.max_requests, limits.max_extend, limits.max_cached, limits.max_buffer)
        self.bare: Final = self.ordinary and all(limit is None for limit in soft)
        """No gate of Glassgate's is on."""

    def full(self, members: int) -> Stop:
        """What stops a candidate whatever it is, with the batch full of members."""
        if self.limits.single_request:
            return Stop(Gate.BATCH_MODE, Reason.SINGLE_REQUEST, members + 1, 1)
        return Stop(Gate.REQUEST_COUNT, Reason.LIMIT, members + 1, self.limits.max_requests or 0)

    def judge_shape(self, adder: Any, look: Any, shape: Any) -> Stop | None:
        """What stops a candidate of the shape that the engine selected.

        Only where there are members: none of these gates keeps a lone request out.
        """
        prefix, page = shape.prefix_len, self.page
        if self.most_buffer is not None and self.estimator is not None:
            look.estimate = self.estimator.add(adder.estimate, prefix, shape.extend_len, prefix - look.hit)
        if not look.members:
            return None
        most = self.most_extend
        if most is not None:
            computes = len(look.request.full_untruncated_fill_ids) - prefix if self.shared else shape.extend_len
            charged = adder.extend_sum - -computes // page * page
            if charged > most:
                return Stop(Gate.EXTEND_TOKENS, self.limits.extend_reason, charged, most)
        most = self.most_cached
        if most is not None and adder.cached_sum + prefix > most:
            return Stop(Gate.CACHED_TOKENS, Reason.LIMIT, adder.cached_sum + prefix, most)
        most = self.most_buffer
        if most is not None and look.estimate.peak_bytes > most:
            return Stop(Gate.BUFFER_BYTES, Reason.LIMIT, look.estimate.peak_bytes, most)
        if self.shared and shape.is_chunked:  # there a later member enters whole or waits
            budget, whole = adder.chunk_budget, len(look.request.full_untruncated_fill_ids) - prefix
            return Stop(Gate.CHUNK_TOKENS, Reason.BUDGET, budget - look.chunk_left + self.aligned(whole), budget)
        return None

    def aligned(self, tokens: int) -> int:
        """Tokens in whole pages."""
        return -(-tokens // self.page) * self.page
