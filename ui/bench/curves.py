"""Curves: what a decision costs against the length of the queue, the size of the batch and what runs already."""

from __future__ import annotations

import dataclasses
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.journal import JournalWriter
from controller.recorder import Recorder
from controller.request import running_reserve
from estimator.batch import BatchEstimator
from ui.bench.load import MODEL, NEW_TOKEN_RATIO
from ui.bench.measure import Spread, take_turns
from ui.bench.scene import CAPACITY, candidates, limits_for, one_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.limits import Limits
    from controller.request import Candidate, Capacity

QUEUES: Final = (10, 100, 1_000, 10_000, 100_000)
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
RUNNING: Final = (1, 10, 100, 1_000, 10_000)
_MEMBERS: Final = 4
"""Of a batch, where its size is not what is looked at."""
_OUTPUT_LEFT: Final = 700


class Point(NamedTuple):
    """One point of a curve: a median with its quartiles over so many rounds."""

    curve: str
    series: str
    x: int
    median: float
    lower: float
    upper: float
    rounds: int
    unit: str

    @classmethod
    def of(cls, curve: str, series: str, x: int, spread: Spread, unit: str) -> Point:
        """A point from a spread."""
        median, lower, upper = (round(value, 4) for value in spread[:3])
        return cls(curve, series, x, median, lower, upper, spread.rounds, unit)


def curves(rounds: int) -> Iterator[Point]:
    """Every point of the three curves, in µs a decision; the points of a curve take turns."""
    estimator = BatchEstimator.for_model(MODEL)
    with (
        tempfile.TemporaryDirectory(prefix="glassgate-bench-") as folder,
        JournalWriter(Path(folder) / "journal", run_id="bench") as journal,
    ):
        recorder = Recorder(journal, estimator)
        yield from _told("queue", _by_queue(recorder), rounds)
        yield from _told("batch", _by_batch(recorder), rounds)
        yield from _told("running", _by_running(recorder), rounds)


_Works = dict[tuple[str, int], tuple["Callable[[], object]", int]]
"""What is timed for each point of a curve, and the decisions of a call."""
DECIDED: Final = "decided"
RECORDED: Final = "decided and recorded"
BARE: Final = "decided, without the estimate"
RESERVED: Final = "decided, the reserve summed over what runs"


def _told(curve: str, works: _Works, rounds: int) -> Iterator[Point]:
    for (series, x), spread in take_turns(works, rounds).items():
        yield Point.of(curve, series, x, spread, "us a decision")


def _by_queue(recorder: Recorder) -> _Works:
    limits = limits_for(_MEMBERS)
    works: _Works = {}
    for length in QUEUES:
        queue = candidates(length)
        works[DECIDED, length] = partial(one_pass, limits, queue, recorder.estimator), _MEMBERS + 1
        works[RECORDED, length] = partial(_recorded, limits, queue, recorder), _MEMBERS + 1
    return works


def _by_batch(recorder: Recorder) -> _Works:
    works: _Works = {}
    for members in BATCHES:
        limits, queue = limits_for(members), candidates(members + 1)
        works[BARE, members] = partial(one_pass, limits, queue, None), members + 1
        works[DECIDED, members] = partial(one_pass, limits, queue, recorder.estimator), members + 1
        works[RECORDED, members] = partial(_recorded, limits, queue, recorder), members + 1
    return works


def _by_running(recorder: Recorder) -> _Works:
    limits, queue = limits_for(_MEMBERS), candidates(_MEMBERS + 1)
    works: _Works = {}
    for running in RUNNING:
        left = [(_OUTPUT_LEFT, False)] * running
        capacity = dataclasses.replace(CAPACITY, running=running, slots=2 * RUNNING[-1])
        works[DECIDED, running] = partial(one_pass, limits, queue, recorder.estimator, capacity), _MEMBERS + 1
        works[RESERVED, running] = partial(_reserved, limits, queue, recorder, capacity, left), _MEMBERS + 1
    return works


def _recorded(limits: Limits, queue: list[Candidate], recorder: Recorder) -> None:
    """A pass, and its record in the journal."""
    result = one_pass(limits, queue, recorder.estimator)
    recorder.passed(CAPACITY, result, start_ns=0, decide_ns=0, queue=len(queue), queued_tokens=0)


def _reserved(
    limits: Limits, queue: list[Candidate], recorder: Recorder, capacity: Capacity, left: list[tuple[int, bool]]
) -> None:
    """A pass by an engine that keeps no sum of what its running requests may still take, as SGLang does."""
    reserved = running_reserve(left, NEW_TOKEN_RATIO)
    room = dataclasses.replace(capacity, pool_tokens=1 << 40, free_tokens=1 << 39, reserved_tokens=reserved)
    one_pass(limits, queue, recorder.estimator, room)
