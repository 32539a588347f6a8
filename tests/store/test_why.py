"""A request's life, in words and in numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admission import LoadAnswer
from controller.records import Preempt
from controller.vocabulary import HostHit
from estimator.errors import NotFoundError
from store.queries import run_query
from store.why import why

MS = 1_000_000


def test_a_long_wait_is_told_in_words(database, world):
    """The words give the wait, each gate's part of it with its numbers, looks, overtakers, the entry and the tokens."""
    engine = world(max_extend_tokens=65_536, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    engine.arrive("first", 0, 62_400)
    engine.arrive(
        "chat-17", 3, 17_344, 512, device_tokens=8192, unlocked_tokens=8192, host_tokens=4096, resident_tokens=4096
    )
    engine.step(5)
    engine.arrive("behind", 600, 900)
    for look in range(40):
        engine.step(905 + 5 * look, free=15_000)
    engine.step(1203, free=900_000)
    engine.first_token("chat-17", 1543, 42)
    engine.finish("chat-17", 4203, 512)
    engine.into(database)
    assert why(database, "chat-17").words() == [
        "request chat-17 of run run-1",
        "arrived 3 ms into the run (2023-11-14T22:13:20.003Z)",
        "prompt of 17,344 tokens, at most 512 to generate",
        "waited 1.2 s, of which",
        "  900 ms behind extend_tokens (needs 5,056; 3,136 of 65,536 left), told so once",
        "  298 ms behind kv_capacity (needs 9,728; 6,808 left), told so 40 times",
        "  2 ms until the next pass began",
        "looked at 42 times; overtaken by nobody",
        "entered pass 42 with 12,288 tokens cached (4,096 of them loaded from the host) and 5,056 computed",
        "first token 340 ms after it entered, 1.5 s after it arrived",
        "finished 4.2 s after it arrived, with 512 tokens",
    ]
    assert why(database, "behind").words()[3:8] == [
        "waited 603 ms, of which",
        "  305 ms until the next pass began",
        "  298 ms behind kv_capacity, not looked at: it closed the passes before this request's turn",
        "looked at once; overtaken by nobody",
        "entered pass 42 with 0 tokens cached and 900 computed",
    ]


def test_the_numbers_are_the_ones_the_words_are_made_of(database, world):
    """The life as a dict holds the same parts, in ns and tokens, with observed, limit, short by and unit."""
    engine = world()
    engine.arrive("a", 1, 5000)
    engine.step(2, free=3000)
    engine.step(4, free=3500)
    engine.step(7, free=9000)
    engine.into(database)
    life = why(database, "a").as_dict()
    assert life["waited_ns"] == 6 * MS
    (wait,) = life["waits"]
    assert wait["ended_by"] == "admit"
    assert wait["parts"][0] == {
        "kind": "held", "ns": 5 * MS, "gate": "kv_capacity", "reason": "pool", "looks": 2, "observed": 5080,
        "limit": 3500, "short_by": 1581, "unit": "tokens", "needs": 5080, "left": 3500,
    }  # fmt: skip
    assert life["entries"][0]["chunks"] == ((3, 5000),)


def test_a_chunked_and_parked_prompt_is_told(database, world):
    """A prompt cut into chunks says how many and where; a parked chunk says for how long, by which gate and numbers."""
    engine = world(chunked_prefill_size=2048)
    engine.arrive("long", 0, 5000)
    engine.arrive("short", 1, 500)
    engine.step(2)
    for look in range(30):
        engine.step(10 + 100 * look, free=40)
    engine.step(3012, free=100_000)
    engine.step(3020)
    engine.into(database)
    assert why(database, "long").words()[6:9] == [
        "entered pass 1 with 0 tokens cached and 5,000 computed",
        "computed in 3 chunks: 2,048 in pass 1, 2,048 in pass 32, 904 in pass 33",
        "parked 3.0 s between chunks by kv_capacity (needs 64; 40 left), told so 30 times",
    ]
    short = why(database, "short").words()
    assert "  3.0 s behind kv_capacity, not looked at: it closed the passes before this request's turn" in short


def test_a_host_hit_that_was_not_loaded_is_told(database, world):
    """A skipped host hit says why and what it cost; a load that failed says so, with what was evicted for it."""
    engine = world()
    engine.arrive("short-hit", 0, 300, host_tokens=4, resident_tokens=4)
    engine.arrive("failed", 1, 2000, host_tokens=1024, resident_tokens=1024)
    engine.load_answer = LoadAnswer(0, HostHit.ALLOCATOR, 512)
    engine.step(2)
    engine.into(database)
    assert (
        "a host hit of 4 tokens was not loaded (below_threshold), so 4 tokens were computed again"
        in why(database, "short-hit").words()
    )
    assert why(database, "failed").words()[7:9] == [
        "a load of 1,024 tokens from the host failed (allocator); 512 tokens had been evicted for it",
        "a host hit of 1,024 tokens was not loaded (allocator), so 1,024 tokens were computed again",
    ]


def test_what_can_never_fit_is_told(database, world):
    """A request refused for good says what it needs, of what, and the largest prompt that can be served."""
    engine = world(pool=76_640)
    engine.arrive("x", 0, 100_000)
    engine.step(1)
    engine.into(database)
    life = why(database, "x")
    assert life.waits[0].ended_by == "can_never"
    assert life.words()[-2:] == [
        "refused in pass 1: it can never fit (needs 100,080 of a pool of 76,640; 23,441 too many)",
        "the largest prompt this engine can serve is 76,574 tokens",
    ]


def test_exempt_and_shadow_verdicts_are_told(database, world):
    """A request let in above a limit says which, and whether as first of its batch or because the gate only watched."""
    engine = world(max_extend_tokens=512, chunked_prefill_size=None, enforce=False)
    engine.arrive("first", 0, 600)
    engine.arrive("second", 0, 600)
    engine.step(1)
    engine.into(database)
    assert "above the limit of extend_tokens, and let in as the first of its batch" in why(database, "first").words()
    assert (
        "extend_tokens would have told it to wait, but only watched (enforce is off)" in why(database, "second").words()
    )


def test_retraction_and_a_second_wait_are_told(database, world):
    """A retracted request tells its second wait apart from the first; its first token stands where it came."""
    engine = world()
    engine.arrive("a", 0, 900)
    engine.step(1)
    engine.first_token("a", 10)
    engine.retract("a", 20, 907, generated=7)
    engine.step(21, free=500)
    engine.step(35, free=50_000)
    engine.abort("a", 40)
    engine.into(database)
    life = why(database, "a")
    assert [(wait.after, wait.ended_by, wait.ns) for wait in life.waits] == [
        ("arrival", "admit", 1 * MS), ("retract", "admit", 15 * MS),
    ]  # fmt: skip
    assert life.words()[5:] == [
        "looked at once; overtaken by nobody",
        "entered pass 1 with 0 tokens cached and 900 computed",
        "first token 9 ms after it entered, 10 ms after it arrived",
        "gave its KV back after 7 tokens, because the pool ran out",
        "waited again 15 ms, of which",
        "  14 ms behind kv_capacity (needs 987; 500 left), told so once",
        "  1 ms until the next pass began",
        "entered pass 3 with 0 tokens cached and 907 computed",
        "aborted 40 ms after it arrived: client went away",
    ]


def test_a_preempted_request_says_so(database, world):
    """A request put aside for another of higher priority is told as that."""
    engine = world()
    engine.arrive("a", 0, 900)
    engine.step(1)
    engine.recorder.note(Preempt(0, 5 * MS, 9))
    engine.end(9)
    engine.into(database)
    assert why(database, "a").words()[7:] == [
        "gave its KV back, for a request of higher priority",
        "has waited again for 4 ms by the end of the record, and still waits, of which",
        "  4 ms until the next pass began",
    ]


def test_a_request_that_waits_at_the_end_of_the_record_says_on_what(database, world):
    """A request that was never admitted tells its wait up to the end of the record, or up to its abort."""
    engine = world()
    engine.arrive("head", 0, 5000)
    engine.arrive("next", 2, 100)
    for look in range(12):
        engine.step(1 + 100 * look, free=1000)
    engine.abort("next", 1150)
    engine.end(1501)
    engine.into(database)
    assert why(database, "head").words()[3:] == [
        "has waited for 1.5 s by the end of the record, and still waits, of which",
        "  1.5 s behind kv_capacity (needs 5,080; 1,000 left), told so 12 times",
        "  1 ms until the next pass began",
        "looked at 12 times; overtaken by nobody",
    ]
    assert why(database, "next").words()[3:] == [
        "waited 1.1 s, of which",
        "  1.0 s behind kv_capacity, not looked at: it closed the passes before this request's turn",
        "  99 ms until the next pass began",
        "never looked at; overtaken by nobody",
        "aborted 1.1 s after it arrived: client went away",
    ]


def test_overtakers_are_counted(database, world):
    """Requests that arrived later and entered in an earlier pass are counted; earlier ones and companions are not."""
    engine = world()
    engine.arrive("before", 0, 100)
    engine.arrive("slow", 1, 100)
    slow = engine.queue.pop()
    engine.arrive("later-1", 2, 100)
    engine.arrive("later-2", 3, 100)
    engine.step(4)
    engine.arrive("companion", 5, 100)
    engine.queue.insert(0, slow)
    engine.step(6)
    engine.arrive("after", 7, 100)
    engine.step(8)
    engine.into(database)
    assert why(database, "slow").overtaken == 2
    assert "looked at once; overtaken by 2" in why(database, "slow").words()
    assert [why(database, name).overtaken for name in ("before", "later-1", "companion", "after")] == [0, 0, 0, 0]


def test_one_id_in_several_runs_means_the_latest(database, world):
    """Of several runs with the same id the one begun last is told, the others are named, and --run picks one."""
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        engine = world(name, wall_ns=1_700_000_000_000_000_000 + day, simulated=True)
        engine.arrive("a", day, 100)
        if name != "wednesday":
            engine.arrive("b", day, 100)
        engine.step(9)
        engine.into(database)
    life = why(database, "a")
    assert (life.run, life.other_runs) == ("wednesday", ("tuesday", "monday"))
    assert life.words()[1] == "the same id is in 2 other runs (tuesday, monday); name one with --run"
    assert why(database, "a", run="mon").run == "monday"
    assert why(database, "b").run == "tuesday"
    with pytest.raises(NotFoundError, match="run wednesday has no request 'b'; it is in tuesday, monday"):
        why(database, "b", run="wednesday")
    assert why(database, "a").arrived_at is None  # simulated time has no date


def test_an_unknown_request_names_those_near_it(database, world):
    """An unknown id names ids with the same beginning, else shows what ids look like."""
    engine = world()
    for name in ("chat-1", "chat-12", "chat-2", "batch-1"):
        engine.arrive(name, 0, 100)
    engine.step(1)
    engine.into(database)
    with pytest.raises(NotFoundError, match="no request 'chat-19' in the database; near it are chat-1, chat-12"):
        why(database, "chat-19")
    with pytest.raises(NotFoundError, match="ids look like batch-1, chat-1"):
        why(database, "zzz")
    with pytest.raises(NotFoundError, match="no run 'nope'"):
        why(database, "chat-1", run="nope")


def test_a_life_with_holes_is_told_as_far_as_it_is_known(database, world):
    """With the frames of its arrival and admission lost, a request's life is still told, and what is lost is said."""
    engine = world()
    engine.arrive("known", 0, 100)
    engine.step(1)
    engine.arrive("a", 2, 5000)
    frames_before = len(engine.frames())
    engine.step(3, free=1000)
    engine.arrive("b", 4, 100)
    engine.step(5, free=9000)
    engine.step(7)
    engine.tape.frames[frames_before - 1 : frames_before + 1] = []
    engine.into(database)
    life = why(database, "b")
    assert sum(part.ns for part in life.waits[0].parts) == life.waits[0].ns
    number = run_query(database, "SELECT number FROM requests WHERE id IS NULL").rows
    assert number == [(1,)]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "step", "step", "step", "abort", "retract"]),
            st.integers(1, 40),
            st.integers(0, 9000),
        ),
        max_size=40,
    )
)
def test_every_life_adds_up(tmp_path_factory, world, events):
    """In any run, for every request, the parts of each wait add up to it, and its looks are those in the tables."""
    database = tmp_path_factory.mktemp("life") / "x.db"
    engine, clock, names = world(chunked_prefill_size=2048, pool=20_000), 0, []
    for event, ms, tokens in events:
        clock += ms
        if event == "arrive":
            names.append(f"r{len(names)}")
            engine.arrive(names[-1], clock, tokens + 1)
        elif event == "step":
            engine.step(clock, free=tokens)
        elif event == "abort" and engine.queue:
            engine.abort(f"r{engine.queue[-1].number}", clock)
        elif event == "retract" and names and engine.chunk is None:
            waiting = {each.number for each in engine.queue}
            running = [each for each in names if engine.numbers[each] not in waiting]
            if running:
                engine.retract(running[-1], clock, tokens + 1)
    engine.end(clock + 1)
    engine.into(database)
    for name in names:
        life = why(database, name)
        assert life.words()
        for wait in life.waits:
            assert sum(part.ns for part in wait.parts) == wait.ns
            assert all(part.ns > 0 for part in wait.parts)
            assert {part.kind for part in wait.parts} <= {"held", "behind", "between_passes", "unattributed"}
        assert life.waits[0].start_ns == life.arrival_ns
        looks, repeats = run_query(
            database,
            f"SELECT (SELECT count(*) FROM decisions WHERE request = {life.number} AND done_tokens = 0), "
            f"coalesce((SELECT sum(t.count) FROM repeats t JOIN decisions d ON d.pass = t.first_pass "
            f"AND d.request = t.request WHERE t.request = {life.number} AND d.done_tokens = 0), 0)",
        ).rows[0]
        assert life.looks == looks + repeats
