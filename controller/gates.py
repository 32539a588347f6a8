"""The gate ladder, in evaluation order; one small function per gate.

A gate looks at the pass so far and at what a candidate would add, and answers
(verdict, observed, limit, reason). Observed is the demand with the candidate in it. A gate changes nothing.
Rules marked [SG] are those of SGLang 0.5.23, `PrefillAdder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.vocabulary import Gate, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.admission import AdmissionPass
    from controller.plan import Plan

Check = tuple[int, int, int, Reason]

PASS: Final = int(Verdict.PASS)
REFUSE: Final = int(Verdict.REFUSE)
EXEMPT: Final = int(Verdict.EXEMPT)
OFF: Final = int(Verdict.OFF)
WOULD_REFUSE: Final = int(Verdict.WOULD_REFUSE)
NOT_EVALUATED: Final = int(Verdict.NOT_EVALUATED)


def _soft(batch: AdmissionPass, observed: int, limit: int | None, reason: Reason) -> Check:
    """A limit that stops a batch from growing but keeps no lone request out."""
    if limit is None:
        return OFF, observed, 0, reason
    if observed <= limit:
        return PASS, observed, limit, reason
    if batch.members == 0:
        return EXEMPT, observed, limit, reason
    return (REFUSE if batch.limits.enforce else WOULD_REFUSE), observed, limit, reason


def batch_mode(batch: AdmissionPass, _plan: Plan) -> Check:
    """Context-parallel prefill holds one request a batch unless shared_kv_batching is on."""
    members = batch.members + 1
    if not batch.limits.single_request:
        return OFF, members, 0, Reason.SINGLE_REQUEST
    return (PASS if members == 1 else REFUSE), members, 1, Reason.SINGLE_REQUEST


def request_slots(batch: AdmissionPass, _plan: Plan) -> Check:
    """Running requests, the active chunk and the members hold a request slot each [SG]."""
    taken = batch.slots_taken + 1
    return (PASS if taken <= batch.slots else REFUSE), taken, batch.slots, Reason.SLOTS


def request_count(batch: AdmissionPass, _plan: Plan) -> Check:
    """A batch holds at most max_requests members."""
    return _soft(batch, batch.members + 1, batch.limits.max_requests, Reason.LIMIT)


def kv_capacity(batch: AdmissionPass, plan: Plan) -> Check:
    """Remaining prompt + clipped output + one page a lane stay strictly below the room left [SG].

    Room is free + evictable - reserved - promised, without the candidate's own device hit. What would not fit the
    empty pool, or its empty lanes, is refused for good.
    """
    need = plan.remaining + plan.output + batch.limits.overhead
    room = batch.room - plan.unlocked
    if need + plan.device_hit >= batch.never:
        return REFUSE, need + plan.device_hit, batch.never, Reason.CAN_NEVER
    if need >= room:
        return REFUSE, need, room, Reason.POOL
    if batch.lanes is not None and (short := batch.lanes.short_of(plan)):
        return REFUSE, *short, Reason.LANE
    return PASS, need, room, Reason.POOL


def extend_tokens(batch: AdmissionPass, plan: Plan) -> Check:
    """The page-aligned sum of what the whole batch computes stays within the effective extend limit."""
    return _soft(batch, batch.extend_sum + plan.charged, batch.limits.max_extend, batch.limits.extend_reason)


def cached_tokens(batch: AdmissionPass, plan: Plan) -> Check:
    """Prefixes after the load-back plan, device hits and host loads together, share one limit."""
    return _soft(batch, batch.cached_sum + plan.device_hit + plan.load, batch.limits.max_cached, Reason.LIMIT)


def buffer_bytes(batch: AdmissionPass, plan: Plan) -> Check:
    """The estimated peak of the batch's temporary buffers, the candidate in it, stays within the limit."""
    estimator = batch.estimator
    if estimator is None:
        return OFF, 0, 0, Reason.LIMIT
    # With no compute budget left it adds nothing; `chunk_tokens` says so.
    add = plan.extend > 0
    plan.estimate = estimator.add(batch.estimate, plan.prefix, plan.extend, plan.load) if add else batch.estimate
    return _soft(batch, plan.estimate.peak_bytes, batch.limits.max_buffer, Reason.LIMIT)


def input_tokens(batch: AdmissionPass, plan: Plan) -> Check:
    """The input budget is not spent yet; without chunking the candidate also stays strictly below what is left [SG]."""
    spent, budget = batch.input_spent, batch.limits.input_budget
    if batch.limits.chunk_budget is None and batch.members:
        spent += plan.charged
    return (PASS if spent < budget else REFUSE), spent, budget, Reason.BUDGET


def chunk_tokens(batch: AdmissionPass, plan: Plan) -> Check:
    """At least one page of the compute budget is left; a longer candidate is cut to what is left [SG].

    On the shared path only a first member is cut; any other enters whole or waits. `second_chunk` guards that one
    prompt at most is unfinished; with one budget for the whole pass that budget is spent first.
    """
    budget = batch.limits.chunk_budget
    wanted = batch.chunk_spent + plan.whole
    if budget is None:
        return OFF, wanted, 0, Reason.BUDGET
    if wanted <= budget:
        return PASS, wanted, budget, Reason.BUDGET
    if plan.extend == 0:
        return REFUSE, batch.chunk_spent + batch.limits.page, budget, Reason.BUDGET
    if not plan.cut:
        return REFUSE, wanted, budget, Reason.BUDGET
    if batch.chunk_unfinished:
        return REFUSE, wanted, budget, Reason.SECOND_CHUNK
    return PASS, wanted, budget, Reason.BUDGET


LADDER: Final[tuple[tuple[Gate, Callable[[AdmissionPass, Plan], Check]], ...]] = (
    (Gate.BATCH_MODE, batch_mode),
    (Gate.REQUEST_SLOTS, request_slots),
    (Gate.REQUEST_COUNT, request_count),
    (Gate.KV_CAPACITY, kv_capacity),
    (Gate.EXTEND_TOKENS, extend_tokens),
    (Gate.CACHED_TOKENS, cached_tokens),
    (Gate.BUFFER_BYTES, buffer_bytes),
    (Gate.INPUT_TOKENS, input_tokens),
    (Gate.CHUNK_TOKENS, chunk_tokens),
)

STRICT_GATES: Final = frozenset({Gate.KV_CAPACITY, Gate.INPUT_TOKENS})
"""Gates that refuse at equality, so that the shortfall is one more than the difference."""
