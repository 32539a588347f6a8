"""The bar of time: where in the run the moment shown is, with a mark for each knob change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from ui.app.colours import DIM, STRONG
from ui.app.moments import clock, into_run
from ui.app.strip import KNOB_CHANGE
from ui.app.time_control import part_of

if TYPE_CHECKING:
    from textual.events import Click

    from ui.app.time_control import TimeControl
    from ui.view.snapshot import Head

_HERE: Final = "●"
_LEAST: Final = 10


class TimeBar(Widget):
    """One line; a click goes to that moment."""

    DEFAULT_CSS = """
    TimeBar { height: 1; padding: 0 1; display: none; }
    TimeBar.shown { display: block; }
    """

    class Clicked(Message):
        """The operator clicked on a part of the run, 0 to 1."""

        def __init__(self, part: float) -> None:
            super().__init__()
            self.part = part

    def __init__(self) -> None:
        super().__init__()
        self._head: Head | None = None
        self._words = ""
        self._bar = (0, 1)

    def show(self, head: Head, time: TimeControl) -> None:
        """Draw it where there is anything to move in: in the past, or in a run that is over."""
        self.set_class(time.past or head.presence not in ("live", "idle"), "shown")
        if head != self._head or time.words() != self._words:
            self._head, self._words = head, time.words()
            self.refresh()

    def render(self) -> Content:
        """The bar between the run's beginning and its end."""
        head = self._head
        if head is None or head.first_ns is None or head.last_ns is None or head.at_ns is None:
            return Content.styled("nothing recorded yet", DIM)
        here = f"{self._words}  {clock(head, head.at_ns)} UTC  {into_run(head, head.at_ns)}  "
        first, last = f"{clock(head, head.first_ns)} ", f" {clock(head, head.last_ns)}"
        cells = self.content_size.width - len(here) - len(first) - len(last)
        if cells < _LEAST:
            here = f"{self._words}  {clock(head, head.at_ns)}  "
            cells = self.content_size.width - len(here) - len(first) - len(last)
        cells = max(_LEAST, cells)
        self._bar = (len(here) + len(first), cells)
        return Content.assemble((here, STRONG), (first, DIM), bar_of_time(head, cells), (last, DIM))

    def on_click(self, event: Click) -> None:
        """Go to the moment clicked."""
        start, cells = self._bar
        at = event.x - self.styles.padding.left - start
        if 0 <= at < cells:
            event.stop()
            self.post_message(self.Clicked(at / max(1, cells - 1)))


def bar_of_time(head: Head, cells: int) -> Content:
    """The line itself: what has passed, what is to come, knob changes, and where we are."""
    here = _cell(head, head.at_ns or 0, cells)
    drawn = ["━" if at <= here else "─" for at in range(cells)]
    for changed in head.changes_ns:
        drawn[_cell(head, changed, cells)] = KNOB_CHANGE
    drawn[here] = _HERE
    line = Content("".join(drawn))
    return line.stylize(DIM, here + 1).stylize(STRONG, here, here + 1)


def _cell(head: Head, at_ns: int, cells: int) -> int:
    part = part_of(head, at_ns)
    return cells - 1 if part is None else round(part * (cells - 1))
