"""The gate `kv_capacity`: what a request needs, what room there is, what can never fit."""

import pytest


def test_a_request_enters_only_if_its_need_is_strictly_less_than_the_room(decided):
    """Remaining prompt + output + one page must be strictly less than free + evictable; at equality it waits."""
    queue = [{"prompt_tokens": 800, "output_tokens": 136}]
    knobs = {"page_size": 64}
    at = decided(queue, knobs=knobs, capacity={"free_tokens": 600, "evictable_tokens": 400})
    assert at.told["a"] == ("wait", "kv_capacity", "pool")
    assert at.numbers("a") == (1000, 1000, 1, "tokens")
    below = decided(queue, knobs=knobs, capacity={"free_tokens": 600, "evictable_tokens": 401})
    assert below.told["a"] == ("admit", None, None)
    assert below.verdict("a", "kv_capacity") == "pass"


def test_output_is_charged_clipped(decided):
    """A candidate's output is charged as at most 4,096 tokens."""
    queue = [{"prompt_tokens": 1000, "output_tokens": 1_000_000}]
    answer = decided(queue, capacity={"free_tokens": 5098})
    assert answer.told["a"] == ("admit", None, None)
    assert answer.check("a", "kv_capacity")["observed"] == 1000 + 4096 + 1
    assert decided(queue, capacity={"free_tokens": 5097}).told["a"] == ("wait", "kv_capacity", "pool")


def test_chunking_limits_compute_and_not_the_room_a_request_needs(decided):
    """A prompt that would be cut to a chunk still needs room for all of it."""
    queue = [{"prompt_tokens": 20_000}]
    assert decided(queue, capacity={"free_tokens": 20_001}).told["a"] == ("wait", "kv_capacity", "pool")
    assert decided(queue, capacity={"free_tokens": 20_002}).extends == {"a": 8192}


def test_a_host_hit_costs_device_room_and_no_compute(decided):
    """Of six prompts of 65,000 with 64,000 on the host and 300,000 free, four enter with 1,000 computed each."""
    request = {"prompt_tokens": 65_000, "host_hit_tokens": 64_000, "output_tokens": 256}
    answer = decided([request] * 6, knobs={"page_size": 64}, capacity={"free_tokens": 300_000})
    assert answer.extends == {"a": 1000, "b": 1000, "c": 1000, "d": 1000}
    assert {m["host_loaded_tokens"] for m in answer.data["batch"]} == {64_000}
    assert answer.told["e"] == ("wait", "kv_capacity", "pool")
    assert answer.of("e")["observed"] == 65_000 + 256 + 64
    assert answer.not_reached == ["f"]


@pytest.mark.parametrize(
    ("running", "ratio", "reserve"),
    [
        ([{"remaining_output_tokens": 100}], 1.0, 100),
        ([{"remaining_output_tokens": 100}] * 3, 0.5, 150),
        ([{"remaining_output_tokens": 10_000}], 1.0, 4096),
        ([{"remaining_output_tokens": 10_000}], 0.5, 2048),
        ([{"remaining_output_tokens": 100, "ignore_eos": True}], 0.5, 100),
        ([{"remaining_output_tokens": 10_000, "ignore_eos": True}, {"remaining_output_tokens": 100}], 0.5, 4146),
        ([{"remaining_output_tokens": 0}], 1.0, 0),
    ],
)
def test_running_requests_reserve_clipped_output_times_the_ratio(decided, running, ratio, reserve):
    """Each running request holds back min(left, 4096) x new_token_ratio, or all of that min with ignore_eos."""
    answer = decided([{"prompt_tokens": 10}], capacity={"free_tokens": 10_000}, running=running, new_token_ratio=ratio)
    assert answer.check("a", "kv_capacity")["limit"] == 10_000 - reserve


def test_a_fraction_of_a_token_reserved_does_not_change_a_comparison(decided):
    """Half a token held back leaves a need at the whole number below the room in, and at the room out."""
    case = {"running": [{"remaining_output_tokens": 1}], "new_token_ratio": 0.5, "capacity": {"free_tokens": 100}}
    assert decided([{"prompt_tokens": 98}], **case).told["a"][0] == "admit"
    assert decided([{"prompt_tokens": 99}], **case).told["a"][0] == "wait"


def test_members_promise_their_prompt_output_and_a_page(decided):
    """What earlier members will hold is no room for a later candidate: whole pages, output and one page each."""
    queue = [{"prompt_tokens": 65, "output_tokens": 10}, {"prompt_tokens": 65, "output_tokens": 10}]
    answer = decided(queue, knobs={"page_size": 64}, capacity={"free_tokens": 1000})
    assert answer.check("a", "kv_capacity")["limit"] == 1000
    assert answer.check("b", "kv_capacity")["limit"] == 1000 - 128 - 10 - 64


def test_a_device_hit_that_a_member_locked_is_no_room_for_the_next(decided):
    """An admitted candidate's device hit is locked from there on, so it is evictable for nobody behind it."""
    queue = [{"prompt_tokens": 500, "device_hit_tokens": 300}, {"prompt_tokens": 10}]
    answer = decided(queue, capacity={"free_tokens": 700, "evictable_tokens": 300})
    assert answer.check("b", "kv_capacity")["limit"] == 1000 - 300 - 200 - 1
    locked = decided([{**queue[0], "device_hit_locked": True}, queue[1]], capacity={"free_tokens": 700})
    assert locked.check("b", "kv_capacity")["limit"] == 700 - 200 - 1


def test_a_pass_with_no_room_left_is_closed_by_kv_capacity(decided):
    """Room used up to the token by the page an admission rounds up to closes the pass."""
    knobs = {"page_size": 64}
    used_up = decided([{"prompt_tokens": 65}, {"prompt_tokens": 1}], knobs=knobs, capacity={"free_tokens": 192})
    assert used_up.closed == ("kv_capacity", "pool")
    assert used_up.not_reached == ["b"]
    one_left = decided([{"prompt_tokens": 65}], knobs=knobs, capacity={"free_tokens": 193})
    assert one_left.closed is None


def test_an_own_unlocked_device_hit_is_no_room_while_the_candidate_is_tested(decided):
    """A candidate's own device hit stops being evictable while it is tested, and is not needed again."""
    queue = [{"prompt_tokens": 500, "device_hit_tokens": 300}]
    answer = decided(queue, capacity={"free_tokens": 202, "evictable_tokens": 300})
    assert answer.told["a"][0] == "admit"
    assert (answer.check("a", "kv_capacity")["observed"], answer.check("a", "kv_capacity")["limit"]) == (201, 202)
    short = decided(queue, capacity={"free_tokens": 201, "evictable_tokens": 300})
    assert short.told["a"] == ("wait", "kv_capacity", "pool")


def test_a_device_hit_locked_by_others_takes_no_room_from_its_candidate(decided):
    """A device hit that others have locked was not evictable anyway, so the room stays as it is."""
    queue = [{"prompt_tokens": 500, "device_hit_tokens": 300, "device_hit_locked": True}]
    answer = decided(queue, capacity={"free_tokens": 202, "evictable_tokens": 300})
    assert answer.check("a", "kv_capacity")["limit"] == 502


def test_the_device_hit_of_a_refused_candidate_stays_evictable_for_others(decided):
    """Testing a candidate that can never fit takes nothing from the room of the one behind it."""
    queue = [{"prompt_tokens": 5000, "device_hit_tokens": 300}, {"prompt_tokens": 400}]
    capacity = {"pool_tokens": 1000, "free_tokens": 202, "evictable_tokens": 300}
    answer = decided(queue, capacity=capacity)
    assert answer.told["a"] == ("refuse", "kv_capacity", "can_never")
    assert answer.check("b", "kv_capacity")["limit"] == 502
    assert answer.told["b"][0] == "admit"


def test_what_can_never_fit_is_refused_and_the_queue_goes_on(decided):
    """A prompt of 100,000 in a pool of 76,640 is refused for good, and the request behind it enters."""
    queue = [{"id": "x", "prompt_tokens": 100_000}, {"id": "y", "prompt_tokens": 500}]
    answer = decided(queue, capacity={"pool_tokens": 76_640})
    assert answer.told == {"x": ("refuse", "kv_capacity", "can_never"), "y": ("admit", None, None)}
    assert answer.extends == {"y": 500}
    assert answer.closed is None


def test_can_never_observes_the_whole_sum_with_the_prompt_beside_it(decided):
    """The observed value of can_never is prompt + clipped output + overhead; the prompt stands beside it."""
    queue = [{"prompt_tokens": 100_000, "device_hit_tokens": 500, "output_tokens": 5000}]
    answer = decided(queue, capacity={"pool_tokens": 76_640, "free_tokens": 100, "evictable_tokens": 500})
    assert answer.of("a")["observed"] == 100_000 + 4096 + 1
    assert answer.of("a")["limit"] == 76_640
    assert answer.of("a")["prompt_tokens"] == 100_000


def test_can_never_begins_where_an_empty_pool_would_make_it_wait(decided):
    """What reaches the pool's size can never enter; one token less enters the empty pool."""
    capacity = {"pool_tokens": 1000}
    never = decided([{"prompt_tokens": 899, "output_tokens": 100}], capacity=capacity)
    assert never.told["a"] == ("refuse", "kv_capacity", "can_never")
    assert never.numbers("a") == (1000, 1000, 1, "tokens")
    assert decided([{"prompt_tokens": 898, "output_tokens": 100}], capacity=capacity).told["a"][0] == "admit"


def test_a_device_hit_does_not_help_what_can_never_fit(decided):
    """The whole prompt is held in the pool, so a device hit is part of the sum that can never fit."""
    queue = [{"prompt_tokens": 899, "device_hit_tokens": 800, "output_tokens": 100}]
    answer = decided(queue, capacity={"pool_tokens": 1000, "evictable_tokens": 800})
    assert answer.told["a"] == ("refuse", "kv_capacity", "can_never")
    assert answer.of("a")["observed"] == 1000


def test_what_fits_the_empty_pool_waits_when_the_pool_is_full(decided):
    """A request that fits the empty pool but not the present one waits; it is not refused."""
    answer = decided([{"prompt_tokens": 900}], capacity={"pool_tokens": 1000, "free_tokens": 10})
    assert answer.told["a"] == ("wait", "kv_capacity", "pool")


def test_several_that_can_never_fit_are_each_refused(decided):
    """Every request that can never fit is refused in the same pass, and none of them closes it."""
    queue = [{"prompt_tokens": 2000}, {"prompt_tokens": 3000}, {"prompt_tokens": 10}, {"prompt_tokens": 4000}]
    answer = decided(queue, capacity={"pool_tokens": 1000})
    assert [told[0] for told in answer.told.values()] == ["refuse", "refuse", "admit", "refuse"]
    assert answer.closed is None


def test_a_gate_before_kv_capacity_closes_the_pass_before_it_can_refuse_for_good(decided):
    """A full batch closes at request_count, ahead of a request that can never fit."""
    queue = [{"prompt_tokens": 10}, {"prompt_tokens": 5000}]
    answer = decided(queue, capacity={"pool_tokens": 1000}, knobs={"max_requests": 1})
    assert answer.told["b"] == ("wait", "request_count", "limit")


def test_the_largest_prompt_shown_is_the_largest_that_enters_the_empty_pool(decided):
    """The largest prompt that can be served enters an empty pool with one output token, one token more never does."""
    capacity = {"pool_tokens": 7664}
    largest = decided(capacity=capacity).data["largest_prompt_tokens"]
    assert decided([{"prompt_tokens": largest, "output_tokens": 1}], capacity=capacity).told["a"][0] != "refuse"
    beyond = decided([{"prompt_tokens": largest + 1, "output_tokens": 1}], capacity=capacity)
    assert beyond.told["a"] == ("refuse", "kv_capacity", "can_never")
