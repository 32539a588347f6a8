"""Loads torch once, as the probe does, or skips the tests that need it."""

import pytest

from gpu_probe.errors import ProbeError, need_torch


@pytest.fixture(scope="session")
def torch():
    """The torch module; tests that need it are skipped without."""
    try:
        module = need_torch()
    except ProbeError as error:
        pytest.skip(str(error))
    # Two threads on two busy cores wait for each other longer than one takes.
    module.set_num_threads(1)
    return module
