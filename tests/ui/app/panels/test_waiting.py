"""The waiting room."""

import json

from tests.ui.app.panels.scenes import (
    NOW,
    SECOND,
    PanelApp,
    drive,
    head,
    line_with,
    never_row,
    room,
    snap,
    text_of,
    waiting_row,
)
from tests.ui.app.script import settle
from ui.app.figures import ABSENT
from ui.app.panels.waiting import WaitingPanel
from ui.view.snapshot import Ask

ROOM = room(
    never_row("b00b", number=1),
    waiting_row("4f02", number=2),
    waiting_row("d210", number=3, behind="4f02", stop=None, attempts=0, since_ns=None, overtaken=0),
    waiting_row("new", number=4, stop=None, attempts=0, since_ns=None, needs=None, arrival_ns=None),
    total=37,
    never_in_window=1,
)


def test_a_row_tells_what_holds_the_request():
    """Reason, since when, looks, overtaken and tokens needed stand in the row itself, at 80 columns too."""
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM)))
    assert line_with(text, "e 4f02").split() == ["e", "4f02", "extend_tokens", "limit", "0.4", "s", "3", "2", "5,056"]
    assert "behind 4f02" in line_with(text, "d210")
    assert "37 wait, 1 can never fit" in text.splitlines()[0]


def test_what_can_never_fit_stands_out_by_its_shape():
    """A request that can never fit has a mark of its own and comes first."""
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM)))
    row = line_with(text, "b00b")
    assert row.split()[:3] == ["✗", "b00b", "can_never"]
    assert text.splitlines().index(row) == 2


def test_what_is_not_known_is_absent():
    """A request of which the record holds little has no zeros made up."""
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM)))
    row = line_with(text, "new").split()
    assert row[:5] == ["new", "not", "looked", "at", "yet"]
    assert row[5] == row[-1] == ABSENT


def test_wide_rows_tell_the_numbers():
    """With room, a row has what the gate saw, its limit and by how much it is short."""
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM)), size=(140, 20))
    assert line_with(text, "e 4f02").endswith("2.0 s  66,496 of 65,536, 960 short")
    assert line_with(text, "b00b").endswith("837,782 of 756,736, 81,046 short")


def test_a_long_id_stands_whole_where_there_is_room():
    """Ids that an engine drew are cut on a narrow screen alone, so that one can be read off and asked about."""
    long = "cmpl-95cd6504f31c47fd-0"
    waiting = room(waiting_row(long, number=1), waiting_row("short", number=2), total=2)
    wide = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=waiting)), size=(160, 20))
    assert f"e {long}  extend_tokens" in wide
    assert "cmpl-95cd6504f3…" in drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=waiting)), size=(80, 20))


def test_the_wait_of_one_that_can_never_fit_is_over():
    """A refused request's durations are those until it was refused, however late the moment."""
    refused = room(never_row("b00b", number=1, waited_ns=3 * SECOND, arrival_ns=NOW - 300 * SECOND))
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=refused)), size=(140, 20))
    assert line_with(text, "b00b").count("3.0 s") == 2


def test_a_filter_says_how_many_fit_of_how_many():
    """The queue's length stays in sight under a filter, beside how many it lets through."""
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=room(total=5_911, fit=0))))
    assert "0 of 5,911 fit the filter" in text.splitlines()[0]
    assert "rows" not in text.splitlines()[0]


def test_enter_opens_the_request():
    """Enter, and a second click on a row, ask for the request under the cursor."""
    app = PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM))

    async def do(pilot):
        pilot.app.query_one("KeyedTable").focus()
        await pilot.press("down", "enter")
        await pilot.click("KeyedTable", offset=(4, 1))
        await pilot.click("KeyedTable", offset=(4, 1))

    drive(app, do)
    assert app.asked == [("OpenRequest", "4f02"), ("OpenRequest", "b00b")]


def test_a_long_queue_is_paged():
    """The next rows are asked for, and never ones that are not there."""
    many = room(*(waiting_row(f"r{each}", number=each) for each in range(100)), total=150)
    app = PanelApp(WaitingPanel(), snapshot=snap(waiting=many, ask=Ask(waiting_filter="kv")))

    async def do(pilot):
        pilot.app.query_one("KeyedTable").focus()
        await pilot.press("greater_than_sign", "less_than_sign")
        app.show(snap(waiting=room(*many.rows[:50], total=150, offset=100)))
        await settle(pilot)
        assert "rows 101 to 150 (< for others)" in text_of(app.screen)
        await pilot.press("greater_than_sign", "less_than_sign")

    assert "filter kv" in drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=many, ask=Ask(waiting_filter="kv"))))
    drive(app, do)
    assert app.asked == [("FilterWaiting", "kv", 100), ("FilterWaiting", "", 0)]


def test_the_cursor_goes_on_past_the_rows_of_a_page():
    """Past the last row comes the next page, the cursor on its first row; past that the page before, on its last."""
    every = [waiting_row(f"r{each:03}", number=each) for each in range(150)]
    ask = Ask(rows=100)
    pages = {at: snap(waiting=room(*every[at : at + 100], total=150, offset=at), ask=ask) for at in (0, 100)}
    app = PanelApp(WaitingPanel(), snapshot=pages[0])
    seen = []

    async def do(pilot):
        table = pilot.app.query_one("KeyedTable")
        table.focus()
        for keys, offset in ((("up", "end", "down"), 100), (("end", "down", "home", "up"), 0)):
            await pilot.press(*keys)
            app.show(pages[offset])
            await settle(pilot)
            seen.append((table.key_at, text_of(app.screen).splitlines()[0].partition("rows ")[2].rstrip("─ ")))

    drive(app, do)
    assert app.asked == [("FilterWaiting", "", 100), ("FilterWaiting", "", 0)]
    assert seen == [("100", "101 to 150 (< for others)"), ("99", "1 to 100 (> for others)")]


def test_a_request_behind_a_spent_budget_names_the_gate():
    """No request stands before it, but the gate that closed the pass."""
    row = waiting_row("late", stop=None, attempts=0, since_ns=None, behind_gate="chunk_tokens")
    text = drive(PanelApp(WaitingPanel(), snapshot=snap(waiting=room(row))))
    assert "behind chunk_tokens" in line_with(text, "late")


def test_durations_go_on_while_the_reason_stays():
    """Time goes on without another row: only durations change."""
    app = PanelApp(WaitingPanel(), snapshot=snap(waiting=ROOM))

    async def do(pilot):
        app.show(snap(waiting=ROOM, head=head(at_ns=NOW + SECOND)))
        await settle(pilot)

    assert line_with(drive(app, do), "e 4f02").split()[4:6] == ["1.4", "s"]


def test_the_same_snapshot_is_not_drawn_again():
    """Nothing is drawn when nothing has changed."""
    panel = WaitingPanel()
    drawn = []
    app = PanelApp(panel, snapshot=snap(waiting=ROOM))

    async def do(pilot):
        draw = panel.draw
        panel.draw = lambda snapshot: (drawn.append(snapshot), draw(snapshot))
        app.show(snap(waiting=ROOM))
        app.show(snap())
        await settle(pilot)
        assert drawn == []
        app.show(snap(waiting=room()))
        assert len(drawn) == 1

    drive(app, do)


def test_copies():
    """The row, the panel and the question can be copied."""
    panel = WaitingPanel()

    async def do(_pilot):
        assert json.loads(panel.raw())["request"] == "b00b"
        assert json.loads(panel.as_json())["total"] == 37
        assert "name = '7f3a0000'" in panel.as_sql()

    drive(PanelApp(panel, snapshot=snap(waiting=ROOM)), do)
    assert WaitingPanel().as_json() is None
    assert WaitingPanel().as_sql() is None
