"""Host hits."""

import json

from tests.ui.app.panels.scenes import PanelApp, drive, host_hits, line_with, snap
from ui.app.panels.hits import HitsPanel
from ui.view import snapshot as s


def test_the_funnel_tells_tokens_and_shares():
    """Each step of the funnel has its tokens, its bar and its share of what was resident."""
    text = drive(PanelApp(HitsPanel(), snapshot=snap(hits=host_hits())))
    assert line_with(text, "resident  ").split()[-3:] == ["812,000", "100", "%"]
    assert line_with(text, "asked  ").split()[-3:] == ["641,000", "79", "%"]
    bars = [line_with(text, f"{word}  ").count("█") for word in ("resident", "matched", "asked", "loaded", "used")]
    assert bars == sorted(bars, reverse=True)
    assert bars[0] > bars[2] > 0


def test_skips_tell_reason_tokens_and_looks():
    """Why hits were skipped, with tokens, share and at how many looks, and what was computed again because of it."""
    text = drive(PanelApp(HitsPanel(), snapshot=snap(hits=host_hits())), size=(140, 30))
    row = next(line for line in text.splitlines() if line.strip().startswith("quota "))
    assert row.split("31,000")[1].split()[:3] == ["72", "%", "98"]
    assert "computed again although the host held them: 43,000 tokens" in text
    assert "at most 16,979" in line_with(text, "loaded over time")


def test_recent_skips_open_their_request_and_their_pass():
    """The last skips are listed with their request; Enter opens it and o the pass."""
    app = PanelApp(HitsPanel(), snapshot=snap(hits=host_hits()))

    async def do(pilot):
        pilot.app.query_one("KeyedTable").focus()
        await pilot.press("down", "enter", "o")

    text = drive(app, do)
    assert line_with(text, "s1.t4").split() == ["18,199", "s1.t4", "owner_lane", "1,077"]
    assert app.asked == [("OpenRequest", "s1.t4"), ("OpenPass", 18_199)]


def test_the_small_form_fits_three_lines():
    """Beside the batches: the funnel in short numbers and the reasons of skips."""
    text = drive(PanelApp(HitsPanel(small=True), snapshot=snap(hits=host_hits())), size=(46, 5))
    assert text.splitlines()[1:4] == [
        " resident 812k  matched 790k  asked 641k",
        " loaded 598k  used 598k  again 43.0k",
        " skipped: quota 31.0k · below_threshold 12.0k",
    ]


def test_no_host_hit_is_said():
    """Without a hit in the window there are no bars of nothing, and nothing divides by zero."""
    none = host_hits(funnel=s.Funnel(0, 0, 0, 0, 0), skips=(), recomputed=0, trend=(), recent=())
    assert "no host hit in 5 min" in drive(PanelApp(HitsPanel(small=True), snapshot=snap(hits=none)), size=(46, 5))
    text = drive(PanelApp(HitsPanel(), snapshot=snap(hits=none)))
    assert "█" not in text
    assert "nothing" in text


def test_copies():
    """The skip under the cursor, the panel and the question can be copied."""
    panel = HitsPanel()

    async def do(_pilot):
        assert json.loads(panel.raw())[1] == "s0.t4"
        assert json.loads(panel.as_json())["recomputed"] == 43_000
        assert ":run" not in panel.as_sql()

    drive(PanelApp(panel, snapshot=snap(hits=host_hits())), do)
    assert HitsPanel(small=True).raw() is None
