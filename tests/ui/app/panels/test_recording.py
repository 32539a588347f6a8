"""Each panel on the committed recording, through the real screen: what an operator looks for is there."""

import asyncio

import pytest

from store.queries import run_query
from tests.ui.app.panels.scenes import line_with, text_of
from tests.ui.app.script import settle
from tests.ui.app.test_snapshots import on_recording


def shown(recording, *keys, at="+300", size=(140, 45)):
    """What the screen says after these keys, and the SQL that the panel offers."""
    app = on_recording(recording, at=at)

    async def run():
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            for key in keys:
                await pilot.press(key)
                await settle(pilot)
            return text_of(app.screen), app.panel.as_sql()

    return asyncio.run(run())


def test_who_waits_and_who_never_fits(recording):
    """The head of the queue with its gate, those behind it, and the request that is too long."""
    text, _ = shown(recording, "2")
    assert "5 wait, 1 can never fit" in text
    assert line_with(text, "too-long").split()[:3] == ["✗", "too-long", "can_never"]
    assert line_with(text, "k s11.t12").split()[2:4] == ["kv_capacity", "pool"]
    assert "behind s11.t12" in line_with(text, "s11.t13")


def test_which_gate_stops_most(recording):
    """The gate that closed most passes, with what is left of it over time."""
    text, _ = shown(recording, "3")
    row = next(line for line in text.splitlines() if line.startswith(" k kv_capacity"))
    assert row.split()[2:5] == ["91", "58", "%"]
    assert "kkk" in text


def test_why_host_hits_were_skipped(recording):
    """The load that failed and the hits below the threshold."""
    text, _ = shown(recording, "4")
    assert "computed again although the host held them: 14,528 tokens" in text
    assert line_with(text, "s11.t4").split()[-3:] == ["s11.t4", "allocator", "7,872"]


def test_what_the_buffers_are_made_of(recording):
    """The estimate by part beside limit and smoke, and the windows of the last batch."""
    text, _ = shown(recording, "5")
    assert "smoke at start-up on cuda:0: asked 1.37 GiB, took 1.37 GiB, passed" in text
    assert "windows of the batch of pass 157" in text


def test_which_knob_was_turned_by_whom(recording):
    """The change that was taken and the one that was refused, with the reason; and why no knob can be turned."""
    text, _ = shown(recording, "6")
    assert "the run has ended" in text
    assert line_with(text, "max_extend_tokens 6,144 tok -> 12,288 tok").split()[-2:] == ["revision", "1"]
    assert "refused: page_size is fixed" in line_with(text, "page_size 64 tok -> 128 tok")


def test_shadow_mode_of_the_recording(recording):
    """While the night shift had the gates in shadow, the panel says so above all else."""
    assert "SHADOW: soft gates only record" in shown(recording, "6", at="+450")[0]
    assert "SHADOW" not in shown(recording, "6", at="+600")[0]


def test_why_a_request_waited(recording):
    """From the waiting room into the life of a request, and from there into the pass that looked at it."""
    text, _ = shown(recording, "2", "down", "enter")
    assert "waited 50.7 s, of which" in text
    assert "kkkkkkkkkk" in text
    opened, _ = shown(recording, "2", "down", "enter", "enter")
    assert "Pass 157" in opened


def test_an_alarm_and_the_log(recording):
    """The alarm that was raised, and what happened, faults marked."""
    text, _ = shown(recording, "8")
    assert "long_wait" in text
    assert line_with(text, "too-long can never fit").split()[0] == "✗"
    faults, _ = shown(recording, "8", "f")
    faults, _ = shown(recording, "8", "f")
    assert "faults alone" in faults
    assert "ops turned max_extend_tokens" not in faults


@pytest.mark.parametrize("keys", [("2",), ("3",), ("4",), ("5",), ("6",), ("2", "down", "enter"), ("8",)])
def test_sql_that_a_panel_offers_runs(recording, keys):
    """What is copied as SQL is answered by `glassgate query` as it stands, and finds something."""
    _, sql = shown(recording, *keys)
    assert run_query(recording / "glassgate.db", sql).rows


def test_a_filter_of_the_waiting_room(recording):
    """A filter of the screen reaches the rows and is told."""
    text, _ = shown(recording, "2", "slash", *"s12", "enter")
    assert "filter s12" in text
    assert "s12.t2" in text
    assert "s11.t13" not in text


def test_a_search_for_a_request(recording):
    """Typing an id finds it, and its life stands below."""
    text, _ = shown(recording, "7", "slash", *"burst-0", "enter", at="+400")
    assert "request burst-00 of run recording" in text
