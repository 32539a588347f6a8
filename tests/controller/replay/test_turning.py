"""Knobs turned while a replay goes on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.decision import Decision
from controller.engines.replay.pace import STRETCH_NS
from controller.knob_requests import KnobRequest
from controller.knob_turning import asked_change
from controller.knobs import Knobs
from controller.limits import Setting
from controller.records import Abort, Finish, KnobChange, KnobsInForce, Pass, RunEnd, StepEnd
from controller.vocabulary import Gate, Outcome, Verdict
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.presets import model
from tests.controller.replay.small_engine import ask, engine, is_empty
from tests.controller.replay.test_loop_properties import built, shapes, ways, workloads
from tests.controller.replay.test_pace import SECOND, Wall


def request(changes, who="me", name="1.json", **more):
    """A request as the engine takes it; its values are not checked beforehand."""
    content = {"format": 1, "who": who, "changes": changes, "left_unix_ns": 1, **more}
    return KnobRequest(name, content, None, 0)


@pytest.fixture(autouse=True)
def _told_at_every_event(monkeypatch):
    """Progress is told at every event, so that a test turns knobs where it means to."""
    monkeypatch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)


def test_knobs_turn_between_passes():
    """A change is recorded with old, new and its request, and shows in the passes after it."""
    made, shelf = engine([ask(number, 20, at=number * 10**6) for number in range(4)])
    left = [request({"max_requests": 1, "enforce": False}, name="0042.json")]
    made.run(lambda _: made.turn(left.pop()) if left else None)
    (change,) = shelf.records(KnobChange)
    assert (change.who, change.revision, change.accepted, change.request) == ("me", 1, True, "0042.json")
    assert change.changes == (("max_requests", None, 1), ("enforce", True, False))
    assert [knobs.revision for knobs in shelf.records(KnobsInForce)] == [0, 1]
    assert [passed.revision for passed in shelf.records(Pass)] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"page_size": 8}, "page_size is fixed at 4"),
        ({"chunked_prefill_size": 4}, "less than one page of 4 tokens"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"speed": 1}, "'speed' is no knob"),
        ({}, "is not one"),
    ],
)
def test_a_change_that_cannot_be_is_refused(values, why):
    """A change the run cannot take is recorded with the reason, nothing changes, and the run goes on to its end."""
    made, shelf = engine([ask(0, 20), ask(1, 20, at=10**6)], setting=Setting(data_parallel=2))
    answers = []
    made.run(lambda _: answers or answers.append(made.turn(request(values))))
    (change,) = shelf.records(KnobChange)
    assert (change.accepted, answers[0].accepted, change.revision, made.knobs.revision) == (False, False, 0, 0)
    assert why in change.why
    assert {passed.revision for passed in shelf.records(Pass)} == {0}
    assert shelf.records(RunEnd)[0].reason == "finished"


def test_a_change_in_the_middle_of_a_step_holds_from_the_next_pass_on():
    """While a batch is computed a change is answered at once, at its own time; the pass that formed the batch stays."""
    wall = Wall()
    knobs = Knobs(page_size=4, chunked_prefill_size=None, max_requests=1)
    made, shelf = engine([ask(number, 20) for number in range(5)], pace=wall.pace(), knobs=knobs)
    made.loop._step_time.prefill_ns = lambda *_: SECOND
    left = [request({"max_requests": 4})]

    def progress(standing):
        if left and standing.simulated_ns >= SECOND // 2:
            before = len(shelf.frames)
            made.turn(left.pop())
            assert len(shelf.frames) == before + 1, "the answer is in the journal at once"

    made.run(progress)
    (change,) = shelf.records(KnobChange)
    assert SECOND // 2 <= change.at_ns <= SECOND // 2 + 30_000_000
    first, second = shelf.records(Pass)
    assert (first.revision, len(first.batch), second.revision, len(second.batch)) == (0, 1, 1, 4)
    assert second.start_ns == SECOND == shelf.records(StepEnd)[0].end_ns
    # The first pass says under which limit it was decided, whatever was in force when its step ended.
    closed = Decision.read(first.decisions[-1])
    assert (closed.gate, closed.limit) == (Gate.REQUEST_COUNT, 1)


def test_a_turned_knob_soon_meets_a_pass():
    """With a queue held back and a long decode running, a pass under the new knobs comes within a stretch of decode."""
    wall = Wall()
    made, shelf = engine(
        [ask(0, 20, 3_000), ask(1, 20)], pace=wall.pace(), setting=Setting(slots=1), device_tokens=None
    )
    made.loop._step_time.decode_span_ns = lambda _size, _context, steps: steps * 1_000_000
    made.loop._step_time.decode_steps_within = lambda _size, _context, ns: ns // 1_000_000
    left = [request({"max_requests": 2})]
    made.run(lambda standing: made.turn(left.pop()) if left and standing.simulated_ns > SECOND else None)
    (change,) = shelf.records(KnobChange)
    first = next(passed for passed in shelf.records(Pass) if passed.revision == 1)
    assert SECOND < change.at_ns <= first.start_ns <= change.at_ns + STRETCH_NS


def test_shadow_mode_can_be_turned():
    """With `enforce` off the soft gates say what they would have done and let candidates pass; on again they hold."""
    knobs = Knobs(page_size=4, max_requests=1, chunked_prefill_size=None)
    requests = [ask(3 * at + number, 8, at=at * SECOND) for at in range(3) for number in range(3)]
    made, shelf = engine(requests, knobs=knobs)
    left = [(1, request({"enforce": False})), (2, request({"enforce": True}))]

    def progress(standing):
        if left and standing.finished == 3 * left[0][0]:
            made.turn(left.pop(0)[1])

    made.run(progress)
    sizes = {revision: [len(each.batch) for each in shelf.records(Pass) if each.revision == revision]
             for revision in range(3)}  # fmt: skip
    assert sizes == {0: [1, 1, 1], 1: [3], 2: [1, 1, 1]}
    shadow = next(each for each in shelf.records(Pass) if each.revision == 1)
    verdicts = [Decision.read(each).ladder()[Gate.REQUEST_COUNT].verdict for each in shadow.decisions]
    assert verdicts == [Verdict.PASS, Verdict.WOULD_REFUSE, Verdict.WOULD_REFUSE]


def test_the_safety_factor_can_be_turned_and_taken_back():
    """A turned `buffer_safety_percent` changes the estimates from the next pass on; off brings back the run's own."""
    geometry = model("deepseek-v3.2")
    estimator = BatchEstimator(geometry, RunContext.default_for(geometry, page_size=4))
    made, shelf = engine([ask(number, 20, at=number * 10**6) for number in range(3)], estimator=estimator)
    left = [request({"buffer_safety_percent": 200}), request({"buffer_safety_percent": None})]
    made.run(lambda standing: made.turn(left.pop(0)) if left and standing.passes == 3 - len(left) else None)
    peaks = [passed.peak_bytes for passed in shelf.records(Pass)]
    assert peaks[1] == 2 * peaks[0]
    assert peaks[2] == peaks[0]


LIMITS = {
    Gate.REQUEST_COUNT: "max_requests",
    Gate.CACHED_TOKENS: "max_cached_tokens",
}
turns = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.fixed_dictionaries(
            {},
            optional={
                "max_requests": st.sampled_from([None, 1, 2, 5, 0]),
                "max_extend_tokens": st.sampled_from([None, 4, 20, 64]),
                "max_cached_tokens": st.sampled_from([None, 1, 40]),
                "chunked_prefill_size": st.sampled_from([None, 4, 8, 32, 3]),
                "max_prefill_tokens": st.sampled_from([1, 40, 16384]),
                "load_back_threshold": st.sampled_from([0, 1, 30]),
                "shared_kv_batching": st.booleans(),
                "enforce": st.booleans(),
                "page_size": st.sampled_from([4, 8]),
            },
        ),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(workloads, shapes, ways, turns)
def test_whatever_is_turned_everything_leaves_and_each_pass_has_one_revision(rows, shape, way, turned):
    """Any knobs turned at any event: no request is lost, books close, and a pass names the limits of its revision."""
    role, setting, values = way
    requests = built(rows)
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)
    made, shelf = engine(requests, role=role, setting=setting, knobs=knobs, **shape)
    left, events = sorted(turned, key=lambda each: each[0]), 0

    def progress(_):
        nonlocal events
        events += 1
        while left and left[0][0] < events:
            made.turn(request(left.pop(0)[1]))

    made.run(progress)
    done = {finish.number for finish in shelf.records(Finish)} | {abort.number for abort in shelf.records(Abort)}
    assert done == set(range(len(requests)))
    assert is_empty(made)
    accepted = [change for change in shelf.records(KnobChange) if change.accepted]
    in_force = {record.revision: {row[0]: row[2] for row in record.knobs} for record in shelf.records(KnobsInForce)}
    assert [change.revision for change in accepted] == list(range(1, len(accepted) + 1))
    for change in accepted:
        before, after = in_force[change.revision - 1], in_force[change.revision]
        assert {(name, before[name], after[name]) for name in after if before[name] != after[name]} == set(
            change.changes
        )
    revision = 0
    for passed in shelf.records(Pass):
        assert passed.revision >= revision
        revision = passed.revision
        for decision in map(Decision.read, passed.decisions):
            for check in decision.ladder():
                if check.gate in LIMITS and check.verdict not in (Verdict.OFF, Verdict.NOT_EVALUATED):
                    assert check.limit == in_force[revision][LIMITS[check.gate]]
        if in_force[revision]["enforce"] and (most := in_force[revision]["max_requests"]) is not None:
            entered = [member for member in passed.batch if member[1] in (Outcome.ADMIT, Outcome.ADMIT_CHUNK)]
            assert len(entered) <= max(1, most)


def test_a_request_as_the_store_of_requests_leaves_it_is_taken():
    """What `asked_change` makes is accepted as it stands."""
    made, _ = engine([ask(0, 20)])
    assert made.turn(KnobRequest("1.json", asked_change({"max_requests": 3}, "ann"), None)).accepted
    assert made.knobs.max_requests == 3
