"""The caching allocator's rounding, and the plan that is played on it."""

import pytest
from estimator_strategies import batches, models_and_runs
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.allocation import allocation_plan, play
from estimator.estimate import estimate_batch
from estimator.rounding import CachingAllocator, Reading, read_fresh, round_block, segment_size

MIB = 1 << 20


@pytest.mark.parametrize(("size", "block"), [(1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)])
def test_blocks_are_multiples_of_512(size, block):
    """A request is rounded up to 512 B, and is never smaller than that."""
    assert round_block(size) == block


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_segments(size, segment):
    """Small requests share 2 MiB segments, middling ones 20 MiB, and large ones get their own in steps of 2 MiB."""
    assert segment_size(size) == segment


def test_small_requests_share_a_segment():
    """Two requests of half a MiB and three more of 512 B fit one small segment."""
    assert read_fresh([MIB // 2, MIB // 2, 1, 1, 1]) == Reading(MIB + 3, MIB + 3 * 512, 2 * MIB)


def test_large_block_keeps_a_small_remainder():
    """A rest of up to 1 MiB stays with its block and counts as allocated."""
    assert read_fresh([11 * MIB]) == Reading(11 * MIB, 12 * MIB, 12 * MIB)
    assert read_fresh([3 * MIB]) == Reading(3 * MIB, 3 * MIB, 20 * MIB)


def test_freed_neighbours_join():
    """Two freed neighbours serve a request that neither could serve alone."""
    allocator = CachingAllocator()
    for name in "ab":
        allocator.allocate(name, 10 * MIB - 512)
    for name in "ab":
        allocator.release(name, 10 * MIB - 512)
    allocator.allocate("c", 19 * MIB)
    assert allocator.reserved == 20 * MIB


def test_a_stream_keeps_its_own_blocks():
    """What one stream has freed does not serve another."""
    allocator = CachingAllocator()
    allocator.allocate("a", 16 * MIB, "gather")
    allocator.release("a", 16 * MIB)
    allocator.allocate("b", 16 * MIB, "compute")
    assert allocator.reserved == 32 * MIB


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 64 * MIB), st.booleans()), max_size=30))
def test_reading_is_ordered_and_returns_to_nothing(steps):
    """Reserved is at least rounded, rounded at least requested, and when all is freed nothing counts as allocated."""
    allocator, held = CachingAllocator(), []
    for index, (size, frees) in enumerate(steps):
        allocator.allocate(str(index), size)
        held.append((str(index), size))
        assert allocator.requested <= allocator.rounded <= allocator.reserved
        if frees:
            allocator.release(*held.pop(0))
    for name, size in held:
        allocator.release(name, size)
    assert (allocator.requested, allocator.rounded) == (0, 0)
    assert allocator.reserved == allocator.peak.reserved


@settings(max_examples=100, deadline=None)
@given(models_and_runs(), batches)
def test_plan_peaks_at_the_estimate(model_and_run, batch):
    """Played step by step, an estimate's plan has the estimate as its peak and leaves nothing behind."""
    estimate = estimate_batch(*model_and_run, batch)
    plan = allocation_plan(estimate)
    alive, most = {}, 0
    for event in plan:
        if event.allocates:
            assert event.key not in alive
            alive[event.key] = event.bytes
        else:
            assert alive.pop(event.key) == event.bytes
        most = max(most, sum(alive.values()))
    assert not alive
    assert most == estimate.requested
    reading = play(plan)
    assert reading.requested == estimate.requested <= reading.rounded <= reading.reserved
