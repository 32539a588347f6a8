"""The estimator for the model that a vLLM engine serves, from the engine's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.engines.plugin.model import ModelEstimate, estimate_model
from estimator.context import RunContext

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from estimator.geometry import Geometry


def model_name(vllm_config: VllmConfig) -> str:
    """The name under which the model is served."""
    served: Any = vllm_config.model_config.served_model_name or vllm_config.model_config.model
    return str(served[0] if isinstance(served, list | tuple) else served)


def estimate_of(vllm_config: VllmConfig, page: int) -> ModelEstimate:
    """The estimator for an engine's model with KV pages of `page` tokens. Its formulas were read in SGLang 0.5.23."""
    kv_dtype = str(vllm_config.cache_config.cache_dtype)

    def context(geometry: Geometry) -> RunContext:
        return RunContext.default_for(
            geometry,
            tp=vllm_config.parallel_config.tensor_parallel_size,
            page_size=page,
            kv_dtype="fp8" if kv_dtype.startswith("fp8") else "bf16",
            chunked_prefill_size=vllm_config.scheduler_config.max_num_batched_tokens,
        )

    config = vllm_config.model_config.hf_text_config.to_dict()
    return estimate_model(config, model_name(vllm_config), context)
