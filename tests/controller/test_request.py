"""What a decision is made from: candidates, chunks, capacity, the running reserve."""

import pytest

from controller.request import ActiveChunk, Candidate, Capacity, Lane, PrefixMatch, running_reserve
from estimator.errors import InputError


@pytest.mark.parametrize(("device", "host"), [(100, 0), (0, 100), (60, 40), (200, 0)])
def test_a_candidate_leaves_a_token_to_compute(device, host):
    """A prompt that is cached to the last token is refused with the numbers."""
    with pytest.raises(InputError, match=r"prompt of 100 tokens .*at least one token"):
        Candidate(0, 100, 0, PrefixMatch(device_tokens=device, host_tokens=host))


def test_a_candidate_generates_no_less_than_nothing():
    """Output tokens below zero are refused."""
    with pytest.raises(InputError, match="output_tokens is -1"):
        Candidate(0, 100, -1)


@pytest.mark.parametrize("done", [-1, 100, 101])
def test_a_chunk_has_something_left(done):
    """A continuing chunk that is done, or has done less than nothing, is refused."""
    with pytest.raises(InputError, match=f"done {done} of 100"):
        ActiveChunk(0, 100, done, 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"pool_tokens": -1}, {"free_tokens": -1}, {"evictable_tokens": -1}, {"reserved_tokens": -1}, {"running": -1},
        {"free_tokens": 60, "evictable_tokens": 41}, {"slots": 0},
    ],
)  # fmt: skip
def test_a_capacity_adds_up(bad):
    """A pool that holds less than nothing, or more than it has, is refused."""
    with pytest.raises(InputError):
        Capacity(**{"pool_tokens": 100, "free_tokens": 0, **bad})


def test_a_lane_holds_no_less_than_nothing():
    """Page counts below zero are refused."""
    with pytest.raises(InputError, match="-1 free"):
        Lane(-1, 0)


def test_the_running_reserve_is_the_clipped_rest_times_the_ratio():
    """The reserve sums min(left, 4096) x ratio, with ratio 1 where eos is ignored."""
    assert running_reserve([(100, False), (10_000, False)], 0.5) == 50 + 2048
    assert running_reserve([(100, True), (10_000, True)], 0.5) == 100 + 4096
    assert running_reserve([], 0.7) == 0
