"""LoadWatch: what becomes of each host hit that SGLang tries to load, and why one is not loaded.

Read in SGLang 0.5.23: `UnifiedRadixCache.load_back`, `_load_back_transfers`, `loading_check`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from controller.engines.sglang.hooks import Hooks
from controller.engines.sglang.pool import free_of, lanes_of, quota_of
from controller.vocabulary import HostHit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.engines.sglang.look import Look


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
        self._lanes = lanes_of(cache.token_to_kv_pool_allocator)
        self._hooks = Hooks()
        around = self._hooks.around
        around(cache, "load_back", self._load_back)
        around(cache, "_load_back_transfers", self._transfers)
        around(cache, "loading_check", self._check)
        around(cache.tree_core, "build_load_back_spec", self._build_spec)
        around(cache.cache_controller, "load", self._load)

    def let_go(self) -> None:
        """Leave the cache as it was."""
        self._hooks.let_go()

    def tell(self, look: Look) -> None:
        """Put what became of the last load into the look of the request it was for."""
        if self._request is look.request:
            look.host, look.asked, look.evicted = self._host, self._asked, self._evicted
            self._request = None
        else:
            look.host = HostHit.LOADED if look.loaded else HostHit.NOT_TOLD
            look.asked = look.loaded

    def _load_back(self, stock: Callable[..., Any], node_id: Any, mem_quota: int | None = None, req: Any = None) -> Any:
        if mem_quota is not None:
            with self._contained():
                mem_quota = max(mem_quota, quota_of(self._cache))
        return stock(node_id, mem_quota, req=req)

    def _build_spec(self, stock: Callable[..., Any], node_id: Any, req: Any = None) -> Any:
        spec = stock(node_id, req=req)
        with self._contained():
            self._spec = (len(spec[0].host_indices), bool(spec[1]))
        return spec

    def _load(self, stock: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        indices = stock(*args, **keywords)
        self._loads += 1
        self._failed_loads += indices is None
        return indices

    def _transfers(self, stock: Callable[..., Any], **asked: Any) -> Any:
        free, loads, failed = 0, self._loads, self._failed_loads
        with self._contained():
            free = self._free()
            self._spec = (0, False)
        done = stock(**asked)
        with self._contained():
            tokens, others = self._spec
            self._request, self._asked = asked["req"], tokens
            self._evicted = max(0, self._free() - free + (tokens if done else 0))
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

    def _check(self, stock: Callable[..., Any], finish_count: int | None = None) -> None:
        flying = list(self._flying)
        stock(finish_count)
        with self._contained():
            for node in flying:
                if node not in self._cache.ongoing_load_back:
                    self._landed(*self._flying.pop(node))

    def _free(self) -> int:
        return free_of(self._cache.token_to_kv_pool_allocator)

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
