"""The start: what a scheduler needs to be watched, put together once weights, KV pool and graphs are in place."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.runtime_context import get_disagg, get_parallel

from controller.engines.plugin import (
    SGLANG,
    EngineIdentity,
    EngineRecord,
    Faults,
    Http,
    begin_or_stand_aside,
    fit,
    shared_run_id,
)
from controller.engines.sglang.desk import Desk
from controller.engines.sglang.hits import LoadWatch
from controller.engines.sglang.model import served_name
from controller.engines.sglang.settings import engine_settings
from controller.engines.sglang.smoke import smoke_rank
from controller.engines.sglang.terms import Terms
from controller.engines.sglang.turning import KnobHandlers
from controller.engines.sglang.watch import SchedulerWatch, no_hit_of
from controller.knobs import SHARED_KV_CAUTION
from controller.limits import effective

if TYPE_CHECKING:
    from controller.engines.sglang.settings import EngineSettings
    from controller.records import Smoke

FAULTS: Final = Faults("SGLang")
"""What has failed of ours in this process."""
_LOST: Final = "the stock class decides, and nothing is recorded"


def begin_watch(scheduler: Any) -> SchedulerWatch | None:
    """Begin to watch and to record a scheduler that stands; None where that failed, and the engine serves as it is.

    Raises SystemExit where the operator's settings cannot be followed.
    """
    return begin_or_stand_aside(SGLANG, FAULTS, "sglang.start", _LOST, lambda: _begin(scheduler))


class Place(NamedTuple):
    """Where a rank stands among those of its engine."""

    rank: int
    group: str
    ranks: int
    leads: bool
    first_rank_here: int
    run_id: str


def _begin(scheduler: Any) -> SchedulerWatch:
    stock = scheduler.get_prefill_adder_class()
    if stock is not PrefillAdder:
        raise RuntimeError(f"another plug-in has put {stock.__module__}.{stock.__name__} in place of PrefillAdder")
    if scheduler.dllm_config is not None:
        raise RuntimeError("a diffusion model is scheduled by another loop, which Glassgate does not know")
    found = engine_settings(scheduler)
    smoke = smoke_rank(scheduler, found)
    place = _place(scheduler)
    settings = found.settings
    estimator = found.estimate.estimator
    if estimator is not None:
        estimator = estimator.with_safety(settings.knobs.buffer_safety_percent)
    record = EngineRecord.begin(
        _identity(scheduler, found, place), settings, FAULTS, run_id=place.run_id, estimator=estimator
    )
    _note(record, smoke)
    terms = Terms(effective(settings.knobs, found.setting), estimator, park=settings.park)
    desk = Desk(record, terms, aborts_never=settings.can_never)
    cache = scheduler.tree_cache
    desk.no_hit = no_hit_of(cache)
    watch = SchedulerWatch(scheduler, desk)
    try:
        if hasattr(cache, "load_back_threshold") and cache.cache_controller is not None:
            cache.load_back_threshold = terms.limits.load_back_threshold
            if cache.buffer_pipeline is None and cache.linker is None:
                desk.loads = LoadWatch(cache, desk.ledger.landed, desk.fail)
        watch.handlers = KnobHandlers(scheduler.internal_state, desk, found, _threshold_of(cache))
    except Exception:
        watch.let_go()
        raise
    return watch


def _note(record: EngineRecord, smoke: Smoke | None) -> None:
    if smoke is not None:
        record.note(smoke, every_rank=True)


def _threshold_of(cache: Any) -> Any:
    def put_in_force(tokens: int) -> None:
        if hasattr(cache, "load_back_threshold"):
            cache.load_back_threshold = tokens

    return put_in_force


def _place(scheduler: Any) -> Place:
    """Ranks that share one world hear of each other; a data-parallel replica of its own has a world of its own."""
    parallel, world = get_parallel(), scheduler.world_group
    attention_dp, replica = int(parallel.attn_dp_rank), int(parallel.dp_rank or 0)
    alone = not scheduler.attn_dp_enabled
    group = f"dp{replica if alone else attention_dp}"
    stage = int(parallel.pp_rank)
    if int(parallel.pp_size) > 1:
        group += f".pp{stage}"
    rank = int(world.rank_in_group) + (replica * int(world.world_size) if alone else 0)
    everyone = world.all_gather_object((socket.gethostname(), rank, shared_run_id()))
    first_here = min(each[1] for each in everyone if each[0] == socket.gethostname())
    return Place(
        rank=rank,
        group=group,
        ranks=int(parallel.attn_tp_size) * int(parallel.attn_cp_size),
        leads=stage == 0 and int(parallel.attn_tp_rank) == 0 and int(parallel.attn_cp_rank) == 0,
        first_rank_here=first_here if not alone or replica == 0 else 0,
        run_id=everyone[0][2],
    )


def _identity(scheduler: Any, found: EngineSettings, place: Place) -> EngineIdentity:
    args = scheduler.server_args
    allocator, cache, estimator = scheduler.token_to_kv_pool_allocator, scheduler.tree_cache, found.estimate.estimator
    host = getattr(getattr(cache, "cache_controller", None), "mem_pool_host", None)
    return EngineIdentity(
        engine=SGLANG.name,
        version=fit(SGLANG).installed or "",
        model=served_name(args),
        setting=found.setting,
        replaced=(f"{PrefillAdder.__module__}.{PrefillAdder.__name__}",),
        pool_tokens=int(allocator.size),
        host_tokens=int(getattr(host, "size", 0) or 0),
        largest_prompt_tokens=min(int(scheduler.max_req_input_len), int(allocator.size)),
        rank=place.rank,
        group=place.group,
        ranks=place.ranks,
        leads=place.leads,
        first_rank_here=place.first_rank_here,
        way=_way(args),
        engine_key=args.admin_api_key or args.api_key,
        buffers="" if estimator is None else json.dumps(estimator.context.as_run()),
        context={
            "pid_of_parent": os.getppid(),
            "policy": str(scheduler.schedule_policy),
            "cache": type(cache).__name__,
            "allocator": type(allocator).__name__,
            "overlap": bool(scheduler.enable_overlap),
            "host_cache": bool(scheduler.enable_hierarchical_cache),
            "role": str(get_disagg().disaggregation_mode),
            "tensor_parallel": int(get_parallel().tp_size),
            "pipeline_parallel": int(get_parallel().pp_size),
            "data_parallel": int(get_parallel().dp_size),
            "context_parallel": int(get_parallel().attn_cp_size),
        },
        cautions=tuple(_cautions(scheduler, found)),
    )


def _way(args: Any) -> Http:
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(args.host, args.host)  # noqa: S104 - what it was given
    host = f"[{host}]" if ":" in host else host
    scheme = "https" if args.ssl_certfile else "http"
    needs_key = bool(args.admin_api_key or args.api_key)
    return Http(f"{scheme}://{host}:{args.port}/set_internal_state", "server_args", needs_key=needs_key)


def _cautions(scheduler: Any, found: EngineSettings) -> list[str]:
    told = [found.estimate.caution] if found.estimate.caution else []
    if found.setting.context_parallel and found.settings.knobs.shared_kv_batching:
        told.append(f"shared_kv_batching is on: {SHARED_KV_CAUTION}")
    if int(get_parallel().pp_size) > 1:
        told.append("pipeline stages after the first write digests that nothing compares")
    if scheduler.disable_radix_cache:
        told.append("the prefix cache is off, so no hit is looked up")
    return told
