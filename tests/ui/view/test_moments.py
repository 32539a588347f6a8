"""A moment holds what had happened by then and nothing else, however it is come by."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.records import Pass, decode
from tests.ui.view.showing import ALL, S, differences
from ui.view.snapshot import MOST_ROWS, Ask
from ui.view.source import Source
from ui.view.view import View

DATA_KIND = 1


def without_counts(log):
    """A log without how often an alarm was seen and what was measured: of a past moment the record has only a least."""
    alarms = [msgspec.structs.replace(each, count=0, measured=0, last_ns=0, at_least=False) for each in log.alarms]
    lines = [msgspec.structs.replace(each, text="", raw="") if each.kind == "alarm" else each for each in log.lines]
    return msgspec.structs.replace(log, alarms=tuple(alarms), lines=tuple(lines))


def same(snapshot, **head):
    """A snapshot without what differs by the way it was come by, and by what it is allowed to know of the future."""
    alike = {
        "presence": "live", "last_pass_age_ns": None, "last_ns": 0, "end_reason": None, "changes_ns": (),
        "following": False, **head,
    }  # fmt: skip
    log = None if snapshot.log is None else without_counts(snapshot.log)
    knobs = msgspec.structs.replace(snapshot.knobs, may_change=False, why_not="", folder="")
    return msgspec.structs.replace(
        snapshot, ask=Ask(), head=msgspec.structs.replace(snapshot.head, **alike), runs=(), knobs=knobs, request=None,
        log=log,
        took_ns=0,
    )  # fmt: skip


def test_a_past_moment_is_what_the_screen_showed_then(growing, frames, open_view, clock):
    """At every pass, the whole record asked about that moment says what a record that ends there says at its end."""
    whole = open_view()
    live = View(Source.open(str(growing(1))), clock)
    compared = 0
    for count, frame in enumerate(frames, 1):
        passes = [each for each in decode(frame.payload) if isinstance(each, Pass)] if frame.kind == DATA_KIND else []
        if not passes:
            continue
        growing(count)
        ended = live.answer(Ask(panels=ALL), whole=True)
        at_ns = passes[-1].start_ns
        assert ended.head.at_ns == at_ns
        then = whole.answer(Ask(panels=ALL, at_ns=at_ns), whole=True)
        assert list(differences(same(then), same(ended))) == []
        for past, present in zip(then.log.alarms, ended.log.alarms, strict=True):
            assert past.count <= present.count
            assert past.measured <= present.measured
        compared += 1
    live.close()
    assert compared > 100


def times_in(value, names=("_ns",)):
    """Every (name, time) in a snapshot's part, those that are lengths of time left out."""
    lengths = {
        "decide_ns", "step_ns", "waited_ns", "p50_ns", "p95_ns", "p99_ns", "last_pass_age_ns", "lag_ns", "took_ns",
        "wall_ns", "started_wall_ns", "to_ns", "last_ns", "changes_ns",
    }  # fmt: skip
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            each = getattr(value, name)
            if name.endswith(names) and name not in lengths and isinstance(each, int):
                yield name, each
            else:
                yield from times_in(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from times_in(each)


def lists_in(value):
    """Every tuple of structs in a snapshot."""
    if isinstance(value, tuple):
        if value and isinstance(value[0], msgspec.Struct):
            yield value
        for each in value:
            yield from lists_in(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from lists_in(getattr(value, name))


moments = st.integers(min_value=0, max_value=620 * S)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at_ns=moments, rows=st.integers(min_value=-5, max_value=2_000))
def test_nothing_later_is_shown_and_no_list_is_long(open_view, at_ns, rows):
    """At any moment no time in the snapshot but the request's own is later, and no list has more than 500 rows."""
    snapshot = open_view().answer(Ask(panels=ALL, at_ns=at_ns, rows=rows, request="wide"), whole=True)
    seen = msgspec.structs.replace(snapshot, ask=Ask(), request=None, runs=())
    assert [(name, time) for name, time in times_in(seen) if time > at_ns] == []
    assert all(len(each) <= MOST_ROWS for each in lists_in(snapshot))
    assert all(row.closed_ns is None or row.closed_ns <= at_ns for row in snapshot.log.alarms)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at_ns=moments)
def test_the_queue_adds_up(open_view, sql, at_ns):
    """At any moment as many wait as have arrived, not entered and not left; the room names every one of them."""
    snapshot = open_view().answer(Ask(panels=ALL, at_ns=at_ns, rows=MOST_ROWS), whole=True)
    (waiting,) = sql(
        """SELECT count(*) FROM requests WHERE arrival_ns <= ?1 AND (admit_ns IS NULL OR admit_ns > ?1)
        AND (end_ns IS NULL OR end_ns > ?1)""",
        at_ns,
    )[0]
    (back,) = sql(
        """SELECT count(DISTINCT t.request) FROM retractions t WHERE t.at_ns <= ?1 AND NOT EXISTS (
        SELECT 1 FROM decisions d JOIN passes p ON p.run = d.run AND p.number = d.pass
        WHERE d.request = t.request AND d.outcome < 2 AND p.start_ns BETWEEN t.at_ns AND ?1)""",
        at_ns,
    )[0]
    named = [row.request for row in snapshot.waiting.rows if not row.never]
    assert len(named) == len(set(named)) == waiting + back
    if snapshot.head.queue is not None:
        assert snapshot.head.queue == snapshot.waiting.total == waiting + back


def test_moments_seen_in_any_order_say_the_same(open_view):
    """What was looked at before changes no answer: there and back gives what a fresh view gives."""
    travelled = open_view()
    for seconds in (612, 30, 300, 299, 301, 150, 160, 600, 5):
        ask = Ask(panels=ALL, at_ns=seconds * S)
        fresh = open_view().answer(ask, whole=True)
        assert list(differences(same(travelled.answer(ask, whole=True)), same(fresh))) == []


@pytest.mark.parametrize("seconds", [0, 42.1, 178, 421, 611])
def test_a_deadline_only_leaves_the_oldest_out(open_view, seconds):
    """With no time to read decisions the rest of the snapshot is there, says it is incomplete, and is completed."""
    view = open_view()
    ask = Ask(at_ns=int(seconds * S))
    whole = open_view().answer(ask, whole=True)
    answers = [view.answer(ask) for _ in range(20)]
    assert answers[-1].complete
    assert list(differences(same(answers[-1]), same(whole))) == []
