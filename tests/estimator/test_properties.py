"""What holds of every estimate."""

from dataclasses import replace

from estimator_strategies import batches, models_and_runs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from estimator.batch import BatchEstimator
from estimator.estimate import estimate_batch

# What a batch's path is read from: symbols of paths not taken are zero.
PATH = ("Ri", "Rk", "Ta", "Td", "To", "Te", "Sd", "Tc", "Tlmax", "flat")


def _path(estimate):
    """Which buffers exist: engines switch kernel, split and chunking by length, and a switch may save bytes."""
    sizes = estimate.sizes
    return tuple(getattr(sizes, symbol) > 0 for symbol in PATH), estimate.score.chunks > 1, sizes.B


def _stride(estimate):
    return -(-(estimate.score.cols + 256) // 256) * 256 * 4


@settings(max_examples=300, deadline=None)
@given(
    models_and_runs(),
    batches,
    st.data(),
    st.sampled_from([0, 1]),
    st.one_of(st.integers(1, 64), st.integers(1, 40_000)),
)
def test_monotone_in_every_token_count(model_and_run, batch, data, which, more):
    """On one path a longer prefix or extend never lowers the estimate, but for rows a cut score chunk loses."""
    geometry, run = model_and_run
    if run.cp_strategy == "interleave":
        # Shorter requests stand on some ranks only, and a longer neighbour moves them to others.
        batch = [(prefix, max(extend, run.cp), loaded) for prefix, extend, loaded in batch]
    index = data.draw(st.integers(0, len(batch) - 1))
    grown = list(batch)
    member = list(grown[index])
    member[which] += more
    grown[index] = tuple(member)
    small, large = estimate_batch(geometry, run, batch), estimate_batch(geometry, run, grown)
    assume(_path(small) == _path(large))
    slack = 0
    if small.score.chunks > 1:
        # Each of the two chunks alive is whole rows of the budget, rounded to the kernel's rows (at most 16).
        slack = 2 * 17 * _stride(large) + 8 * geometry.index_topk * small.score.chunk_rows
        slack += 17 * (large.sizes.BMsel + 7 * large.score.cols) * 4
    assert large.requested >= small.requested - slack
    if small.score.chunks == 1 or not geometry.is_sparse:
        for phase, size in small.phases.items():
            assert large.phases[phase] >= size


@settings(max_examples=200, deadline=None)
@given(models_and_runs(), batches)
def test_peak_lies_between_largest_buffer_and_sum(model_and_run, batch):
    """The peak is at least every window and every buffer, and at most the sum of all windows."""
    estimate = estimate_batch(*model_and_run, batch)
    windows = [estimate.window_bytes(window) for window in estimate.windows]
    assert estimate.requested >= max(windows)
    assert estimate.requested >= max(estimate.buffers.values())
    assert estimate.requested <= sum(windows)
    for window in estimate.windows:
        held = [estimate.buffers.get(name, 0) for name in window.buffers]
        assert estimate.window_bytes(window) >= max(held)


@settings(max_examples=200, deadline=None)
@given(models_and_runs(), batches)
def test_every_buffer_is_in_the_peak_of_some_phase(model_and_run, batch):
    """No buffer that a batch has is left out of the timeline, and the peak phase holds what the peak says."""
    estimate = estimate_batch(*model_and_run, batch)
    alive = {name for names in estimate.live.values() for name in names}
    assert set(estimate.buffers) <= alive
    assert sum(estimate.at_phase(estimate.peak_phase).values()) == estimate.requested
    assert estimate.phases[estimate.peak_phase] == max(estimate.phases.values()) == estimate.requested


@settings(max_examples=100, deadline=None)
@given(models_and_runs(), batches)
def test_safety_factor_is_exact_and_rounds_up(model_and_run, batch):
    """The gate's figure is the sum times the factor as a fraction, never a byte below it."""
    geometry, run = model_and_run
    estimate = estimate_batch(geometry, run, batch)
    factor = run.safety_factor
    assert 0 <= estimate.peak_bytes * factor.denominator - estimate.requested * factor.numerator < factor.denominator
    assert sum(estimate.parts) == estimate.peak_bytes


@settings(max_examples=100, deadline=None)
@given(models_and_runs(), batches)
def test_prefetch_adds_only_to_batches_of_several(model_and_run, batch):
    """Prefetching the next layer never lowers a peak, and changes nothing for a lone request."""
    geometry, run = model_and_run
    without = replace(run, bs_gt1_l1_prefetch_enabled=False)
    with_it = replace(run, bs_gt1_l1_prefetch_enabled=True)
    plain, ahead = estimate_batch(geometry, without, batch), estimate_batch(geometry, with_it, batch)
    assert ahead.requested >= plain.requested
    alone = batch[:1]
    assert estimate_batch(geometry, without, alone).phases == estimate_batch(geometry, with_it, alone).phases


@settings(max_examples=100, deadline=None)
@given(models_and_runs(), batches)
def test_ranks_agree(model_and_run, batch):
    """Two estimators made from the same words give the same figure: nothing local to a process is looked at."""
    geometry, run = model_and_run
    one, other = BatchEstimator(geometry, run), BatchEstimator(replace(geometry), replace(run))
    left, right = one.empty, other.empty
    for member in batch:
        left, right = one.add(left, *member), other.add(right, *member)
    assert left == right
