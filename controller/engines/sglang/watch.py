"""SchedulerWatch: what stands around one SGLang scheduler: passes, requests, steps; `let_go` takes it away again.

Methods are replaced on the scheduler that is watched, and one function of the engine's that every retraction calls.
Whatever fails of ours is said once, and the stock class decides from then on.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from sglang.srt.managers import schedule_batch
from sglang.srt.managers.scheduler import _make_abort_req

from controller.decision import PassResult
from controller.engines.sglang.adder import GatedAdder
from controller.engines.sglang.hooks import Hooks
from controller.engines.sglang.look import UNATTRIBUTED, Stop
from controller.engines.sglang.pool import evictable_of, free_of, promised_to
from controller.engines.sglang.sheet import Sheet, Standing
from controller.records import StepEnd
from controller.vocabulary import Gate, HostHit, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.engines.sglang.desk import Desk
    from controller.engines.sglang.turning import KnobHandlers
    from controller.request import Capacity

PASSED: Final = "_glassgate"
"""The attribute of a batch's `PrefillStats` under which its pass is found; the engine hands them on with the batch."""
STRETCH_NS: Final = 1_000_000_000
"""Decode steps in a row are recorded as one stretch, which ends after so long at the latest."""


class SchedulerWatch:
    """One scheduler's watch. Everything runs in the scheduler's thread."""

    def __init__(self, scheduler: Any, desk: Desk) -> None:
        self.scheduler = scheduler
        self.desk = desk
        self.record = desk.record
        self.ledger = desk.ledger
        self.adder_class = type("GlassgateAdder", (GatedAdder,), {"desk": desk})
        self.start_ns = 0
        self.queue: list[Any] = []
        self.marked = False
        """The running batch was marked full when the pass began."""
        self.mark: Stop | None = None
        """What marked it full."""
        self.delay: Stop | None = None
        self.untried: tuple[int, Gate, Reason] | None = None
        """Whom the last pass that tried nobody was told of, and why."""
        self.promised = 0.0
        """Tokens that running requests were promised when that began."""
        self.decoding_since = 0
        """When the stretch of steps that only decode began; 0 without one."""
        self.handlers: KnobHandlers | None = None
        self._hooks = Hooks()
        desk.on_failure = self.let_go
        desk.holders = lambda: getattr(scheduler, "disagg_prefill_inflight_queue", None)
        try:
            self._stand_around()
        except Exception:
            self.let_go()
            raise

    # Standing around the scheduler

    def _stand_around(self) -> None:
        scheduler, around = self.scheduler, self._hooks.around
        around(scheduler, "get_prefill_adder_class", lambda _: self.adder_class)
        around(scheduler, "_get_new_batch_prefill_raw", self._pass)
        around(scheduler, "get_num_allocatable_reqs", self._allocatable)
        around(scheduler, "_add_request_to_queue", self._joins)
        around(scheduler, "process_batch_result", self._step)
        around(scheduler, "send_abort_output", self._aborts)
        around(schedule_batch, "release_req", self._gives_back)
        if scheduler.enable_lora:
            around(scheduler, "can_schedule_lora_req", self._lora)
        if scheduler.prefill_decode_interval:
            around(scheduler, "_should_defer_prefill", self._defers)
        if scheduler.enable_hicache_storage:
            around(scheduler, "_prefetch_after_device_hit_loss", self._looks_again)
        if scheduler.enable_hicache_storage or scheduler.enable_lmcache:
            around(scheduler.tree_cache, "check_prefetch_progress", self._prefetched)
        pipeline = getattr(scheduler.tree_cache, "buffer_pipeline", None)
        if pipeline is not None:
            around(pipeline, "prepare_staged_prefetch", self._staged)
        if scheduler.min_free_slots_delayer is not None:
            around(scheduler.min_free_slots_delayer, "should_delay", self._slots_delay)

    def let_go(self) -> None:
        """Leave the scheduler as it was."""
        self._hooks.let_go()
        if self.desk.loads is not None:
            self.desk.loads.let_go()
        if self.handlers is not None:
            self.handlers.let_go()

    # A pass

    def _pass(self, stock: Callable[..., Any], prefill_delayer_single_pass: Any, running_batch: Any) -> Any:
        """`Scheduler._get_new_batch_prefill_raw`: one attempt to form a prefill batch."""
        scheduler, desk = self.scheduler, self.desk
        desk.adder = None
        self.start_ns = self.record.now
        self.queue = scheduler.waiting_queue
        self.marked = running_batch.batch_is_full
        made = stock(prefill_delayer_single_pass=prefill_delayer_single_pass, running_batch=running_batch)
        if not desk.failed and (desk.adder is not None or scheduler.waiting_queue):
            try:
                self._passed(made[0], running_batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
                desk.fail(error)
        return made

    def _passed(self, batch: Any, running_batch: Any) -> None:
        desk, adder = self.desk, self.desk.adder
        queued_tokens = self.ledger.queued_tokens
        full = bool(running_batch.batch_is_full)
        if adder is None:
            result, queue, decided_ns = self._nobody_tried(running_batch)
        else:
            result = Sheet(adder, self._standing(full=full)).write(self.queue)
            self.untried = None
            queue, decided_ns = adder.waiting_queue_len, adder.decided_ns or self.start_ns
            for look in adder.looks:
                if look.admitted:
                    self.ledger.left_queue(look.request)
            self.mark = _mark(result) if full else None
        number = self.record.passed(
            cast("Capacity", desk.found), result, start_ns=self.start_ns, decide_ns=max(0, decided_ns - self.start_ns),
            queue=queue, queued_tokens=queued_tokens,
        )  # fmt: skip
        if batch is not None and batch.prefill_stats is not None:
            setattr(batch.prefill_stats, PASSED, number)
        if desk.skips:
            desk.skips.clear()
        desk.adder, self.queue = None, []  # they hold requests that are gone by the next pass
        while desk.doomed:
            self._abort_for_ever(desk.doomed.pop())

    def _standing(self, *, full: bool) -> Standing:
        desk = self.desk
        return Standing(
            desk.terms if desk.adder is None else desk.adder.terms, self.ledger.number, desk.found.running,
            desk.slots_left, desk.skips, full, desk.no_hit, self.record.leads,
        )  # fmt: skip

    def _nobody_tried(self, running_batch: Any) -> tuple[PassResult, int, int]:
        """A pass that the engine closed before it looked at anybody: told of the request whose turn it was."""
        desk, queue = self.desk, self.queue
        desk.look_around(self.scheduler, running_batch)
        stop = UNATTRIBUTED
        if running_batch.batch_is_full and self.marked:
            running = desk.found.running
            stop = self.mark or Stop(Gate.BATCH_FULL, Reason.FLAG, running, running)
        elif running_batch.batch_is_full:
            limit = desk.found.running + max(0, desk.slots_left)
            stop = Stop(Gate.REQUEST_SLOTS, Reason.SLOTS, limit + 1, limit)
            self.mark = Stop(Gate.BATCH_FULL, Reason.SLOTS, limit + 1, limit)
        elif self.delay is not None:
            stop = self.delay
        self.delay = None
        sheet = Sheet(None, self._standing(full=True))
        sheet.told(queue[0], stop)
        closed = stop.gate, stop.reason
        untried = (self.ledger.number(queue[0]), *closed)
        if untried != self.untried:  # one that repeats the pass before it is written as a repeat, without the pool
            self.untried = untried
            self.promised = promised_to(running_batch, self.scheduler.new_token_ratio_tracker.current)
        found = desk.found = desk.found._replace(reserved_tokens=self.promised)
        quota = found.free_tokens + found.evictable_tokens
        room = math.floor(quota - found.reserved_tokens)
        return PassResult((), tuple(sheet.decisions), closed, 1, None, quota, room), len(queue), self.start_ns

    def _abort_for_ever(self, look: Any) -> None:
        """Let a request go that can never fit, with a clear word to its client; every rank does the same."""
        scheduler, request = self.scheduler, look.request
        if request not in scheduler.waiting_queue:
            return
        scheduler.waiting_queue.remove(request)
        needed, pool = look.tried[1] + look.hit, scheduler.token_to_kv_pool_allocator.size
        message = (
            f"The request can never be served by this engine: prompt, output and rounding need {needed} tokens of KV, "
            f"and the whole pool holds {pool}. Shorten the prompt or ask for less output."
        )
        scheduler._release_aborted_request(request)  # noqa: SLF001 - as the engine drops a queued request itself
        scheduler.beam_coordinator.retire_group(request)
        reason = {"type": "abort", "status_code": HTTPStatus.BAD_REQUEST, "message": message}
        request.time_stats.trace_ctx.abort(abort_info={"reason": message})
        scheduler.send_abort_output(_make_abort_req(request, finished_reason=reason), request)

    # What the engine asks on the way

    def _allocatable(self, stock: Callable[..., Any], *asked: Any, **also: Any) -> Any:
        left = stock(*asked, **also)
        self.desk.slots_left = left
        return left

    def _lora(self, stock: Callable[..., Any], req: Any, running_loras: Any) -> Any:
        fits = stock(req, running_loras)
        if not fits:
            self.desk.skips[id(req)] = Stop(Gate.LORA, Reason.ADAPTER)
        return fits

    def _looks_again(self, stock: Callable[..., Any], req: Any) -> Any:
        again = stock(req)
        if again:
            self.desk.skips[id(req)] = Stop(Gate.STORAGE, Reason.PREFETCH)
        return again

    def _prefetched(self, stock: Callable[..., Any], handle: Any) -> Any:
        done = stock(handle)
        adder = self.desk.adder
        if not done and adder is not None and 0 < adder.tops <= len(self.queue):
            self.desk.skips[id(self.queue[adder.tops - 1])] = Stop(Gate.STORAGE, Reason.PREFETCH)
        return done

    def _staged(self, stock: Callable[..., Any], req: Any) -> Any:
        ready = stock(req)
        if not ready:
            self.desk.skips[id(req)] = Stop(Gate.STORAGE, Reason.STAGING)
        return ready

    def _slots_delay(self, stock: Callable[..., Any], *, running_bs: int, num_allocatable_reqs: int) -> Any:
        delays = stock(running_bs=running_bs, num_allocatable_reqs=num_allocatable_reqs)
        if delays:
            least = self.scheduler.min_free_slots_delayer._min_free_slots  # noqa: SLF001 - what it compared
            self.delay = Stop(Gate.PREFILL_DELAY, Reason.FREE_SLOTS, num_allocatable_reqs, least)
        return delays

    def _defers(self, stock: Callable[..., Any], running_batch: Any) -> Any:
        defers = stock(running_batch)
        if defers and self.scheduler.waiting_queue and not self.desk.failed:
            left = self.scheduler._prefill_decode_interval_remaining + 1  # noqa: SLF001 - what it counts
            self.desk.adder, self.queue, self.start_ns = None, self.scheduler.waiting_queue, self.record.now
            self.delay, self.marked = Stop(Gate.PREFILL_DELAY, Reason.INTERVAL, left, 0), False
            try:
                self._passed(None, running_batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
                self.desk.fail(error)
        return defers

    # Requests and steps

    def _joins(self, stock: Callable[..., Any], req: Any, is_retracted: bool = False) -> Any:
        try:
            if self.ledger.kept(req).arrived:
                self.ledger.came_back(req)
            else:
                self.ledger.arrived(req)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.desk.fail(error)
        return stock(req, is_retracted=is_retracted)

    def _aborts(self, stock: Callable[..., Any], abort_req: Any, req: Any) -> Any:
        try:
            reason = abort_req.finished_reason or {}
            self.ledger.aborted(req, str(reason.get("message") or abort_req.abort_message or "its client left"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.desk.fail(error)
        return stock(abort_req, req)

    def _gives_back(self, stock: Callable[..., Any], **asked: Any) -> Any:
        """`schedule_batch.release_req`: a request is put aside, and its KV is free or can be evicted from then on."""
        before = self._room(asked)
        kept = stock(**asked)
        try:
            self.ledger.kept(asked["req"]).freed = max(0, self._room(asked) - before)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.desk.fail(error)
        return kept

    def _room(self, asked: dict[str, Any]) -> int:
        """Free and evictable tokens of the pool that somebody gives KV back to."""
        try:
            return free_of(asked["token_to_kv_pool_allocator"]) + evictable_of(asked["tree_cache"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.desk.fail(error)
            return 0

    def _step(self, stock: Callable[..., Any], batch: Any, result: Any) -> Any:
        done = stock(batch, result)
        try:
            self._stepped(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.desk.fail(error)
        return done

    def _stepped(self, batch: Any) -> None:
        """A batch's step is over: when it ran, whose first token is out, and who is done."""
        now = self.record.now
        began = int(batch.launch_ts * 1e9) if batch.launch_ts else now
        if batch.forward_mode.is_extend():
            self._end_stretch(began)
            passed = getattr(batch.prefill_stats, PASSED, None)
            first = self.ledger.first_tokens(batch.reqs)
            if passed is not None:
                self.record.note(StepEnd(passed, min(began, now), now, first))
        elif batch.forward_mode.is_decode():
            if self.decoding_since and now - self.decoding_since >= STRETCH_NS:
                self._end_stretch(now)
            self.decoding_since = self.decoding_since or began
        self.ledger.ended(batch.reqs)

    def _end_stretch(self, until_ns: int) -> None:
        if self.decoding_since:
            self.record.note(StepEnd(-1, self.decoding_since, max(self.decoding_since, until_ns), ()))
            self.decoding_since = 0


def _mark(result: PassResult) -> Stop | None:
    """What marked the running batch full, from the pass that did: too little room, or no slot."""
    if not result.decisions or result.closed_by is None:
        return None
    gate, reason = result.closed_by
    last = result.decisions[-1]
    if gate is Gate.REQUEST_SLOTS:
        return Stop(Gate.BATCH_FULL, Reason.SLOTS, last[4], last[5])
    if gate is Gate.KV_CAPACITY and last[2] == gate and reason in (Reason.POOL, Reason.CAN_NEVER):
        return Stop(Gate.BATCH_FULL, Reason.POOL, last[4], last[5])
    return None


def no_hit_of(cache: Any) -> HostHit:
    """What a candidate without a host hit has: nothing resident, or no host cache at all."""
    return HostHit.NONE_RESIDENT if getattr(cache, "cache_controller", None) is not None else HostHit.DISABLED
