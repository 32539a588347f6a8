"""Desk: what Glassgate keeps of one SGLang scheduler, pass by pass; the adder reports to it.

Whatever fails in here is said once, and the stock class decides from then on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.engines.sglang import causes
from controller.engines.sglang.ledger import RequestLedger
from controller.engines.sglang.look import Stop
from controller.engines.sglang.pool import evictable_of
from controller.vocabulary import Gate, HostHit, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.engines.plugin import EngineRecord
    from controller.engines.sglang.hits import LoadWatch
    from controller.engines.sglang.look import Look
    from controller.engines.sglang.terms import Terms


class Found(NamedTuple):
    """The pool as a pass finds it, with the fields of `controller.request.Capacity` that a record holds. Tokens.

    What that class checks holds by itself in an engine, and costs a microsecond and a half.
    """

    free_tokens: int
    evictable_tokens: int
    reserved_tokens: float
    running: int
    lanes: tuple[()] = ()


class Desk:
    """One scheduler's desk. Its methods run in the scheduler's thread."""

    def __init__(self, record: EngineRecord, terms: Terms, *, aborts_never: bool = False) -> None:
        self.record = record
        self.ledger = RequestLedger(record)
        self.terms = terms
        """In force from the next pass on."""
        self.aborts_never = aborts_never
        self.loads: LoadWatch | None = None
        """None without a host cache that can be watched."""
        self.holders: Callable[[], Any] = tuple
        """Requests beside the running ones that hold KV and will give it back."""
        self.failed = False
        self.on_failure: Callable[[], None] | None = None
        self.adder: Any = None
        self.found = Found(0, 0, 0, 0)
        self.slots_left = 0
        self.skips: dict[int, Stop] = {}
        """Why the engine's loop passed over a candidate, by the identity of its request."""
        self.doomed: list[Any] = []
        """Requests that can never fit and are to be aborted once the pass is over."""
        self.no_hit = HostHit.DISABLED
        """What a candidate without a host hit has."""

    def fail(self, error: BaseException) -> None:
        """Something of ours failed: say so once, and let the stock class decide from here on."""
        if self.failed:
            return
        self.failed = True
        self.record.faults.add(
            "sglang.pass", error, "the stock class decides from here on, and nothing more is recorded"
        )
        self.record.stand_aside(f"a pass failed: {type(error).__name__}: {error}")
        if self.on_failure is not None:
            self.on_failure()

    # What the adder asks

    def open(self, adder: Any) -> Terms:
        """A pass begins: its terms, with budgets that an operator has lowered."""
        terms, limits = self.terms, self.terms.limits
        budget = adder.memory_budget
        mixed = budget.current_offset
        if limits.input_budget - mixed < adder.rem_input_tokens or limits.shared_path:
            adder.rem_input_tokens = limits.input_budget - mixed
        if limits.chunk_budget is not None and adder.rem_chunk_tokens is not None:
            adder.rem_chunk_tokens = min(adder.rem_chunk_tokens, limits.chunk_budget - mixed)
        self._find(adder.tree_cache, adder.token_to_kv_pool_allocator, adder.running_batch, budget.total_offset)
        self.adder = adder
        if terms.most_buffer is not None and terms.estimator is not None:
            adder.estimate = terms.estimator.empty
        return terms

    def look_around(self, scheduler: Any, running_batch: Any) -> None:
        """The pool as a pass finds it that made no adder, without what is promised to running requests."""
        self._find(scheduler.tree_cache, scheduler.token_to_kv_pool_allocator, running_batch, 0)

    def _find(self, tree: Any, allocator: Any, running: Any, reserved: float) -> None:
        count = 0 if running is None else len(running.reqs)
        self.found = Found(allocator.available_size(), evictable_of(tree), reserved, count)

    def parks(self, adder: Any, look: Look) -> bool:
        """Whether the continuing chunk waits for room; with less room than it wants it is cut to whole pages.

        SGLang lets it through with no room left, which crashed a production server. It is never parked where nothing
        would give KV back.
        """
        terms, left = self.terms, adder.rem_chunk_tokens
        if left is None or adder.terms is None or adder.dllm_config is not None or not causes.one_pool(adder):
            return False  # nothing is cut, or the engine has rules of its own
        room = math.floor(adder.memory_budget.remaining_total)
        want = terms.aligned(min(left, len(look.request.full_untruncated_fill_ids) - look.prefix))
        look.tried = (0, want, room, None)
        if want <= room:
            return False
        if room > 0:
            look.said = Stop(Gate.KV_CAPACITY, Reason.POOL, want, room)
        if not terms.park:
            return False
        whole = max(0, room) // terms.page * terms.page
        if whole:
            limit = adder.chunked_req_limit
            adder.chunked_req_limit = whole if limit is None else min(limit, whole)
            return False
        running = adder.running_batch
        if not (running is not None and running.reqs) and not self.holders():
            return False
        look.said = look.stop = Stop(Gate.KV_CAPACITY, Reason.POOL, terms.page, room)
        return True

    def loaded(self, look: Look) -> None:
        """A member with a host hit is in the batch: what became of the hit."""
        look.loaded = look.request.host_loaded_length
        if self.loads is not None:
            self.loads.tell(look)

    def aborts(self, adder: Any, look: Look) -> bool:
        """Whether a candidate that can never fit leaves the queue, so that the loop goes on behind it."""
        if not self.aborts_never or not causes.never_fits(adder, look):
            return False
        look.doomed = True
        self.doomed.append(look)
        # The engine takes back what it lent such a candidate only where the loop ends at it.
        return not look.request.kv.holds_mamba
