"""What is free in an SGLang engine's KV pool and what its prefix cache can evict, in tokens."""

from __future__ import annotations

from typing import Any

from controller.request import CLIP_OUTPUT_TOKENS


def free_of(allocator: Any) -> int:
    """Free tokens: on pages that are dealt to lanes those of all lanes together."""
    aggregate = getattr(allocator, "aggregate_free_size", None)
    return int(allocator.available_size() if aggregate is None else aggregate())


def evictable_of(tree: Any) -> int:
    """Tokens that the prefix cache can evict, of full attention where it holds recurrent states too."""
    return int(tree.full_evictable_size() if tree.supports_mamba() else tree.evictable_size())


def promised_to(running: Any, ratio: float) -> float:
    """What running requests may still generate, clipped, and times the engine's ratio unless they run to full length.

    As `PrefillAdder._get_running_request_total_token_offset` has it.
    """
    promised = 0.0
    for request in running.reqs:
        sampling = request.sampling_params
        left = min(sampling.max_new_tokens - len(request.output_ids), CLIP_OUTPUT_TOKENS)
        promised += left * (1.0 if sampling.ignore_eos else ratio)
    return promised


def quota_of(cache: Any) -> int:
    """What a load-back may use: free and evictable."""
    return int(cache.token_to_kv_pool_allocator.available_size() + cache.evictable_size())


def lanes_of(allocator: Any) -> int:
    """Ranks among which the pool's pages are dealt; 1 where they are not."""
    return int(getattr(allocator, "shard_size", 1))
