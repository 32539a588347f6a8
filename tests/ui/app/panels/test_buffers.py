"""Buffers."""

import json

from tests.ui.app.panels.scenes import GIB, PanelApp, buffers, drive, line_with, snap, text_of
from ui.app.figures import ABSENT
from ui.app.panels.buffers import BuffersPanel


def full(text_at=(140, 40), **more):
    """The whole panel as text."""
    return drive(PanelApp(BuffersPanel(), snapshot=snap(buffers=buffers(**more))), size=text_at)


def test_the_estimate_stands_beside_its_limit_and_the_smoke_allocation():
    """Last and most estimate, limit, safety and what start-up really took are told."""
    text = full((80, 24))
    assert "last 1.55 GiB of limit 4.00 GiB (39 %)  most 3.00 GiB in 5 min  safety 110 %" in text
    assert "smoke at start-up on cuda:0: asked 4.00 GiB, took 4.09 GiB, passed" in text


def test_the_chart_stacks_the_parts_in_letters_under_the_limits():
    """Parts are told apart by letters, gaps are blank, and the limit is a line with its name."""
    app = PanelApp(BuffersPanel(), snapshot=snap(buffers=buffers()))
    seen = []

    async def do(pilot):
        seen.append(text_of(pilot.app.query_one("Chart")))

    text = drive(app, do, size=(140, 40))
    chart = seen[0]
    assert all(letter in chart for letter in "sam")
    assert "limit" in chart
    bottom = next(line for line in chart.splitlines() if line.lstrip().startswith("0 B"))
    assert " " in bottom.split("┤")[1].strip()
    assert "s scores" in text
    assert "a attention" in text


def test_windows_stand_under_their_phases_in_the_shape_of_their_stream():
    """The timeline of the last batch: the largest buffer first, a mark under each phase it lives in, and the sums."""
    text = full()
    assert line_with(text, "index scores").split("index scores")[1].strip() == "· · █ █ · · · ·    1.60 GiB"
    assert line_with(text, "gathered hidden").count("▓") == 6
    assert "windows of the batch of pass 18,204, peak in index_score" in text
    assert line_with(text, "└ index_topk").endswith("2.20 GiB")


def test_without_limit_smoke_or_model_that_is_said():
    """What the run does not have is said in words, not drawn as zero."""
    bare = {"limit": None, "smoke_passed": None, "smoke_peak": None, "smoke_asked": None, "smoke_device": None}
    text = full(**bare, safety_percent=None, windows=(), phases=(), phase_bytes=(), of_pass=None)
    assert "of limit off" in text
    assert f"safety {ABSENT}" in text
    assert "no smoke allocation was made at start-up" in text
    assert "no windows" in text


def test_a_smoke_allocation_that_did_not_fit_is_said():
    """A failed start-up allocation is no footnote."""
    assert "did not fit" in full(smoke_passed=False)


def test_no_batch_in_the_window():
    """Without an estimate there is nothing to draw, and nothing is drawn."""
    nothing = tuple(type(point)(point.at_ns, None, ()) for point in buffers().points)
    text = full(points=nothing, last=None, most=None)
    assert "no batch with an estimate in 5 min" in text
    assert f"last {ABSENT}" in text
    small = PanelApp(BuffersPanel(small=True), snapshot=snap(buffers=buffers(points=nothing, last=None)))
    assert "no batch with an estimate in 5 min" in drive(small, size=(46, 6))


def test_an_estimate_without_parts_is_charted_whole():
    """A record without parts still has its peak over time."""
    bare = tuple(type(point)(point.at_ns, point.peak, ()) for point in buffers().points)
    assert "bbb" in full(points=bare)


def test_the_small_form_is_a_sparkline_the_limits_and_the_parts():
    """Beside the batches three lines say the estimate, its limits and its parts."""
    text = drive(PanelApp(BuffersPanel(small=True), snapshot=snap(buffers=buffers())), size=(60, 6))
    first, second, third = text.splitlines()[1:4]
    assert first.endswith("  1.55 GiB est")
    assert any(each in first for each in "▂▃▄▅▆")
    assert second.strip() == "limit 4.00 GiB  smoke 4.09 GiB"
    assert third.split()[:4] == ["most", "3.00", "GiB", "scores"]


def test_more_than_the_limit_stands_out():
    """An estimate above its limit is told as more than all of it."""
    assert "(125 %)" in full(last=5 * GIB)


def test_copies():
    """The panel and the question can be copied."""
    panel = BuffersPanel()

    async def do(_pilot):
        assert json.loads(panel.as_json())["of_pass"] == 18_204
        assert ":run" not in panel.as_sql()

    drive(PanelApp(panel, snapshot=snap(buffers=buffers())), do)
