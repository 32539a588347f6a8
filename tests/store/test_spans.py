"""Records as spans: names, times, ids, attributes, links, samplers, and what is left out."""

import json

import msgspec
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace import StatusCode

from controller.decision import Decision
from controller.records import Abort, Arrival, KnobChange, Pass, Smoke, decode
from controller.vocabulary import Verdict
from store import names
from store.alarms import IDLE_REFUSAL, NO_PROGRESS
from store.span_state import SpanState
from store.spans import REPEATED, SAMPLED_OUT, SpanMaker, resource_of, sampler_in_force

MS = 1_000_000
WALL_NS = 1_700_000_000_000_000_000
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def gathered(engine):
    """Every record of a world, in order."""
    return [record for frame in engine.frames() for record in decode(frame.payload)]


def made(records, **options):
    """The spans of some records, and their maker."""
    maker = SpanMaker("run-1", 0, **{"sampler": ALWAYS_ON, **options})
    return maker.spans_of(records), maker


def named(spans, name):
    """The spans of one name."""
    return [span for span in spans if span.name == name.name]


@pytest.fixture
def busy(world):
    """A batch, one who waits behind it, is told so forty times, and enters; another who leaves."""
    engine = world(max_extend_tokens=65_536, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    engine.arrive("first", 0, 62_400)
    engine.arrive("second", 3, 17_344, device_tokens=8192, unlocked_tokens=8192, host_tokens=4096, resident_tokens=4096)
    engine.arrive("third", 4, 17_344)
    engine.step(5)
    for look in range(40):
        engine.step(905 + 5 * look, free=15_000)
    engine.abort("third", 1150)
    engine.step(1203, free=900_000)
    engine.end(1300)
    return engine


def test_a_decision_lies_within_its_pass(busy):
    """Each decision is a child of its pass, shares its trace, lies within its time, and they follow one another."""
    spans, _ = made(gathered(busy))
    for one_pass in named(spans, names.PASS):
        ours = [span for span in named(spans, names.DECISION) if span.context.trace_id == one_pass.context.trace_id]
        assert ours
        clock = one_pass.start_time
        for span in ours:
            assert span.parent.span_id == one_pass.context.span_id
            assert clock <= span.start_time <= span.end_time <= one_pass.end_time
            clock = span.end_time
    assert named(spans, names.PASS)[0].start_time == WALL_NS + 5 * MS
    assert named(spans, names.PASS)[0].end_time == WALL_NS + 5 * MS + 1000


def test_a_decision_says_what_the_record_says(busy):
    """Outcome, gate, numbers, tokens, host hit and every evaluated check are those of the record."""
    records = gathered(busy)
    spans, _ = made(records)
    flats = [
        (record, place, flat)
        for record in records
        if isinstance(record, Pass)
        for place, flat in enumerate(record.decisions)
    ]
    assert len(flats) == len(named(spans, names.DECISION)) == 4
    for (record, place, flat), span in zip(flats, named(spans, names.DECISION), strict=True):
        said, decision = span.attributes, Decision.read(flat)
        assert (said[names.PASS_NUMBER.key], said[names.PASS_POSITION.key]) == (record.number, place)
        assert said[names.OUTCOME.key] == decision.outcome.word
        assert said.get(names.GATE.key) == (decision.gate and decision.gate.word)
        assert said.get(names.REASON.key) == (decision.reason and decision.reason.word)
        assert said.get(names.UNIT.key) == decision.unit
        assert said.get(names.SHORT_BY.key, 0) == decision.short_by
        assert said[names.EXTEND.key] == decision.extend_tokens
        assert said[names.HIT_STATUS.key] == decision.host.status
        assert said[names.HIT_LOADED.key] == decision.loaded_tokens
        checks = [check for check in decision.ladder() if check.verdict is not Verdict.NOT_EVALUATED]
        assert said[names.CHECK_GATES.key] == [check.gate.word for check in checks]
        assert said[names.CHECK_VERDICTS.key] == [check.verdict.word for check in checks]
        assert said[names.CHECK_OBSERVED.key] == [check.observed for check in checks]
        assert said[names.CHECK_LIMITS.key] == [check.limit or 0 for check in checks]
    told = named(spans, names.DECISION)[1].attributes
    assert (told[names.REQUEST_ID.key], told[names.OBSERVED.key], told[names.LIMIT.key]) == ("second", 67_456, 65_536)


def test_a_skipped_host_hit_names_its_reason_and_a_loaded_one_none(busy):
    """The reason stands only where a hit was skipped."""
    spans, _ = made(gathered(busy))
    first, second, _, entered = (span.attributes for span in named(spans, names.DECISION))
    assert (first[names.HIT_STATUS.key], first[names.HIT_REASON.key]) == ("skipped", "none_resident")
    assert second[names.HIT_STATUS.key] == "planned"
    assert names.HIT_REASON.key not in second
    assert (entered[names.HIT_STATUS.key], entered[names.HIT_LOADED.key]) == ("loaded", 4096)


def test_repeats_are_one_span_under_the_decision_they_repeat(busy):
    """A refusal said forty times is one decision and one span with count, first, last, least and greatest."""
    spans, _ = made(gathered(busy))
    (repeat,) = named(spans, names.REPEAT)
    repeated = named(spans, names.DECISION)[2]
    assert repeat.parent.span_id == repeated.context.span_id
    assert repeat.context.trace_id == repeated.context.trace_id
    assert (repeat.start_time, repeat.end_time) == (WALL_NS + 910 * MS, WALL_NS + 1100 * MS)
    assert repeat.attributes[names.REPEAT_COUNT.key] == 39
    assert repeat.attributes[names.REPEAT_OBSERVED.key] == (9232, 9232, 9232, 9232)
    assert (repeat.attributes[names.GATE.key], repeat.attributes[names.UNIT.key]) == ("kv_capacity", "tokens")


def test_repeats_keep_the_id_of_a_request_that_left(world):
    """An abort is recorded before the last word on the refusal it ends, which still names the request."""
    engine = world()
    engine.arrive("gone", 0, 1000)
    for at in range(5, 9):
        engine.step(at, free=500)
    engine.abort("gone", 9)
    engine.arrive("next", 10, 1000)
    engine.step(11, free=900_000)
    spans, maker = made(gathered(engine))
    (repeat,) = named(spans, names.REPEAT)
    assert repeat.attributes[names.REQUEST_ID.key] == "gone"
    assert [request.id for request in maker.state.requests.values()] == ["next"]


def test_a_verdict_says_how_long_it_had_held(world):
    """The time runs from the first of an unbroken row of looks that said the same, and begins anew with another."""
    engine = world(max_requests=1, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    for number in range(5):
        engine.arrive(f"r{number}", number, 1000)
    for at in (10, 20, 35):
        engine.step(at)
    engine.step(50, free=500)
    engine.step(60, free=400)
    spans, _ = made(gathered(engine))
    waits = [span.attributes for span in named(spans, names.DECISION) if span.attributes[names.OUTCOME.key] == "wait"]
    held = [(each[names.REQUEST_ID.key], each[names.GATE.key], each[names.HELD_NS.key]) for each in waits]
    assert held == [
        ("r1", "request_count", 0),
        ("r2", "request_count", 0),
        ("r3", "request_count", 0),
        ("r3", "kv_capacity", 0),
    ]
    engine = world(max_requests=1, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    engine.arrive("stuck", 0, 1000)
    engine.step(10, free=500)
    engine.recorder.end_repeats()  # as by a knob change, so that the same verdict is written whole again
    engine.step(25, free=500)
    spans, _ = made(gathered(engine))
    assert [span.attributes[names.HELD_NS.key] for span in named(spans, names.DECISION)] == [0, 15 * MS]


def test_a_wait_is_split_at_the_first_look_and_adds_up(busy):
    """From arrival to admission, with an event for each thing it was spent on; the parts add up to the wait."""
    spans, _ = made(gathered(busy))
    second = next(span for span in named(spans, names.QUEUE) if span.attributes[names.REQUEST_ID.key] == "second")
    assert (second.start_time, second.end_time) == (WALL_NS + 3 * MS, WALL_NS + 1203 * MS)
    said = second.attributes
    assert (said[names.BEFORE_LOOK_NS.key], said[names.AFTER_LOOK_NS.key]) == (2 * MS, 1198 * MS)
    assert (said[names.QUEUE_ENDED.key], said[names.QUEUE_LOOKS.key]) == ("admit", 42)
    parts = [
        (
            event.attributes[names.WAIT_KIND.key],
            event.attributes.get(names.GATE.key),
            event.attributes[names.WAIT_NS.key],
        )
        for event in second.events
        if event.name == names.WAITED.name
    ]
    assert parts == [
        ("between_passes", None, 2 * MS),
        ("held", "extend_tokens", 900 * MS),
        ("held", "kv_capacity", 298 * MS),
    ]
    assert all(second.start_time <= event.timestamp <= second.end_time for event in second.events)


def test_who_was_not_looked_at_waited_behind_the_gate(busy):
    """Time not looked at belongs to the gate that closed those passes, and an abort ends the wait with its words."""
    spans, _ = made(gathered(busy))
    third = next(span for span in named(spans, names.QUEUE) if span.attributes[names.REQUEST_ID.key] == "third")
    assert (third.attributes[names.QUEUE_ENDED.key], third.attributes[names.WHY.key]) == ("abort", "client went away")
    assert third.attributes[names.QUEUE_LOOKS.key] == 0
    assert third.attributes[names.BEFORE_LOOK_NS.key] == third.end_time - third.start_time == 1146 * MS
    kinds = {event.attributes[names.WAIT_KIND.key] for event in third.events}
    assert kinds == {"between_passes", "behind"}


def test_who_still_waits_when_the_run_ends_has_a_span(world):
    """A run that ends in good order leaves no wait untold."""
    engine = world()
    engine.arrive("late", 5, 100)
    engine.end(30)
    (wait,) = named(made(gathered(engine))[0], names.QUEUE)
    assert (wait.attributes[names.QUEUE_ENDED.key], wait.end_time - wait.start_time) == ("run_end", 25 * MS)


def test_a_request_that_waits_again_has_a_second_span(world):
    """A retracted request's second wait is a span of its own, from the moment it gave its KV back."""
    engine = world()
    engine.arrive("again", 0, 1000)
    engine.step(5)
    engine.retract("again", 50, 1000)
    engine.step(70)
    waits = named(made(gathered(engine))[0], names.QUEUE)
    assert [span.attributes[names.QUEUE_AFTER.key] for span in waits] == ["arrival", "retract"]
    assert (waits[1].start_time, waits[1].end_time) == (WALL_NS + 50 * MS, WALL_NS + 70 * MS)
    assert waits[0].context.trace_id == waits[1].context.trace_id
    assert waits[0].context.span_id != waits[1].context.span_id


def with_caller(records, traceparent):
    """The same records, every request sent by one caller."""
    return [
        msgspec.structs.replace(record, traceparent=traceparent) if isinstance(record, Arrival) else record
        for record in records
    ]


def test_a_wait_stands_in_the_request_s_own_trace(busy):
    """With a traceparent the wait is its caller's child and the decisions link to the caller; else they do not."""
    spans, _ = made(with_caller(gathered(busy), CALLER))
    for wait in named(spans, names.QUEUE):
        assert f"{wait.context.trace_id:032x}" == CALLER[3:35]
        assert (f"{wait.parent.span_id:016x}", wait.parent.is_remote) == (CALLER[36:52], True)
    for decision in named(spans, names.DECISION):
        (link,) = decision.links
        assert f"{link.context.span_id:016x}" == CALLER[36:52]
    spans, _ = made(with_caller(gathered(busy), "00-not-a-traceparent"))
    assert all(span.parent is None for span in named(spans, names.QUEUE))
    assert not any(span.links for span in spans)


def test_the_parent_s_flag_is_honoured(busy):
    """A caller that was not sampled takes its waits along, and nothing else."""
    spans, maker = made(with_caller(gathered(busy), CALLER[:-1] + "0"), sampler=ParentBased(ALWAYS_ON))
    assert not named(spans, names.QUEUE)
    assert len(named(spans, names.DECISION)) == 4
    assert maker.left_out == {SAMPLED_OUT: 3, REPEATED: 0}


def test_a_sampler_takes_or_leaves_a_whole_pass(busy):
    """A pass's decisions and repeats go with their pass, and what is left out is counted."""
    everything, _ = made(gathered(busy))
    nothing, maker = made(gathered(busy), sampler=ALWAYS_OFF)
    assert nothing == []
    assert maker.left_out[SAMPLED_OUT] == len(everything)
    bound = sorted(span.context.trace_id & (2**64 - 1) for span in named(everything, names.PASS))[1]
    some, maker = made(gathered(busy), sampler=TraceIdRatioBased(bound / 2**64))
    assert len(some) + maker.left_out[SAMPLED_OUT] == len(everything)
    traces = {span.context.trace_id for span in named(some, names.PASS)}
    assert {span.context.trace_id for span in [*named(some, names.DECISION), *named(some, names.REPEAT)]} <= traces


@pytest.mark.parametrize(
    ("name", "argument", "sampled"),
    [
        ("always_on", "", True),
        ("always_off", "", False),
        ("traceidratio", "0", False),
        ("parentbased_traceidratio", "1", True),
    ],
)
def test_the_environment_names_the_sampler(busy, monkeypatch, name, argument, sampled):
    """OTEL_TRACES_SAMPLER and its argument decide what is sent."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    spans, _ = made(gathered(busy), sampler=sampler_in_force())
    assert bool(spans) is sampled


def test_ids_come_from_the_record(busy):
    """Made twice, every span has the same ids; no two of one run, and none of two ranks, share them; none is zero."""
    records = gathered(busy)
    first, second = ([(span.context.trace_id, span.context.span_id) for span in made(records)[0]] for _ in range(2))
    assert first == second
    assert len(set(first)) == len(first)
    assert all(trace and span for trace, span in first)
    other, _ = made(records)
    rank = SpanMaker("run-1", 1, sampler=ALWAYS_ON).spans_of(records)
    assert {span.context.span_id for span in other}.isdisjoint(span.context.span_id for span in rank)
    waits = [{span.context.trace_id for span in named(spans, names.QUEUE)} for spans in (other, rank)]
    assert waits[0] == waits[1], "a request without a trace has the same one on every rank"


def test_a_maker_goes_on_where_another_stopped(busy):
    """Cut anywhere between two frames, with the state kept and read back, the spans are the same."""
    frames = [decode(frame.payload) for frame in busy.frames()]
    whole = [span.to_json() for span in made([record for frame in frames for record in frame])[0]]
    for cut in range(len(frames)):
        before, maker = made([record for frame in frames[:cut] for record in frame])
        state = msgspec.msgpack.decode(msgspec.msgpack.encode(maker.state), type=SpanState)
        after, _ = made([record for frame in frames[cut:] for record in frame], state=state)
        assert [span.to_json() for span in (*before, *after)] == whole


def test_above_the_rate_repeated_verdicts_are_left_out_and_counted(world):
    """Only a wait that the pass before said too is left out, and only once its second has had its spans."""
    engine = world(max_requests=1, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    engine.arrive("running", 0, 1000)
    engine.arrive("stuck", 0, 1000)
    for number in range(30):
        engine.step(10 + number)
        engine.arrive(f"more-{number}", 10 + number, 10)
        engine.queue.insert(0, engine.queue.pop())
    records = gathered(engine)
    everything, maker = made(records)
    assert maker.left_out[REPEATED] == 0
    some, maker = made(records, spans_per_second=20)
    left = len(everything) - len(some)
    assert left == maker.left_out[REPEATED] > 0
    kept = {span.context.span_id for span in some}
    missing = [span for span in everything if span.context.span_id not in kept]
    assert {span.attributes[names.OUTCOME.key] for span in missing} == {"wait"}
    assert all(span.attributes[names.HELD_NS.key] > 0 for span in missing)
    assert len(named(some, names.PASS)) == len(named(everything, names.PASS))


def test_an_alarm_is_an_event_of_the_span_that_showed_it(world):
    """An idle engine that refuses a head that fits is an event of its pass; what repeats raised, of their span."""
    engine = world(max_requests=1, pool=100_000)
    engine.arrive("stuck", 0, 1000)
    for look in range(NO_PROGRESS.threshold + 10):
        engine.step(5 + look, free=100_000, reserved=99_900)
    engine.step(2000, reserved=0)
    spans, _ = made(gathered(engine))
    events = {
        span.name: [(event.attributes[names.ALARM.key], event.timestamp) for event in span.events]
        for span in (named(spans, names.PASS)[0], *named(spans, names.REPEAT))
    }
    assert events[names.PASS.name] == [(IDLE_REFUSAL.name, WALL_NS + 5 * MS)]
    assert [name for name, _ in events[names.REPEAT.name]] == [NO_PROGRESS.name]
    (repeat,) = named(spans, names.REPEAT)
    (event,) = repeat.events
    assert repeat.start_time <= event.timestamp <= repeat.end_time
    assert event.attributes[names.ALARM_THRESHOLD.key] == NO_PROGRESS.threshold
    assert event.attributes[names.ALARM_MEASURED.key] >= NO_PROGRESS.threshold
    assert (event.attributes[names.REQUEST_ID.key], event.attributes[names.GATE.key]) == ("stuck", "kv_capacity")


def test_a_smoke_allocation_stands_beside_the_estimates():
    """It is a span, an error where it did not fit, and what it reserved is on the passes and decisions after it."""
    good = Smoke(5, "cuda:0", 100, 128, 130, 1000, passed=True)
    bad = Smoke(6, "cuda:0", 5000, 0, 0, 1000, passed=False, why="only 1000 free")
    flat = (0, 0, -1, -1, 0, 0, 0, 10, 0, 0, 10, 1, 8, 0, 0, 0, 0, *([0, 7, 9] * 9))
    one_pass = Pass(1, 10, 5, 0, 1, 10, 0, ((0, 0, 10, 0, 0, 0),), -1, -1, 77, (70, 7), (9, 0, 0, 0), (9, 9), (flat,))
    smoke, failed, passed, decided = made([good, bad, one_pass])[0]
    assert (smoke.name, smoke.status.status_code) == (names.SMOKE.name, StatusCode.UNSET)
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "only 1000 free")
    assert (passed.attributes[names.ESTIMATED.key], passed.attributes[names.SMOKE_RESERVED.key]) == (77, 128)
    assert passed.attributes[names.PART_BYTES.key] == (70, 7)
    assert (decided.attributes[names.ESTIMATED.key], decided.attributes[names.SMOKE_RESERVED.key]) == (7, 128)


def test_a_knob_change_is_a_span():
    """Who asked, old and new as JSON, accepted or why not; two of one moment have ids of their own."""
    change = KnobChange(5, "operator", 1, (("max_requests", None, 4), ("enforce", True, False)), accepted=True)
    refused = KnobChange(5, "operator", 1, (("max_requests", 4, -1),), accepted=False, why="below 1")
    first, second = made([change, refused])[0]
    assert first.attributes[names.KNOB_NAMES.key] == ["max_requests", "enforce"]
    assert [json.loads(text) for text in first.attributes[names.KNOB_OLD.key]] == [None, True]
    assert [json.loads(text) for text in first.attributes[names.KNOB_NEW.key]] == [4, False]
    assert (second.attributes[names.KNOB_ACCEPTED.key], second.attributes[names.WHY.key]) == (False, "below 1")
    assert first.context.span_id != second.context.span_id


def test_a_record_that_is_not_sound_raises_and_loses_nothing_before_it(busy):
    """What was made before the unsound record comes with the next call."""
    records = gathered(busy)
    maker = SpanMaker("run-1", 0, sampler=ALWAYS_ON)
    broken = Pass(1, 1, 1, 0, 1, 1, 0, (), -1, -1, -1, (), (0, 0, 0, 0), (0, 0), ((0, 99, -1),))
    with pytest.raises((ValueError, IndexError)):
        maker.spans_of([KnobChange(1, "me", 0, (), accepted=True), broken])
    assert names.KNOB_CHANGE.name in [span.name for span in maker.spans_of(records)]


def test_the_end_of_a_request_nobody_knows_is_no_span():
    """An abort whose arrival is lost makes nothing and fails nothing."""
    assert made([Abort(7, 5, "gone")])[0] == []


def test_the_resource_heeds_the_environment(monkeypatch):
    """OTEL_SERVICE_NAME wins over OTEL_RESOURCE_ATTRIBUTES; without either it is glassgate; the instance is ours."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    assert resource_of("r", 2, "sglang", "1").attributes["service.name"] == "glassgate"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=lab")
    resource = resource_of("r", 2, "sglang", "1")
    assert isinstance(resource, Resource)
    assert resource.attributes["service.name"] == "other"
    assert resource.attributes["deployment.environment.name"] == "lab"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    attributes = resource_of("r", 2, "sglang", "1").attributes
    assert (attributes["service.name"], attributes["service.instance.id"]) == ("mine", "r/2")
    assert attributes["telemetry.sdk.name"] == "opentelemetry"
