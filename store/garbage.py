"""Python's cycle collector, left out where a stretch of work makes no cycles and much else."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_garbage() -> Iterator[None]:
    """Leave the cycle collector out: rows and replays make no cycles to speak of, and looking for some takes a while.

    It takes a quarter of the time of an ingest.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
