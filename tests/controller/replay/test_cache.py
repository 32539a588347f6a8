"""The prefix cache."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay.cache import Hold, PrefixCache
from controller.engines.replay.traces import open_trace
from controller.request import Lane
from controller.vocabulary import HostHit
from estimator.errors import InputError, UsageError
from tests.controller.replay import naive_cache

TRACE = Path(__file__).resolve().parents[3].parent / "shared/traces/mooncake_conversation.jsonl"


def make(device=64, host=0, **more):
    """A small cache with pages of one token and blocks of four."""
    arguments = {"page_tokens": 1, "block_tokens": 4, "device_tokens": device, "host_tokens": host} | more
    return PrefixCache(**arguments)


def begin(cache, blocks, tokens):
    """Admit a request of `tokens` tokens on its own and compute it; what it hit, and its hold."""
    hold = Hold()
    cache.open(hold, tuple(blocks), tokens)
    match = cache.match(hold, tokens)
    cache.commit(hold)
    hit = match.device_tokens // cache.page
    cache.grow(hold, hit, -(-tokens // cache.page) - hit)
    return match, hold


def serve(cache, blocks, tokens):
    """Serve a request to its end."""
    match, hold = begin(cache, blocks, tokens)
    cache.release(hold, tokens)
    return match


def look(cache, blocks, tokens):
    """What a request would hit, and its hold."""
    hold = Hold()
    cache.open(hold, tuple(blocks), tokens)
    return cache.match(hold, tokens), hold


@st.composite
def operations(draw):
    """A cache's shape and a random sequence of (operation, number, number)."""
    page, block = draw(st.sampled_from([(1, 1), (1, 3), (2, 4), (4, 2), (3, 3)]))
    lanes = draw(st.sampled_from([1, 1, 2, 3]))
    device = draw(st.integers(lanes * 2, 14)) * page
    host = draw(st.sampled_from([0, 1, 3, 6, 12, 100])) * page
    policy = draw(st.sampled_from(["write_through", "write_back"]))
    step = st.tuples(st.sampled_from("AAACFFFDLM"), st.integers(0, 1 << 16), st.integers(0, 1 << 16))
    steps = draw(st.lists(step, max_size=30) | st.builds(long_sequence, st.integers(0, 1 << 32)))
    return page, block, lanes, device, host, policy, steps


def long_sequence(seed):
    """Enough operations for chains to move between the tiers."""
    draw = Random(seed)  # noqa: S311 - a reproducible test, no secret
    return [(draw.choice("AACFFFFDLLLM"), draw.getrandbits(16), draw.getrandbits(16)) for _ in range(150)]


class Pair:
    """The fast cache and the naive one, doing the same and compared after each operation."""

    def __init__(self, page, block, lanes, device, host, policy):
        self.page, self.block, self.lanes, self.host = page, block, lanes, host
        self.fast = PrefixCache(
            page_tokens=page,
            block_tokens=block,
            device_tokens=device,
            host_tokens=host,
            lanes=lanes,
            write_policy=policy,
        )
        self.slow = naive_cache.NaiveCache(page, block, device, host, lanes, policy)
        self.live = []

    def do(self, what, a, b):
        """One operation; numbers that make no sense at present do nothing."""
        if what in "AML":
            self.arrive(what, a, b)
        elif what == "C" and self.live:
            hold, twin, tokens = self.live[a % len(self.live)]
            self.fast.insert(hold, b % (tokens + 1))
            self.slow.insert(twin, b % (tokens + 1))
        elif what == "F" and self.live:
            hold, twin, tokens = self.live.pop(a % len(self.live))
            self.fast.release(hold, tokens)
            self.slow.release(twin, tokens)
        elif what == "D" and self.live and self.lanes == 1:
            hold, twin, tokens = self.live[a % len(self.live)]
            if tokens % self.page == 0 and self.has_room(twin, 1):
                self.fast.take(1)
                self.slow.grow(twin, 1)
                self.live[a % len(self.live)] = hold, twin, tokens + self.page
        naive_cache.check_books(self.fast, self.slow)

    def arrive(self, what, a, b):
        """A request is matched (M), loads its host hit (L), and is admitted (L and A)."""
        blocks = tuple((a >> (2 * i)) & 1 for i in range(1 + b % 6))
        tokens = max(1, len(blocks) * self.block - (b >> 4) % self.block)
        hold, twin = Hold(), self.slow.open(blocks, tokens)
        self.fast.open(hold, blocks, tokens)
        match = self.fast.match(hold, tokens + 1)
        *pages, first = self.slow.match(twin, tokens + 1)
        found = [match.device_tokens, match.unlocked_tokens, match.host_tokens, match.resident_tokens]
        assert found == [count * self.page for count in pages]
        assert match.first_lane == first
        naive_cache.check_books(self.fast, self.slow)
        if what == "M":
            return
        if what == "L" and match.host_tokens:
            self.load(hold, twin, match.host_tokens)
        self.fast.commit(hold)
        self.slow.commit(twin)
        assert hold.base == twin.base
        more = -(-tokens // self.page) - twin.locked
        if not self.has_room(twin, more):
            more, tokens = 0, twin.locked * self.page  # it holds its prefix and no more
        self.fast.grow(hold, twin.locked, more)
        self.slow.grow(twin, more)
        self.live.append((hold, twin, tokens))

    def load(self, hold, twin, wanted):
        """Load the host hit."""
        answer = self.fast.load(hold)
        status, evicted = self.slow.load(twin)
        assert answer == (wanted if status is HostHit.LOADED else 0, status, evicted * self.page)
        naive_cache.check_books(self.fast, self.slow)

    def has_room(self, twin, pages):
        """Whether every lane can give its share of private pages."""
        room = map(int.__add__, self.slow.free_lanes(), self.slow.evictable_lanes())
        need = [0] * self.lanes
        for page in range(twin.total, twin.total + pages):
            need[(twin.base + page) % self.lanes] += 1
        return all(wanted <= left for wanted, left in zip(need, room, strict=True))


@settings(max_examples=250, deadline=None)
@given(operations())
def test_agrees_with_a_naive_cache(case):
    """On any sequence of operations hits, loads, evictions and books are those of a cache that counts page by page."""
    *shape, steps = case
    pair = Pair(*shape)
    for step in steps:
        pair.do(*step)


def test_hits_of_a_real_trace():
    """With 10,000 blocks, one request after the other, the Mooncake conversation hits 61,046 of its 288,500 blocks."""
    if not TRACE.exists():
        pytest.skip(f"{TRACE} is not here")
    block = 512
    cache = PrefixCache(page_tokens=block, block_tokens=block, device_tokens=10_000 * block)
    blocks = hits = 0
    with open_trace(TRACE) as trace:
        for request in trace:
            count = len(request.blocks)
            hold = Hold()
            cache.open(hold, request.blocks, count * block)
            hit = cache.match(hold, count * block + 1).device_tokens // block
            cache.commit(hold)
            cache.grow(hold, hit, count - hit)
            cache.release(hold, count * block)
            blocks += count
            hits += hit
    assert (hits, blocks) == (61_046, 288_500)


def test_a_hit_leaves_a_token_to_compute():
    """The last token of a prompt is computed even when all of it is cached."""
    cache = make()
    serve(cache, [1, 2], 8)
    assert look(cache, [1, 2], 8)[0].device_tokens == 7
    assert look(cache, [1, 2], 9)[0].device_tokens == 8
    assert (
        PrefixCache(page_tokens=4, block_tokens=4, device_tokens=64).match(look(cache, [1], 4)[1], 4).device_tokens == 0
    )


def test_a_partly_filled_block_caches_its_whole_pages():
    """Of a block that a prompt fills in part the whole pages are cached, and a longer prompt adds the rest."""
    cache = make(page_tokens=2, block_tokens=8)
    serve(cache, [1, 2], 13)
    assert look(cache, [1, 2], 16)[0].device_tokens == 12
    serve(cache, [1, 2, 3], 19)
    assert look(cache, [1, 2, 3], 24)[0].device_tokens == 18
    assert cache.free_tokens == 64 - 18


def test_a_prefix_being_computed_is_no_hit():
    """Others hit what a request computes once it is inserted, not before."""
    cache = make()
    _, hold = begin(cache, [1, 2], 8)
    assert look(cache, [1, 2], 9)[0].device_tokens == 0
    cache.insert(hold, 5)
    assert look(cache, [1, 2], 9)[0].device_tokens == 5
    cache.release(hold, 8)
    assert look(cache, [1, 2], 9)[0].device_tokens == 8


def test_what_two_requests_compute_alike_is_kept_once():
    """Pages that are in the tree when a request is inserted are freed."""
    cache = make()
    _, one = begin(cache, [1, 2], 8)
    _, two = begin(cache, [1, 2, 3], 12)
    assert cache.free_tokens == 64 - 20
    cache.release(one, 8)
    cache.insert(two, 12)
    assert cache.free_tokens == 64 - 12
    assert cache.evictable_tokens == 0
    cache.release(two, 12)
    assert cache.evictable_tokens == 12


def test_a_prompt_without_block_ids_shares_nothing():
    """A request whose content is not known takes pages and gives all of them back."""
    cache = make()
    serve(cache, [], 30)
    assert cache.free_tokens == 64


def test_the_least_recently_touched_leaf_goes_first():
    """A hit saves a chain from eviction at the expense of one touched before it; its tail goes first."""
    cache = make(device=16)
    serve(cache, [1, 2], 8)
    serve(cache, [3, 4], 8)
    serve(cache, [1, 2], 8)
    serve(cache, [5], 3)
    assert look(cache, [3, 4], 9)[0].device_tokens == 5
    assert look(cache, [1, 2], 9)[0].device_tokens == 8


def test_what_is_locked_stays():
    """A locked prefix is neither evictable nor evicted, and its part beyond the lock is."""
    cache = make(device=16)
    serve(cache, [1, 2], 8)
    match, hold = begin(cache, [1, 9], 6)
    assert (match.device_tokens, match.unlocked_tokens) == (4, 4)
    assert cache.evictable_tokens == 4
    assert look(cache, [1, 2], 9)[0].unlocked_tokens == 4
    cache.take(10)
    assert (cache.free_tokens, cache.evictable_tokens) == (0, 0)
    assert look(cache, [1, 2], 9)[0].device_tokens == 4
    cache.release(hold, 6)
    assert cache.evictable_tokens == 6


def test_a_look_leaves_no_trace():
    """Matching changes neither the order of eviction nor any count."""
    cache = make(device=16, host=16)
    serve(cache, [1, 2], 8)
    serve(cache, [3, 4], 8)
    stamps = cache._tree.clock
    match, _ = look(cache, [1, 2], 9)
    assert match.unlocked_tokens == match.device_tokens == 8
    assert (cache._tree.clock, cache.free_tokens, cache.evictable_tokens) == (stamps, 0, 16)
    serve(cache, [5], 1)
    assert look(cache, [1, 2], 9)[0].device_tokens == 7


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_what_left_the_device_is_loaded_back(policy):
    """A chain evicted from the device is a host hit, and a load brings all of it to the device."""
    cache = make(device=16, host=64, write_policy=policy)
    serve(cache, [1, 2], 8)
    assert cache._host.free == (56 if policy == "write_through" else 64)
    serve(cache, [3, 4, 5, 6], 14)
    match, hold = look(cache, [1, 2], 9)
    assert (match.device_tokens, match.host_tokens, match.resident_tokens) == (2, 6, 6)
    answer = cache.load(hold)
    assert (answer.loaded_tokens, answer.host, answer.evicted_tokens) == (6, HostHit.LOADED, 6)
    assert look(cache, [1, 2], 9)[0].device_tokens == 8


def test_a_load_without_room_does_nothing():
    """A load that the allocator cannot serve loads nothing, evicts nothing and locks nothing."""
    cache = make(device=16, host=64)
    serve(cache, [1, 2, 3], 12)
    _, other = begin(cache, [7, 8, 9], 12)
    match, hold = look(cache, [1, 2, 3], 13)
    assert (match.device_tokens, match.host_tokens) == (4, 8)
    assert cache.load(hold) == (0, HostHit.ALLOCATOR, 0)
    assert (cache.free_tokens, cache.evictable_tokens) == (0, 4)
    cache.release(other, 12)


def test_no_host_tier_answers_disabled():
    """Without a host tier a match says so."""
    assert look(make(), [1], 4)[0].host_answer is HostHit.DISABLED
    assert look(make(host=4), [1], 4)[0].host_answer is HostHit.PLANNED


def test_pages_go_around_the_lanes():
    """Page P of a chain lies in lane (b + P) mod N, and a chain begins in the lane with most free pages."""
    cache = make(device=30, lanes=3)
    serve(cache, [1], 4)
    assert cache.lane_state() == (Lane(8, 2), Lane(9, 1), Lane(9, 1))
    match, hold = begin(cache, [2], 2)
    assert match.first_lane is None
    assert hold.base == 1
    assert cache.lane_state() == (Lane(8, 2), Lane(8, 1), Lane(8, 1))
    cache.release(hold, 2)
    assert look(cache, [2], 4)[0].first_lane == 1


def test_a_chain_that_began_in_another_lane_takes_nothing_in():
    """When two requests begin the same chain in different lanes, the later one's pages stay private until it ends."""
    cache = make(device=30, lanes=3)
    _, one = begin(cache, [1], 4)
    _, two = begin(cache, [1], 4)
    assert (one.base, two.base) == (0, 1)
    cache.insert(one, 4)
    cache.insert(two, 4)
    assert cache.free_tokens == 22
    cache.release(two, 4)
    assert cache.free_tokens == 26


def test_an_owner_lane_can_be_short_alone():
    """A load fails for its owner lane when the pool has room and that lane has not."""
    cache = make(device=12, host=64, lanes=3, page_tokens=1, block_tokens=1)
    serve(cache, [1], 1)
    _, hold = begin(cache, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], 12)  # lane 0 is full, block 1 evicted
    cache.release(hold, 12)
    _, one = begin(cache, [20, 21, 22, 23, 24, 25, 26, 27, 28, 29], 10)
    match, hold = look(cache, [1], 2)
    if not match.host_tokens:
        pytest.fail("block 1 should be on the host alone")
    answer = cache.load(hold)
    lanes = cache.lane_state()
    assert answer.host is (HostHit.LOADED if lanes[0].free_pages + lanes[0].evictable_pages else HostHit.OWNER_LANE)
    cache.release(one, 10)


def test_pages_larger_than_blocks():
    """A page made of several blocks is hit when all of them agree."""
    cache = make(page_tokens=8, block_tokens=4)
    serve(cache, [1, 2, 3, 4], 16)
    assert look(cache, [1, 2, 3, 9], 17)[0].device_tokens == 8
    assert look(cache, [1, 2, 3, 4], 17)[0].device_tokens == 16


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"page_tokens": 3}, InputError, "page_size 3 and the workload's blocks of 4 tokens"),
        ({"page_tokens": 6}, InputError, "page_size 6 and the workload's blocks of 4 tokens"),
        ({"device_tokens": 2, "lanes": 3}, UsageError, "2 pages for 3 owner lanes"),
        ({"host_tokens": -1}, UsageError, "host_tokens is -1"),
    ],
)
def test_shapes_that_cannot_be(arguments, error, words):
    """A page that does not fit the blocks, a pool without a page and a negative tier are refused in one line."""
    with pytest.raises(error, match=words):
        make(**arguments)


def test_unbounded_tiers():
    """None is a tier without a bound."""
    cache = make(device=None, host=None)
    for chain in range(100):
        serve(cache, range(chain, chain + 50), 200)
    assert cache.evictable_tokens == 100 * 200
    assert look(cache, range(50), 200)[0].device_tokens == 199
