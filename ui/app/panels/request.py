"""One request: found by its id, its life as a bar and in the words of `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Input, Static

from ui.app.figures import lines
from ui.app.panels.messages import SearchRequest
from ui.app.panels.part import PartPanel
from ui.app.panels.words import cell

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot


class RequestPanel(PartPanel):
    """A search and what it found."""

    PART: ClassVar[PanelName] = "request"
    TITLE = "Request"
    HELP = "One request."

    def compose(self) -> ComposeResult:
        """The search above what it found."""
        yield Input(placeholder="a request's id, or its beginning")
        yield Static()

    def part(self, snapshot: Snapshot) -> Any:
        """What was found."""
        return snapshot.request

    def draw(self, snapshot: Snapshot) -> None:
        """Tell it."""
        request = snapshot.request
        if request is None:
            return
        words = request.found.words if request.found is not None else request.matches
        self.query_one(Static).update(lines([cell(each) for each in (request.problem, *words) if each]))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what is typed."""
        self.post_message(SearchRequest(event.value))
