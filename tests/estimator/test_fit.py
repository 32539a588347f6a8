"""The largest batch and the largest prompt that fit."""

import pytest
from estimator_strategies import models_and_runs
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.errors import InputError
from estimator.fit import largest_batch, largest_prompt
from estimator.presets import preset

MIB = 1 << 20


@settings(max_examples=60, deadline=None)
@given(models_and_runs(), st.integers(0, 50_000), st.integers(1, 5000), st.integers(MIB, 8192 * MIB))
def test_largest_batch_fits_and_one_more_does_not(model_and_run, prefix, extend, limit):
    """Every batch up to the answer fits the limit; the next one does not, unless the search was bounded."""
    estimator = BatchEstimator(*model_and_run)
    found = largest_batch(estimator, limit, prefix=prefix, extend=extend, most=40)
    state = estimator.empty
    for _ in range(found.largest):
        state = estimator.add(state, prefix, extend)
        assert state.peak_bytes <= limit
    assert state.peak_bytes == found.peak_bytes
    if found.bounded:
        assert found.largest == 40
    else:
        assert estimator.add(state, prefix, extend).peak_bytes > limit


@settings(max_examples=60, deadline=None)
@given(models_and_runs(), st.sampled_from([0, 512, 8192]), st.integers(MIB, 8192 * MIB))
def test_largest_prompt_fits_and_one_token_more_does_not(model_and_run, chunk, limit):
    """Each chunk of the answer fits the limit; with one token more one does not, or the context ends."""
    geometry, run = model_and_run
    estimator = BatchEstimator(geometry, run)
    found = largest_prompt(estimator, limit, chunk=chunk)

    def peak(prompt):
        step = chunk or prompt
        return max(
            estimator.add(estimator.empty, done, min(step, prompt - done)).peak_bytes for done in range(0, prompt, step)
        )

    if found.largest:
        assert peak(found.largest) == found.peak_bytes <= limit
    if found.bounded:
        assert found.largest == geometry.context_len
    else:
        assert peak(found.largest + 1) > limit


def test_chunks_let_a_longer_prompt_fit():
    """In 2 GiB DeepSeek-V3.2 computes a whole prompt of some thousand tokens, and a far longer one in chunks."""
    geometry = preset("deepseek-v3.2")
    estimator = BatchEstimator(geometry, RunContext.default_for(geometry, tp=8))
    whole, chunked = largest_prompt(estimator, 2048 * MIB, chunk=0), largest_prompt(estimator, 2048 * MIB, chunk=2048)
    assert 4096 < whole.largest < 16384
    assert chunked.largest > 8 * whole.largest


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_must_be_a_number_of_bytes(limit):
    """A limit below one byte is an error that says so."""
    estimator = BatchEstimator.for_model("qwen3-32b")
    with pytest.raises(InputError, match="limit"):
        largest_prompt(estimator, limit)
    with pytest.raises(InputError, match="limit"):
        largest_batch(estimator, limit, prefix=0, extend=1)


def test_shape_must_compute_something():
    """A shape without a token to compute, or a negative chunk, is an error that says so."""
    estimator = BatchEstimator.for_model("qwen3-32b")
    with pytest.raises(InputError, match="shape"):
        largest_batch(estimator, MIB, prefix=5, extend=0)
    with pytest.raises(InputError, match="chunk"):
        largest_prompt(estimator, MIB, chunk=-1)
