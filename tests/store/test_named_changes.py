"""Named queries about change, compared with what happened and with counting it out."""

import sqlite3

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.records import KnobChange
from store.queries import run_query
from store.why import why

MS = 1_000_000


def test_stops_over_time_counts_every_pass_once(database, world):
    """Over all stretches the passes are those of `stops`, repeats included, and each stretch names its gates."""
    engine = world(max_requests=1)
    for number in range(20):
        engine.arrive(f"a{number}", number, 100)
        engine.arrive(f"b{number}", number, 100)
        engine.step(number + 0.5)
    for look in range(30):
        engine.step(100 + 10 * look, free=10)
    engine.end(400)
    engine.into(database)
    rows = run_query(database, "stops-over-time", limit=4).as_dicts()
    assert [each["from_ns"] // MS for each in rows] == [0, 100, 200, 300]
    assert [(each["passes"], each["repeats"], each["gate"]) for each in rows] == [
        (21, 0, "request_count"), (9, 9, "kv_capacity"), (10, 10, "kv_capacity"), (10, 10, "kv_capacity"),
    ]  # fmt: skip
    assert rows[0]["stops"] == "request_count/limit 95.2%, kv_capacity/pool 4.8%"
    assert rows[0]["share"] == pytest.approx(100 * 20 / 21, abs=0.1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 4000)), min_size=1, max_size=30), st.integers(1, 30))
def test_stops_over_time_adds_up(tmp_path_factory, world, steps, stretches):
    """However a run is divided, its passes and repeats are those that `stops` counts, by gate."""
    database, engine, clock = tmp_path_factory.mktemp("x") / "x.db", world(), 0
    for number, (wait, free) in enumerate(steps):
        clock += wait
        if number % 3 == 0:
            engine.arrive(f"r{number}", clock, 1000)
        engine.step(clock, free=free)
    engine.end(clock + 1)
    engine.into(database)
    over_time = run_query(database, "stops-over-time", limit=stretches).as_dicts()
    stops = run_query(database, "stops").as_dicts()
    for what in ("passes", "repeats"):
        assert sum(each[what] for each in over_time) == sum(each[what] for each in stops)


def test_a_switch_is_told_as_on_or_off(database, world):
    """Among numbers a switch is a word; what stood before is empty where nobody knew it."""
    engine = world(max_requests=1)
    engine.arrive("a", 0, 100)
    engine.step(1000)
    changes = (("enforce", 1, 0), ("max_requests", 1, None), ("shared_kv_batching", None, 1))
    engine.recorder.note(KnobChange(2_000 * MS, "ann", 1, changes, accepted=True))
    engine.into(database)
    found = [(row["knob"], row["old"], row["new"]) for row in run_query(database, "knob-changes").as_dicts()]
    assert found == [("enforce", "on", "off"), ("max_requests", 1, None), ("shared_kv_batching", None, "on")]
    knobs = {row["knob"]: (row["set_to"], row["effective"]) for row in run_query(database, "knobs").as_dicts()}
    assert knobs["enforce"] == ("on", "on")
    assert knobs["max_requests"] == (1, 1)


def test_knob_effects_sets_after_beside_before(database, world):
    """For each accepted change the minute before and after it have their passes, batches, waits and stops."""
    engine = world(max_requests=1)
    for number in range(8):
        engine.arrive(f"r{number}", 1000 * number, 100)
    for number in range(4):
        engine.step(10_000 + 1000 * number)
    engine.recorder.note(KnobChange(14_000 * MS, "ann", 1, (("max_requests", 1, 4), ("enforce", 1, 0)), accepted=True))
    engine.recorder.note(KnobChange(14_500 * MS, "bob", 1, (("max_requests", 4, 0),), accepted=False, why="too few"))
    engine.limits = world(max_requests=4).limits
    engine.step(15_000)
    for number in range(3):
        engine.step(16_000 + 1000 * number)
    engine.end(200_000)
    engine.into(database)
    before, after = run_query(database, "knob-effects").as_dicts()
    assert (before["side"], before["change"], before["who"]) == (
        "before",
        "max_requests 1 to 4, enforce on to off",
        "ann",
    )
    assert (before["passes"], before["batches"], before["batch_requests"]) == (4, 4, 1.0)
    assert (after["passes"], after["batches"], after["batch_requests"]) == (4, 1, 4.0)
    assert before["stops"] == "request_count/limit 100.0%"
    assert after["stops"] == "nothing 100.0%"
    assert before["admitted_wait_ns"] == 10_000 * MS
    assert after["admitted_wait_ns"] == (11_000 + 10_000 + 9_000 + 8_000) * MS // 4
    assert (before["window_ns"], after["window_ns"]) == (14_000 * MS, 60_000 * MS)


def test_overtakes_says_who_overtook_whom(database, world):
    """A request that others overtook is listed with how many, the first of them, and its wait; nobody else is."""
    engine = world()
    engine.arrive("before", 0, 100)
    engine.arrive("slow", 1, 100)
    slow = engine.queue.pop()
    engine.arrive("later-1", 2, 100)
    engine.step(3)
    engine.arrive("later-2", 4, 100)
    engine.step(5)
    engine.arrive("companion", 6, 100)
    engine.queue.insert(0, slow)
    engine.step(9)
    engine.into(database)
    (row,) = run_query(database, "overtakes").as_dicts()
    assert row == {
        "request": "slow", "wait_ns": 8 * MS, "overtaken_by": 2, "first_overtaker": "later-1", "first_pass": 1,
        "overtakers": "later-1 later-2", "prompt_tokens": 100,
    }  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25))
def test_overtakes_agrees_with_why(tmp_path_factory, world, picks):
    """In whatever order requests are taken from the queue, each is overtaken by as many as `why` says."""
    database, engine = tmp_path_factory.mktemp("x") / "x.db", world(max_requests=1)
    for number, pick in enumerate(picks):
        engine.arrive(f"r{number}", 10 * number, 100)
        engine.queue.insert(0, engine.queue.pop(pick % len(engine.queue)))
        if number > 2:
            engine.step(10 * number + 5)
    engine.end(10 * len(picks))
    engine.into(database)
    rows = {each["request"]: each["overtaken_by"] for each in run_query(database, "overtakes", limit=100).as_dicts()}
    told = {name: why(database, name).overtaken for name in engine.numbers}
    assert rows == {name: overtaken for name, overtaken in told.items() if overtaken}


def test_buffer_parts_are_named(database, world):
    """The view `buffer_parts` names each part of an estimate; they are those of the pass."""
    engine = world()
    engine.arrive("a", 0, 100)
    engine.step(1)
    engine.into(database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE passes SET parts = '[1,20,300]'")
    assert run_query(database, "SELECT pass, part, bytes FROM buffer_parts").rows == [
        (1, "metadata", 1), (1, "scores", 20), (1, "index_gather", 300),
    ]  # fmt: skip


def test_a_clock_set_back_is_said_and_loses_nothing(database, world):
    """Passes that begin before the one before them are kept, told as a loss of order, and `why` still adds up."""
    engine = world()
    engine.arrive("a", 100, 5000)
    engine.step(110, free=1000)
    engine.arrive("b", 50, 100)
    engine.step(60, free=9000)
    engine.step(70)
    engine.end(90)
    engine.into(database)
    assert run_query(database, "SELECT count(*) FROM passes").rows == [(3,)]
    (loss,) = run_query(database, "losses").as_dicts()
    assert (loss["reason"], loss["frames"]) == ("clock", 0)
    assert loss["detail"] == "the clock went back: pass 2 began 50000000 ns before the pass before it"
    for name in ("a", "b"):
        wait = why(database, name).waits[0]
        assert sum(part.ns for part in wait.parts) == wait.ns
    for name in ("slowest-waits", "stops-over-time", "knob-effects", "overtakes"):
        run_query(database, name)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4000), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 3),
)
@example([(0, 0, True), (1, 0, True), (0, 1174, False)], 2)  # the second waited, and no time of it behind a gate
def test_slowest_waits_agrees_with_why(tmp_path_factory, world, steps, most):
    """For every request of any run, the time behind the gate that held it most is what `why` says it was."""
    database, engine, clock = tmp_path_factory.mktemp("x") / "x.db", world(max_requests=most), 0
    for number, (wait, free, arrives) in enumerate(steps):
        clock += wait
        if arrives:
            engine.arrive(f"r{number}", clock, 500 + number)
        engine.step(clock + 0.5, free=free)
    engine.end(clock + 7)
    engine.into(database)
    for row in run_query(database, "slowest-waits", limit=100).as_dicts():
        behind = {}
        for part in why(database, row["request"]).waits[0].parts:
            if part.gate is not None:
                behind[part.gate, part.reason] = behind.get((part.gate, part.reason), 0) + part.ns
        assert row["gate_ns"] == max(behind.values(), default=None)
        assert row["gate"] is None or behind[row["gate"], row["reason"]] == row["gate_ns"]
