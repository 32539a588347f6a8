"""Alarms and the log."""

import json

from msgspec.structs import replace

from tests.ui.app.panels.scenes import NOW, SECOND, PanelApp, alarm, drive, line_with, log, snap, text_of
from tests.ui.app.script import settle
from ui.app.panels.log import LogPanel
from ui.view.snapshot import Ask

OVER = alarm(
    number=2, alarm="idle_refusal", request=None, gate=None, closed_ns=NOW - 200 * SECOND, opened_ns=NOW - 210 * SECOND,
    unit="passes", measured=3, threshold=1,
)  # fmt: skip


def test_alarms_that_stand_come_with_their_mark_number_and_meaning():
    """A standing alarm has a mark, its age and what was measured; one that is over has none."""
    text = drive(PanelApp(LogPanel(), snapshot=snap(log=log(alarm(), OVER))), size=(140, 30))
    assert line_with(text, "! long_wait").split()[:11] == [
        "!", "long_wait", "+5", "min", "1", "s", "1", "min", "39", "s", "40",
    ]  # fmt: skip
    assert "1 min 39 s of 1 min 0 s" in text
    assert "3 of 1 passes" in line_with(text, "  idle_refusal")
    assert "long_wait: One request is told to wait for one reason for so long. 40 looks" in text
    assert "1 stand" in text.splitlines()[0]


def test_another_alarm_under_the_cursor_says_its_own_meaning():
    """The line below the alarms follows the cursor."""
    app = PanelApp(LogPanel(), snapshot=snap(log=log(alarm(), alarm(number=3, alarm="lost_frames", meaning="Gone."))))

    async def do(pilot):
        pilot.app.query_one("#alarms").focus()
        await pilot.press("down")

    assert "lost_frames: Gone." in drive(app, do)


def test_the_log_is_newest_first_and_faults_have_a_mark():
    """Each line has its time, kind and words; a fault is marked by shape."""
    text = drive(PanelApp(LogPanel(), snapshot=snap(log=log(lines=30, hidden=12))))
    assert "12 lines hidden" in text.splitlines()[0]
    assert line_with(text, "event 1 happened").split()[:6] == ["✗", "+6", "min", "39", "s", "refuse"]
    text = text.partition("what happened")[2]  # the line under the cursor stands above the log too
    assert line_with(text, "event 0 happened").split()[0] == "+6"
    assert text.index("event 0 ") < text.index("event 1 ")


def test_enter_opens_the_pass_of_a_line_else_its_request():
    """A line leads to what it is about; an alarm to its request."""
    app = PanelApp(LogPanel(), snapshot=snap(log=log(alarm())))

    async def do(pilot):
        pilot.app.query_one("#lines").focus()
        await pilot.press("enter", "down", "enter", "o", "down", "enter")
        pilot.app.query_one("#alarms").focus()
        await pilot.press("enter")

    drive(app, do)
    assert app.asked == [
        ("OpenPass", 17_999), ("OpenRequest", "r1"), ("OpenRequest", "r2"), ("OpenRequest", "b00b"),
    ]  # fmt: skip


def test_filters():
    """The kind under the cursor alone, and everything again; the title says which filter is on."""
    app = PanelApp(LogPanel(), snapshot=snap(log=log(), ask=Ask(log_filter="!knob", faults_only=True)))

    async def do(pilot):
        pilot.app.query_one("#lines").focus()
        await pilot.press("down", "e", "x")

    text = drive(app, do)
    assert "faults alone, ! shows all  filter !knob" in text.splitlines()[0]
    assert app.asked == [("FilterLog", "refuse", True), ("FilterLog", "", False)]


def test_the_cursor_at_the_top_follows_and_elsewhere_stays_on_its_line():
    """Lines that come in move the cursor only when it is on the newest."""
    app = PanelApp(LogPanel(), snapshot=snap(log=log(lines=10)))
    newer = log(lines=12)
    older = type(newer)(newer.alarms, 0, newer.lines[2:], 0)

    async def do(pilot):
        table = pilot.app.query_one("#lines")
        app.show(snap(log=older))
        await settle(pilot)
        table.rows.move(3)
        app.show(snap(log=newer))
        await settle(pilot)
        assert table.place == 5
        table.rows.move(0)
        app.show(snap(log=older))
        await settle(pilot)
        assert table.place == 0

    drive(app, do)


def test_the_small_form_is_the_alarms_that_stand():
    """Beside the batches only what stands is told, and that nothing does."""
    text = drive(PanelApp(LogPanel(small=True), snapshot=snap(log=log(alarm(), OVER))), size=(50, 6))
    assert "! long_wait  1 min 39 s for 1 min 39 s  b00b" in text
    assert "idle_refusal" not in text
    assert "none" in drive(PanelApp(LogPanel(small=True), snapshot=snap(log=log(OVER))), size=(50, 6))


def test_an_alarm_of_which_less_is_known_says_at_least():
    """At a past moment counts are the least they were by then."""
    text = drive(PanelApp(LogPanel(), snapshot=snap(log=log(alarm(at_least=True)))), size=(140, 20))
    assert "≥40" in text
    assert "≥1 min 39 s of 1 min 0 s" in text


def test_copies():
    """The raw record of a line, the row of an alarm, and the question can be copied."""
    panel = LogPanel()

    async def do(pilot):
        pilot.app.query_one("#lines").focus()
        await pilot.press("down")
        assert json.loads(panel.raw()) == {"event": 1}
        pilot.app.query_one("#alarms").focus()
        await settle(pilot)
        assert json.loads(panel.raw())["alarm"] == "long_wait"
        assert ":run" not in panel.as_sql()
        assert "event 1" in text_of(panel)

    drive(PanelApp(panel, snapshot=snap(log=log(alarm()))), do)


def test_the_line_under_the_cursor_is_told_whole():
    """What a narrow table cuts stands above the log while the cursor is there, and alarms keep their meaning else."""
    long = "an operator turned max_extend_tokens 16,384 tok -> 32,768 tok, which the engine answered with revision 1"
    story = log(alarm(), lines=3)
    story = replace(story, lines=(replace(story.lines[0], text=long), *story.lines[1:]))
    app = PanelApp(LogPanel(), snapshot=snap(log=story))
    seen = []

    async def do(pilot):
        seen.append(" ".join(text_of(app.screen).split()))
        pilot.app.query_one("#lines").focus()
        await settle(pilot)
        seen.append(" ".join(text_of(app.screen).split()))

    drive(app, do, size=(80, 24))
    assert [long in each for each in seen] == [False, True]
    assert "long_wait: One request" in seen[0]
