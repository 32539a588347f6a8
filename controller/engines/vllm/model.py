"""The estimator for the model that a vLLM engine serves, from the engine's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.errors import GlassgateError
from estimator.geometry import KNOWN_KEYS, Geometry

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class ModelEstimate(NamedTuple):
    """The estimator, or None and why there is none."""

    estimator: BatchEstimator | None
    caution: str


def model_name(vllm_config: VllmConfig) -> str:
    """The name under which the model is served."""
    served: Any = vllm_config.model_config.served_model_name or vllm_config.model_config.model
    return str(served[0] if isinstance(served, list | tuple) else served)


def estimate_of(vllm_config: VllmConfig, page: int) -> ModelEstimate:
    """The estimator for an engine's model with KV pages of `page` tokens.

    Its formulas were read in SGLang 0.5.23. Keys of the model's configuration that they do not know are passed over.
    """
    parallel = vllm_config.parallel_config
    kv_dtype = str(vllm_config.cache_config.cache_dtype)
    try:
        config = vllm_config.model_config.hf_text_config.to_dict()
        geometry = Geometry.from_config(config, name=model_name(vllm_config), ignore=set(config) - KNOWN_KEYS)
        context = RunContext.default_for(
            geometry,
            tp=parallel.tensor_parallel_size,
            page_size=page,
            kv_dtype="fp8" if kv_dtype.startswith("fp8") else "bf16",
            chunked_prefill_size=vllm_config.scheduler_config.max_num_batched_tokens,
        )
        return ModelEstimate(BatchEstimator(geometry, context), "")
    except GlassgateError as error:
        return ModelEstimate(
            None, f"max_buffer_bytes cannot bind, since buffers of this model are not estimated: {error}"
        )
