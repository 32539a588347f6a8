"""The continuing chunk: the first member when it gets tokens, parked when it has no room."""

import pytest

LONG = {"id": "L", "prompt_tokens": 30_000, "done_tokens": 10_000 // 64 * 64, "output_tokens": 16}
PAGED = {"page_size": 64, "chunked_prefill_size": 2048}


def test_a_chunk_that_ends_leaves_the_rest_of_the_budget_to_the_queue(decided):
    """Chunk A ends with 508 tokens and B of 9,000 is cut to the 7,684 that remain of 8,192."""
    answer = decided(
        [{"id": "B", "prompt_tokens": 9000}],
        knobs={"chunked_prefill_size": 8192, "max_prefill_tokens": 8192},
        active_chunk={"id": "A", "prompt_tokens": 8700, "done_tokens": 8192},
    )
    assert answer.extends == {"A": 508, "B": 7684}
    assert answer.told == {"A": ("admit", None, None), "B": ("admit_chunk", "chunk_tokens", "budget")}


def test_a_chunk_that_goes_on_takes_the_whole_budget(decided):
    """A continuing chunk longer than the budget is cut to it, named by chunk_tokens, and nothing else is looked at."""
    answer = decided([{"prompt_tokens": 10}], active_chunk={"id": "L", "prompt_tokens": 20_000, "done_tokens": 8192})
    assert answer.told == {"L": ("admit_chunk", "chunk_tokens", "budget")}
    assert answer.extends == {"L": 8192}
    assert answer.closed == ("chunk_tokens", "budget")
    assert answer.not_reached == ["a"]


def test_the_design_example_runs_as_written(decided):
    """The example case of the design is read whole and its continuing chunk takes what the one lane's room allows."""
    answer = decided(
        [{"id": "a", "prompt_tokens": 5000, "device_hit_tokens": 0, "device_hit_locked": False, "host_hit_tokens": 0,
          "output_tokens": 128, "ignore_eos": False, "first_lane": 0}],
        context_parallel=True,
        knobs={"shared_kv_batching": True, "max_requests": None, "max_extend_tokens": 65536,
               "max_cached_tokens": None, "max_buffer_bytes": None, "chunked_prefill_size": 8192,
               "max_prefill_tokens": 16384, "page_size": 64, "enforce": True},
        capacity={"pool_tokens": 1_000_000, "free_tokens": 200_000, "evictable_tokens": 50_000,
                  "running_slots": 128, "lanes": [{"free_pages": 40, "evictable_pages": 10}]},
        running=[{"id": "r1", "remaining_output_tokens": 800}],
        new_token_ratio=1.0,
        active_chunk={"id": "L", "prompt_tokens": 20_000, "done_tokens": 8192, "output_tokens": 16},
    )  # fmt: skip
    assert answer.told["L"] == ("admit_chunk", "kv_capacity", "lane")
    # 50 pages in the lane less 800 tokens (13 pages) reserved
    assert answer.extends["L"] == 37 * 64


def test_a_chunk_without_room_is_parked(decided):
    """Chunk 2048, page 64, free 704, nothing evictable, running reserve 2,867: the chunk is parked at kv_capacity."""
    answer = decided(
        [{"prompt_tokens": 90}],
        knobs=PAGED,
        capacity={"free_tokens": 704},
        running=[{"id": "r", "remaining_output_tokens": 2867}],
        new_token_ratio=1.0,
        active_chunk={"id": "L", "prompt_tokens": 30_000, "done_tokens": 10_048},
    )
    assert answer.told == {"L": ("park", "kv_capacity", "pool")}
    assert answer.data["batch"] == []
    assert answer.of("L")["limit"] == 704 - 2867


def test_a_parked_chunk_closes_the_pass_and_nobody_slips_past(decided):
    """Behind a parked chunk nothing enters and nothing is looked at, however small, and however refused."""
    answer = decided(
        [{"prompt_tokens": 1}, {"prompt_tokens": 900_000_000}],
        knobs=PAGED,
        capacity={"free_tokens": 63},
        active_chunk=LONG,
    )
    assert answer.told == {"L": ("park", "kv_capacity", "pool")}
    assert answer.closed == ("kv_capacity", "pool")
    assert answer.not_reached == ["a", "b"]


def test_a_chunk_parks_when_its_room_is_under_one_page(decided):
    """Room of exactly one page lets a continuing chunk compute one page; one token less parks it, short by one."""
    case = {"knobs": PAGED, "active_chunk": LONG}
    one = decided(capacity={"free_tokens": 64}, **case)
    assert one.extends == {"L": 64}
    none = decided(capacity={"free_tokens": 63}, **case)
    assert none.told["L"][0] == "park"
    assert none.numbers("L") == (64, 63, 1, "tokens")


def test_half_a_token_under_a_page_is_under_a_page(decided):
    """A reserve that ends in a fraction of a token parks a chunk whose room is a fraction under one page."""
    case = {"knobs": PAGED, "active_chunk": LONG, "capacity": {"free_tokens": 64}}
    half = {"running": [{"remaining_output_tokens": 1}], "new_token_ratio": 0.5}
    assert decided(**case, **half).told["L"][0] == "park"


def test_evictable_tokens_are_room_for_a_chunk(decided):
    """What eviction would free counts as room for a continuing chunk."""
    answer = decided(knobs=PAGED, capacity={"free_tokens": 0, "evictable_tokens": 64}, active_chunk=LONG)
    assert answer.extends == {"L": 64}


def test_a_chunk_with_less_room_than_its_chunk_is_cut_to_whole_pages(decided):
    """With room for part of its chunk a continuing chunk is cut to whole pages, and the room it used up closes."""
    answer = decided([{"prompt_tokens": 1}], knobs=PAGED, capacity={"free_tokens": 200}, active_chunk=LONG)
    assert answer.extends == {"L": 192}
    assert answer.told["L"] == ("admit_chunk", "kv_capacity", "pool")
    assert answer.numbers("L") == (2048, 200, 1848, "tokens")
    assert answer.closed == ("kv_capacity", "pool")
    assert answer.not_reached == ["a"]


def test_the_last_piece_of_a_chunk_needs_a_page_too(decided):
    """A last piece shorter than a page is parked when the room is under one page, and enters whole with one."""
    case = {"knobs": PAGED, "active_chunk": {"id": "L", "prompt_tokens": 2058, "done_tokens": 2048}}
    assert decided(capacity={"free_tokens": 63}, **case).told["L"][0] == "park"
    assert decided(capacity={"free_tokens": 64}, **case).told["L"] == ("admit", None, None)


def test_done_tokens_are_not_counted_as_cached(decided):
    """What a continuing chunk computed before is not cached prefix and leaves max_cached_tokens to the others."""
    answer = decided(
        [{"prompt_tokens": 200, "device_hit_tokens": 100}],
        knobs={"max_cached_tokens": 100},
        capacity={"free_tokens": 500_000, "evictable_tokens": 500_000},
        active_chunk={"id": "L", "prompt_tokens": 9000, "done_tokens": 8192},
    )
    assert answer.data["batch"][0]["cached_tokens"] == 0
    assert answer.told["a"] == ("admit", None, None)
    assert answer.check("a", "cached_tokens")["observed"] == 100


def test_a_chunk_is_the_first_member_and_exempt(decided):
    """Soft limits exempt a continuing chunk that got tokens, and count it against those who follow."""
    answer = decided(
        [{"prompt_tokens": 10}],
        knobs={"max_extend_tokens": 100},
        active_chunk={"id": "L", "prompt_tokens": 9000, "done_tokens": 8500},
    )
    assert answer.verdict("L", "extend_tokens") == "exempt"
    assert answer.verdict("a", "extend_tokens") == "refuse"
    assert answer.check("a", "extend_tokens")["observed"] == 510


def test_the_continuing_chunk_stands_first_in_the_batch(decided):
    """The batch and the decisions list the continuing chunk before the members from the queue."""
    answer = decided([{"prompt_tokens": 10}], active_chunk={"id": "L", "prompt_tokens": 200, "done_tokens": 100})
    assert [m["id"] for m in answer.data["batch"]] == ["L", "a"]
    assert [d["id"] for d in answer.data["decisions"]] == ["L", "a"]


def test_a_chunk_goes_on_without_chunking_as_a_whole(decided):
    """A request left partly computed when chunking is off computes all that is left."""
    answer = decided(
        knobs={"chunked_prefill_size": None}, active_chunk={"id": "L", "prompt_tokens": 30_000, "done_tokens": 100}
    )
    assert answer.extends == {"L": 29_900}


def test_the_output_of_a_chunk_is_charged_with_its_last_piece(decided):
    """A continuing chunk that goes on holds back nothing for its output yet; the one that ends does."""
    case = {"knobs": PAGED, "capacity": {"free_tokens": 2048 + 64 + 10}}
    goes_on = decided(active_chunk={**LONG, "output_tokens": 100}, **case)
    assert goes_on.closed == ("chunk_tokens", "budget")
    ends = decided(active_chunk={**LONG, "prompt_tokens": 9984 + 2048, "output_tokens": 100}, **case)
    assert ends.closed == ("kv_capacity", "pool")


@pytest.mark.parametrize("shared", [False, True])
def test_a_chunk_parks_alike_on_every_path(decided, shared):
    """Parking does not depend on the path: the shared one parks a chunk without room as well."""
    knobs = {**PAGED, "shared_kv_batching": shared}
    answer = decided(
        [{"prompt_tokens": 1}], context_parallel=True, knobs=knobs, capacity={"free_tokens": 10}, active_chunk=LONG
    )
    assert answer.told == {"L": ("park", "kv_capacity", "pool")}
