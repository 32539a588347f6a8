"""Runs and models out of any bound are refused at once, in one line."""

import pytest

from estimator.context import RunContext
from estimator.errors import InputError
from estimator.presets import model, preset


@pytest.mark.parametrize(
    "run",
    [
        {"cp": 10**9},
        {"tp": 10**12},
        {"shard_size": 10**9},
        {"safety_factor": "1e999999999"},
        {"safety_factor": 101},
        {"safety_factor": "0.99"},
        {"safety_factor": "1" * 5_000},
    ],
)
def test_a_run_beyond_any_machine_is_refused(run: dict):
    """Counts of ranks and factors that no machine has are refused before anything is computed from them."""
    with pytest.raises(InputError) as caught:
        RunContext.from_run(run, preset("deepseek-v3.2"))
    assert next(iter(run)) in str(caught.value)


def test_a_model_path_that_no_file_system_takes_is_refused():
    """A path longer than any file system allows is an InputError, not an OSError."""
    with pytest.raises(InputError, match="model"):
        model("./" + "x" * 5_000)
