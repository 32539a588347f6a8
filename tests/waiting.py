"""Waiting for what is to happen, which is no test's sleep."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "it") -> Any:
    """Wait until something is so, looked at often in the beginning, and return it."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come in {seconds:g} s"
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)
    return found
