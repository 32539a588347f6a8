"""The estimator for the model that an SGLang engine serves, from the engine's own configuration."""

from __future__ import annotations

from typing import Any, NamedTuple

from sglang.srt.runtime_context import get_parallel

from estimator.batch import BatchEstimator
from estimator.context import GQA_IMPLS, MLA_IMPLS, SPARSE_IMPLS, RunContext
from estimator.errors import GlassgateError
from estimator.geometry import KNOWN_KEYS, Geometry


class ModelEstimate(NamedTuple):
    """The estimator, or None and why there is none."""

    estimator: BatchEstimator | None
    caution: str


def served_name(args: Any) -> str:
    """The name under which the model is served."""
    return str(args.served_model_name or args.model_path)


def estimate_of(scheduler: Any) -> ModelEstimate:
    """The estimator for a scheduler's model. Keys of the model's configuration that no formula knows are left out."""
    parallel, args = get_parallel(), scheduler.server_args
    cp = int(parallel.attn_cp_size)
    try:
        config = scheduler.model_config.hf_text_config.to_dict()
        geometry = Geometry.from_config(config, name=served_name(args), ignore=set(config) - KNOWN_KEYS)
        context = RunContext.default_for(
            geometry,
            tp=int(parallel.attn_tp_size),
            cp=cp,
            cp_strategy=(args.cp_strategy or "none") if cp > 1 else "none",
            page_size=int(scheduler.page_size),
            kv_dtype="fp8" if "fp8" in str(args.kv_cache_dtype) else "bf16",
            prefill_impl=_kernel(geometry, args),
            shard_size=int(scheduler.kv_shard_widening),
            chunked_prefill_size=int(scheduler.chunked_prefill_size or scheduler.max_prefill_tokens),
            pool_tokens=int(scheduler.token_to_kv_pool_allocator.size),
            overlap_schedule=bool(scheduler.enable_overlap),
        )
        return ModelEstimate(BatchEstimator(geometry, context), "")
    except GlassgateError as error:
        return ModelEstimate(
            None, f"max_buffer_bytes cannot bind, since buffers of this model are not estimated: {error}"
        )


def _kernel(geometry: Geometry, args: Any) -> str:
    """The prefill kernel by name where a formula knows it, else "" for the one that the engine picks by itself."""
    known = SPARSE_IMPLS if geometry.is_sparse else MLA_IMPLS if geometry.is_mla else GQA_IMPLS
    named = args.dsa_prefill_backend if geometry.is_sparse else args.prefill_attention_backend or args.attention_backend
    return named if named in known else ""
