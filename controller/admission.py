"""AdmissionPass: the deciding loop, one attempt to form a prefill batch from the waiting queue.

Plan, then gate, then commit. Looking allocates nothing; a refused candidate leaves no trace in any cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from controller.decision import PassResult, decision_tuple
from controller.gates import LADDER, NOT_EVALUATED, PASS, REFUSE
from controller.lanes import LaneRoom
from controller.limits import never_from
from controller.plan import Plan
from controller.vocabulary import Gate, HostHit, Outcome, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.limits import Limits
    from controller.request import ActiveChunk, Candidate, Capacity
    from estimator.batch import BatchEstimator

Stop = tuple[Gate, Reason]

_SKIPPED = (NOT_EVALUATED, 0, 0)
_AFTER_CHUNK = tuple(row for row in LADDER if row[0] > Gate.KV_CAPACITY and row[0] != Gate.CACHED_TOKENS)
"""The gates that look at a continuing chunk once it has room; its done tokens are not counted as cached."""


class LoadAnswer(NamedTuple):
    """What a cache answers when asked to load a host hit: all of it, or none and why."""

    loaded_tokens: int
    host: HostHit = HostHit.LOADED
    evicted_tokens: int = 0
    """Device tokens evicted to make room; the one trace a failed load may leave."""


class Engine(Protocol):
    """The two things a pass asks of an engine."""

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """Load a planned host hit; lanes and allocator are checked here."""

    def commit(self, candidate: Candidate, plan: Plan) -> None:
        """Lock the prefix and hold the room of an admitted candidate."""


class AdmissionPass:
    """One pass over the waiting queue. Its state is what the members so far have taken, in tokens unless said."""

    __slots__ = (
        "batch", "cached_sum", "chunk_room", "chunk_spent", "chunk_unfinished", "continuing", "decisions", "estimate",
        "estimator", "extend_sum", "input_spent", "lanes", "limits", "members", "never", "quota", "room", "slots",
        "slots_taken",
    )  # fmt: skip

    def __init__(self, limits: Limits, capacity: Capacity, estimator: BatchEstimator | None = None) -> None:
        self.limits = limits
        self.estimator = estimator
        self.estimate: Any = estimator.empty if estimator is not None else None
        self.never = never_from(capacity.pool_tokens, limits.page, len(capacity.lanes))
        self.quota = capacity.free_tokens + capacity.evictable_tokens  # what a load may use
        # What an admission may use. The reserve may end in a fraction: rounded down it changes no comparison of a
        # demand with the room; a continuing chunk, which fills the room, goes by the rounded-up one.
        self.room = self.quota - math.floor(capacity.reserved_tokens)
        self.chunk_room = self.quota - math.ceil(capacity.reserved_tokens)
        self.lanes = LaneRoom(capacity, limits.page) if capacity.lanes else None
        self.slots = capacity.slots  # requests
        self.slots_taken = capacity.running
        self.members = self.extend_sum = self.cached_sum = self.input_spent = self.chunk_spent = 0
        self.chunk_unfinished = False
        self.continuing = 0  # 1 once a continuing chunk was looked at
        self.batch: list[tuple[int, ...]] = []
        self.decisions: list[tuple[int, ...]] = []

    def run(self, queue: Iterable[Candidate], engine: Engine, active_chunk: ActiveChunk | None = None) -> PassResult:
        """Decide. The queue is read no further than the candidate that closes the pass."""
        if active_chunk is not None and (stop := self.continue_chunk(active_chunk)) is not None:
            return self.close(stop)
        for candidate in queue:
            plan = Plan.of(candidate, self)
            stop, checks = self.climb(plan)
            before: tuple[int, ...] = ()
            if stop is None and plan.load and not plan.take(engine.load_back(candidate, plan.load)):
                before = checks  # the load failed: up the ladder again, with no host hit
                plan.shape(self, load=0)
                stop, checks = self.climb(plan)
            if stop is None:
                outcome = self.admit(plan)
                engine.commit(candidate, plan)
            else:
                outcome = Outcome.REFUSE if stop[1] is Reason.CAN_NEVER else Outcome.WAIT
            self.decisions.append(decision_tuple(plan, outcome, stop, checks, before))
            if outcome is Outcome.WAIT:
                return self.close(stop)
            if outcome is not Outcome.REFUSE and (stop := self.spent()) is not None:
                return self.close(stop)
        return self.close(None)

    def climb(self, plan: Plan) -> tuple[Stop | None, tuple[int, ...]]:
        """One candidate on the ladder: the gate that stopped it, and (verdict, observed, limit) for every gate."""
        checks: tuple[int, ...] = ()
        for gate, check in LADDER:
            verdict, observed, limit, reason = check(self, plan)
            checks += (verdict, observed, limit)
            if verdict == REFUSE:
                return (gate, reason), checks + _SKIPPED * (len(LADDER) - 1 - gate)
        return None, checks

    def spent(self) -> Stop | None:
        """The first budget the pass itself has used up, tested after each admission."""
        limits = self.limits
        if self.room <= 0:
            return Gate.KV_CAPACITY, Reason.POOL
        if self.lanes is not None and min(self.lanes.room) <= 0:
            return Gate.KV_CAPACITY, Reason.LANE
        if self.input_spent >= limits.input_budget:
            return Gate.INPUT_TOKENS, Reason.BUDGET
        if limits.chunk_budget is not None and self.chunk_spent >= limits.chunk_budget:
            return Gate.CHUNK_TOKENS, Reason.BUDGET
        return None

    def admit(self, plan: Plan) -> Outcome:
        """Take from every budget what a member will use; a cut one's output is charged with its last chunk."""
        output = 0 if plan.cut else plan.reserve
        if self.lanes is not None:
            self.lanes.promise(plan, output)
        promised = plan.unlocked + plan.load + plan.charged + self.limits.overhead
        self.quota -= promised
        self.room -= promised + output
        self.slots_taken += 1
        self.members += 1
        self.extend_sum += plan.charged
        self.cached_sum += plan.device_hit + plan.load
        self.input_spent += plan.charged
        self.chunk_spent += plan.charged
        self.chunk_unfinished |= plan.cut
        self.estimate = plan.estimate
        outcome = Outcome.ADMIT_CHUNK if plan.cut else Outcome.ADMIT
        self.batch.append((plan.number, outcome, plan.extend, plan.device_hit, plan.load, plan.done))
        return outcome

    def continue_chunk(self, chunk: ActiveChunk) -> Stop | None:
        """Give the continuing chunk what budget and room allow, or park it; it is the first member.

        SGLang 0.5.23 lets it through with no room left, which crashed a production server; here it waits for room.
        Returns what closes the pass at once, if anything does.
        """
        self.continuing = 1
        plan = Plan.of_chunk(chunk, self)
        kv = self.fit_chunk(plan)
        checks = list(_SKIPPED * len(LADDER))
        checks[3 * Gate.KV_CAPACITY : 3 * Gate.KV_CAPACITY + 3] = kv
        if plan.extend == 0:
            self.decisions.append(decision_tuple(plan, Outcome.PARK, plan.cut_by, tuple(checks), ()))
            return plan.cut_by
        for gate, check in _AFTER_CHUNK:
            checks[3 * gate : 3 * gate + 3] = check(self, plan)[:3]
        outcome = self.admit(plan)
        self.decisions.append(decision_tuple(plan, outcome, None, tuple(checks), ()))
        return self.spent()

    def fit_chunk(self, plan: Plan) -> tuple[int, int, int]:
        """Cut a continuing chunk to the whole pages there is room for, perhaps none; its `kv_capacity` check."""
        page, room, reason, unit = self.limits.page, self.chunk_room, Reason.POOL, 1
        if self.lanes is not None and (lane_room := self.lanes.chunk_room()) < room:
            room, reason, unit = lane_room, Reason.LANE, page * self.lanes.count
        need = plan.charged
        if need > room:
            plan.cut_to(max(0, room), page)
            plan.cut_by = Gate.KV_CAPACITY, reason
        if plan.extend == 0:
            need = page
        return (PASS if plan.extend else REFUSE), -(-need // unit), room // unit

    def close(self, stop: Stop | None) -> PassResult:
        """What the pass decided, and what closed it."""
        looked_at = len(self.decisions) - self.continuing
        batch, decisions = tuple(self.batch), tuple(self.decisions)
        return PassResult(batch, decisions, stop, looked_at, self.estimate, self.quota, self.room)
