"""Pictures of the screen on the committed recording, at three sizes. `pytest --snapshot-update` makes them anew."""

import pytest

from tests.ui.app.script import ScriptedClock, still, text_of
from ui.app.direct import DirectReader, WholeView
from ui.app.screen import Glassgate
from ui.view.source import Source
from ui.view.view import View


def on_recording(recording, **more):
    """The app on the recording, all of it read at once, under a clock that stands."""
    view = View(Source.open(str(recording)), ScriptedClock())
    return Glassgate(DirectReader(WholeView(view)), clock=ScriptedClock(), **more)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (160, 50)], ids=["80x24", "120x35", "160x50"])
def test_the_screen_at_a_moment(recording, snap_compare, size):
    """The live panel with everything beside it, at a moment of the recording at which batches are stopped."""
    app = on_recording(recording, at="+120")
    assert snap_compare(app, terminal_size=size, run_before=still)


def test_an_opened_decision(recording, snap_compare):
    """A pass of the recording with the gates of one decision."""
    app = on_recording(recording, at="+120")

    async def open_last_decision(pilot):
        await still(pilot)
        app.opened.query_one("#decisions").focus()
        await still(pilot)
        await pilot.press("a")
        await still(pilot)

    assert snap_compare(app, terminal_size=(120, 35), run_before=open_last_decision)


@pytest.mark.parametrize("theme", ["light", "plain"])
def test_other_themes(recording, snap_compare, theme):
    """The same picture in light and without colour."""
    app = on_recording(recording, at="+120", theme=theme)
    assert snap_compare(app, terminal_size=(120, 35), run_before=still)


def test_help(recording, snap_compare):
    """What the panel shows, and every key."""
    app = on_recording(recording, at="+120")

    async def help_me(pilot):
        await still(pilot)
        await pilot.press("question_mark")
        while "Each line is one pass" not in text_of(pilot.app):
            await pilot.pause(0.01)
        await still(pilot)

    assert snap_compare(app, terminal_size=(100, 40), run_before=help_me)
