"""The start: what a scheduler needs to be watched, put together once the engine's scheduler stands."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from controller.engines.plugin import VLLM, EngineIdentity, EngineRecord, Faults, begin_or_stand_aside, fit
from controller.engines.vllm.model import model_name
from controller.engines.vllm.pool import KvPool
from controller.engines.vllm.settings import FIXED, engine_settings
from controller.engines.vllm.smoke import PENDING
from controller.engines.vllm.soft import SoftGates
from controller.engines.vllm.watch import SchedulerWatch
from controller.limits import effective

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from controller.engines.vllm.settings import EngineSettings

FAULTS: Final = Faults("vLLM")
"""What has failed of ours in this process."""
_LOST: Final = "the stock scheduler decides, and nothing is recorded"

_HOST_CACHES: Final = ("OffloadingConnector",)
"""Connectors of vLLM that are a cache on the host; any other may bring KV that nobody can compute again."""


def run_id(vllm_config: VllmConfig) -> str:
    """The run's id: the same in every process that was given this engine's configuration, and in no other engine."""
    return blake2b(str(vllm_config.instance_id).encode(), digest_size=4).hexdigest()


def begin_watch(scheduler: Any) -> SchedulerWatch | None:
    """Begin to watch and to record a scheduler that stands; None where that failed, and the engine serves as it is.

    Raises SystemExit where the operator's settings cannot be followed.
    """
    return begin_or_stand_aside(VLLM, FAULTS, "vllm.start", _LOST, lambda: _begin(scheduler))


def _begin(scheduler: Any) -> SchedulerWatch:
    config = scheduler.vllm_config
    pool = KvPool(scheduler)
    found = engine_settings(config, pool.page)
    settings, setting, estimate = found
    limits = effective(settings.knobs, setting)
    gates = SoftGates(limits, estimate.estimator, settings.knobs.buffer_safety_percent)
    record = EngineRecord.begin(
        _identity(scheduler, pool, found), settings, FAULTS, run_id=run_id(config), estimator=gates.estimator
    )
    while PENDING:
        record.note(PENDING.pop(0))
    host_cache = type(scheduler.connector).__name__ in _HOST_CACHES
    return SchedulerWatch(scheduler, record, pool, gates, setting, fixed=FIXED, host_cache=host_cache)


def _identity(scheduler: Any, pool: KvPool, found: EngineSettings) -> EngineIdentity:
    config = scheduler.vllm_config
    parallel = config.parallel_config
    rank = int(parallel.data_parallel_index)
    local = int(parallel.data_parallel_rank_local or 0)
    stock = next(each for each in type(scheduler).__mro__ if not each.__module__.startswith("controller."))
    estimator = found.estimate.estimator
    return EngineIdentity(
        engine=VLLM.name,
        version=fit(VLLM).installed or "",
        model=model_name(config),
        setting=found.setting,
        replaced=(f"{stock.__module__}.{stock.__name__}",),
        pool_tokens=pool.tokens,
        host_tokens=_host_tokens(scheduler, pool),
        largest_prompt_tokens=min(pool.tokens, scheduler.max_model_len - 1),
        rank=rank,
        group=f"dp{rank}",
        first_rank_here=rank - local,
        buffers="" if estimator is None else json.dumps(estimator.context.as_run()),
        context={
            "pid_of_parent": os.getppid(),
            "scheduler": type(scheduler).__name__,
            "policy": str(scheduler.policy.value),
            "tensor_parallel": parallel.tensor_parallel_size,
            "pipeline_parallel": parallel.pipeline_parallel_size,
            "data_parallel": parallel.data_parallel_size,
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "connector": type(scheduler.connector).__name__ if scheduler.connector is not None else "",
        },
        cautions=tuple(caution for caution in (found.estimate.caution,) if caution),
    )


def _host_tokens(scheduler: Any, pool: KvPool) -> int:
    """Tokens that the host cache holds, 0 without one or where its size is not told."""
    transfer = scheduler.vllm_config.kv_transfer_config
    if transfer is None or type(scheduler.connector).__name__ not in _HOST_CACHES:
        return 0
    size = (transfer.kv_connector_extra_config or {}).get("cpu_bytes_to_use", 0)
    tensors = sum(tensor.size for tensor in scheduler.kv_cache_config.kv_cache_tensors)
    each = tensors // max(1, scheduler.kv_cache_config.num_blocks)
    parallel = scheduler.vllm_config.parallel_config
    return int(size // max(1, each * parallel.world_size) * pool.page)
