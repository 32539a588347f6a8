"""Load-backs of the real UnifiedRadixCache with its host cache: each outcome with its cause, and the quota's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bare import Shelf, gated_pass, terms_of
from sglang_pass import Prefix, Spec, Waiting, World

from controller.decision import Decision
from controller.engines.sglang.hits import LoadWatch, quota_of
from controller.vocabulary import HostHit, Outcome

if TYPE_CHECKING:
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

PAGE = 16


def world_of(
    server_args: Any, *, host: int = 320, pool: int = 4096, eat: int = 0, fillers: tuple[int, ...] = ()
) -> World:
    """A world in which the host alone has `host` tokens of prefix 0, and `fillers` are evictable on the device."""
    return World(
        Spec("host", PAGE, pool, 16, 1.0, 2048, 16_384, eat, (), (Prefix(0, host, locked=False),), fillers), server_args
    )


def node_of(world: World, host: int = 320) -> Any:
    """The node at which the host hit of prefix 0 ends, and a request that has it."""
    world.queue = [world._wait(Waiting(0, host, host + 40, 8))]
    request = world.queue[0]
    request.init_next_round_input(world.tree)
    assert request.host_hit_length == host
    return request.best_match_node, request


class Told:
    """What the watch says of one load."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.loaded = 0
        self.host: HostHit | None = None
        self.asked = self.evicted = -1


@pytest.fixture
def watched() -> Any:
    """Stand around a tree's load-backs; what it is told is on the shelf."""
    shelf = Shelf()

    def watch(tree: UnifiedRadixCache) -> LoadWatch:
        def failed(error: BaseException) -> None:
            raise error

        shelf.landed = []  # type: ignore[attr-defined]
        return LoadWatch(tree, lambda request, tokens: shelf.landed.append((request, tokens)), failed)  # type: ignore[attr-defined]

    watch.shelf = shelf  # type: ignore[attr-defined]
    return watch


def outcome(watch: LoadWatch, request: Any) -> Told:
    """What became of the last load of a request."""
    told = Told(request)
    watch.tell(told)  # type: ignore[arg-type]
    return told


def test_a_load_is_told_with_its_tokens_and_lands(server_args, watched):
    """A hit with room is loaded whole; when it has reached the device its request and tokens are told once."""
    world = world_of(server_args)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert world.tree.load_back(node, req=request)
    told = outcome(watch, request)
    assert (told.host, told.asked, told.evicted) == (HostHit.LOADED, 320, 0)
    world.tree.ready_to_load_host_cache()
    while world.tree.ongoing_load_back:
        world.tree.check_hicache_events()
    assert watched.shelf.landed == [(request, 320)]


def test_what_is_evicted_for_a_load_is_counted(server_args, watched):
    """A load for which evictable tokens make room says how many had to go."""
    world = world_of(server_args, pool=1024, eat=304, fillers=(640,))
    watch = watched(world.tree)
    assert world.allocator.available_size() < 320
    free = world.allocator.available_size()
    node, request = node_of(world)
    assert world.tree.load_back(node, req=request)
    told = outcome(watch, request)
    assert told.host is HostHit.LOADED
    assert told.evicted == world.allocator.available_size() - free + 320 > 0


def test_below_the_threshold_nothing_is_loaded(server_args, watched):
    """A hit shorter than the threshold is named so, with the tokens that were asked for."""
    world = world_of(server_args)
    world.tree.load_back_threshold = 321
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, req=request)
    told = outcome(watch, request)
    assert (told.host, told.asked) == (HostHit.BELOW_THRESHOLD, 320)


def test_evictable_counts_in_the_quota(server_args, watched):
    """An engine that passes a quota gets free plus evictable: a hit that eviction makes room for is loaded.

    With the free tokens alone, which is what an engine might pass, the stock cache turns the same hit away.
    """
    stock = world_of(server_args, pool=1024, eat=304, fillers=(640,))
    node, request = node_of(stock)
    free = stock.allocator.available_size()
    assert free < 320 < free + stock.tree.evictable_size()
    assert not stock.tree.load_back(node, mem_quota=free, req=request)

    world = world_of(server_args, pool=1024, eat=304, fillers=(640,))
    watch = watched(world.tree)
    node, request = node_of(world)
    assert quota_of(world.tree) == world.allocator.available_size() + world.tree.evictable_size()
    assert world.tree.load_back(node, mem_quota=free, req=request)
    assert outcome(watch, request).host is HostHit.LOADED


def test_beyond_free_and_evictable_the_quota_refuses(server_args, watched):
    """What neither free nor evictable tokens hold is refused as quota, before anything is evicted."""
    world = world_of(server_args, pool=1024, eat=832)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, mem_quota=0, req=request)
    told = outcome(watch, request)
    assert (told.host, told.asked, told.evicted) == (HostHit.QUOTA, 320, 0)


def test_no_room_after_eviction_is_told_apart(server_args, watched):
    """Without a quota the cache evicts what it can, and where that is not enough the allocator is named."""
    world = world_of(server_args, pool=1024, eat=832)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, req=request)
    assert outcome(watch, request).host is HostHit.ALLOCATOR


def test_a_controller_that_fails_is_told_apart(server_args, watched, monkeypatch):
    """There was room, and the controller's load came to nothing."""
    world = world_of(server_args)
    monkeypatch.setattr(world.tree.cache_controller, "load", lambda **_: None, raising=False)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, req=request)
    assert outcome(watch, request).host is HostHit.CONTROLLER


def test_on_dealt_pages_a_failing_load_is_the_lanes(server_args, watched, monkeypatch):
    """With pages dealt to owner lanes the controller draws them lane by lane, so that what failed it is a lane."""
    world = world_of(server_args)
    monkeypatch.setattr(world.tree.cache_controller, "load", lambda **_: None, raising=False)
    monkeypatch.setattr(world.allocator, "shard_size", 4, raising=False)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, req=request)
    assert outcome(watch, request).host is HostHit.OWNER_LANE


def test_a_hit_that_another_load_holds_is_in_flight(server_args, watched, monkeypatch):
    """The tree gives an empty transfer for a node that another load is bringing; that is named, and nothing asked."""
    world = world_of(server_args)
    build = world.tree.tree_core.build_load_back_spec

    def held(node_id: Any, req: Any = None) -> Any:
        transfer, _ = build(node_id, req=req)
        transfer.host_indices = transfer.host_indices[:0]
        return transfer, {}

    monkeypatch.setattr(world.tree.tree_core, "build_load_back_spec", held, raising=False)
    watch = watched(world.tree)
    node, request = node_of(world)
    assert not world.tree.load_back(node, req=request)
    told = outcome(watch, request)
    assert (told.host, told.asked) == (HostHit.IN_FLIGHT, 0)


def test_a_load_that_was_not_watched_is_never_guessed(server_args, watched):
    """Of a load that came another way nothing is told but whether it brought something."""
    world = world_of(server_args)
    watch = watched(world.tree)
    _, request = node_of(world)
    assert outcome(watch, request).host is HostHit.NOT_TOLD


def test_let_go_leaves_the_cache_as_it_was(server_args, watched):
    """Nothing of the watch stays on the cache, its tree or its controller."""
    world = world_of(server_args)
    watch = watched(world.tree)
    assert "load_back" in world.tree.__dict__
    watch.let_go()
    for owner in (world.tree, world.tree.tree_core, world.tree.cache_controller):
        assert not {"load_back", "loading_check", "build_load_back_spec", "load"} & set(owner.__dict__)
    node, request = node_of(world)
    assert world.tree.load_back(node, req=request)


def test_a_failed_load_is_in_the_decision_with_both_ladders(server_args):
    """The first ladder counted on the hit, the second did not; both are kept, with what was asked and recomputed."""
    spec = Spec("host", PAGE, 4096, 16, 1.0, 2048, 16_384, prefixes=(Prefix(0, 320, locked=False),),
                queue=(Waiting(0, 320, 400, 8),))  # fmt: skip
    failing = type("Failing", (World,), {"_fill_tree": fill_and_fail})
    passed = gated_pass(spec, server_args, terms_of(spec), kind=failing)
    told = Decision.read(passed.result.decisions[0])
    assert (told.outcome, told.host) == (Outcome.ADMIT, HostHit.CONTROLLER)
    assert (told.matched_tokens, told.asked_tokens, told.loaded_tokens, told.extend_tokens) == (320, 320, 0, 400)
    before, after = told.ladder(told.checks_before_load_failure), told.ladder()
    assert (before[4].observed, after[4].observed) == (80, 400)
    assert (before[5].observed, after[5].observed) == (320, 0)


def fill_and_fail(world: World) -> None:
    """Fill the tree as ever, and let every load after that fail in the controller."""
    World._fill_tree(world)
    world.tree.cache_controller.load = lambda **_: None
