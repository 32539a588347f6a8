"""A paced replay: wall time holds simulated time back, and changes nothing of what is decided."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings

from controller.engines.replay.pace import SLICE_NS, Pace
from controller.knobs import Knobs
from controller.records import Abort, Arrival, Finish, Pass, Retract, RunEnd, RunStart, StepEnd
from estimator.errors import UsageError
from tests.controller.replay.small_engine import ask, engine
from tests.controller.replay.test_loop_properties import built, shapes, ways, workloads

SECOND = 1_000_000_000


class Wall:
    """A wall clock that goes on by sleeping alone, a little with each look, or further when told to."""

    def __init__(self, look_ns=0):
        self.ns = 17 * SECOND
        self.look_ns = look_ns
        self.sleeps = []

    def now(self):
        """Ns."""
        self.ns += self.look_ns
        return self.ns

    def sleep(self, seconds):
        """Go on by so much."""
        self.sleeps.append(seconds)
        self.ns += max(1, round(seconds * SECOND))

    def pace(self, factor=1.0, from_ns=0):
        """A pace by this clock."""
        return Pace(factor, from_ns=from_ns, clock=self.now, sleep=self.sleep)


def watched(made, shelf, wall, factor=1.0, from_ns=0):
    """The records of a run, each with the simulated ns that wall time had come to when it was appended."""
    begun, seen = wall.ns, []

    def append(payload, keep=shelf.append):
        before = len(shelf.records())
        keep(payload)
        seen.extend((from_ns + (wall.ns - begun) * factor, record) for record in shelf.records()[before:])

    shelf.append = append
    made.run()
    return seen


def moment(record):
    """When a record happened, simulated ns."""
    for name in ("at_ns", "start_ns"):
        if hasattr(record, name) and not isinstance(record, StepEnd):
            return getattr(record, name)
    return record.end_ns


@pytest.mark.parametrize("factor", [0.5, 1.0, 10.0])
def test_nothing_is_recorded_before_its_time(factor):
    """Every record is appended when wall time has come to it, and within a slice and a stretch after that."""
    requests = [ask(number, 30, 200, at=number * SECOND // 3) for number in range(12)]
    wall = Wall()
    made, shelf = engine(requests, pace=wall.pace(factor))
    made.loop._step_time.decode_span_ns = lambda _size, _context, steps: steps * 10_000_000
    made.loop._step_time.decode_steps_within = lambda _size, _context, ns: ns // 10_000_000
    seen = watched(made, shelf, wall, factor)
    assert len(seen) > 50
    late = [came - moment(record) for came, record in seen if not isinstance(record, RunStart)]
    assert min(late) >= -1_000 * factor
    assert max(late) <= (SLICE_NS + 10_000_000) * factor + 10_000_000
    assert (wall.ns - 17 * SECOND) * factor == pytest.approx(made.loop.now_ns, rel=1e-3)


def test_a_wait_is_slept_in_slices():
    """However long nothing happens, no sleep is longer than a slice, and what is to be told is told between them."""
    wall, told = Wall(look_ns=1), []
    made, _ = engine([ask(0, 8), ask(1, 8, at=3 * SECOND)], pace=wall.pace())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
        made.run(lambda standing: told.append(standing.simulated_ns))
    assert max(wall.sleeps) * SECOND <= SLICE_NS
    assert len(told) >= 3 * SECOND // SLICE_NS
    gaps = [later - sooner for sooner, later in pairwise(told)]
    assert min(gaps) >= 0
    assert max(gaps) <= SLICE_NS + 1_000_000


def test_a_wait_can_be_stopped():
    """A replay that waits ends when it is stopped, at the moment to which it had come."""
    wall = Wall()
    made, shelf = engine([ask(0, 8), ask(1, 8, at=3_600 * SECOND)], pace=wall.pace())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
        summary = made.run(lambda standing: made.stop() if standing.simulated_ns > 2 * SECOND else None)
    (end,) = shelf.records(RunEnd)
    assert (end.reason, summary.finished) == ("interrupted", 1)
    assert 2 * SECOND < end.at_ns < 2 * SECOND + 2 * SLICE_NS


def test_arrivals_are_seen_while_a_step_runs():
    """Requests that arrive during a long prefill step are recorded as they come, not at its end."""
    wall = Wall()
    requests = [ask(0, 300, at=0), *[ask(number, 8, at=number * SECOND) for number in range(1, 5)]]
    made, shelf = engine(requests, pace=wall.pace(), knobs=Knobs(page_size=4, chunked_prefill_size=None))
    made.loop._step_time.prefill_ns = lambda extend, *_: extend * 20_000_000
    seen = watched(made, shelf, wall)
    came = {record.number: at for at, record in seen if isinstance(record, Arrival)}
    assert [round(came[number] / SECOND, 1) for number in range(1, 5)] == [1.0, 2.0, 3.0, 4.0]
    assert next(at for at, record in seen if isinstance(record, StepEnd)) >= 6 * SECOND


def test_a_warm_start_is_not_held_back():
    """Up to the moment the pace is kept from nothing is slept; from there on time goes by the clock."""
    wall = Wall()
    requests = [ask(number, 8, at=number * SECOND) for number in range(20)]
    made, _ = engine(requests, pace=wall.pace(from_ns=15 * SECOND))
    made.run()
    assert sum(wall.sleeps) == pytest.approx(4, rel=1e-2)


def test_a_replay_that_fell_behind_catches_up():
    """After a stretch in which the process did not run, events follow at once until simulated time is where it was."""
    wall = Wall()
    requests = [ask(number, 8, at=number * SECOND) for number in range(10)]
    made, shelf = engine(requests, pace=wall.pace())
    begun = wall.ns

    def append(payload, keep=shelf.append):
        if made.loop.now_ns // SECOND == 3 and wall.ns - begun < 4 * SECOND:
            wall.ns += 5 * SECOND  # stopped by Ctrl-Z, say
        return keep(payload)

    shelf.append = append
    made.run()
    assert wall.ns - begun == pytest.approx(9 * SECOND, rel=1e-2)


@settings(max_examples=60, deadline=None)
@given(workloads, shapes, ways)
def test_a_paced_replay_decides_as_one_that_is_not(rows, shape, way):
    """Arrivals, passes, finishes, retractions and refusals are the same at any pace, in the same order each."""
    role, setting, values = way
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)
    happened = []
    for pace in (None, Wall(look_ns=700).pace(1e-3), Wall(look_ns=90).pace()):
        made, shelf = engine(built(rows), role=role, setting=setting, knobs=knobs, pace=pace, **shape)
        made.run()
        happened.append([
            [msgspec.structs.replace(each, decide_ns=0) if kind is Pass else each for each in shelf.records(kind)]
            for kind in (Arrival, Pass, Finish, Retract, Abort, RunEnd)
        ])  # fmt: skip
    assert happened[0] == happened[1] == happened[2]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_pace_that_cannot_be_is_refused(factor):
    """A factor out of range is an error that names the range."""
    with pytest.raises(UsageError, match=r"it is a factor from 0\.001 to 1,000,000, 1 is real time"):
        Pace(factor)
    with pytest.raises(UsageError, match="0 or later"):
        Pace(1.0, from_ns=-1)
