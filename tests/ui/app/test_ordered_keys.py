"""Keys that come many at once, as over a slow connection, from a paste or from tmux."""

import pytest
from textual._xterm_parser import XTermParser

from tests.ui.app.script import SECOND, drive, screen, settle


def after(burst):
    """The app after a burst of keys."""
    app = screen()

    async def type_all(pilot):
        for event in XTermParser().feed(burst):
            app._driver.process_message(event)
        await pilot.pause()
        while app._settling is not None:
            await pilot.pause()
        await settle(pilot)

    drive(app, type_all)
    return app


@pytest.mark.parametrize(
    ("burst", "seconds", "view"),
    [
        (":at +60\r", 60, "live"),
        (":at +60\r:live\r", None, "live"),
        (":at +60\r:prev pass\r:prev pass\r", 40, "live"),
        ("6:at +30\r", 30, "knobs"),
        (":gates\r:at +20\r", 20, "gates"),
    ],
)
def test_each_key_of_a_burst_goes_where_the_one_before_it_led(burst, seconds, view):
    """What follows `:` is typed into the prompt, and what follows Enter is typed where the order led."""
    app = after(burst)
    at_ns = app.looking.time.at_ns
    assert (None if at_ns is None else at_ns // SECOND, app.view) == (seconds, view)
    assert not app.prompt.has_class("shown")


def test_a_burst_that_ends_in_the_prompt_leaves_it_open():
    """Letters that would be keys elsewhere are text there."""
    app = after(":request qrp")
    assert app.prompt._input.value == "request qrp"
    assert app.view == "live"
