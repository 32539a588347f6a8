"""The time of day and a stopwatch, so that tests can bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings in ns."""

    def monotonic_ns(self) -> int:
        """A reading that only ever goes forward."""

    def wall_ns(self) -> int:
        """Unix time."""


class SystemClock:
    """The computer's own."""

    def monotonic_ns(self) -> int:
        """A reading that only ever goes forward."""
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """Unix time."""
        return time.time_ns()
