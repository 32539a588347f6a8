"""Named queries answer the questions people ask; SQL of one's own reads and does nothing else."""

import sqlite3
import time

import pytest

from controller.admission import LoadAnswer
from controller.records import KnobChange, Smoke
from controller.vocabulary import HostHit
from estimator.errors import NotFoundError, UsageError
from store.database import reading
from store.ingest import Ingest
from store.named import NAMED
from store.queries import DEFAULT_ROWS, run_query

MS = 1_000_000


@pytest.fixture
def busy(database, world):
    """A run with repeats, host-hit skips, a refusal for good and batches, in a database."""
    engine = world(pool=50_000, max_requests=2, chunked_prefill_size=None)
    engine.arrive("a", 0, 100, host_tokens=5, resident_tokens=5)
    engine.arrive("b", 1, 2000, host_tokens=1024, resident_tokens=1024)
    engine.arrive("c", 2, 3000)
    engine.load_answer = LoadAnswer(0, HostHit.OWNER_LANE)
    engine.step(10)
    engine.arrive("never", 12, 60_000)
    for look in range(5):
        engine.step(20 + 10 * look, free=100)
    engine.step(80, free=40_000)
    engine.arrive("d", 90, 8000)
    engine.step(91, free=1000)
    engine.recorder.note(Smoke(0, "cuda:0", 900, 1000, 1000, 5000, passed=True))
    engine.recorder.note(Smoke(0, "cuda:1", 900, 800, 800, 5000, passed=True))
    engine.recorder.note(KnobChange(95 * MS, "ann", 0, (("max_requests", 2, 4),), accepted=False, why="not now"))
    engine.end(100)
    engine.into(database)
    return database


def test_every_named_query_answers_with_its_columns(busy):
    """Each named query runs, and its rows have the columns it declares, in order."""
    for name, query in NAMED.items():
        answer = run_query(busy, name)
        assert answer.name == name
        with reading(busy) as connection:
            found = connection.execute(query.sql, {"run": 1, "limit": 3})
        assert [column[0] for column in found.description] == [column.name for column in answer.columns]
        assert query.description.endswith(".")


def test_stops_counts_repeats(busy):
    """`stops` counts every pass under what closed it, repeats included, and the shares add up."""
    answer = run_query(busy, "stops").as_dicts()
    by_gate = {(each["gate"], each["reason"]): each for each in answer}
    assert by_gate["request_count", "limit"]["passes"] == 1
    assert by_gate["kv_capacity", "pool"]["passes"] == 6
    assert by_gate["kv_capacity", "pool"]["repeats"] == 4
    assert by_gate[None, None]["passes"] == 1
    assert sum(each["passes"] for each in answer) == 8
    assert sum(each["share"] for each in answer) == pytest.approx(100, abs=0.2)


def test_host_hit_skips_counts_what_was_computed_again(busy):
    """`host-hit-skips` gives looks and tokens by reason, and tokens computed again only where the request entered."""
    answer = {each["reason"]: each for each in run_query(busy, "host-hit-skips").as_dicts()}
    assert {reason: (each["looks"], each["recomputed_tokens"]) for reason, each in answer.items()} == {
        "below_threshold": (1, 5), "owner_lane": (1, 1024),
    }  # fmt: skip


@pytest.mark.parametrize("cause", [each for each in HostHit if each.status == "skipped"], ids=lambda each: each.word)
def test_host_hit_skips_knows_every_cause(database, world, cause):
    """Whatever kept a host hit from being loaded, in a replay or in an engine, `host-hit-skips` has it by its word."""
    engine = world()
    engine.arrive("a", 0, 2000, host_tokens=1024, resident_tokens=1024)
    engine.load_answer = LoadAnswer(0, cause)
    engine.step(10)
    engine.into(database)
    (found,) = run_query(database, "host-hit-skips").as_dicts()
    assert (found["reason"], found["looks"], found["recomputed_tokens"]) == (cause.word, 1, 1024)


def test_slowest_waits_says_on_what(busy):
    """`slowest-waits` lists the longest waits first, with the gate that held most of each, as `why` tells it."""
    answer = run_query(busy, "slowest-waits").as_dicts()
    assert [each["request"] for each in answer] == ["c", "never", "a", "d", "b"]
    by_id = {each["request"]: each for each in answer}
    waited = by_id["c"]
    assert (waited["state"], waited["wait_ns"], waited["gate"], waited["gate_ns"]) == (
        "admitted", 78 * MS, "kv_capacity", 60 * MS,
    )  # fmt: skip
    assert waited["share"] == pytest.approx(100 * 60 / 78, abs=0.1)
    assert by_id["d"]["state"] == "waiting"
    assert by_id["d"]["wait_ns"] == 10 * MS
    assert by_id["never"]["state"] == "can_never"


def test_slowest_waits_knows_a_refusal_that_was_going_on(database, world):
    """A wait that began in the middle of a repeated refusal has that time under its gate."""
    engine = world()
    engine.arrive("head", 0, 5000)
    engine.step(1, free=100)
    for look in range(10):
        engine.step(10 + 10 * look)
        if look == 4:
            engine.arrive("late", 55, 100)
    engine.step(110, free=50_000)
    engine.into(database)
    late = next(each for each in run_query(database, "slowest-waits").as_dicts() if each["request"] == "late")
    assert (late["wait_ns"], late["gate"], late["gate_ns"]) == (55 * MS, "kv_capacity", 55 * MS)


def test_batches_lists_members(busy):
    """`batches` lists the latest batch first with its members by id."""
    answer = run_query(busy, "batches").as_dicts()
    assert [each["requests"] for each in answer] == ["c", "a b"]
    assert [each["members"] for each in answer] == [1, 2]


def test_estimate_vs_smoke_uses_the_tightest_device(database, world):
    """`estimate-vs-smoke` sets each batch's peak beside the limit in force and the least smoke allocation."""
    engine = world(max_buffer_bytes=700)
    engine.arrive("a", 0, 100)
    engine.step(1)
    engine.recorder.note(Smoke(0, "cuda:0", 900, 1000, 1000, 5000, passed=True))
    engine.recorder.note(Smoke(0, "cuda:1", 900, 800, 800, 5000, passed=True))
    engine.into(database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE passes SET peak_bytes = 600")
        connection.execute("UPDATE knobs SET effective = 700 WHERE knob = 'max_buffer_bytes'")
    (row,) = run_query(database, "estimate-vs-smoke").as_dicts()
    assert (row["peak_bytes"], row["limit_bytes"], row["smoke_bytes"], row["share_of_smoke"]) == (600, 700, 800, 75.0)


def test_can_never_runs_knobs_and_losses(busy):
    """The smaller queries answer from the same record."""
    (never,) = run_query(busy, "can-never").as_dicts()
    assert (never["request"], never["observed"], never["limit"], never["unit"]) == ("never", 60_080, 50_000, "tokens")
    (run,) = run_query(busy, "runs").as_dicts()
    assert (run["run"], run["passes"], run["requests"], run["ended"], run["duration_ns"]) == (
        "run-1", 8, 5, "finished", 100 * MS,
    )  # fmt: skip
    knobs = {each["knob"]: each for each in run_query(busy, "knobs").as_dicts()}
    assert knobs["max_requests"]["effective"] == 2
    assert run_query(busy, "knob-changes").as_dicts()[0]["why"] == "not now"
    assert run_query(busy, "losses").rows == []


def test_a_query_is_about_one_run(database, world):
    """A named query is about the run begun last unless another is named by its id or the beginning of it."""
    for day, (name, passes) in enumerate((("monday", 3), ("tuesday", 2))):
        engine = world(name, wall_ns=1_700_000_000_000_000_000 + day)
        for number in range(passes):
            engine.arrive(f"{name}-{number}", number, 100)
            engine.step(number + 0.5)
        engine.into(database)
    assert len(run_query(database, "batches").rows) == 2
    assert len(run_query(database, "batches", run="monday").rows) == 3
    assert len(run_query(database, "batches", run="mon", limit=1).rows) == 1
    assert run_query(database, "SELECT count(*) FROM passes WHERE run = :run", run="monday").rows == [(3,)]
    with pytest.raises(NotFoundError, match="no run 'sunday' in the database; it holds tuesday, monday"):
        run_query(database, "stops", run="sunday")
    with pytest.raises(UsageError, match="does not use :run"):
        run_query(database, "SELECT 1", run="monday")


def test_limits_are_kept(database, world):
    """A named query has 20 rows unless told otherwise; SQL is cut at the limit and says that there was more."""
    engine = world()
    for number in range(30):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
    engine.into(database)
    assert len(run_query(database, "batches").rows) == DEFAULT_ROWS
    assert len(run_query(database, "batches", limit=25).rows) == 25
    everything = run_query(database, "SELECT number FROM passes")
    assert (len(everything.rows), everything.more) == (30, False)
    some = run_query(database, "SELECT number FROM passes", limit=7)
    assert (len(some.rows), some.more) == (7, True)
    with pytest.raises(UsageError, match="--limit is -1"):
        run_query(database, "batches", limit=-1)


def test_an_unknown_name_lists_the_names(busy):
    """A name no query has is refused with the one that was meant and all there are."""
    with pytest.raises(
        NotFoundError, match=r"no query is named 'stop', did you mean stops\? there are stops, stops-over-time"
    ):
        run_query(busy, "stop")
    with pytest.raises(NotFoundError, match="no query is named 'everything'; there are stops"):
        run_query(busy, "everything")


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM passes",
        "UPDATE runs SET name = 'x'",
        "INSERT INTO gates VALUES (99, 'x', 'x', 0)",
        "DROP TABLE losses",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "ATTACH DATABASE '{other}' AS other",
        "VACUUM INTO '{other}'",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA user_version = 7",
        "PRAGMA writable_schema = ON",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('{other}')",
        "WITH x AS (SELECT 1) DELETE FROM passes",
    ],
)
def test_sql_that_does_more_than_read_is_refused(busy, tmp_path, sql):
    """SQL that would write, attach, change a setting or load code is refused, and nothing changes."""
    before = busy.read_bytes()
    other = tmp_path / "other"
    with pytest.raises(UsageError, match=r"does more than read|not authorized"):
        run_query(busy, sql.format(other=other))
    assert busy.read_bytes() == before
    assert not other.exists()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT nowhere FROM passes", "no such column: nowhere"),
        ("SELEC 1 FROM x", "syntax error"),
        ("-- nothing", "asks for nothing"),
        ("", "asks for nothing"),
        ("SELECT ? ", "not right"),
        ("SELECT zeroblob(100000000)", "too big"),
    ],
)
def test_wrong_sql_is_told_as_the_users(busy, sql, words):
    """SQL that is wrong gets one line that says what is wrong with it."""
    with pytest.raises(UsageError, match=words) as caught:
        run_query(busy, sql)
    assert "\n" not in str(caught.value)


def test_a_query_that_runs_too_long_is_stopped(busy):
    """A query beyond its time is stopped with a plain word, soon after."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    begun = time.monotonic()
    with pytest.raises(UsageError, match=r"longer than 0\.2 s and was stopped"):
        run_query(busy, endless, seconds=0.2)
    assert time.monotonic() - begun < 20


def test_sql_may_use_what_sqlite_reads_with(busy):
    """JSON functions, PRAGMA table_info and EXPLAIN QUERY PLAN are reading, and work."""
    assert run_query(busy, "SELECT value FROM json_each('[4, 5]')").rows == [(4,), (5,)]
    assert ("run",) in run_query(busy, "SELECT name FROM pragma_table_info('passes')").rows
    assert run_query(busy, "PRAGMA table_info(passes)").rows
    assert run_query(busy, "EXPLAIN QUERY PLAN SELECT 1").rows


def test_a_reader_does_not_hold_up_the_writer(busy, world):
    """While a reader's transaction is open, ingest goes on at once, and the reader keeps the picture it began with."""
    engine = world("run-2")
    engine.arrive("z", 0, 100)
    engine.step(1)
    with reading(busy) as connection:
        before = connection.execute("SELECT count(*) FROM passes").fetchone()
        with Ingest(busy, "run-2", busy_ms=0) as ingest:
            ingest.feed(engine.frames())
        assert connection.execute("SELECT count(*) FROM passes").fetchone() == before
    assert run_query(busy, "SELECT count(*) FROM passes").rows[0][0] == before[0] + 1


def test_every_column_with_a_measure_has_its_unit():
    """A column whose name ends in a unit declares that unit, so that a screen can print it."""
    for query in NAMED.values():
        for column in query.columns:
            for ending, units in (("_ns", {"ns", "at"}), ("_tokens", {"tokens"}), ("_bytes", {"bytes"})):
                if column.name.endswith(ending):
                    assert column.unit in units


def test_a_moment_of_the_run_s_clock_says_that_it_is_one():
    """What a table would show as a length of time is one: a moment has a unit of its own."""
    lengths = {column.name for query in NAMED.values() for column in query.columns if column.unit == "ns"}
    assert lengths == {"wait_ns", "gate_ns", "duration_ns", "age_ns", "window_ns", "admitted_wait_ns"}
