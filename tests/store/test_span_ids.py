"""The ids that SQL gives are the ids the spans have."""

import sqlite3

import pytest

from controller.records import decode
from store.database import reading
from store.identity import Identity
from store.queries import run_query
from store.span_ids import FUNCTIONS, VIEWS
from store.spans import SpanMaker

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def busy(world):
    """A run with a repeated refusal, a retraction, and requests with a traceparent, a wrong one and none."""
    engine = world()
    engine.arrive("a", 0, 5000)
    engine.arrive("b", 1, 100)
    for look in range(4):
        engine.step(10 + 10 * look, free=100)
    engine.step(90, free=100_000)
    engine.retract("a", 95, 5003)
    engine.step(100)
    engine.end(200)
    return engine


def test_sql_gives_the_ids_of_the_spans(busy, database):
    """For every span of passes, decisions, repeats and queues, the views have its trace and span id, and no others."""
    busy.into(database)
    spans = SpanMaker("run-1", 0).spans_of(record for frame in busy.frames() for record in decode(frame.payload))
    made = {}
    for span in spans:
        made.setdefault(span.name, set()).add((f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"))
    for name, view in (
        ("prefill.pass", "pass_spans"), ("prefill.decision", "decision_spans"), ("prefill.repeat", "repeat_spans"),
        ("prefill.queue", "queue_spans"),
    ):  # fmt: skip
        found = run_query(database, f"SELECT trace_id, span_id FROM {view}").rows
        assert set(found) == made[name], view
        assert len(found) == len(made[name])
    parents = {f"{span.parent.span_id:016x}" for span in spans if span.name == "prefill.decision"}
    assert {row[0] for row in run_query(database, "SELECT parent_span_id FROM decision_spans").rows} == parents


@pytest.mark.parametrize(
    ("traceparent", "trace"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", TRACE),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"ff-{TRACE}-b7ad6b7169203331-01", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_a_requests_trace_is_its_own_or_derived(busy, database, traceparent, trace):
    """A request's trace is that of its traceparent where that is valid, else the derived one."""
    busy.into(database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE requests SET traceparent = ? WHERE id = 'b'", (traceparent,))
    wanted = trace or f"{Identity('run-1', 0).request_trace('b'):032x}"
    assert run_query(database, "SELECT trace_id FROM queue_spans WHERE request = 1").rows == [(wanted,)]


def test_the_named_query_lists_passes_with_their_decisions(busy, database):
    """`spans` lists the latest pass first, then its decisions in order."""
    busy.into(database)
    rows = run_query(database, "spans").as_dicts()
    assert [(each["pass"], each["position"], each["request"]) for each in rows][:5] == [
        (6, None, None), (6, 0, "a"), (5, None, None), (5, 0, "a"), (5, 1, "b")
    ]  # fmt: skip


def test_the_views_leave_no_trace_in_the_database(busy, database):
    """The views and functions belong to the connection; the file has none of them."""
    busy.into(database)
    with reading(database):
        pass
    with sqlite3.connect(database) as connection:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        sql = " ".join(row[0] or "" for row in connection.execute("SELECT sql FROM sqlite_master"))
    assert not names & set(VIEWS)
    assert not [name for name in FUNCTIONS if name in sql]
