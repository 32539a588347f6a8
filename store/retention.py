"""Retention: the bounds a database is kept within as it grows, a little at a time, so that new records hardly wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from store.pruning import Pruner, Steps, bytes_in_use

if TYPE_CHECKING:
    import sqlite3

DEFAULT_MAX_BYTES: Final = 10 << 30
"""The size a database is kept below unless told otherwise."""
LEAST_MAX_BYTES: Final = 1 << 20
"""Below this hardly anything would stay beside the tables themselves, so nobody who records means it."""
_HIGH_WATER: Final = 0.97
"""Pruning for size begins at this part of the bound, so that it need not hold new records up."""
_SLICE_SECONDS: Final = 0.1
"""New records wait about so long for a stretch of pruning, unless the bound itself is passed."""
_HOUR_NS: Final = 3600 * 1_000_000_000


class Retention:
    """Keeps a database within bounds as it grows. None for a bound that is not set."""

    def __init__(self, max_bytes: int | None = DEFAULT_MAX_BYTES, keep_days: float | None = None) -> None:
        self._max_bytes = max_bytes
        self._keep_days = keep_days
        self._looked_hour = -1
        self._going: Steps | None = None
        """What is being dropped, a step at a time."""

    def tend(self, connection: sqlite3.Connection) -> bool:
        """Prune a little of what is beyond the bounds, and all of what is beyond the size; whether nothing is left.

        Sizes are looked at in every call, ages hourly. Raises sqlite3.Error; what failed is begun anew.
        """
        until = time.monotonic() + _SLICE_SECONDS
        going, self._going = self._going or self._due(connection), None
        for _ in going or ():
            if time.monotonic() >= until and not self._too_large(connection):
                self._going = going
                return False
        return True

    def _due(self, connection: sqlite3.Connection) -> Steps | None:
        """The steps that bring the database within its bounds; None where it is."""
        bound = self._max_bytes
        if bound is not None and bytes_in_use(connection) > _HIGH_WATER * bound:
            return Pruner(connection, time.time_ns(), bound).for_size(bound)
        hour = time.time_ns() // _HOUR_NS
        if self._keep_days is not None and hour != self._looked_hour:
            self._looked_hour = hour
            return Pruner(connection, time.time_ns(), bound).for_age(self._keep_days)
        return None

    def _too_large(self, connection: sqlite3.Connection) -> bool:
        return self._max_bytes is not None and bytes_in_use(connection) > self._max_bytes
