"""EngineSettings: what is in force in one vLLM engine, the operator's settings on top of the engine's own flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.engines.plugin import PluginSettings, read_settings
from controller.engines.vllm.model import estimate_of
from controller.limits import Setting

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from controller.engines.plugin.model import ModelEstimate

_OPTION: Final = "--max-num-batched-tokens"
FIXED: Final = {
    "page_size": "the KV pool is laid out in such blocks (--block-size)",
    "chunked_prefill_size": f"the engine's buffers and graphs are made for it when it starts ({_OPTION})",
    "max_prefill_tokens": f"the engine's buffers and graphs are made for it when it starts ({_OPTION})",
    "shared_kv_batching": "vLLM has no path for it",
}
"""Knobs that stay as the engine was started, and why."""


class EngineSettings(NamedTuple):
    """The operator's settings with the knobs in force, how the engine runs, and the estimator for its model."""

    settings: PluginSettings
    setting: Setting
    estimate: ModelEstimate


_known: Final[dict[tuple[str, int], EngineSettings]] = {}


def engine_settings(vllm_config: VllmConfig, page: int) -> EngineSettings:
    """The settings in force for an engine with KV blocks of `page` tokens. Raises InputError or KnobError.

    They are worked out once in a process: both the smoke allocation and the watch ask for them.
    """
    engine = str(vllm_config.instance_id), page
    if engine not in _known:
        _known[engine] = _work_out(vllm_config, page)
    return _known[engine]


def _work_out(vllm_config: VllmConfig, page: int) -> EngineSettings:
    scheduler = vllm_config.scheduler_config
    budget = scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens
    chunk = budget if scheduler.enable_chunked_prefill and budget >= page else None
    aliases = {
        "page_size": (page, "--block-size"),
        "chunked_prefill_size": (-1 if chunk is None else chunk, _OPTION),
        "max_prefill_tokens": (scheduler.max_num_batched_tokens, _OPTION),
    }
    settings = read_settings(aliases, {name: FIXED[name] for name in aliases})
    estimate = estimate_of(vllm_config, page)
    # As the scheduler has it (`Scheduler.max_num_active_reqs`).
    slots = scheduler.max_num_seqs if scheduler.max_num_active_seqs is None else scheduler.max_num_active_seqs
    return EngineSettings(settings, Setting(slots=slots, has_model=estimate.estimator is not None), estimate)
