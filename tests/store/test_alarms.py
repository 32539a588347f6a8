"""Standing alarms: raised when they should be, counted, closed when over, the same after a restart."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admission import LoadAnswer
from controller.decision import PassResult
from controller.records import Abort, LoadDone, StepEnd, decode
from controller.request import Capacity
from controller.vocabulary import Gate, Outcome, Reason
from store import alarms
from store.alarms import (
    ALARMS,
    IDLE_REFUSAL,
    LONG_WAIT,
    NO_PROGRESS,
    PARKED_SLOTS,
    RANKS_DIFFER,
    UNUSED_AFTER_NS,
    UNUSED_LOAD,
    AlarmWatch,
)
from store.ingest import Ingest
from store.queries import run_query

MS = 1_000_000
SECOND = 1000
HALF_MINUTE_MS = UNUSED_AFTER_NS // MS


def raised(database, spec=None, **options):
    """The rows of `alarms`, of one kind if one is named."""
    rows = run_query(database, "alarms", limit=1000, **options).as_dicts()
    return [row for row in rows if spec is None or row["alarm"] == spec.name]


def test_every_kind_is_named_in_the_database_with_its_threshold(database, world):
    """Each kind of alarm has its meaning, threshold and unit in a table."""
    world().into(database)
    assert run_query(database, "SELECT * FROM alarm_kinds ORDER BY alarm").rows == sorted(map(tuple, ALARMS))


def test_a_quiet_run_raises_nothing(database, world):
    """A run in which requests wait a while for KV and then enter raises no alarm."""
    engine = world()
    engine.arrive("a", 0, 5000)
    for look in range(50):
        engine.step(1 + 100 * look, free=1000)
    engine.step(6000, free=9000)
    engine.end(7000)
    engine.into(database)
    assert raised(database) == []


def test_an_idle_engine_that_refuses_a_head_that_fits(database, world):
    """A head told to wait with nothing running and the pool whole raises the alarm, counted until one is admitted."""
    engine = world(pool=50_000)
    engine.arrive("a", 0, 5000)
    for look in range(6):
        engine.step(1 + 10 * look, free=50_000, reserved=49_000)
    engine.step(80, free=50_000, reserved=0)
    engine.end(100)
    engine.into(database)
    (alarm,) = raised(database, IDLE_REFUSAL)
    wanted = {
        "state": "closed", "opened_ns": 1 * MS, "age_ns": 79 * MS, "count": 6, "request": "a", "gate": "kv_capacity",
        "reason": "pool", "observed": 5080, "limit": 1000, "first_pass": 1, "last_pass": 6,
    }  # fmt: skip
    assert {name: alarm[name] for name in wanted} == wanted
    (row,) = run_query(database, "idle-refusals").as_dicts()
    assert (row["request"], row["gate"], row["observed"], row["repeats"]) == ("a", "kv_capacity", 5080, 5)


def test_an_idle_engine_that_waits_for_what_is_on_its_way(database, world):
    """A head whose host hit is being loaded was turned away by nobody, however idle the engine is."""
    engine = world(pool=50_000)
    engine.arrive("a", 0, 5000)
    loading = (0, Outcome.WAIT, Gate.LOAD_BACK, Reason.LOADING, 512, 0, 512, 5000, 0, 0, 0, 1, 0, 512, 512, 512, 0)
    result = PassResult((), ((*loading, *(5, 0, 0) * 9),), None, 1, None, 50_000, 50_000)
    capacity = Capacity(pool_tokens=50_000, free_tokens=50_000)
    engine.recorder.passed(capacity, result, start_ns=1 * MS, decide_ns=5, queue=1, queued_tokens=5000)
    engine.into(database)
    assert raised(database, IDLE_REFUSAL) == []
    assert run_query(database, "idle-refusals").rows == []


@pytest.mark.parametrize(("free", "running"), [(49_000, 0), (50_000, 3)])
def test_a_refusal_with_something_held_or_running_is_no_broken_invariant(database, world, free, running):
    """While anything holds KV or runs, a head told to wait raises no alarm about an idle engine."""
    engine = world(pool=50_000)
    engine.running = running
    engine.arrive("a", 0, 5000)
    engine.step(1, free=free, reserved=48_000)
    engine.into(database)
    assert raised(database, IDLE_REFUSAL) == []
    assert run_query(database, "idle-refusals").rows == []


def test_a_request_that_gets_nothing_for_many_passes(database, world):
    """At so many looks without a token, repeats counted, the alarm stands; it counts on and closes with the first."""
    engine = world()
    engine.arrive("a", 0, 5000)
    for look in range(NO_PROGRESS.threshold - 1):
        engine.step(1 + look, free=1000)
    engine.recorder.end_repeats()
    engine.into(database)
    assert raised(database, NO_PROGRESS) == []
    engine.recorder._held = None
    for look in range(5):
        engine.step(2000 + look, free=1000)
    engine.recorder.end_repeats()
    engine.into(database)
    (alarm,) = raised(database, NO_PROGRESS)
    assert (alarm["state"], alarm["count"], alarm["request"]) == ("open", NO_PROGRESS.threshold + 4, "a")
    engine.step(3000, free=9000)
    engine.into(database)
    (alarm,) = raised(database, NO_PROGRESS)
    assert (alarm["state"], alarm["count"]) == ("closed", NO_PROGRESS.threshold + 4)


def test_parked_requests_that_fill_the_slots(database, world):
    """When no slot is free and parked requests hold half of them or more, the alarm stands until one gets tokens."""
    engine = world(chunked_prefill_size=2048, slots=2)
    engine.arrive("long", 0, 9000)
    engine.step(1)
    engine.running = 1
    for look in range(3):
        engine.step(10 + look, free=40)
    engine.recorder.end_repeats()
    engine.into(database)
    (alarm,) = raised(database, PARKED_SLOTS)
    assert (alarm["state"], alarm["measured"], alarm["unit"], alarm["count"]) == ("open", 50, "percent", 3)
    assert alarm["detail"] == "1 parked and 1 running in 2 slots"
    engine.step(20, free=500_000)
    engine.into(database)
    assert [each["state"] for each in raised(database, PARKED_SLOTS)] == ["closed"]


def loaded(engine, at, name="a"):
    """A request enters with a host hit that has reached the device."""
    number = engine.arrive(name, at, 2000, host_tokens=1024, resident_tokens=1024)
    passed, _ = engine.step(at + 1)
    engine.recorder.note(LoadDone(number, int((at + 2) * MS), 1024))
    return number, passed


def test_a_loaded_prefix_that_is_used_raises_nothing(database, world):
    """A load whose request is computed in the step of its pass is used, whatever becomes of the request later."""
    engine = world()
    number, passed = loaded(engine, 0)
    engine.recorder.note(StepEnd(passed, 1 * MS, 9 * MS, (number,)))
    engine.recorder.note(Abort(number, 10 * MS, "client went away"))
    engine.into(database)
    assert raised(database) == []


def test_a_loaded_prefix_whose_request_leaves(database, world):
    """Loads whose requests leave before they are computed are counted by how, until none has come for a while."""
    engine = world()
    for turn in range(3):
        loaded(engine, 10 * turn, f"gone-{turn}")
        engine.recorder.note(Abort(turn, (10 * turn + 5) * MS, "client went away"))
    loaded(engine, 50, "back")
    engine.retract("back", 55, 2000)
    engine.into(database)
    by_cause = {each["detail"].split()[0]: each for each in raised(database, UNUSED_LOAD)}
    assert {cause: each["count"] for cause, each in by_cause.items()} == {"aborted": 3, "retracted": 1}
    assert by_cause["aborted"]["observed"] == 3 * 1024
    assert by_cause["aborted"]["request"] == "gone-2"
    engine.step(200 * SECOND)
    engine.into(database)
    assert {each["state"] for each in raised(database, UNUSED_LOAD)} == {"closed"}


def test_a_loaded_prefix_that_is_never_computed(database, world):
    """A load is unused when later passes were computed and its own was not for 30 s, and not before."""
    engine = world()
    loaded(engine, 0)
    engine.arrive("b", 10, 100)
    later, _ = engine.step(20)
    engine.recorder.note(StepEnd(later, 20 * MS, 30 * MS, (1,)))
    engine.into(database)
    assert raised(database) == []
    engine.recorder.note(StepEnd(later, HALF_MINUTE_MS * MS, (HALF_MINUTE_MS + 3) * MS, (1,)))
    engine.into(database)
    (alarm,) = raised(database, UNUSED_LOAD)
    assert (alarm["request"], alarm["detail"]) == ("a", "not computed after a load of 1024 tokens in pass 1")


def test_a_failed_load_is_not_an_unused_one(database, world):
    """A load that failed brought nothing, so nothing of it is unused."""
    engine = world()
    engine.load_answer = LoadAnswer(0)
    loaded(engine, 0)
    engine.recorder.note(Abort(0, 5 * MS, "client went away"))
    engine.into(database)
    assert raised(database) == []


def test_a_request_that_waits_long_on_one_reason(database, world):
    """A request told to wait for one reason past the bound raises the alarm; another reason starts the time anew."""
    bound_ms = LONG_WAIT.threshold // MS
    engine = world(max_requests=1)
    engine.arrive("a", 0, 5000)
    engine.step(0, free=1000)
    engine.step(bound_ms - 1, free=1000)
    engine.recorder.end_repeats()
    engine.into(database)
    assert raised(database, LONG_WAIT) == []
    engine.step(bound_ms, free=1000)
    engine.recorder.end_repeats()
    engine.into(database)
    (alarm,) = raised(database, LONG_WAIT)
    assert (alarm["measured"], alarm["gate"], alarm["request"]) == (LONG_WAIT.threshold, "kv_capacity", "a")
    engine.arrive("first", bound_ms, 100)
    engine.queue.reverse()
    engine.step(bound_ms + 5, free=100_000)
    engine.into(database)
    (alarm,) = raised(database, LONG_WAIT)
    assert (alarm["state"], alarm["age_ns"]) == ("closed", 5 * MS)


def two_ranks(world, *, odd_pass=None):
    """Frames of two ranks of a run; on the second one pass admits what the first makes wait."""
    ranks = []
    for rank in (0, 1):
        engine = world()
        for number in range(12):
            engine.arrive(f"r{number}", 10 * number, 1000)
            engine.step(10 * number + 1, free=100 if number + 1 == odd_pass and rank else 100_000)
        ranks.append(engine.frames())
    return ranks


def test_ranks_that_agree_raise_nothing(database, world):
    """Two ranks of a run with the same decisions raise nothing, and nor does another run."""
    zero, one = two_ranks(world)
    for rank, frames in enumerate((zero, one)):
        with Ingest(database, "run-1", rank) as ingest:
            ingest.feed(frames)
    other = world("run-2")
    other.arrive("x", 0, 10)
    other.step(1, free=1)
    other.into(database)
    assert raised(database, run="run-1") == []
    assert run_query(database, "rank-differences", run="run-1").rows == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_that_differ_are_told(database, world, order):
    """Whichever rank comes later, the passes in which two ranks differ raise one alarm with their number and place."""
    frames = two_ranks(world, odd_pass=7)
    for rank in order:
        with Ingest(database, "run-1", rank) as ingest:
            for frame in frames[rank]:
                ingest.feed([frame])
    rows = run_query(database, "SELECT rank, count, first_pass, last_pass, detail FROM v_alarms").rows
    found = run_query(database, "rank-differences").as_dicts()
    assert found[0]["pass"] == 7
    assert (found[0]["members"], found[0]["other_members"], found[0]["position"]) == (1, 0, 0)
    assert rows == [(order[1], len(found), 7, found[-1]["pass"], f"rank {order[0]} decided otherwise")]


def dump(database):
    """Every alarm as it is kept, and the watch's state."""
    with sqlite3.connect(database) as connection:
        return (
            connection.execute("SELECT * FROM alarms ORDER BY number").fetchall(),
            AlarmWatch.restore(connection.execute("SELECT state FROM alarm_watch").fetchone()[0]).state,
        )


@pytest.fixture
def eventful(world, monkeypatch):
    """Frames of a run in which, with low thresholds, most alarms are raised and closed."""
    monkeypatch.setattr(alarms, "NO_PROGRESS", NO_PROGRESS._replace(threshold=3))
    monkeypatch.setattr(alarms, "LONG_WAIT", LONG_WAIT._replace(threshold=20 * MS))
    engine = world(pool=50_000, chunked_prefill_size=2048, slots=2)
    engine.arrive("a", 0, 5000)
    engine.step(1)
    engine.running = 1
    for look in range(8):
        engine.step(10 + 10 * look, free=40)
    engine.running = 0
    engine.step(100, free=50_000)
    engine.step(110, free=50_000)
    for turn in range(3):
        number, _ = loaded(engine, 200 + 10 * turn, f"load-{turn}")
        engine.recorder.note(Abort(number, (206 + 10 * turn) * MS, "gone"))
    engine.arrive("b", 300, 3000)
    for look in range(8):
        engine.step(301 + 10 * look, free=50_000, reserved=49_000)
    engine.step(400, reserved=0)
    engine.end(500)
    return engine.frames()


def test_a_restart_at_any_frame_changes_no_alarm(database, eventful):
    """Stopped and opened again between any two frames, the alarms end up the same."""
    with Ingest(database, "run-1") as ingest:
        ingest.feed(eventful)
    whole = dump(database)
    assert {row[2] for row in whole[0]} >= {"idle_refusal", "no_progress", "parked_slots", "unused_load", "long_wait"}
    for cut in range(1, len(eventful)):
        path = database.with_name(f"{cut}.db")
        with Ingest(path, "run-1") as ingest:
            ingest.feed(eventful[:cut])
        with Ingest(path, "run-1") as ingest:
            ingest.feed(eventful[cut:])
        assert dump(path) == whole, cut


def test_a_transaction_that_fails_leaves_the_alarms_as_they_were(database, eventful):
    """After a failed write the alarms stand as the last transaction left them, and nothing is counted twice."""
    with Ingest(database, "run-1") as ingest:
        ingest.feed(eventful)
    whole = dump(database)
    path = database.with_name("again.db")
    with Ingest(path, "run-1") as ingest:
        ingest.feed(eventful[:9])
        broken = eventful[9]._replace(payload=b"\xc1")
        ingest.feed([broken])
        ingest.cursor = ingest.cursor._replace(seq=9, offset=eventful[9].offset)
        ingest.feed(eventful[9:])
    assert dump(path) == whole


def play(engine, events):
    """Let arrivals, passes, aborts and retractions happen 7 ms apart."""
    clock = 0
    for event, tokens in events:
        clock += 7
        if event in ("arrive", "host"):
            hit = {"host_tokens": tokens, "resident_tokens": tokens} if event == "host" else {}
            engine.arrive(f"r{len(engine.numbers)}", clock, 2 * tokens + 1, **hit)
        elif event == "step":
            engine.step(clock, free=tokens)
        elif event == "abort" and engine.queue:
            engine.abort(f"r{engine.queue[-1].number}", clock)
        elif event == "retract" and engine.numbers and engine.chunk is None:
            waiting = {each.number for each in engine.queue}
            running = [name for name, number in engine.numbers.items() if number not in waiting]
            if running:
                engine.retract(running[-1], clock, tokens + 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "step", "step", "step", "abort", "retract", "host"]), st.integers(0, 9000)
        ),
        max_size=40,
    ),
    st.integers(1, 5),
)
def test_alarms_are_sound_in_any_run(world, events, threshold):
    """In any run alarms open before they close, none stands twice, and of a request that left none stands."""
    engine = world(chunked_prefill_size=2048, pool=20_000, slots=3)
    play(engine, events)
    watch, kept = AlarmWatch(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alarms, "NO_PROGRESS", NO_PROGRESS._replace(threshold=threshold))
        patch.setattr(alarms, "LONG_WAIT", LONG_WAIT._replace(threshold=10 * MS * threshold))
        for frame in engine.frames():
            watch = AlarmWatch.restore(watch.saved())
            watch.add(decode(frame.payload))
            kept |= watch.changed
    assert all(each.opened_ns <= each.last_ns <= (each.closed_ns or each.last_ns) for each in kept.values())
    assert all(each.measured >= each.threshold and each.count >= 1 for each in kept.values())
    assert sorted(kept) == list(range(1, len(kept) + 1))
    standing = [(alarm.name, alarm.request, alarm.detail.split(" ")[0]) for alarm in watch.standing]
    assert len(standing) == len(set(standing))
    waiting = {each.number for each in engine.queue} | ({engine.chunk.number} if engine.chunk else set())
    of_requests = (NO_PROGRESS.name, LONG_WAIT.name, IDLE_REFUSAL.name)
    assert {alarm.request for alarm in watch.standing if alarm.name in of_requests} <= waiting


def test_ranks_differ_has_its_threshold():
    """One pass that differs is enough: decisions may never differ."""
    assert RANKS_DIFFER.threshold == 1
