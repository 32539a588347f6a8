"""Stops: why vLLM's loop left a waiting request where it is, and why it ended, as far as that can be told.

Each rule names the place in `vllm.v1.core.sched.scheduler.Scheduler.schedule` (0.32.0) that it reads. What two of them
could explain is `unattributed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from controller.engines.vllm.look import ALIGNED, ENCODER, LOADING, LOOKED_AT, NO_ROOM, VETOED
from controller.vocabulary import Gate, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.engines.vllm.look import Look
    from controller.engines.vllm.watch import SchedulerWatch


class Held(NamedTuple):
    """What kept a request, or closed a pass, with the numbers it was told from."""

    gate: Gate
    reason: Reason
    observed: int
    limit: int


_STOPPING = (VETOED, NO_ROOM)
UNATTRIBUTED = Held(Gate.UNATTRIBUTED, Reason.NOT_TOLD, 1, 0)


def held_of(watch: SchedulerWatch, look: Look, spent: int) -> Held:
    """What kept a request that the loop looked at; `spent` is what the step had spent before it, tokens."""
    if look.state == VETOED:
        return _vetoed(look)
    if look.state == NO_ROOM and look.shortage is not None:
        return Held(Gate.KV_CAPACITY, *look.shortage)
    if look.state == LOADING:
        return Held(Gate.LOAD_BACK, Reason.LOADING, look.external, 0)
    if look.skip is not None:
        return _skipped(look)
    if look.state == LOOKED_AT:
        return _adapter(watch, look) if look.prefix < 0 else _stopped(watch, look, spent)
    return UNATTRIBUTED


def _vetoed(look: Look) -> Held:
    """A request that one of the soft gates kept out."""
    judged = look.judgement
    if judged is None or judged.refused_by is None:
        return UNATTRIBUTED
    said = {
        Gate.REQUEST_COUNT: judged.requests,
        Gate.EXTEND_TOKENS: judged.extend,
        Gate.CACHED_TOKENS: judged.cached,
        Gate.BUFFER_BYTES: judged.buffer,
    }
    _, observed, limit = said[judged.refused_by]
    return Held(judged.refused_by, Reason.LIMIT, observed, limit)


def _skipped(look: Look) -> Held:
    """A request that the loop passed over, with what it waits for."""
    gate, reason = look.skip or (Gate.UNATTRIBUTED, Reason.NOT_TOLD)
    observed = 1
    if reason is Reason.LOADING:
        observed = look.kept.loading
    elif reason is Reason.LOOKUP:
        observed = look.request.num_tokens
    elif reason is Reason.TRANSFER:
        observed = _encoder_tokens(look.request)
    return Held(gate, reason, observed, 0)


def _adapter(watch: SchedulerWatch, look: Look) -> Held:
    """Passed over before its prefix was looked up: only the limit on adapters stands there."""
    config, wanted = watch.scheduler.lora_config, look.request.lora_request
    if config and wanted:
        return Held(Gate.LORA, Reason.ADAPTER, config.max_loras + 1, config.max_loras)
    return UNATTRIBUTED


def _stopped(watch: SchedulerWatch, look: Look, spent: int) -> Held:
    """The loop ended at a request whose prefix it had looked up, before it asked for blocks."""
    scheduler, config, left = watch.scheduler, watch.scheduler.scheduler_config, look.request.num_tokens - look.prefix
    budget = scheduler.max_num_scheduled_tokens
    if watch.no_chunk:
        return _no_chunk(watch, look, spent, left)
    if watch.defers:
        return Held(Gate.PREFILL_DELAY, Reason.CADENCE, watch.queue, 0)
    if left > 1 and not config.enable_chunked_prefill:
        return Held(Gate.INPUT_TOKENS, Reason.BUDGET, spent + left, min(budget, config.max_num_batched_tokens))
    if left == 1 and scheduler.num_spec_tokens:  # it would be padded to the tokens that are drafted
        return Held(Gate.CHUNK_TOKENS, Reason.BUDGET, spent + 1 + scheduler.num_spec_tokens, budget)
    return UNATTRIBUTED


def _no_chunk(watch: SchedulerWatch, look: Look, spent: int, left: int) -> Held:
    """What is left of the budgets has no chunk of the request's `left` tokens, with the least that would have one."""
    scheduler = watch.scheduler
    if watch.no_chunk == ENCODER:
        observed, limit = _encoder_tokens(look.request), scheduler.max_num_encoder_input_tokens
        return Held(Gate.ENCODER, Reason.BUDGET, observed, limit)
    wanted = watch.pool.page if watch.no_chunk == ALIGNED else left
    return Held(Gate.CHUNK_TOKENS, Reason.ALIGNMENT, spent + wanted, scheduler.max_num_scheduled_tokens)


def closing(watch: SchedulerWatch, output: Any, spent: int, left: int) -> Held | None:
    """What ended the loop: the request it stopped at, or a bound of the step; None where the queue was at its end.

    `spent` is what the step spent in all, `left` how many waiting requests were not looked at.
    """
    looks, scheduler = watch.looks, watch.scheduler
    if looks and (looks[-1].state in _STOPPING or (looks[-1].state == LOOKED_AT and looks[-1].prefix >= 0)):
        return held_of(watch, looks[-1], spent)
    if watch.given_back >= 0:
        return Held(Gate.KV_CAPACITY, Reason.PREEMPTION, watch.given_back, 0) if left > 0 else None
    budget = scheduler.max_num_scheduled_tokens
    if spent >= budget:
        return _budget(watch, spent + 1, budget)
    return _bound(watch, output, spent, left) if left > 0 else None


def _bound(watch: SchedulerWatch, output: Any, spent: int, left: int) -> Held:
    """The bound of the step that kept the loop from the next in the queue, in the loop's order."""
    scheduler, config = watch.scheduler, watch.scheduler.vllm_config.speculative_config
    if scheduler._pause_state != PauseState.UNPAUSED:  # noqa: SLF001 - the stock loop's own state
        return Held(Gate.PAUSED, Reason.PAUSED, left, 0)
    each = config.max_num_new_slots_for_drafting if config is not None else 0
    whole, taken = scheduler.scheduler_config.max_num_batched_tokens, spent + each * len(output.num_scheduled_tokens)
    if taken + each >= whole:
        return Held(Gate.INPUT_TOKENS, Reason.BUDGET, taken + each + 1, whole)
    running, most = len(scheduler.running) + scheduler.num_waiting_for_streaming_input, scheduler.max_num_active_reqs
    return Held(Gate.REQUEST_SLOTS, Reason.SLOTS, running + 1, most) if running >= most else UNATTRIBUTED


def _budget(watch: SchedulerWatch, observed: int, budget: int) -> Held:
    """The step's token budget: what chunks are cut to where prompts are cut, the input budget where they are not."""
    chunked = watch.scheduler.scheduler_config.enable_chunked_prefill
    return Held(Gate.CHUNK_TOKENS if chunked else Gate.INPUT_TOKENS, Reason.BUDGET, observed, budget)


def cut_of(watch: SchedulerWatch, spent: int, wanted: int, tokens: int, after: int) -> Held:
    """What cut a prompt of which `wanted` tokens are left to `tokens`; the step had spent `spent`, then `after`."""
    scheduler = watch.scheduler
    budget, config = scheduler.max_num_scheduled_tokens, scheduler.scheduler_config
    if after >= budget:
        return Held(Gate.CHUNK_TOKENS, Reason.BUDGET, spent + wanted, budget)
    longest = config.long_prefill_token_threshold
    if longest and tokens >= longest:
        return Held(Gate.CHUNK_TOKENS, Reason.LONG_PREFILL, wanted, tokens)
    if scheduler.need_mamba_block_aligned_split or scheduler.num_prefill_lookahead > 1:
        return Held(Gate.CHUNK_TOKENS, Reason.ALIGNMENT, wanted, tokens)
    return Held(Gate.UNATTRIBUTED, Reason.NOT_TOLD, wanted, tokens)


def parked_by(watch: SchedulerWatch, output: Any) -> Iterator[tuple[Any, Held]]:
    """The prompts that run, are not complete, and got no token in this step, each with the reason."""
    scheduled, scheduler = output.num_scheduled_tokens, watch.scheduler
    for request in scheduler._inflight_prefills:  # noqa: SLF001 - the stock loop's own state
        if request.status != RequestStatus.RUNNING or request.request_id in scheduled:
            continue
        spent, budget = output.total_num_scheduled_tokens, scheduler.max_num_scheduled_tokens
        if scheduler._pause_state == PauseState.PAUSED_ALL:  # noqa: SLF001 - the stock loop's own state
            yield request, Held(Gate.PAUSED, Reason.PAUSED, 1, 0)
        elif watch.defers:
            yield request, Held(Gate.PREFILL_DELAY, Reason.CADENCE, 1, 0)
        elif spent >= budget:
            yield request, _budget(watch, spent + 1, budget)
        else:
            yield request, UNATTRIBUTED


def _encoder_tokens(request: Any) -> int:
    return sum(request.get_num_encoder_embeds(place) for place in range(request.num_encoder_inputs))
