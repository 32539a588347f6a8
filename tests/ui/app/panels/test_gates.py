"""The gates."""

import json

from tests.ui.app.panels.scenes import PanelApp, drive, gate_row, ladder, line_with, snap, text_of
from tests.ui.app.script import settle
from ui.app.figures import ABSENT
from ui.app.panels.gates import GatesPanel


def test_each_gate_is_a_row_in_the_order_of_the_ladder():
    """All nine gates stand in evaluation order with stops and share, at 80x24."""
    text = drive(PanelApp(GatesPanel(), snapshot=snap(gates=ladder())))
    rows = text.splitlines()[2:11]
    assert [row.split()[:2] for row in rows] == [
        ["m", "batch_mode"],
        ["s", "request_slots"],
        ["r", "request_count"],
        ["k", "kv_capacity"],
        ["e", "extend_tokens"],
        ["c", "cached_tokens"],
        ["b", "buffer_bytes"],
        ["i", "input_tokens"],
        ["h", "chunk_tokens"],
    ]
    assert rows[4].split()[2:5] == ["1,310", "62", "%"]
    assert rows[2].split()[2:5] == ["3", "<1", "%"]
    assert "2,113 passes" in text.splitlines()[0]


def test_set_stands_beside_effective_with_the_reason():
    """A clamped knob shows what was set, what is in force and why; at 80 columns below the table."""
    wide = drive(PanelApp(GatesPanel(), snapshot=snap(gates=ladder())), size=(180, 30))
    row = next(line for line in wide.splitlines() if line.startswith(" e extend_tokens"))
    assert row.split("131,072 tok")[1].split() == ["65,536", "tok", "clamped", "by", "the", "chunk"]

    narrow = drive(PanelApp(GatesPanel(), snapshot=snap(gates=ladder())))
    assert "max_extend_tokens bounds page-aligned tokens one batch computes" in narrow
    assert "set 131,072 tok, effective 65,536 tok, clamped: by the chunk" in narrow
    assert "last closed a pass 3.0 s ago" in narrow


def test_an_engines_own_gate_has_no_knob():
    """Where no knob bounds a gate, set and effective are absent, not zero or off."""
    text = drive(PanelApp(GatesPanel(), snapshot=snap(gates=(gate_row("kv_capacity"),))), size=(180, 24))
    assert line_with(text, "k kv_capacity").split().count(ABSENT) == 2
    assert "no knob bounds it" in text


def test_a_gate_that_is_off_has_no_headroom():
    """Off is said; headroom and what was observed are absent."""
    text = drive(PanelApp(GatesPanel(), snapshot=snap(gates=ladder())), size=(180, 30))
    assert line_with(text, "c cached_tokens").split()[2:] == ["0", "0", "%", ABSENT, ABSENT, "off", "off", "off", "off"]


def test_headroom_of_the_gate_under_the_cursor_is_charted():
    """With room a chart of the gate under the cursor, in its letter, stands below; another cursor, another chart."""
    app = PanelApp(GatesPanel(), snapshot=snap(gates=ladder()))

    async def do(pilot):
        pilot.app.query_one("KeyedTable").focus()
        assert "eee" in text_of(app.query_one("Chart"))
        await pilot.press("home", "down")
        await settle(pilot)
        chart = text_of(app.query_one("Chart"))
        assert "sss" in chart
        assert "100 %" in chart
        assert "-4 min" in chart
        await pilot.press("down")

    text = drive(app, do, size=(120, 40))
    assert "rrr" in text
    assert "sss" not in text


def test_a_gate_without_headroom_has_no_chart():
    """Where nothing is known of the headroom no empty frame is drawn."""
    app = PanelApp(GatesPanel(), snapshot=snap(gates=(gate_row("batch_mode", headroom=(None,) * 60),)))
    text = drive(app, size=(120, 40))
    assert "│" not in text
    assert "100 %" not in text
    assert "headroom over time" not in text


def test_the_small_form_is_gate_share_left_and_limit():
    """Beside the batches a row still says what stops and what is left of which limit."""
    text = drive(PanelApp(GatesPanel(small=True), snapshot=snap(gates=ladder())), size=(46, 12))
    row = line_with(text, "e extend_tokens").split()
    assert row[2:4] == ["62", "%"]
    assert row[-3:] == ["%", "65.5k", "tok"]
    assert line_with(text, "c cached_tokens").split()[-2:] == [ABSENT, "off"]


def test_enter_jumps_to_the_next_event_of_the_gate():
    """Enter asks for the next pass that the gate closed."""
    app = PanelApp(GatesPanel(), snapshot=snap(gates=ladder()))

    async def do(pilot):
        pilot.app.query_one("KeyedTable").focus()
        await pilot.press("up", "enter")

    drive(app, do)
    assert app.asked == [("NextEvent", "kv_capacity")]


def test_copies():
    """The row, the panel and the question can be copied."""
    panel = GatesPanel()

    async def do(_pilot):
        assert json.loads(panel.raw())["gate"] == "extend_tokens"
        assert len(json.loads(panel.as_json())) == 9
        assert ":run" not in panel.as_sql()

    drive(PanelApp(panel, snapshot=snap(gates=ladder())), do)
