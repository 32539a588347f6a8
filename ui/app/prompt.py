"""The line in which an order, a filter or a search is typed. It stands in place of the footer while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from ui.app.ordered_input import OrderedInput

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key

Kind = Literal["jump", "filter", "request"]
_LABELS: Final[dict[Kind, str]] = {"jump": ":", "filter": "/", "request": "request "}


class Prompt(Horizontal):
    """One line: what it is for, and what is typed."""

    DEFAULT_CSS = """
    Prompt { height: 1; padding: 0 1; display: none; }
    Prompt.shown { display: block; }
    Prompt Static { width: auto; text-style: bold; }
    Prompt Input { border: none; height: 1; padding: 0; width: 1fr; background: $background; }
    """

    class Typed(Message):
        """The operator typed this and pressed Enter."""

        def __init__(self, kind: Kind, text: str) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    class Left(Message):
        """The operator left it with Escape."""

    def __init__(self) -> None:
        super().__init__()
        self.kind: Kind = "jump"
        self._label = Static(":")
        self._input = OrderedInput(compact=True)

    def compose(self) -> ComposeResult:
        """Label and input."""
        yield self._label
        yield self._input

    def open(self, kind: Kind, text: str, hint: str) -> None:
        """Show it with this text to begin with."""
        self.kind = kind
        self._label.update(_LABELS[kind])
        self._input.placeholder = hint
        self._input.value = text
        self.add_class("shown")
        self._input.focus()
        self._input.action_end()

    def close(self) -> None:
        """Hide it."""
        self.remove_class("shown")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        event.stop()
        self.post_message(self.Typed(self.kind, event.value.strip()))

    def on_key(self, event: Key) -> None:
        """Escape leaves it."""
        if event.key == "escape":
            event.stop()
            self.post_message(self.Left())
