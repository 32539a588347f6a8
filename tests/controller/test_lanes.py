"""Owner lanes: how pages spread over them, and the room a request needs in each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.knobs import Knobs
from controller.lanes import LaneRoom, spread
from controller.request import Candidate, Capacity, Lane

PAGED = {"page_size": 64, "shared_kv_batching": True}


def lanes(*pages):
    """Lanes with this many free pages."""
    return [{"free_pages": each} for each in pages]


@given(first=st.integers(0, 7), pages=st.integers(0, 200), count=st.integers(1, 8))
def test_pages_spread_over_the_lanes_in_turn(first, pages, count):
    """Page P of a chain that begins in lane b belongs to lane (b + P) mod N."""
    first %= count
    owned = [0] * count
    for page in range(pages):
        owned[(first + page) % count] += 1
    assert spread(first, pages, count) == owned


def test_a_lane_without_its_share_keeps_a_request_out(decided):
    """A request whose pages fit the pool waits when one lane cannot take its share and a page, told in pages."""
    answer = decided(
        [{"prompt_tokens": 8 * 64, "first_lane": 0}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(100, 3, 100, 100)},
    )
    assert answer.told["a"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("a") == (3, 3, 1, "pages")


def test_a_lane_is_strictly_more_than_the_share_and_one_page(decided):
    """One page more in the tight lane lets the same request in."""
    answer = decided(
        [{"prompt_tokens": 8 * 64, "first_lane": 0}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(100, 4, 100, 100)},
    )
    assert answer.told["a"][0] == "admit"


def test_evictable_pages_are_room_in_a_lane(decided):
    """A lane's evictable pages count as its free ones do."""
    tight = {"free_pages": 0, "evictable_pages": 4}
    answer = decided(
        [{"prompt_tokens": 8 * 64}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": [*lanes(100, 100, 100), tight]},
    )
    assert answer.told["a"][0] == "admit"


def test_the_overhead_is_one_page_in_every_lane(decided):
    """With four lanes a request reserves four pages beside its prompt and output."""
    answer = decided(
        [{"prompt_tokens": 100, "output_tokens": 20}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(50, 50, 50, 50)},
    )
    assert answer.check("a", "kv_capacity")["observed"] == 100 + 20 + 4 * 64


def test_the_pool_is_tested_as_well_as_the_lanes(decided):
    """Lanes with room do not help a request that the pool has no room for."""
    answer = decided(
        [{"prompt_tokens": 500}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"free_tokens": 600, "lanes": lanes(50, 50)},
    )
    assert answer.told["a"] == ("wait", "kv_capacity", "pool")


def test_the_lane_of_page_zero_decides_where_the_odd_page_falls(decided):
    """A request of one page needs its page in its own first lane and only the spare page elsewhere."""
    case = {"context_parallel": True, "knobs": PAGED, "capacity": {"lanes": lanes(2, 3)}}
    assert decided([{"prompt_tokens": 64, "first_lane": 1}], **case).told["a"][0] == "admit"
    answer = decided([{"prompt_tokens": 64, "first_lane": 0}], **case)
    assert answer.told["a"] == ("wait", "kv_capacity", "lane")


def test_a_new_chain_begins_in_the_lane_with_the_most_room(decided):
    """A request with no chain yet is tested from the lane with the most room."""
    answer = decided([{"prompt_tokens": 64}], context_parallel=True, knobs=PAGED, capacity={"lanes": lanes(2, 2, 3, 2)})
    assert answer.told["a"][0] == "admit"


def test_what_members_take_of_a_lane_is_gone_for_the_next(decided):
    """Pages promised to a member are no room in its lanes for those behind it."""
    case = {"context_parallel": True, "knobs": PAGED, "capacity": {"lanes": lanes(8, 8)}}
    request = {"prompt_tokens": 6 * 64, "first_lane": 0}
    assert decided([request], **case).told["a"][0] == "admit"
    answer = decided([request, request], **case)
    assert answer.told["b"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("b") == (4, 4, 1, "pages")


def own_hit(decided, free, *behind):
    """A request of six pages, four of them an evictable device hit, on two lanes with two evictable pages each."""
    lane = {"free_pages": free, "evictable_pages": 2}
    request = {"prompt_tokens": 6 * 64, "device_hit_tokens": 4 * 64, "first_lane": 0}
    return decided(
        [request, *behind],
        context_parallel=True,
        knobs=PAGED,
        capacity={"free_tokens": 100_000, "evictable_tokens": 4 * 64, "lanes": [lane, lane]},
    )


def test_an_own_device_hit_is_no_room_in_its_lanes(decided):
    """The pages of a candidate's own unlocked device hit are no room in the lanes that own them."""
    assert own_hit(decided, 3).told["a"][0] == "admit"
    answer = own_hit(decided, 2)
    assert answer.told["a"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("a") == (2, 2, 1, "pages")


def test_a_device_hit_that_a_member_locked_is_no_room_in_its_lanes(decided):
    """Behind a member its locked pages, its computed ones and one spare page are gone from every lane."""
    answer = own_hit(decided, 10, {"prompt_tokens": 14 * 64, "first_lane": 0})
    assert answer.told["b"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("b") == (8, 8, 1, "pages")
    assert own_hit(decided, 10, {"prompt_tokens": 12 * 64, "first_lane": 0}).told["b"][0] == "admit"


def test_what_is_computed_lies_behind_the_hit(decided):
    """Pages to compute go on where a device hit ends: behind one page in lane 0 the next is lane 1's."""
    request = {"prompt_tokens": 2 * 64, "device_hit_tokens": 64, "device_hit_locked": True, "first_lane": 0}
    case = {"context_parallel": True, "knobs": PAGED}
    assert decided([request], capacity={"lanes": lanes(2, 3)}, **case).told["a"][0] == "admit"
    assert decided([request], capacity={"lanes": lanes(3, 2)}, **case).told["a"] == ("wait", "kv_capacity", "lane")
    behind = {"prompt_tokens": 13 * 64, "first_lane": 0}
    assert decided([request, behind], capacity={"lanes": lanes(10, 10)}, **case).told["b"][0] == "admit"
    assert decided([request, behind], capacity={"lanes": lanes(9, 10)}, **case).told["b"][0] == "wait"


@pytest.mark.parametrize(
    "member", [{"prompt_tokens": 6 * 64, "host_hit_tokens": 4 * 64}, {"prompt_tokens": 64, "output_tokens": 5 * 64}]
)
def test_loads_and_output_are_promised_in_their_lanes(decided, member):
    """What a member loads from the host and what it may generate is gone from its lanes for the next."""
    queue = [{**member, "first_lane": 0}, {"prompt_tokens": 10 * 64, "first_lane": 0}]
    answer = decided(queue, context_parallel=True, knobs=PAGED, capacity={"lanes": lanes(10, 10)})
    assert answer.told["b"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("b") == (6, 6, 1, "pages")


def test_the_reserve_of_running_requests_falls_evenly_on_the_lanes(decided):
    """What running requests hold back is taken from every lane, in whole pages."""
    answer = decided(
        [{"prompt_tokens": 64, "first_lane": 0}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(4, 4)},
        running=[{"remaining_output_tokens": 4 * 64}],
        new_token_ratio=1.0,
    )
    assert answer.told["a"] == ("wait", "kv_capacity", "lane")
    assert answer.numbers("a") == (2, 2, 1, "pages")


def test_what_an_empty_lane_could_never_take_is_refused(decided):
    """A request that fits the pool and no empty set of lanes is refused for good, and the queue goes on."""
    answer = decided(
        [{"prompt_tokens": 18 * 64}, {"prompt_tokens": 64}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"pool_tokens": 21 * 64, "lanes": lanes(10, 10)},
    )
    assert answer.told == {"a": ("refuse", "kv_capacity", "can_never"), "b": ("admit", None, None)}
    assert answer.of("a")["observed"] == 18 * 64 + 2 * 64
    assert answer.of("a")["unit"] == "tokens"


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("pool_pages", [40, 101])
def test_the_largest_prompt_shown_is_the_largest_that_enters_empty_lanes(decided, count, pool_pages):
    """The largest prompt shown enters empty lanes with one output token, and one token more never can."""
    empty = {"pool_tokens": pool_pages * 64, "lanes": lanes(*[pool_pages // count] * count)}
    case = {"context_parallel": True, "knobs": PAGED, "capacity": empty}
    largest = decided(**case).data["largest_prompt_tokens"]
    outcomes = [
        decided([{"prompt_tokens": largest + more, "output_tokens": 1, "first_lane": 0}], **case).told["a"][0]
        for more in (0, 1)
    ]
    assert outcomes[0] in ("admit", "admit_chunk")
    assert outcomes[1] == "refuse"


def test_a_full_lane_is_no_reason_to_refuse_for_good(decided):
    """A lane that is full at the moment makes a request wait; can_never looks at empty lanes."""
    answer = decided(
        [{"prompt_tokens": 64}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"pool_tokens": 2000, "lanes": lanes(0, 10)},
    )
    assert answer.told["a"] == ("wait", "kv_capacity", "lane")


def test_a_continuing_chunk_is_cut_to_what_its_lanes_hold(decided):
    """A continuing chunk whose lanes hold less than its pool is cut in whole pages, named by the lane."""
    answer = decided(
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(10, 10)},
        active_chunk={"id": "L", "prompt_tokens": 64 * 200, "done_tokens": 64 * 20},
    )
    assert answer.told["L"] == ("admit_chunk", "kv_capacity", "lane")
    assert answer.extends["L"] == 20 * 64


def test_a_continuing_chunk_is_parked_when_its_lanes_are_full(decided):
    """A continuing chunk with no page left in any lane is parked, whatever the pool says."""
    answer = decided(
        [{"prompt_tokens": 1}],
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(0, 0)},
        active_chunk={"id": "L", "prompt_tokens": 64 * 200, "done_tokens": 64 * 20},
    )
    assert answer.told == {"L": ("park", "kv_capacity", "lane")}
    assert answer.closed == ("kv_capacity", "lane")
    assert answer.of("L")["unit"] == "pages"


@pytest.mark.parametrize("request_lanes", [(), (Lane(40, 10),)])
def test_without_lanes_there_is_one(drive, request_lanes):
    """A pool without lanes decides as one lane that holds the whole pool does."""
    room = Capacity(pool_tokens=6400, free_tokens=2560, evictable_tokens=640, lanes=request_lanes)
    queue = [Candidate(n, 640, 0) for n in range(6)]
    assert drive(queue, knobs=Knobs(page_size=64), capacity=room).engine.commits == [0, 1, 2, 3]


def test_a_lane_room_counts_free_evictable_and_reserved_pages():
    """A lane's room is its free and evictable pages less its share of the reserve, rounded up to a page."""
    capacity = Capacity(
        pool_tokens=6400, free_tokens=3200, evictable_tokens=640, reserved_tokens=129, lanes=(Lane(25, 5), Lane(25, 5))
    )
    assert LaneRoom(capacity, 64).room == [28, 28]


def test_lanes_used_up_close_the_pass(decided):
    """A chunk cut to what its lanes hold leaves them without room, and that closes the pass."""
    answer = decided(
        context_parallel=True,
        knobs=PAGED,
        capacity={"lanes": lanes(10, 10)},
        active_chunk={"id": "L", "prompt_tokens": 64 * 200, "done_tokens": 64 * 20},
    )
    assert answer.closed == ("kv_capacity", "lane")
