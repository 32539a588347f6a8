"""What the process that starts an engine's others says of their end."""

import os
from types import SimpleNamespace

import pytest

from controller.engines.vllm import ending, install


@pytest.mark.parametrize("died", [False, True])
def test_a_run_ends_in_good_order_only_if_its_engine_lived_until_it_was_stopped(monkeypatch, died):
    """An engine that was killed is known by its closed sentinel, also while the system still counts it as alive."""
    ended = []
    monkeypatch.setattr(ending, "end_kept_run", ended.append)
    sentinel, other_end = os.pipe()
    manager = SimpleNamespace(processes=[SimpleNamespace(sentinel=sentinel, is_alive=lambda: True)])
    stopped = []
    if died:
        os.close(other_end)
    install._stopping(stopped.append)(manager)
    if not died:
        os.close(other_end)
    os.close(sentinel)
    assert stopped == [manager]
    assert ended == ([] if died else [manager])
