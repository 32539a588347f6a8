"""Typing over a slow connection, where many keys come at once."""

import asyncio

import pytest
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.widgets import Input

from ui.app.ordered_input import OrderedInput
from ui.app.panels.entry import Entry
from ui.app.prompt import Prompt


class OneLine(App):
    """A line that holds 16,384."""

    def compose(self):
        """The line alone."""
        yield OrderedInput("16,384", compact=True, select_on_focus=False)


@pytest.mark.parametrize(("burst", "value"), [
    ("\x7f" * 6 + "20000", "20000"), ("\x7f20", "16,3820"), ("\x1b[D\x1b[D0", "16,3084"), ("\x157\x7f8", "8"),
    ("\x01" + "\x1b[3~" * 3 + "9", "9384"),
])  # fmt: skip
def test_keys_of_one_burst_act_in_their_order(burst, value):
    """Backspace, delete, arrows and line keys between letters do what they do when typed slowly."""

    async def run():
        app = OneLine()
        async with app.run_test() as pilot:
            line = app.query_one(Input)
            line.focus()
            await pilot.pause()
            for event in XTermParser().feed(burst):
                app._driver.process_message(event)
            await pilot.pause()
            await pilot.pause()
            return line.value

    assert asyncio.run(run()) == value


def test_every_line_that_is_typed_into_is_such_an_input():
    """The prompt, the search and the line that edits a knob."""
    assert issubclass(Entry, OrderedInput)
    assert isinstance(Prompt()._input, OrderedInput)
