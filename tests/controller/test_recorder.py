"""The recorder: one append a pass, and repeated refusals coalesced without holding the first back."""

import pytest

from controller.decision import PassResult
from controller.knobs import Knobs
from controller.limits import Setting
from controller.recorder import Recorder
from controller.records import Arrival, Pass, Repeat, decode
from controller.request import ActiveChunk, Candidate, Capacity, Lane
from controller.vocabulary import Gate, Outcome, Reason

SECOND = 1_000_000_000


class FakeJournal:
    """Keeps each appended frame, decoded."""

    def __init__(self):
        self.frames = []

    def append(self, payload):
        """Keep one frame."""
        self.frames.append(decode(payload))
        return 0

    @property
    def records(self):
        """All records, in order."""
        return [record for frame in self.frames for record in frame]

    def of(self, kind):
        """All records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]


class Scene:
    """A recorder and an engine that passes at given times."""

    def __init__(self, drive, estimator=None):
        self.drive = drive
        self.journal = FakeJournal()
        self.estimator = estimator
        self.recorder = Recorder(self.journal, estimator)

    def passed(self, at_ns, *requests, free=1000, queue=None, **more):
        """One pass over requests given as (number, prompt); `queue` is the number that waited, if more than these."""
        capacity = Capacity(pool_tokens=10_000, free_tokens=free, evictable_tokens=0, **more.pop("capacity", {}))
        candidates = [Candidate(number, prompt, 0) for number, prompt in requests]
        driven = self.drive(candidates, capacity=capacity, estimator=self.estimator, **more)
        return self.recorder.passed(
            capacity, driven.result, start_ns=at_ns, decide_ns=50, queue=queue or len(requests), queued_tokens=777
        )


@pytest.fixture
def scene(drive):
    """A recorder without a model."""
    return Scene(drive)


BIG = (0, 5000)
"""A request of 5,000 tokens in 1,000 free: it waits for kv_capacity."""


def test_a_pass_is_one_append(scene):
    """A pass with all it decided and all noted since the last one is written in a single frame."""
    scene.recorder.note(Arrival(0, "a", 1, 100, 0))
    scene.recorder.note(Arrival(1, "b", 1, 100, 0))
    scene.passed(5, (0, 100), (1, 100))
    (frame,) = scene.journal.frames
    assert [type(record) for record in frame] == [Arrival, Arrival, Pass]


def test_a_pass_record_holds_what_the_design_lists(scene):
    """A pass record holds its number, times, revision, queue, batch, closing gate, capacity and decisions."""
    scene.recorder.revision = 4
    scene.passed(5, (0, 100), BIG, (2, 1), queue=9, capacity={"running": 3, "reserved_tokens": 10.5})
    (record,) = scene.journal.of(Pass)
    assert (record.number, record.start_ns, record.decide_ns, record.revision) == (1, 5, 50, 4)
    assert (record.queue, record.queued_tokens, record.not_reached) == (9, 777, 7)
    assert [member[0] for member in record.batch] == [0]
    assert (record.closed_gate, record.closed_reason) == (3, 3)
    assert record.before == (1000, 0, 10, 3)
    assert record.after == (1000 - 101, 1000 - 101 - 10)
    assert [decision[0] for decision in record.decisions] == [0, 0]
    assert record.peak_bytes == -1


def test_a_pass_that_nothing_closed_says_so(scene):
    """A pass that ran out of queue has no closing gate."""
    scene.passed(5, (0, 100))
    (record,) = scene.journal.of(Pass)
    assert (record.closed_gate, record.closed_reason) == (-1, -1)


def test_a_pass_record_holds_the_estimate_and_its_parts(drive, flat_estimator):
    """With a model the batch's peak and its parts are in the record."""
    scene = Scene(drive, flat_estimator(extend=3))
    scene.passed(5, (0, 100))
    (record,) = scene.journal.of(Pass)
    assert (record.peak_bytes, record.parts) == (300, (300,))


def test_a_pass_record_holds_its_lanes(scene):
    """Free and evictable pages of each owner lane stand in the record as the pass found them."""
    setting = Setting(context_parallel=True, lanes=2)
    lanes = (Lane(900, 5), Lane(800, 6))
    scene.passed(5, (0, 100), capacity={"lanes": lanes}, setting=setting, knobs=Knobs(shared_kv_batching=True))
    (record,) = scene.journal.of(Pass)
    assert record.lanes == ((900, 5), (800, 6))


def test_passes_are_numbered_from_one(scene):
    """Every pass has the next number, repeats included."""
    assert [scene.passed(at, BIG) for at in (1, 2, 3)] == [1, 2, 3]
    assert scene.passed(4, (1, 10)) == 4
    assert [record.number for record in scene.journal.of(Pass)] == [1, 4]


def test_the_first_refusal_is_written_at_once(scene):
    """A refusal is written whole by the pass that made it, before anyone knows whether it repeats."""
    scene.passed(5, BIG)
    assert [type(record) for record in scene.journal.records] == [Pass]


def test_a_repeat_within_a_second_writes_nothing(scene):
    """The same refusal again within a second of the last word about it is counted and not yet written."""
    for at in range(100):
        scene.passed(at * SECOND // 100, BIG)
    assert len(scene.journal.frames) == 1


def test_repeats_are_written_at_most_once_a_second(scene):
    """A refusal that goes on for three seconds at 100 passes a second is written whole once and then each second."""
    for tick in range(301):
        scene.passed(tick * SECOND // 100, BIG)
    repeats = scene.journal.of(Repeat)
    assert [repeat.count for repeat in repeats] == [100, 200, 300]
    assert [repeat.last_ns for repeat in repeats] == [SECOND, 2 * SECOND, 3 * SECOND]
    assert not any(repeat.ended for repeat in repeats)


def test_the_end_of_repeats_is_written_with_what_ended_them(scene):
    """When something else happens the last word on the repeats comes first, marked ended, in the same append."""
    for at in (10, 20, 30):
        scene.passed(at, BIG)
    scene.passed(40, (1, 10))
    frame = scene.journal.frames[-1]
    assert [type(record) for record in frame] == [Repeat, Pass]
    repeat = frame[0]
    assert repeat.ended
    assert (repeat.first_pass, repeat.last_pass, repeat.count) == (1, 3, 2)
    assert (repeat.first_ns, repeat.last_ns) == (20, 30)
    assert (repeat.number, repeat.gate, repeat.reason) == (0, 3, 3)


def test_a_refusal_that_did_not_repeat_has_no_repeat_record(scene):
    """A refusal made once is written once, whole."""
    scene.passed(10, BIG)
    scene.passed(20, (1, 10))
    assert scene.journal.of(Repeat) == []


def test_repeats_keep_first_last_least_and_greatest(scene):
    """Observed and limit of the repeats are kept as first, last, least and greatest."""
    for at, free in enumerate((1000, 900, 1200, 700, 800)):
        scene.passed(at, BIG, free=free)
    scene.recorder.end_repeats()
    scene.recorder.flush()
    (repeat,) = scene.journal.of(Repeat)
    assert repeat.limit == (900, 800, 700, 1200)
    assert repeat.observed == (5001, 5001, 5001, 5001)


def test_repeats_are_cumulative(scene):
    """Each word on a refusal that goes on covers all its repeats, so the last one is enough."""
    for tick, free in enumerate((1000, 900, 1200, 700)):
        scene.passed(tick * 2 * SECOND, BIG, free=free)
    scene.recorder.end_repeats()
    scene.recorder.flush()
    repeats = scene.journal.of(Repeat)
    assert [repeat.count for repeat in repeats] == [1, 2, 3, 3]
    assert repeats[-1].ended
    assert repeats[-1].limit == (900, 700, 700, 1200)
    assert {repeat.first_pass for repeat in repeats} == {1}


@pytest.mark.parametrize(
    "other",
    [
        {"requests": [(1, 5000)]},
        {"requests": [(1, 10), BIG]},
        {"requests": [BIG], "capacity": {"slots": 1, "running": 1}},
        {"requests": [(1, 50_000), BIG]},
    ],
    ids=["another head", "somebody admitted", "another gate", "somebody refused for good"],
)
def test_another_refusal_is_written_whole(scene, other):
    """Another head, gate or reason, or anybody admitted or refused for good, is a pass of its own."""
    scene.passed(1, BIG)
    scene.passed(2, *other.pop("requests"), **other)
    assert [record.number for record in scene.journal.of(Pass)] == [1, 2]


def test_another_knob_revision_is_written_whole(scene):
    """The same refusal under other knobs is not a repeat of the one before."""
    scene.passed(1, BIG)
    scene.recorder.revision = 1
    scene.passed(2, BIG)
    assert [record.revision for record in scene.journal.of(Pass)] == [0, 1]


def test_what_was_noted_is_not_held_back_by_a_repeat(scene):
    """An arrival during repeats is written with the next pass, though the pass itself is only counted."""
    scene.passed(1, BIG)
    scene.recorder.note(Arrival(7, "late", 2, 10, 0))
    scene.passed(3, BIG, queue=2)
    assert [type(record) for record in scene.journal.frames[-1]] == [Arrival]


def test_a_parked_chunk_that_repeats_is_coalesced(scene):
    """A continuing chunk parked pass after pass is written once and then as repeats."""
    for at in (1, 2, 3):
        scene.passed(at, (1, 10), free=0, chunk=ActiveChunk(9, 5000, 100, 0))
    scene.recorder.end_repeats()
    scene.recorder.flush()
    assert len(scene.journal.of(Pass)) == 1
    (repeat,) = scene.journal.of(Repeat)
    assert (repeat.number, repeat.count, repeat.not_reached) == (9, 2, 1)


def several(*waiting, closed=(Gate.REQUEST_SLOTS, Reason.SLOTS)):
    """A pass of an engine that looked at several and took none, given as (number, gate, reason)."""
    decisions = tuple(
        (number, Outcome.WAIT, gate, reason, 5, 4, 1, 100, 0, 0, 0, 1, 8, 0, 0, 0, 0) + (5, 0, 0) * 9
        for number, gate, reason in waiting
    )
    return PassResult((), decisions, closed, len(decisions), None, 0, 0)


def test_a_pass_that_looked_at_several_and_took_none_is_coalesced_too(scene):
    """Several waiting for the same as before make a repeat of the last of them; another cause makes a pass."""
    loading, slots = (1, Gate.LOAD_BACK, Reason.LOADING), (2, Gate.REQUEST_SLOTS, Reason.SLOTS)
    capacity = Capacity(pool_tokens=10, free_tokens=10, running=1)

    def passed(at_ns, *waiting, **more):
        result = several(*waiting, **more)
        scene.recorder.passed(capacity, result, start_ns=at_ns, decide_ns=5, queue=9, queued_tokens=9)

    passed(1, loading, slots)
    passed(2, loading, slots)
    passed(3, loading, slots)
    passed(4, (1, Gate.LOAD_BACK, Reason.LOOKUP), slots)
    passed(5, (1, Gate.LOAD_BACK, Reason.LOOKUP), slots, closed=None)
    (repeat,) = scene.journal.of(Repeat)
    assert (repeat.first_pass, repeat.count, repeat.number, repeat.gate) == (1, 2, 2, Gate.REQUEST_SLOTS)
    assert [record.number for record in scene.journal.of(Pass)] == [1, 4, 5]


def test_an_empty_pass_ends_repeats(scene):
    """A pass with nobody waiting ends a refusal that repeated."""
    for at in (1, 2, 3):
        scene.passed(at, BIG)
    scene.passed(4)
    assert [type(record) for record in scene.journal.frames[-1]] == [Repeat, Pass]


def test_a_run_that_ends_writes_the_last_word(scene):
    """Repeats pending when a run ends are written, marked ended, and nothing is written twice."""
    for at in (1, 2):
        scene.passed(at, BIG)
    for _ in range(2):
        scene.recorder.end_repeats()
        scene.recorder.flush()
    (repeat,) = scene.journal.of(Repeat)
    assert (repeat.count, repeat.ended) == (1, True)


def test_nothing_pending_appends_nothing(scene):
    """Flushing with nothing noted writes no empty frame."""
    scene.recorder.flush()
    assert scene.journal.frames == []


def test_every_pass_is_accounted_for(scene):
    """Passes written whole and passes counted in repeats add up to all passes."""
    heads = [0] * 7 + [1] + [0] * 3 + [1] * 4
    for at, head in enumerate(heads):
        scene.passed(at * SECOND // 3, (head, 5000))
    scene.recorder.end_repeats()
    scene.recorder.flush()
    counted = sum(repeat.count for repeat in scene.journal.of(Repeat) if repeat.ended)
    assert len(scene.journal.of(Pass)) + counted == len(heads) == scene.recorder.passes
