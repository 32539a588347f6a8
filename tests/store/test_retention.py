"""Retention: what is too old or too much goes, whole, noted, and gives its room back; everything else stays."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.errors import NotFoundError, UsageError
from store import pruning
from store.database import reading
from store.ingest import Ingest
from store.pruning import bytes_in_use, hash_of, prune
from store.queries import run_query
from store.retention import Retention
from store.why import why

MS = 1_000_000
DAY_NS = 86_400_000_000_000
BEGAN_NS = 1_700_000_000_000_000_000


def recorded(world, database, name="run-1", passes=200, *, wall_ns=BEGAN_NS, end=True, every_ms=1000):
    """A run with a request, a pass and a finish each second, and a head that is refused for a while in the middle."""
    engine = world(name, wall_ns=wall_ns)
    for number in range(passes):
        at = number * every_ms
        engine.arrive(f"{name}-{number}", at, 1000)
        if number == passes // 2:
            for look in range(9):
                engine.step(at + 10 + 10 * look, free=100)
        engine.step(at + 500, free=100_000)
        engine.first_token(f"{name}-{number}", at + 600, engine.recorder.passes)
        engine.finish(f"{name}-{number}", at + 700)
    if end:
        engine.end(passes * every_ms)
    else:
        engine.recorder.flush()
    engine.into(database)
    return engine


def serve(engine, number):
    """One request that comes, is admitted and is served within the millisecond of its number."""
    engine.arrive(f"r{number}", number, 100)
    engine.step(number + 0.5)
    engine.finish(f"r{number}", number + 0.7)


def counts(database):
    """Rows by table."""
    names = ("passes", "decisions", "requests", "repeats", "steps", "knobs", "runs", "cursors", "pruned")
    with reading(database) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def sound(database):
    """Whether the file is sound and every row has its parents."""
    with sqlite3.connect(database) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [
            ("ok",)
        ] and not connection.execute("PRAGMA foreign_key_check").fetchall()  # fmt: skip


def test_whole_runs_go_by_age(database, world):
    """A run that ended before the cut goes whole but for its name and its place in the journal; a younger one stays."""
    recorded(world, database, "old", wall_ns=BEGAN_NS)
    recorded(world, database, "young", wall_ns=BEGAN_NS + 9 * DAY_NS)
    before = counts(database)
    done = prune(database, keep_days=3, now_ns=BEGAN_NS + 10 * DAY_NS)
    assert [(each.run, each.whole, each.requests, each.why) for each in done.dropped] == [
        ("old", True, 200, "older than 3 days")
    ]
    after = counts(database)
    assert after["passes"] * 2 == before["passes"]
    assert (after["runs"], after["cursors"], after["pruned"]) == (2, 2, 1)
    assert run_query(database, "SELECT count(*) FROM requests WHERE run = :run", run="old").rows == [(0,)]
    assert sound(database)
    assert prune(database, keep_days=3, now_ns=BEGAN_NS + 10 * DAY_NS).dropped == ()


def test_a_run_that_goes_on_loses_its_oldest_passes(database, world):
    """Of a run that goes on the passes before the cut go, with the requests that ended by then, and no other."""
    recorded(world, database, end=False)
    done = prune(database, keep_days=1, now_ns=BEGAN_NS + DAY_NS + 150 * 1_000_000_000)
    (dropped,) = done.dropped
    assert (dropped.whole, dropped.first_pass, dropped.passes, dropped.requests) == (False, 1, 151, 150)
    left = run_query(database, "SELECT min(number), max(number) FROM passes").rows
    assert left == [(dropped.last_pass + 1, 209)]
    assert run_query(database, "SELECT min(number), count(*) FROM requests").rows == [(150, 50)]
    assert run_query(database, "SELECT count(*) FROM steps").rows == [(50,)]
    assert sound(database)


def test_a_refusal_that_goes_on_is_not_cut(database, world):
    """Of a refusal that still goes on the pass that began it stays, however old it is."""
    engine = world()
    for number in range(5):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
    engine.arrive("held", 10, 5000)
    for look in range(40):
        engine.step(20 + 100 * look, free=100)
    engine.into(database)
    assert run_query(database, "SELECT first_pass, ended FROM repeats").rows == [(6, 0)]
    (dropped,) = prune(database, keep_days=1, now_ns=BEGAN_NS + 9 * DAY_NS - 1).dropped[:1] or (None,)
    if dropped is not None and not dropped.whole:
        assert dropped.last_pass == 5
    assert run_query(database, "SELECT number FROM passes").rows in ([(6,)], [])


def test_a_clock_set_back_prunes_nothing(database, world):
    """With the clock before the runs, nothing is too old."""
    recorded(world, database)
    assert prune(database, keep_days=0, now_ns=BEGAN_NS - DAY_NS).dropped == ()


def test_a_dry_run_knows_what_an_empty_database_takes(database, world):
    """Where almost everything would go, what would be left is told within a quarter, not as next to nothing."""
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        recorded(world, database, name, 400, wall_ns=BEGAN_NS + day * DAY_NS, end=True)
    plan = prune(database, max_bytes=1, dry_run=True, now_ns=BEGAN_NS + 3 * DAY_NS)
    done = prune(database, max_bytes=1, now_ns=BEGAN_NS + 3 * DAY_NS)
    assert len(plan.dropped) == len(done.dropped)
    assert 0.75 * done.bytes_after < plan.bytes_after < 1.25 * done.bytes_after


def test_size_takes_the_oldest_first_and_gives_the_room_back(database, world):
    """For size the oldest ended runs go first, then the oldest passes of what is left; the file becomes smaller."""
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        recorded(world, database, name, 600, wall_ns=BEGAN_NS + day * DAY_NS, end=name != "wednesday")
    size = database.stat().st_size
    plan = prune(database, max_bytes=size // 3, dry_run=True, now_ns=BEGAN_NS + 3 * DAY_NS)
    assert counts(database)["pruned"] == 0
    done = prune(database, max_bytes=size // 3, now_ns=BEGAN_NS + 3 * DAY_NS)
    names = list(dict.fromkeys(each.run for each in done.dropped))
    assert names[:2] == ["monday", "tuesday"]
    assert [each.run for each in plan.dropped[:2]] == ["monday", "tuesday"]
    assert all(each.whole for each in done.dropped[:2])
    assert done.bytes_after <= size // 3
    assert database.stat().st_size == done.bytes_after
    assert sound(database)
    last = run_query(database, "SELECT max(p.number) FROM passes p JOIN runs r ON r.id = p.run WHERE r.name = ?"
                     .replace("?", "'wednesday'")).rows  # fmt: skip
    assert last == [(609,)]


def test_ranks_are_shortened_alike(database, world):
    """For size, runs that began together lose passes of the same time, not one of them everything."""
    for rank in (0, 1):
        engine = world("run-1")
        for number in range(2000):
            serve(engine, number)
        with Ingest(database, "run-1", rank) as ingest:
            ingest.feed(engine.frames())
    prune(database, max_bytes=database.stat().st_size * 2 // 3)
    first = run_query(database, "SELECT min(number) FROM passes GROUP BY run").rows
    assert len(first) == 2
    assert 1 < min(first)[0] <= max(first)[0] <= min(first)[0] + 100


def test_what_was_pruned_is_listed(database, world):
    """`pruned` lists run, passes, when and why."""
    recorded(world, database, "old")
    recorded(world, database, "young", wall_ns=BEGAN_NS + 9 * DAY_NS)
    prune(database, keep_days=3, now_ns=BEGAN_NS + 10 * DAY_NS)
    (row,) = run_query(database, "pruned").as_dicts()
    wanted = {
        "run": "old", "whole": 1, "first_pass": 1, "last_pass": 209, "passes": 201, "requests": 200,
        "why": "older than 3 days", "pruned_at": "2023-11-24T22:13:20.000Z",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_why_says_that_a_request_was_pruned(database, world):
    """`why` on a request that was pruned says so, with when and why; one that never was is not found as ever."""
    recorded(world, database, "old")
    recorded(world, database, "young", wall_ns=BEGAN_NS + 9 * DAY_NS)
    prune(database, keep_days=3, now_ns=BEGAN_NS + 10 * DAY_NS)
    with pytest.raises(
        NotFoundError, match=r"'old-7' of run old was pruned on 2023-11-24T22:13:20Z, .* \(older than 3 days\)"
    ):
        why(database, "old-7")
    with pytest.raises(NotFoundError, match="no request 'old-7000' in the database; ids look like young-0"):
        why(database, "old-7000")
    assert why(database, "young-7").pruned is None


def test_why_says_what_of_a_life_was_pruned(database, world):
    """A request whose first passes were pruned is told as far as it is kept, and what is missing is said."""
    engine = world()
    engine.arrive("long", 0, 9000)
    engine.step(1, free=100)
    for number in range(50):
        engine.queue.reverse()
        engine.arrive(f"r{number}", 1000 * number + 10, 100)
        engine.queue.reverse()
        engine.step(1000 * number + 20, free=5000)
        engine.finish(f"r{number}", 1000 * number + 30)
    engine.step(60_000, free=100_000)
    engine.into(database)
    (dropped,) = prune(database, keep_days=1, now_ns=BEGAN_NS + DAY_NS + 30 * 1_000_000_000).dropped
    life = why(database, "long")
    assert f"passes 1 to {dropped.last_pass} were pruned on" in life.pruned
    assert any("were pruned on" in line for line in life.words())
    assert sum(part.ns for part in life.waits[0].parts) == life.waits[0].ns
    assert "unattributed" in {part.kind for part in life.waits[0].parts}


def test_pruning_goes_on_beside_a_writer(database, world):
    """An ingest that is open while the database is pruned goes on afterwards and loses nothing."""
    engine = world()
    for number in range(60):
        engine.arrive(f"r{number}", 1000 * number, 100)
        engine.step(1000 * number + 1)
        engine.finish(f"r{number}", 1000 * number + 2)
    frames = engine.frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[:40])
        prune(database, keep_days=1, now_ns=BEGAN_NS + DAY_NS + 20 * 1_000_000_000)
        ingest.feed(frames[40:])
    assert run_query(database, "SELECT min(number), max(number), count(*) FROM passes").rows == [(21, 60, 40)]
    assert sound(database)


def test_recording_keeps_the_database_within_its_bound(database, world):
    """An ingest with a bound keeps the database below it as it grows, by dropping the oldest passes."""
    engine = world()
    for number in range(3000):
        serve(engine, number)
    frames = engine.frames()
    bound = 700_000
    with Ingest(database, "run-1", retention=Retention(max_bytes=bound)) as ingest:
        for begin in range(0, len(frames), 500):
            ingest.feed(frames[begin : begin + 500])
            assert bytes_in_use(ingest._connection) <= bound
    assert run_query(database, "SELECT max(number), min(number) > 1 FROM passes").rows == [(3000, 1)]
    assert run_query(database, "SELECT sum(passes) + (SELECT count(*) FROM passes) FROM pruned").rows == [(3000,)]
    assert run_query(database, "losses").rows == []
    assert sound(database)


def test_new_records_come_in_between_stretches_of_pruning(database, world, monkeypatch):
    """Below the bound an ingest drops a step at a time and takes records in between, until nothing is left to drop."""
    monkeypatch.setattr("store.retention._SLICE_SECONDS", 0)
    monkeypatch.setattr("store.pruning._STEP_PASSES", 50)
    engine = world()
    for number in range(4000):
        serve(engine, number)
    frames = engine.frames()
    bound, between = 900_000, 0
    with Ingest(database, "run-1", retention=Retention(max_bytes=bound)) as ingest:
        for begin in range(0, len(frames), 20):
            ingest.feed(frames[begin : begin + 20])
            assert bytes_in_use(ingest._connection) <= bound
            between += ingest._retention._going is not None
        while not ingest.tend():
            pass
        assert bytes_in_use(ingest._connection) < 0.97 * bound
    assert between > 5
    assert run_query(database, "SELECT sum(passes) + (SELECT count(*) FROM passes) FROM pruned").rows == [(4000,)]
    assert run_query(database, "SELECT min(number) = (SELECT max(last_pass) + 1 FROM pruned) FROM passes").rows == [
        (1,)
    ]
    assert sound(database)


def test_ids_of_pruned_requests_never_fill_a_small_database(database, world):
    """However long a run goes on in a bound, the ids remembered take a small part of it and the passes most."""
    engine = world()
    bound = 500_000
    with Ingest(database, "run-1", retention=Retention(max_bytes=bound)) as ingest:
        for number in range(12_000):
            serve(engine, number)
            if number % 500 == 499:
                ingest.feed(engine.frames()[ingest.cursor.seq if ingest.cursor else 0 :])
        remembered, most = (
            ingest._connection.execute(query).fetchone()[0]
            for query in ("SELECT count(*) FROM pruned_requests", "SELECT max(remembered) FROM pruned")
        )
    limit = bound // (pruning._REMEMBERED_SHARE * pruning._REMEMBERED_BYTES)
    assert 0 < remembered <= limit + most  # a stretch of pruning may be under way
    assert run_query(database, "SELECT count(*) > 200 FROM passes").rows == [(1,)]
    assert sound(database)


def test_ages_are_looked_at_while_recording(database, world):
    """An ingest that keeps so many days drops what is older when it first looks."""
    engine = recorded(world, database, end=False, every_ms=1)
    engine.arrive("late", 2 * 86_400_000, 100)
    engine.step(2 * 86_400_000 + 1)
    with Ingest(database, "run-1", retention=Retention(None, keep_days=1)) as ingest:
        ingest.feed(engine.frames()[ingest.cursor.seq :])
    assert run_query(database, "pruned").as_dicts()[0]["why"] == "older than 1 day"


def test_too_many_pruned_requests_are_forgotten(database, world, monkeypatch):
    """Beyond the number that is remembered the requests pruned first are not known by name any more."""
    monkeypatch.setattr(pruning, "REMEMBERED", 250)
    for day, name in enumerate(("monday", "tuesday", "wednesday")):
        recorded(world, database, name, wall_ns=BEGAN_NS + day * DAY_NS)
    for days in (1, 0.5):
        prune(database, keep_days=days, now_ns=BEGAN_NS + 2 * DAY_NS + (DAY_NS // 4 if days == 0.5 else 0))
    with pytest.raises(NotFoundError, match="was pruned on"):
        why(database, "tuesday-1")
    with pytest.raises(NotFoundError, match="no request 'monday-1' in the database"):
        why(database, "monday-1")


def test_pruning_without_a_bound_is_refused(database, world):
    """Without anything that says what to prune, nothing is."""
    recorded(world, database, passes=4)
    with pytest.raises(UsageError, match="give --keep-days, --max-size or both"):
        prune(database)


def test_the_hash_of_an_id_is_the_same_everywhere():
    """A request's hash is pinned, since databases hold it; any text has one."""
    assert hash_of("chat-17") == -6380452076620690655
    assert -(1 << 63) <= hash_of("\ud800 no text") < 1 << 63


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 60), st.sampled_from([True, False]))
def test_what_is_left_is_what_was(tmp_path_factory, world, cut, end):
    """Wherever a run is cut, the rows that are left are the ones of the whole record, and their parents with them."""
    folder = tmp_path_factory.mktemp("cut")
    whole, part = folder / "whole.db", folder / "part.db"
    for path in (whole, part):
        recorded(world, path, passes=50, end=end)
    prune(part, keep_days=1, now_ns=BEGAN_NS + DAY_NS + cut * 1_000_000_000 + 1)
    rows = []
    for path in (whole, part):
        with reading(path) as connection:
            rows.append({
                name: set(connection.execute(f"SELECT * FROM {name}").fetchall())
                for name in ("passes", "decisions", "requests", "repeats", "steps")
            })  # fmt: skip
    for name, left in rows[1].items():
        assert left <= rows[0][name]
    assert sound(part)
    assert {row[1] for row in rows[1]["passes"]} == {row[1] for row in rows[1]["decisions"]}
