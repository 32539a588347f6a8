"""Two runs that several tests look at; they are only to be read."""

import pytest

from controller.engines.replay import KnobsAt, agent_sessions
from controller.knobs import Knobs
from tests.ui.whatif.records import estimator, many, record, served


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Two minutes of requests served one at a time."""
    knobs = Knobs(page_size=4, chunked_prefill_size=64, max_requests=1)
    return record(tmp_path_factory.mktemp("runs"), served(many()), knobs=knobs, device_tokens=4_000)


@pytest.fixture(scope="session")
def sessions(tmp_path_factory):
    """A run with a model, host hits and knobs turned on the way."""
    knobs = Knobs.parse({"page_size": 64, "max_buffer_bytes": "600MiB", "chunked_prefill_size": 4096})
    workload = agent_sessions(seed=3, sessions=12, sessions_per_second=0.3, max_context_tokens=30_000)
    return record(
        tmp_path_factory.mktemp("runs"), workload, knobs=knobs, device_tokens=60_000,
        host_tokens=200_000, estimator=estimator(knobs), ranks_model="llama-3.1-8b",
        changes=[KnobsAt(at * 10**9, 0, {"max_requests": most}, "ann") for at, most in ((100, 2), (200, 3))],
    )  # fmt: skip
