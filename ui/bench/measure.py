"""Measuring: how long a piece of work takes, as median and quartiles of many rounds."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Key = TypeVar("Key")


class Measurement(NamedTuple):
    """One line of the benchmark: what was measured, the figure with its unit, and how it was got."""

    what: str
    value: float
    unit: str
    note: str = ""


class Spread(NamedTuple):
    """Median and quartiles of a number of rounds."""

    median: float
    lower: float
    upper: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of some values; of a single one it is that value."""
        if len(values) < 2:
            return cls(values[0], values[0], values[0], 1)
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper, len(values))


def time_us(work: Callable[[], object], per: int = 1) -> float:
    """How long one call takes, in microseconds, divided by `per`."""
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1_000 / per


def spread_us(work: Callable[[], object], rounds: int, per: int = 1) -> Spread:
    """How long one call takes over `rounds`, in microseconds, divided by `per`."""
    return Spread.of([time_us(work, per) for _ in range(rounds)])


def median_us(work: Callable[[], object], rounds: int, per: int = 1) -> float:
    """The median of that alone."""
    return spread_us(work, rounds, per).median


def take_turns(works: Mapping[Key, tuple[Callable[[], object], int]], rounds: int) -> dict[Key, Spread]:
    """Microseconds of each work, divided by the number beside it, over so many rounds in which each has its turn.

    What else the machine does is so shared alike. Two rounds before them warm up.
    """
    taken: dict[Key, list[float]] = {key: [] for key in works}
    for turn in range(-2, rounds):
        for key, (work, per) in works.items():
            us = time_us(work, per)
            if turn >= 0:
                taken[key].append(us)
    return {key: Spread.of(each) for key, each in taken.items()}
