"""The batch grown one by one against the batch taken at once."""

from estimator_strategies import batches, models_and_runs, requests
from hypothesis import given, settings

from estimator.batch import BatchEstimator
from estimator.estimate import estimate_batch


@settings(max_examples=400, deadline=None)
@given(models_and_runs(), batches)
def test_incremental_equals_whole(model_and_run, batch):
    """After every member, peak, phase, parts and explanation equal those worked out from the whole list."""
    geometry, run = model_and_run
    estimator = BatchEstimator(geometry, run)
    state = estimator.empty
    for count, member in enumerate(batch, start=1):
        state = estimator.add(state, *member)
        whole = estimate_batch(geometry, run, batch[:count])
        assert state.peak_bytes == whole.peak_bytes
        assert estimator.PHASES[state.phase] == whole.peak_phase
        assert estimator.parts(state) == whole.parts
        assert estimator.explain(state) == whole


@settings(max_examples=50, deadline=None)
@given(models_and_runs(), batches, requests(), requests())
def test_a_state_is_a_value(model_and_run, batch, one, other):
    """Trying a candidate leaves the batch as it was, so a refused one costs nothing and leaves no trace."""
    estimator = BatchEstimator(*model_and_run)
    state = estimator.empty
    for member in batch:
        state = estimator.add(state, *member)
    before = tuple(state)
    first = estimator.add(state, *one)
    estimator.add(state, *other)
    assert tuple(state) == before
    assert estimator.add(state, *one) == first


def test_empty_batch_asks_for_nothing():
    """A batch without members has a peak of zero and parts that say so."""
    estimator = BatchEstimator.for_model("deepseek-v3.2")
    assert estimator.empty.peak_bytes == 0
    assert estimator.parts(estimator.empty) == (0,) * len(estimator.PARTS)
