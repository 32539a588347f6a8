"""SchedulerWatch: what Glassgate sees of one vLLM scheduler, step by step, and the soft gates it adds to its loop.

Whatever fails in here makes the watch stand aside: the scheduler goes on as the stock one, and the fault is said once.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vllm.v1.request import RequestStatus

from controller.engines.vllm.ledger import RequestLedger
from controller.engines.vllm.look import JOINED, LOADING, LOOKAHEAD, NO_ROOM, SKIPPED, VETOED, Look
from controller.engines.vllm.passes import describe
from controller.engines.vllm.steps import StepLedger
from controller.knob_turning import answer
from controller.vocabulary import Gate, HostHit, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controller.engines.plugin import EngineRecord
    from controller.engines.vllm.passes import Unlooked
    from controller.engines.vllm.pool import KvPool
    from controller.engines.vllm.soft import SoftGates
    from controller.limits import Setting
    from controller.request import Capacity

_BLOCKED: Final = {
    RequestStatus.WAITING_FOR_REMOTE_KVS: (Gate.LOAD_BACK, Reason.LOADING),
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: (Gate.REQUEST_STATE, Reason.GRAMMAR),
    RequestStatus.WAITING_FOR_STREAMING_REQ: (Gate.REQUEST_STATE, Reason.MORE_INPUT),
}
_STALE: Final = (Gate.REQUEST_STATE, Reason.STALE_OUTPUT)
_LOOKUP: Final = (Gate.LOAD_BACK, Reason.LOOKUP)
_TRANSFER: Final = (Gate.ENCODER, Reason.TRANSFER)
_FRESH: Final = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class Found(NamedTuple):
    """The pool as a step finds it, with the fields of `controller.request.Capacity` that a record holds. Tokens.

    What that class checks holds by itself in an engine, and costs a microsecond and a half.
    """

    free_tokens: int
    reserved_tokens: int
    running: int
    evictable_tokens: int = 0
    lanes: tuple[()] = ()


def _contained(method: Callable[..., Any]) -> Callable[..., Any]:
    """What fails in a method of the watch goes no further, and the watch stands aside."""

    @functools.wraps(method)
    def guarded(self: SchedulerWatch, *args: Any, **keywords: Any) -> Any:
        try:
            return method(self, *args, **keywords)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.stand_aside(method.__name__, error)
            return None

    return guarded


class SchedulerWatch:
    """One scheduler's watch. Its methods are called by `AdmissionMixin`, in the scheduler's thread.

    `fixed` names the knobs that this engine cannot turn while it runs, and why; `host_cache` says that the engine's
    connector is a cache on the host, so that a hit may be left where it is.
    """

    def __init__(
        self,
        scheduler: Any,
        record: EngineRecord,
        pool: KvPool,
        gates: SoftGates,
        setting: Setting,
        *,
        fixed: Mapping[str, str],
        host_cache: bool,
    ) -> None:
        self.scheduler = scheduler
        self.record, self.pool, self.gates = record, pool, gates
        self.requests, self.steps = RequestLedger(record), StepLedger(record)
        self._setting, self._fixed, self._host_cache = setting, fixed, host_cache
        self.open = False
        """A pass is going on."""
        self.looks: list[Look] = []
        """What the loop did with each waiting request it took up, in order."""
        self.chunks: list[tuple[Any, int, int]] = []
        """Prompts that run and are computed further: (request, tokens done before, tokens of this step)."""
        self.head: Any = None
        """The first in the queue when the step began."""
        self.unlooked: Unlooked | None = None
        self.start_ns = self.queue = self.running = self.before_tokens = self._queued_tokens = 0
        self.defers = False
        """The step puts prompts off."""
        self.no_chunk = 0
        """What kept the step from a chunk of the request it looked at last, as in `look`; 0 where nothing did."""
        self.given_back = -1
        """Tokens that running requests gave back in this step; -1 with none given back."""
        self._current: Look | None = None
        self._boundary = threading.Lock()
        """Held while a pass goes on: knobs are turned between two of them, by whichever thread comes first."""
        record.when_taken = self.answer_meanwhile
        self._manager, self._connector = scheduler.kv_cache_manager, scheduler.connector
        self._hooks_allocate = self._hooks_match = False
        self._stock_allocate: Callable[..., Any] = self._manager.allocate_slots
        self._stock_match: Callable[..., Any] = getattr(self._connector, "get_num_new_matched_tokens", _no_match)
        self._stock_reserve: Callable[..., int] = scheduler._reserve_prefill_lookahead  # noqa: SLF001 - stood in for
        if scheduler.num_prefill_lookahead > 1:  # it is called for every request of every step, else to no effect
            scheduler._reserve_prefill_lookahead = self._reserve  # noqa: SLF001 - as above

    def stand_aside(self, what: str, error: BaseException) -> None:
        """Leave the scheduler to itself from here on: something of ours failed."""
        self.open = False
        self.let_go()
        self.scheduler.__dict__.pop("_reserve_prefill_lookahead", None)
        self.scheduler._glassgate = None  # noqa: SLF001 - our own attribute
        lost = "the stock scheduler decides from here on, and nothing is recorded"
        self.record.faults.add(f"vllm.{what}", error, lost)
        self.record.stand_aside(f"{what} failed: {type(error).__name__}: {error}")

    # A pass

    @_contained
    def before(self, throttle_prefills: bool = False) -> None:
        """A step begins that looks at waiting requests or computes prompts; knobs are turned here."""
        record, scheduler = self.record, self.scheduler
        self._boundary.acquire()  # let go of in `after`
        while record.taken:
            self._turn(record.taken.popleft())
        waiting, holding = scheduler.waiting, scheduler.kv_holding_waiting
        held = len(holding)
        self.queue = queue = len(waiting) + held
        inflight = scheduler._inflight_prefills  # noqa: SLF001 - the stock loop's own state
        if not queue and not inflight:
            return
        self.start_ns = record.now
        self.looks, self.chunks = [], []
        self._current = None
        self.given_back = -1
        self.no_chunk = 0
        self.head = (holding if held else waiting).peek_request() if queue else None
        self._queued_tokens = self.requests.queued_tokens
        # A load in flight holds KV and will run: an engine that only waits for one is not idle.
        self.running = len(scheduler.running) + held
        self.before_tokens = self.pool.free_tokens
        self.defers = bool(throttle_prefills) and self._defers()
        self.gates.begin()
        self.open = True
        if inflight:
            self._hook_allocate()

    def let_go(self) -> None:
        """Take the hooks out again."""
        if self._hooks_allocate:
            self._hooks_allocate = False
            self._manager.allocate_slots = self._stock_allocate
        if self._hooks_match:
            self._hooks_match = False
            self._connector.get_num_new_matched_tokens = self._stock_match

    @_contained
    def after(self, output: Any) -> None:
        """The step is decided: record the pass."""
        try:
            if self.open:
                self._record(output)
        finally:
            self.open = False
            if self._boundary.locked():
                self._boundary.release()

    def answer_meanwhile(self) -> None:
        """Answer knob requests while no pass goes on. Another thread calls this: an idle engine has no next step."""
        if self._boundary.acquire(blocking=False):
            try:
                while self.record.taken:
                    self._turn(self.record.taken.popleft())
            finally:
                self._boundary.release()

    def _record(self, output: Any) -> None:
        record = self.record
        if self.chunks:
            self._complete_batch(output)
        result, complete = describe(self, output)
        number = record.passed(
            cast("Capacity", Found(self.before_tokens, self.pool.reserved_tokens if self.running else 0, self.running)),
            result,
            start_ns=self.start_ns,
            decide_ns=record.now - self.start_ns,
            queue=self.queue,
            queued_tokens=self._queued_tokens,
        )
        if result.batch:
            self.steps.began(output, number, self.start_ns, complete)
        elif not self.steps.decoding_since and output.total_num_scheduled_tokens:
            self.steps.decoding_since = self.start_ns

    def _complete_batch(self, output: Any) -> None:
        """Bring what the gates know of the batch up to date where the loop did not come to the queue."""
        gates, scheduled = self.gates, output.num_scheduled_tokens
        self.chunks = [each for each in self.chunks if each[0].request_id in scheduled]
        if self.given_back >= 0:
            gates.begin()
            for _, done, tokens in self.chunks:
                gates.go_on(done, tokens)
        if not self.looks:
            gates.decode(len(scheduled) - len(self.chunks))

    # What the loop does with one waiting request

    @_contained
    def looks_at(self, request: Any, status: Any, ready: bool) -> None:
        """The loop takes up a waiting request; not ready, it is skipped for what its status says."""
        scheduler = self.scheduler
        if not self.looks:
            self._hook_allocate()
            if self._connector is not None:
                self._hooks_match = True
                self._connector.get_num_new_matched_tokens = self._match
            self.gates.decode(len(scheduler.running) - len(self.chunks))
        running = len(scheduler.running) + scheduler.num_waiting_for_streaming_input
        look = self._current = Look(request, self.requests.kept(request), running)
        self.looks.append(look)
        if not ready:
            look.state, look.skip = SKIPPED, _BLOCKED.get(status)
        elif request.num_stale_output_tokens and not request.drop_stale_output:
            look.state, look.skip = SKIPPED, _STALE

    @_contained
    def looked_up(self, prefix: int, pending: bool) -> None:
        """The loop knows the request's prefix; `pending` means an encoder input of its is on its way."""
        look = self._current
        if look is None:
            return
        look.prefix = prefix
        if pending:
            look.state, look.skip = SKIPPED, _TRANSFER

    @_contained
    def finds_no_chunk(self, why: int) -> None:
        """What is left of the step's budgets has no chunk for the request, for a cause of `look`."""
        if self._current is not None and not self.no_chunk:
            self.no_chunk = why

    def _reserve(self, request: Any, computed: int, tokens: int) -> int:
        """The engine's `_reserve_prefill_lookahead`, which may leave nothing of a chunk."""
        left = self._stock_reserve(request, computed, tokens)
        if left == 0 < tokens and self.open:
            self.finds_no_chunk(LOOKAHEAD)
        return left

    def _match(self, request: Any, computed_tokens: int, *args: Any, **keywords: Any) -> Any:
        """What the engine's connector holds of a prompt; a hit that is not worth loading is kept back."""
        answered = self._stock_match(request, computed_tokens, *args, **keywords)
        return (0, False) if self.keeps_back(request, answered[0]) else answered

    @_contained
    def keeps_back(self, request: Any, found: int | None) -> bool:
        """Note what the connector found, None while it cannot say; whether the loop is not to know of it."""
        look = self._current
        if look is None or look.request is not request:
            return False
        if found is None:
            look.state, look.skip = SKIPPED, _LOOKUP
            return False
        look.matched = found
        return self._host_cache and 0 < found < self.gates.limits.load_back_threshold

    def _allocate(self, request: Any, tokens: int, *args: Any, **asked: Any) -> Any:
        """The engine's `allocate_slots`, with the soft gates before it for a waiting request."""
        look = self._current
        if look is None or look.request is not request:
            blocks = self._stock_allocate(request, tokens, *args, **asked)
            if blocks is not None and look is None and request.is_prefill_chunk:
                self.goes_on(request, tokens)
            return blocks
        if self.vetoes(look, tokens, asked):
            return None
        blocks = self._stock_allocate(request, tokens, *args, **asked)
        self.allocated(look, blocks, asked)
        return blocks

    @_contained
    def goes_on(self, request: Any, tokens: int) -> None:
        """A prompt that runs got room for its next chunk."""
        done = request.num_computed_tokens
        self.chunks.append((request, done, tokens))
        self.gates.go_on(done, tokens)

    @_contained
    def vetoes(self, look: Look, tokens: int, asked: Mapping[str, Any]) -> bool:
        """Judge a candidate before the engine allocates for it; True keeps it waiting."""
        look.tokens = tokens
        look.computed = computed = look.request.num_computed_tokens
        look.local = local = asked.get("num_new_computed_tokens", 0)
        look.external = external = asked.get("num_external_computed_tokens", 0)
        computes = 0 if asked.get("delay_cache_blocks", False) else tokens
        look.judgement = judgement = self.gates.judge(
            computes, computed + local + external, external or look.kept.loading, holds_kv=computed > 0
        )
        look.free_before = self.pool.free_tokens
        if judgement.refused_by is None:
            return False
        look.state = VETOED
        return True

    @_contained
    def allocated(self, look: Look, blocks: Any, asked: Mapping[str, Any]) -> None:
        """The engine allocated for a candidate, or could not."""
        if blocks is None:
            look.state = NO_ROOM
            fresh = look.request.status in _FRESH
            look.shortage = self.pool.shortage(look.request, look.tokens, asked, fresh=fresh)
            return
        look.free_after = self.pool.free_tokens
        prefix = look.computed + look.local + look.external
        if asked.get("delay_cache_blocks", False):
            look.state, kept = LOADING, look.kept
            kept.device_hit, kept.loading, kept.host = look.local, look.external, HostHit.PLANNED
            self.gates.take(0, prefix, look.judgement)
        else:
            look.state = JOINED
            self.gates.take(look.tokens, prefix, look.judgement)

    # What happens between passes

    @_contained
    def arrived(self, request: Any) -> None:
        """A request joined the queue."""
        self.requests.kept(request)

    @_contained
    def preempted(self, request: Any, free_before: int) -> None:
        """A running request gave its KV back and waits again."""
        freed = max(0, self.pool.free_tokens - free_before)
        self.given_back = max(self.given_back, 0) + freed
        self.requests.preempted(request, freed)

    @_contained
    def load_settled(self, request: Any, failed: bool) -> None:
        """The loop takes note that a host hit has come, or did not."""
        self.requests.load_settled(request, failed=failed)

    @_contained
    def loads_ended(self, names: Iterable[str]) -> None:
        """The workers say that loads are over."""
        scheduler = self.scheduler
        for name in names:
            request = scheduler.requests.get(name)
            if request is not None and name not in scheduler.failed_recving_kv_req_ids:
                self.requests.loaded(request)

    @_contained
    def step_ended(self, output: Any) -> None:
        """A step's output has come."""
        self.steps.ended(output)

    @_contained
    def left(self, request: Any) -> None:
        """A request left the engine."""
        self.requests.left(request)

    def _turn(self, request: Any) -> None:
        """Answer one knob request at this boundary between two steps."""
        answered = answer(request, self.record.knobs, self._setting, self._fixed)
        if answered.limits is not None and answered.knobs is not None:
            self.gates.turn(answered.limits, answered.knobs.buffer_safety_percent)
        self.record.turned(answered)

    def _defers(self) -> bool:
        """Whether this step puts prompts off for other data-parallel ranks, as `Scheduler.schedule` works it out."""
        scheduler = self.scheduler
        return not scheduler.prefill_capacity_bound and any(not each.is_prefill_chunk for each in scheduler.running)

    def _hook_allocate(self) -> None:
        """Stand in for the pool's `allocate_slots` until `let_go`."""
        self._hooks_allocate = True
        self._manager.allocate_slots = self._allocate


def _no_match(*_: Any) -> tuple[int, bool]:
    """What no connector holds of a prompt."""
    return 0, False
