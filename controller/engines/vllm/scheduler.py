"""Glassgate's schedulers: vLLM's own, with a mixin that watches the waiting loop and adds the soft gates to it.

`schedule()` is not copied: what it does with a waiting request is told from the calls that it makes, which are those of
`vllm.v1.core.sched.scheduler.Scheduler` 0.32.0. A step that neither finds a waiting request nor computes a prompt runs
that method alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from controller.engines.vllm.look import ALIGNED, ENCODER
from controller.engines.vllm.start import begin_watch
from controller.engines.vllm.steps import STRETCH_NS

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Stock

    from controller.engines.vllm.watch import SchedulerWatch
else:
    _Stock = object


class AdmissionMixin(_Stock):
    """What Glassgate adds to a scheduler of vLLM. Without a watch it is the stock scheduler."""

    _glassgate: SchedulerWatch | None = None

    def __init__(self, *args: Any, **keywords: Any) -> None:
        """Begin the record once the stock scheduler stands. Raises SystemExit where a setting forbids the start."""
        super().__init__(*args, **keywords)
        self._glassgate = begin_watch(self)

    def schedule(self, *args: Any, **keywords: Any) -> Any:
        """One step, as the stock scheduler does it, between Glassgate's two looks at it."""
        watch = self._glassgate
        if watch is None:
            return super().schedule(*args, **keywords)
        if not (self.waiting or self.kv_holding_waiting or self._inflight_prefills or watch.record.taken):
            steps = watch.steps
            if not self.running:
                steps.end_stretch()
            elif not steps.decoding_since:
                steps.decoding_since = watch.record.now
            return super().schedule(*args, **keywords)
        watch.before(*args, **keywords)
        try:
            output = super().schedule(*args, **keywords)
        finally:
            watch.let_go()
        watch.after(output)
        return output

    def _handle_blocked_waiting_request(self, request: Any) -> bool:
        watch = self._glassgate
        if watch is None or not watch.open:
            return bool(super()._handle_blocked_waiting_request(request))
        status = request.status
        ready = super()._handle_blocked_waiting_request(request)
        watch.looks_at(request, status, ready)
        return bool(ready)

    def _ec_transfer_pending(self, request: Any, num_computed_tokens: int) -> bool:
        pending = super()._ec_transfer_pending(request, num_computed_tokens)
        watch = self._glassgate
        if watch is not None and watch.open:
            watch.looked_up(num_computed_tokens, pending)
        return bool(pending)

    def _mamba_block_aligned_split(self, *args: Any, **keywords: Any) -> int:
        tokens = super()._mamba_block_aligned_split(*args, **keywords)
        watch = self._glassgate
        if watch is not None and watch.open and tokens == 0:
            watch.finds_no_chunk(ALIGNED)
        return int(tokens)

    def _try_schedule_encoder_inputs(self, *args: Any, **keywords: Any) -> Any:
        answer = super()._try_schedule_encoder_inputs(*args, **keywords)
        watch = self._glassgate
        if watch is not None and watch.open and answer[1] == 0:
            watch.finds_no_chunk(ENCODER)
        return answer

    def add_request(self, request: Any) -> None:
        """Take a request in, and record its arrival."""
        watch = self._glassgate
        new = watch is not None and request.request_id not in self.requests
        super().add_request(request)
        if watch is not None and new:
            watch.arrived(request)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Take a step's output in, and record that the step ended."""
        watch = self._glassgate
        if watch is None:
            return super().update_from_output(scheduler_output, model_runner_output)
        steps, now = watch.steps, watch.record.now
        if steps.in_flight or now - steps.decoding_since >= STRETCH_NS:
            watch.step_ended(scheduler_output)
        else:
            steps.decoded_until = now
        return super().update_from_output(scheduler_output, model_runner_output)

    def _update_waiting_for_remote_kv(self, request: Any) -> None:
        failed = request.request_id in self.failed_recving_kv_req_ids
        super()._update_waiting_for_remote_kv(request)
        watch = self._glassgate
        if watch is not None:
            watch.load_settled(request, failed)

    def _update_from_kv_xfer_finished(self, kv_connector_output: Any) -> None:
        super()._update_from_kv_xfer_finished(kv_connector_output)
        watch = self._glassgate
        if watch is not None and kv_connector_output.finished_recving:
            watch.loads_ended(kv_connector_output.finished_recving)

    def _preempt_request(self, request: Any, *args: Any, **keywords: Any) -> None:
        watch = self._glassgate
        if watch is None:
            super()._preempt_request(request, *args, **keywords)
            return
        free_tokens = watch.pool.free_tokens
        super()._preempt_request(request, *args, **keywords)
        watch.preempted(request, free_tokens)

    def _free_request(self, request: Any, *args: Any, **keywords: Any) -> Any:
        freed = super()._free_request(request, *args, **keywords)
        watch = self._glassgate
        if watch is not None:
            watch.left(request)
        return freed

    def shutdown(self) -> None:
        """End the record in good order."""
        watch = self._glassgate
        if watch is not None:
            watch.record.close()
        super().shutdown()


class GlassgateScheduler(AdmissionMixin, Scheduler):
    """vLLM's scheduler with Glassgate in it, for `--scheduler-cls`."""


class GlassgateAsyncScheduler(AdmissionMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with Glassgate in it, for `--scheduler-cls`."""


def with_glassgate(stock: type) -> type:
    """A scheduler class with Glassgate in it: ours for the two of vLLM, one made here for another subclass of them."""
    if issubclass(stock, AdmissionMixin):
        return stock
    if stock is Scheduler:
        return GlassgateScheduler
    if stock is AsyncScheduler:
        return GlassgateAsyncScheduler
    return type(f"Glassgate{stock.__name__}", (AdmissionMixin, stock), {"__module__": __name__})
