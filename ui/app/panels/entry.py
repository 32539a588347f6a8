"""A line that is typed into, which the keyboard leaves by escape or down."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from ui.app.ordered_input import OrderedInput


class Entry(OrderedInput):
    """One line without a border. It takes the focus only when `enter` gives it, so that keys are the screen's else."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,down", "leave", "Leave the line", show=False)]

    class Left(Message):
        """The line was left without Enter."""

    def __init__(self, placeholder: str = "") -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=True)
        self.can_focus = False

    def enter(self) -> None:
        """Type into it from here on."""
        self.can_focus = True
        self.focus()

    def on_blur(self) -> None:
        """Whoever leaves it does not come back by accident."""
        self.can_focus = False

    def action_leave(self) -> None:
        """Leave it."""
        self.post_message(self.Left())
