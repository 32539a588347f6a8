"""LoadWatch: what becomes of each host hit that SGLang tries to load, and why one is not loaded.

Read in SGLang 0.5.23: `UnifiedRadixCache.load_back`, `_load_back_transfers`, `loading_check`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from controller.vocabulary import HostHit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.engines.sglang.look import Look

WRAPPED: Final = ("load_back", "_load_back_transfers", "loading_check")


class LoadWatch:
    """Stands around the load-backs of one prefix cache; `let_go` takes it away again.

    `landed` is told of loads that reached the device; `fail` of whatever fails of ours.
    """

    def __init__(self, cache: Any, landed: Callable[[Any, int], None], fail: Callable[[BaseException], None]) -> None:
        self._cache, self._landed, self._fail = cache, landed, fail
        self._request: Any = None
        self._host = HostHit.NOT_TOLD
        self._asked = self._evicted = 0
        self._flying: dict[Any, tuple[Any, int]] = {}
        self._spec: tuple[int, bool] = (0, False)
        self._loads = 0
        self._failed_loads = 0
        self._stock_load_back = cache.load_back
        self._stock_transfers = cache._load_back_transfers  # noqa: SLF001 - where the engine decides
        self._stock_check = cache.loading_check
        self._stock_spec = cache.tree_core.build_load_back_spec
        self._stock_load = cache.cache_controller.load
        cache.load_back = self._load_back
        cache._load_back_transfers = self._transfers  # noqa: SLF001
        cache.loading_check = self._check
        cache.tree_core.build_load_back_spec = self._build_spec
        cache.cache_controller.load = self._load
        self._lanes = lanes_of(cache.token_to_kv_pool_allocator)

    def let_go(self) -> None:
        """Leave the cache as it was."""
        cache = self._cache
        for name in WRAPPED:
            cache.__dict__.pop(name, None)
        cache.tree_core.__dict__.pop("build_load_back_spec", None)
        cache.cache_controller.__dict__.pop("load", None)

    def tell(self, look: Look) -> None:
        """Put what became of the last load into the look of the request it was for."""
        if self._request is look.request:
            look.host, look.asked, look.evicted = self._host, self._asked, self._evicted
            self._request = None
        else:
            look.host = HostHit.LOADED if look.loaded else HostHit.NOT_TOLD
            look.asked = look.loaded

    def _load_back(self, node_id: Any, mem_quota: int | None = None, req: Any = None) -> Any:
        if mem_quota is not None:
            with self._contained():
                mem_quota = max(mem_quota, quota_of(self._cache))
        return self._stock_load_back(node_id, mem_quota, req=req)

    def _build_spec(self, node_id: Any, req: Any = None) -> Any:
        spec = self._stock_spec(node_id, req=req)
        with self._contained():
            self._spec = (len(spec[0].host_indices), bool(spec[1]))
        return spec

    def _load(self, *args: Any, **keywords: Any) -> Any:
        indices = self._stock_load(*args, **keywords)
        self._loads += 1
        self._failed_loads += indices is None
        return indices

    def _transfers(self, **asked: Any) -> Any:
        free, loads, failed = 0, self._loads, self._failed_loads
        with self._contained():
            free = free_of(self._cache)
            self._spec = (0, False)
        done = self._stock_transfers(**asked)
        with self._contained():
            tokens, others = self._spec
            self._request, self._asked = asked["req"], tokens
            self._evicted = max(0, free_of(self._cache) - free + (tokens if done else 0))
            if done:
                self._host = HostHit.LOADED
                self._flying[asked["node_id"]] = (asked["req"], tokens)
            elif self._failed_loads > failed:
                self._host = HostHit.OWNER_LANE if self._lanes > 1 else HostHit.CONTROLLER
            elif self._loads > loads:
                self._host = HostHit.NOT_TOLD
            else:
                quota, locked = asked["mem_quota"], asked["result"].delta
                self._host = not_loaded(self._cache, tokens, others=others, quota=quota, locked=locked)
        return done

    def _check(self, finish_count: int | None = None) -> None:
        flying = list(self._flying)
        self._stock_check(finish_count)
        with self._contained():
            for node in flying:
                if node not in self._cache.ongoing_load_back:
                    self._landed(*self._flying.pop(node))

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self._fail(error)


def not_loaded(cache: Any, tokens: int, *, others: bool, quota: int | None, locked: int) -> HostHit:
    """Why a load of `tokens` host tokens did not come to the cache's controller. `locked` is what it would pin."""
    if tokens == 0 and not others:
        return HostHit.IN_FLIGHT  # another load holds one of its nodes
    if tokens < max(1, cache.load_back_threshold) and not others:
        return HostHit.BELOW_THRESHOLD
    if quota is not None and tokens + locked > quota:
        return HostHit.QUOTA
    return HostHit.ALLOCATOR


def free_of(cache: Any) -> int:
    """Free tokens of the pool: on pages that are dealt to lanes those of all lanes together."""
    allocator = cache.token_to_kv_pool_allocator
    aggregate = getattr(allocator, "aggregate_free_size", None)
    return int(allocator.available_size() if aggregate is None else aggregate())


def quota_of(cache: Any) -> int:
    """What a load may use, in tokens: free and evictable."""
    return int(cache.token_to_kv_pool_allocator.available_size() + cache.evictable_size())


def lanes_of(allocator: Any) -> int:
    """Ranks among which the pool's pages are dealt; 1 where they are not."""
    return int(getattr(allocator, "shard_size", 1))
