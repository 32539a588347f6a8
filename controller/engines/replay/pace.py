"""Pace: how a replay's simulated time is held back to wall time, so that it can be watched as it happens."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from estimator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_NS: Final = 25_000_000
"""The longest sleep, ns of wall time, so that a waiting replay can be stopped and its knobs turned."""
STRETCH_NS: Final = 100_000_000
"""The longest stretch of decode steps in one piece, ns of wall time, so that a turned knob soon meets a pass."""
SLOWEST: Final = 1e-3
FASTEST: Final = 1e6


class Pace:
    """Simulated time that goes `factor` times as fast as wall time, from `from_ns` of simulated time on.

    Until `from_ns` nothing is held back; a replay that has fallen behind catches up. `clock` is a monotonic clock in
    ns, `sleep` takes seconds. Raises UsageError for a factor out of range.
    """

    def __init__(
        self,
        factor: float,
        *,
        from_ns: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not math.isfinite(factor) or not SLOWEST <= factor <= FASTEST:
            raise UsageError(f"pace is {factor}; it is a factor from {SLOWEST} to {FASTEST:,.0f}, 1 is real time")
        if from_ns < 0:
            raise UsageError(f"the pace is kept from {from_ns} ns of simulated time on; that is 0 or later")
        self.factor = factor
        self.from_ns = from_ns
        self.stretch_ns = int(STRETCH_NS * factor)
        """The longest stretch of decode steps in one piece, simulated ns."""
        self._clock = clock
        self._sleep = sleep
        self._begun_ns: int | None = None

    def begin(self) -> None:
        """Wall time counts from this moment on, which is `from_ns` of simulated time; a second call changes nothing."""
        if self._begun_ns is None:
            self._begun_ns = self._clock()

    def now_ns(self) -> int:
        """The simulated ns that wall time has come to."""
        begun_ns = self._begun_ns
        return self.from_ns if begun_ns is None else self.from_ns + int((self._clock() - begun_ns) * self.factor)

    def rest(self, until_ns: int) -> None:
        """Sleep for a slice, or less where simulated time `until_ns` comes sooner."""
        left = (until_ns - self.now_ns()) / self.factor
        if left > 0:
            self._sleep(min(left, SLICE_NS) / 1e9)
