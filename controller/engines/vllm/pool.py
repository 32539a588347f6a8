"""KvPool: a vLLM scheduler's KV pool in tokens, and why a request did not get its blocks.

The rules are those of `vllm.v1.core.kv_cache_manager.KVCacheManager.allocate_slots` (0.32.0): the whole sequence must
fit where the engine reserves it, then the chunk, each with the watermark while something runs, and what other prompts
in flight are promised stays free when a host hit begins to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from controller.vocabulary import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shortage(NamedTuple):
    """Why `allocate_slots` gave nothing: what was asked for and what there was, tokens."""

    reason: Reason
    observed: int
    limit: int


class KvPool:
    """The pool behind one scheduler. Blocks are `page` tokens; free ones include those a prefix hit could still use."""

    __slots__ = ("_blocks", "_longest", "_manager", "page", "reserved_tokens", "tokens", "watermark")

    def __init__(self, scheduler: Any) -> None:
        self._manager = manager = scheduler.kv_cache_manager
        self._blocks = manager.block_pool
        self._longest = scheduler.max_model_len
        self.page: int = scheduler.block_size
        self.tokens = (self._blocks.num_gpu_blocks - 1) * self.page  # one block is the engine's null block
        self.watermark: int = manager.watermark_blocks
        self.reserved_tokens = self.watermark * self.page
        """Kept free for those that run."""

    @property
    def free_tokens(self) -> int:
        """Tokens that can be allocated, cached prefixes that nobody holds among them."""
        return int(self._blocks.get_num_free_blocks()) * self.page

    def shortage(self, request: Any, tokens: int, asked: Mapping[str, Any], *, fresh: bool) -> Shortage | None:
        """Why a candidate's `allocate_slots(request, tokens, **asked)` came back with nothing; None if not for room."""
        page, free = self.page, int(self._blocks.get_num_free_blocks())
        local = request.num_computed_tokens + asked.get("num_new_computed_tokens", 0)
        total = local + asked.get("num_external_computed_tokens", 0)
        watermark = self.watermark if fresh and asked.get("has_scheduled_reqs", True) else 0
        if asked.get("full_sequence_must_fit"):
            need = self._need(request, request.num_tokens, local, total, asked, whole=True)
            if need + watermark > free:
                return _short(need, watermark, 0, free, page)
        wanted = total + tokens + asked.get("num_lookahead_tokens", 0)
        need = self._need(request, wanted, local, total, asked, whole=False)
        return _short(need, watermark, asked.get("reserved_blocks", 0), free, page)

    def _need(self, request: Any, tokens: int, local: int, total: int, asked: Mapping[str, Any], *, whole: bool) -> int:
        """Blocks a request needs, beyond those it holds, for so many tokens."""
        manager = self._manager
        blocks = asked.get("new_computed_blocks") or manager.empty_kv_cache_blocks
        bounded = min(tokens, self._longest)
        return int(
            manager.coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=bounded,
                new_computed_blocks=blocks.blocks,
                num_encoder_tokens=asked.get("num_encoder_tokens", 0),
                total_computed_tokens=total,
                num_local_computed_tokens=local,
                num_tokens_main_model=min(bounded, tokens - (0 if whole else asked.get("num_lookahead_tokens", 0))),
                apply_admission_cap=whole,
                prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
            )
        )


def _short(need: int, watermark: int, reserved: int, free: int, page: int) -> Shortage | None:
    """Name the least that would have been enough to refuse it: the pool, then the watermark, then what is reserved."""
    if need > free:
        return Shortage(Reason.POOL, need * page, free * page)
    if need + watermark > free:
        return Shortage(Reason.WATERMARK, (need + watermark) * page, free * page)
    if need + watermark + reserved > free:
        return Shortage(Reason.RESERVED, (need + watermark + reserved) * page, free * page)
    return None
