"""Causes: what made SGLang say no, told from what its adder left. Whatever is not told is unattributed.

Read in SGLang 0.5.23: `PrefillAdder.add_one_req`, `add_one_req_ignore_eos`, `_select_prefill_admission`,
`budget_state`, and the budgets of `sglang.srt.mem_cache.prefill_budget`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sglang.srt.managers import schedule_policy
from sglang.srt.mem_cache.prefill_budget import PrefillBudget, SharedSWAPrefillBudget, SWAPrefillBudget
from sglang.srt.runtime_context import get_schedule

from controller.engines.sglang.look import UNATTRIBUTED, Stop
from controller.engines.sglang.verdicts import NO_TOKEN, OTHER
from controller.vocabulary import Gate, Reason

if TYPE_CHECKING:
    from controller.engines.sglang.look import Look


def spent(adder: Any, verdict: Any) -> Stop:
    """Which budget the pass has used up, from the verdict on what is left; called before anything else changes."""
    if verdict is NO_TOKEN:
        return _room_spent(adder)
    if adder.rem_input_tokens <= 0:
        used = adder.input_budget - adder.rem_input_tokens
        return Stop(Gate.INPUT_TOKENS, Reason.BUDGET, used, adder.input_budget)
    if adder.rem_chunk_tokens is not None and adder.rem_chunk_tokens <= 0:
        return Stop(Gate.CHUNK_TOKENS, Reason.BUDGET, adder.chunk_budget - adder.rem_chunk_tokens, adder.chunk_budget)
    return UNATTRIBUTED


def _room_spent(adder: Any) -> Stop:
    budget, slots = adder.memory_budget, adder.rem_mamba_slots
    if isinstance(budget, SharedSWAPrefillBudget):
        return UNATTRIBUTED  # one sum decided over two pools
    rooms = [(Reason.POOL, budget.total_seen), (Reason.CURRENT, budget.current_seen)]
    if adder.is_hybrid_swa:
        rooms.append((Reason.WINDOW, budget.window_seen))
    for reason, room in rooms:
        if room <= 0:
            return Stop(Gate.KV_CAPACITY, reason, 1, math.ceil(room))
    if slots is not None and slots <= 0:
        return Stop(Gate.STATE_SLOTS, Reason.SLOTS, 1, slots)
    return UNATTRIBUTED


def window_short(adder: Any, look: Look, extend: int, host_hit: int) -> Stop | None:
    """What a candidate needs of the attention window's pool, where that refused it (`SWAPrefillBudget`)."""
    budget = adder.memory_budget
    if isinstance(budget, SharedSWAPrefillBudget) or look.tried is None or look.tried[1] >= look.tried[2]:
        return None
    needed = budget.swa_tokens(
        budget.ceil_paged_tokens(extend),
        adder._swa_new_tokens(look.request),  # noqa: SLF001 - what the engine asks itself
        chunk_limit=look.chunk_left,
        swa_host_hit_length=host_hit,
    )
    return Stop(Gate.KV_CAPACITY, Reason.WINDOW, needed, math.ceil(budget.window_seen))


def chunk_short(adder: Any) -> Stop | None:
    """Why the engine left a continuing chunk where it is, which it does with an attention window's pool alone."""
    budget, page = adder.memory_budget, adder.page_size
    if not isinstance(budget, SWAPrefillBudget) or isinstance(budget, SharedSWAPrefillBudget):
        return None
    if budget.total_seen < 1:
        return Stop(Gate.KV_CAPACITY, Reason.POOL, 1, math.floor(budget.total_seen))
    if not budget.req_ring and budget.window_seen < page + 1:
        return Stop(Gate.KV_CAPACITY, Reason.WINDOW, page, math.floor(budget.window_seen))
    return None


def scratch_short(adder: Any, prefix: int, extend: int) -> Stop:
    """What the batch would take of a sharded pool's scratch: `PrefillAdder._kv_shard_reserve_scratch`."""
    page, ranks, spec = adder.kv_shard_granule, adder.kv_shard_size, adder.kv_shard_scratch_spec
    prefixes = ranks * page * (adder.kv_shard_block_bound_pages - -(prefix // page) // ranks)
    chunks = page * (adder.kv_shard_chunk_pages - -extend // page)
    if prefixes > spec.max_prefix_tokens:
        return Stop(Gate.SHARD_SCRATCH, Reason.SCRATCH, prefixes, spec.max_prefix_tokens)
    return Stop(Gate.SHARD_SCRATCH, Reason.SCRATCH, chunks, spec.chunk_tokens)


def tiles_short(adder: Any, computes: int) -> Stop:
    """The attention tiles of the batch with a candidate that computes so many tokens: `_check_prefill_tile_budget`."""
    metrics = adder._candidate_tile_metrics(computes)  # noqa: SLF001 - what the engine asks itself
    tiles = int(metrics.get(adder._tile_admission_metric_key()) or 0)  # noqa: SLF001 - as above
    return Stop(Gate.TILE_BUDGET, Reason.TILES, tiles, schedule_policy.PREFILL_TILE_BUDGET)


def one_pool(adder: Any) -> bool:
    """Whether the pool is a single one, so that the engine lets a continuing chunk through without room."""
    return type(adder.memory_budget).__mro__[1] is PrefillBudget


def refused(adder: Any, look: Look) -> Stop:
    """Why a candidate did not enter."""
    if look.stop is not None:
        return look.stop
    if look.said is not None:
        return look.said
    if look.tried is None:
        return _before_selection(adder, look)
    host, needed, room, shape = look.tried
    if shape is NO_TOKEN:
        return _no_room(adder, look, needed, room)
    if shape is OTHER:
        return _no_shape(adder, look, host)
    return _after_selection(adder, look)


def _before_selection(adder: Any, look: Look) -> Stop:
    cap = adder.prefill_max_requests
    if look.verdict is OTHER and cap is not None and look.members >= cap:
        return Stop(Gate.REQUEST_COUNT, Reason.ENGINE_LIMIT, look.members + 1, cap)
    request = look.request
    if look.verdict is NO_TOKEN and adder.rem_mamba_slots is not None:
        needed = adder._mamba_gap_budget_for_req(request, include_host_hit=True) // adder._mamba_slot_cost  # noqa: SLF001
        if needed > adder.rem_mamba_slots:
            return Stop(Gate.STATE_SLOTS, Reason.SLOTS, needed, adder.rem_mamba_slots)
    if request.sampling_params.ignore_eos and getattr(adder.tree_cache, "disable", True):
        return _uncached(adder, look)
    return UNATTRIBUTED


def _uncached(adder: Any, look: Look) -> Stop:
    """A candidate that runs to its full length and has no prefix cache: `add_one_req_ignore_eos`."""
    if look.verdict is NO_TOKEN:
        return _uncached_room(adder, look)
    if _delayed(adder):
        return Stop(Gate.PREFILL_DELAY, Reason.DELAYER)
    if look.chunk_left is not None and look.chunk_left <= 0:
        return _chunk_spent(adder, look)
    return UNATTRIBUTED


def _uncached_room(adder: Any, look: Look) -> Stop:
    """The same candidate, without room: in the pool, in an attention window's, or in time."""
    request, budget = look.request, adder.memory_budget
    if isinstance(budget, SharedSWAPrefillBudget):
        return UNATTRIBUTED  # one sum decided over two pools
    tokens = len(request.full_untruncated_fill_ids) - look.hit
    needed = adder.ceil_paged_tokens(tokens) + adder.per_req_token_overhead
    needed += adder._mamba_gap_budget_for_req(request) + adder._request_slot_reserve_for_req(request)  # noqa: SLF001
    room = min(budget.total_seen, budget.current_seen)
    if needed > room:
        reason = Reason.POOL if budget.total_seen <= budget.current_seen else Reason.CURRENT
        return Stop(Gate.KV_CAPACITY, reason, needed, math.floor(room) + 1)
    if adder.is_hybrid_swa:  # the engine looks no further ahead there
        window = budget.swa_tokens(tokens, adder._swa_new_tokens(request), chunk_limit=look.chunk_left)  # noqa: SLF001
        return Stop(Gate.KV_CAPACITY, Reason.WINDOW, window, math.floor(budget.window_seen) + 1)
    # What the running requests will free in time is not enough; the engine keeps no sum of it.
    return Stop(Gate.KV_CAPACITY, Reason.RESERVED)


def _no_room(adder: Any, look: Look, needed: int, room: float) -> Stop:
    if needed < room or isinstance(adder.memory_budget, SharedSWAPrefillBudget):
        return UNATTRIBUTED  # one sum decided over two pools
    reason = Reason.CAN_NEVER if never_fits(adder, look) else Reason.POOL
    return Stop(Gate.KV_CAPACITY, reason, needed, math.ceil(room))


def never_fits(adder: Any, look: Look) -> bool:
    """Whether the whole pool, empty, would not hold the candidate: what the engine compares, its device hit with it."""
    if look.tried is None:
        return False
    return bool(look.tried[1] + look.hit >= adder.token_to_kv_pool_allocator.size)


def _no_shape(adder: Any, look: Look, host: int) -> Stop:
    """The engine had room and selected no shape."""
    request = look.request
    tokens = len(request.full_untruncated_fill_ids) - look.hit - host
    paged = adder.ceil_paged_tokens(tokens)
    if look.chunk_left is None:
        if look.members and paged >= look.input_left:
            return Stop(
                Gate.INPUT_TOKENS, Reason.BUDGET, adder.input_budget - look.input_left + paged, adder.input_budget
            )
        return UNATTRIBUTED
    wanted = tokens if adder.exact_chunk_fill else paged
    if wanted <= look.chunk_left:
        return UNATTRIBUTED
    if adder.chunk is not None and adder.chunk.chunked and get_schedule().schedule_policy == "shortest-prefill-first":
        spent = adder.chunk_budget - look.chunk_left
        return Stop(Gate.CHUNK_TOKENS, Reason.SECOND_CHUNK, spent + wanted, adder.chunk_budget)
    return _chunk_spent(adder, look)


def _chunk_spent(adder: Any, look: Look) -> Stop:
    """Not one page of the chunk budget is left, or what is left holds nothing once it is aligned."""
    spent, page = adder.chunk_budget - look.chunk_left, adder.page_size
    reason = Reason.BUDGET if look.chunk_left < page else Reason.FLOOR
    return Stop(Gate.CHUNK_TOKENS, reason, spent + page, adder.chunk_budget)


def _after_selection(adder: Any, look: Look) -> Stop:
    """A shape was selected, and the candidate did not enter with it."""
    if look.verdict is OTHER and _delayed(adder):
        return Stop(Gate.PREFILL_DELAY, Reason.DELAYER)
    if look.matched and look.verdict is OTHER:
        return Stop(Gate.LOAD_BACK, Reason.DEFERRED)
    return UNATTRIBUTED


def _delayed(adder: Any) -> bool:
    executor = adder.prefill_delayer_single_pass
    said = getattr(executor, "_result", None)
    return said is not None and not said.output_allow
