"""The waiting room: who waits, why, since when, and who went before."""

import sqlite3
from contextlib import closing

import msgspec
import pytest

from controller.vocabulary import Gate, Reason
from tests.ui.view.showing import S
from ui.view.snapshot import MOST_ROWS, Ask


@pytest.fixture
def room(show):
    """The waiting room at a number of seconds."""
    return lambda seconds=None, **ask: show(seconds, panels=frozenset({"waiting"}), **ask).waiting


def test_rows_say_what_the_last_look_said(room, sql):
    """The reason of a row is that of the last pass that looked, its attempts all looks by then, repeats counted."""
    seen = 0
    for at_ns, upto in sql("SELECT start_ns, number FROM passes"):
        for row in room(at_ns / S).rows:
            looks = sql(
                """SELECT g.gate, e.reason, d.outcome, d.pass, p.start_ns FROM decisions d
                JOIN passes p ON p.number = d.pass LEFT JOIN gates g ON g.id = d.gate
                LEFT JOIN reasons e ON e.id = d.reason WHERE d.request = ? AND d.pass <= ? ORDER BY d.pass""",
                row.number,
                upto,
            )
            assert (row.attempts == 0) == (not looks)
            if row.never or not looks or looks[-1][2] != 3:
                continue
            seen += 1
            assert (row.stop.gate, row.stop.reason) == looks[-1][:2]
            ((repeats,),) = sql(
                "SELECT coalesce(sum(count), 0) FROM repeats WHERE request = ? AND last_ns <= ?", row.number, at_ns
            )
            assert row.attempts == len(looks) + repeats
            since = len(looks)
            while since and looks[since - 1][:3] == looks[-1][:3]:
                since -= 1
            assert row.since_ns == looks[since][4]
            assert (row.behind is None) == (looks[-1][3] == upto)
    assert seen > 50


def test_those_never_looked_at_stand_behind_the_one_that_closed_the_pass(room):
    """A request that no pass reached has no reason of its own, and names the request it stands behind."""
    rows = room(140).rows
    heads = [row for row in rows if row.stop is not None and not row.never]
    behind = [row for row in rows if row.stop is None]
    assert [row.request for row in heads] == ["s0.t10"]
    assert heads[0].needs == heads[0].stop.observed
    assert behind
    for row in behind:
        assert (row.behind, row.attempts, row.since_ns, row.needs) == ("s0.t10", 0, None, None)


def test_those_that_can_never_fit_come_first(room):
    """A request refused for good stands out while its refusal is in the window, and is not counted as waiting."""
    shown = room(140)
    assert [row.request for row in shown.rows if row.never] == ["too-long"]
    assert shown.rows[0].never
    assert shown.rows[0].stop.reason == "can_never"
    assert shown.total == len(shown.rows) - 1
    later = room(150).rows[0]
    assert later.never
    assert later.waited_ns == shown.rows[0].waited_ns == later.since_ns - later.arrival_ns
    assert room(41).never_in_window == 0
    assert room(400).never_in_window == 0


def test_overtaken_is_counted_by_arrivals(story, open_view):
    """Overtaken counts those that arrived later and entered by the moment, also as the run goes on."""
    story.arrive("old", 1)
    story.arrive("mid", 2)
    for number in range(40):
        story.arrive(f"new-{number}", 3 + number)
        story.passed(3.5 + number, enter=[f"new-{number}"], wait=["old"])
    view = open_view(story.into())
    ask = Ask(panels=frozenset({"waiting"}))
    for at in (3, 10, 42.9, 20):
        rows = view.answer(msgspec.structs.replace(ask, at_ns=int(at * S))).waiting.rows
        entered = max(0, min(40, int(at - 3.5) + 1)) if at >= 3.5 else 0
        assert [(row.request, row.overtaken) for row in rows[:2]] == [("old", entered), ("mid", entered)]
    story.arrive("last", 50)
    story.passed(51, enter=["last"], wait=["old"])
    story.into()
    assert [row.overtaken for row in view.answer(ask).waiting.rows] == [41, 41]


def test_one_that_starves_is_found_behind_many_that_enter(story, open_view):
    """A request that the last pass turned away is in the room, however many arrivals lie between it and the others."""
    story.arrive("starving", 1)
    for number in range(3_000):
        story.arrive(f"new-{number}", 2)
    story.passed(3, enter=[f"new-{number}" for number in range(2_990)], wait=["starving"])
    room = open_view(story.into()).answer(Ask(panels=frozenset({"waiting"}))).waiting
    assert room.rows[0].request == "starving"
    assert room.total == len(room.rows) == 11
    assert room.unnamed == 0


def test_one_that_gave_its_kv_back_waits_again(room, sql):
    """A retracted request is in the waiting room from then until it enters again, waiting since then."""
    for request, back_ns in sql("SELECT request, at_ns FROM retractions"):
        ((again_ns,),) = sql(
            """SELECT min(p.start_ns) FROM decisions d JOIN passes p ON p.number = d.pass
            WHERE d.request = ? AND d.outcome < 2 AND p.start_ns >= ?""",
            request,
            back_ns,
        )
        middle = (back_ns + again_ns) // 2
        (row,) = [row for row in room(middle / S).rows if row.number == request]
        assert row.waited_ns == middle - back_ns
        assert request not in [row.number for row in room((back_ns - 1) / S).rows]
        assert request not in [row.number for row in room(again_ns / S).rows]


def test_pages_and_filters(room):
    """Pages follow one another; a filter looks at id, gate and reason, `!` turns it round."""
    whole = [row.request for row in room(140, rows=MOST_ROWS).rows if not row.never]
    pages = [room(140, rows=7, waiting_offset=offset).rows for offset in range(0, len(whole), 7)]
    assert [row.request for page in pages for row in page if not row.never] == whole
    assert [row.request for row in room(140, waiting_filter="kv_cap").rows] == ["too-long", "s0.t10"]
    session = room(140, waiting_filter="s3.")
    assert {row.request for row in session.rows} == {name for name in whole if name.startswith("s3.")}
    assert session.fit == len(session.rows)
    assert session.total == room(140).total > session.fit
    assert room(140).fit is None
    nobody = room(140, waiting_filter="nobody")
    assert (nobody.rows, nobody.fit, nobody.total) == ((), 0, session.total)
    inverse = [row.request for row in room(140, waiting_filter="!s3.", rows=MOST_ROWS).rows if not row.never]
    assert inverse == [name for name in whole if not name.startswith("s3.")]


def test_those_behind_a_spent_budget_name_its_gate(story, open_view):
    """A request that was there when a pass spent its budget stands behind that gate; a later one behind nothing."""
    for name in "ab":
        story.arrive(name, 1)
    story.passed(2, enter="a", spent=(Gate.CHUNK_TOKENS, Reason.BUDGET))
    story.arrive("c", 3)
    rows = open_view(story.into()).answer(Ask(panels=frozenset({"waiting"})), whole=True).waiting.rows
    assert [(row.request, row.stop, row.behind, row.behind_gate) for row in rows] == [
        ("b", None, None, "chunk_tokens"), ("c", None, None, None),
    ]  # fmt: skip


def test_a_request_of_the_largest_number_is_no_trouble(story, open_view):
    """A damaged record may number the newest request as high as SQLite counts; the room behind it is empty."""
    story.arrive("a", 1)
    story.passed(2, enter="a")
    database = story.into()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE requests SET number = ?", ((1 << 63) - 1,))
    assert open_view(database).answer(Ask(panels=frozenset({"waiting"})), whole=True).waiting.rows == ()
