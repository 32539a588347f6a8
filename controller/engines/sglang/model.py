"""The estimator for the model that an SGLang engine serves, from the engine's own configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.runtime_context import get_parallel

from controller.engines.plugin.model import ModelEstimate, estimate_model
from estimator.context import GQA_IMPLS, MLA_IMPLS, SPARSE_IMPLS, RunContext

if TYPE_CHECKING:
    from estimator.geometry import Geometry


def served_name(args: Any) -> str:
    """The name under which the model is served."""
    return str(args.served_model_name or args.model_path)


def estimate_of(scheduler: Any) -> ModelEstimate:
    """The estimator for a scheduler's model."""
    parallel, args = get_parallel(), scheduler.server_args
    cp = int(parallel.attn_cp_size)

    def context(geometry: Geometry) -> RunContext:
        return RunContext.default_for(
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

    return estimate_model(scheduler.model_config.hf_text_config.to_dict(), served_name(args), context)


def _kernel(geometry: Geometry, args: Any) -> str:
    """The prefill kernel by name where a formula knows it, else "" for the one that the engine picks by itself."""
    known = SPARSE_IMPLS if geometry.is_sparse else MLA_IMPLS if geometry.is_mla else GQA_IMPLS
    named = args.dsa_prefill_backend if geometry.is_sparse else args.prefill_attention_backend or args.attention_backend
    return named if named in known else ""
