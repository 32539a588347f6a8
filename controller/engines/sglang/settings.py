"""EngineSettings: what is in force in one SGLang engine, the operator's settings on top of the engine's own flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sglang.srt.runtime_context import get_parallel, get_schedule

from controller.engines.plugin import PluginSettings, read_settings
from controller.engines.sglang.model import estimate_of
from controller.limits import Setting
from estimator.errors import KnobError

if TYPE_CHECKING:
    from controller.engines.plugin.model import ModelEstimate
    from controller.knobs import Knobs

FIXED: Final = {"page_size": "the KV pool is laid out in such pages (--page-size)"}
"""Knobs that stay as the engine was started, and why."""
_CHUNK, _PREFILL = "--chunked-prefill-size", "--max-prefill-tokens"


class EngineLimits(NamedTuple):
    """The engine's own limits, which knobs may lower and never raise. Tokens; None is no limit."""

    chunk: int | None
    prefill: int

    def check(self, knobs: Knobs) -> None:
        """Raise KnobError for a knob above what the engine was started with."""
        if self.chunk is None and knobs.chunked_prefill_size is not None:
            raise KnobError(
                f"chunked_prefill_size is {knobs.chunked_prefill_size}, and the engine runs without chunks; start it "
                f"with {_CHUNK}, or unset the knob"
            )
        for name, asked, most, option in (
            ("chunked_prefill_size", knobs.chunked_prefill_size, self.chunk, _CHUNK),
            ("max_prefill_tokens", knobs.max_prefill_tokens, self.prefill, _PREFILL),
        ):
            if most is not None and (asked is None or asked > most):
                raise KnobError(
                    f"{name} is {'unlimited' if asked is None else asked}, and the engine was started with {most}, "
                    f"for which its buffers are made; ask for {most} at most, or start it with another {option}"
                )


class EngineSettings(NamedTuple):
    """The operator's settings with the knobs in force, how the engine runs, and the estimator for its model."""

    settings: PluginSettings
    setting: Setting
    own: EngineLimits
    estimate: ModelEstimate


def engine_settings(scheduler: Any) -> EngineSettings:
    """The settings in force for a scheduler that stands. Raises InputError or KnobError."""
    chunk, cap = scheduler.chunked_prefill_size, get_schedule().prefill_max_requests
    own = EngineLimits(None if chunk is None else int(chunk), int(scheduler.max_prefill_tokens))
    aliases: dict[str, tuple[Any, str]] = {
        "page_size": (int(scheduler.page_size), "--page-size"),
        "chunked_prefill_size": (-1 if own.chunk is None else own.chunk, _CHUNK),
        "max_prefill_tokens": (own.prefill, _PREFILL),
    }
    if cap is not None:
        aliases["max_requests"] = (int(cap), "--prefill-max-requests")
    threshold = getattr(scheduler.tree_cache, "load_back_threshold", None)
    if threshold is not None:
        aliases["load_back_threshold"] = (int(threshold), "SGLang's own threshold")
    settings = read_settings(aliases, FIXED)
    own.check(settings.knobs)
    estimate = estimate_of(scheduler)
    setting = Setting(
        context_parallel=int(get_parallel().attn_cp_size) > 1,
        lanes=int(scheduler.kv_shard_widening),
        slots=int(scheduler.max_running_requests),
        has_model=estimate.estimator is not None,
    )
    return EngineSettings(settings, setting, own, estimate)
