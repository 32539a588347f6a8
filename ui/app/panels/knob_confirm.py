"""The question before a change is asked for: what changes from what to what, with what effect, and who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Button, Static

from ui.app.colours import DIM, STRONG
from ui.app.command import Command
from ui.app.dialogs import Dialog
from ui.app.figures import lines
from ui.app.panels.words import cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult


class ConfirmChange(Dialog):
    """True when the operator says yes."""

    KEYS: ClassVar[tuple[Command, ...]] = (
        Command("ask", "y", "answer(True)", "apply", "Ask for the change."),
        Command("leave", "n,escape,q", "answer(False)", "cancel", "Leave everything as it is."),
        Command("other button", "left,right", "app.focus_next", "", "To the other button."),
    )
    DEFAULT_CSS = """
    ConfirmChange {
        align: center middle;
        & VerticalScroll { height: auto; max-height: 14; }
        & Static { height: auto; }
        & Horizontal { height: 1; margin-top: 1; }
        & Button { margin-right: 2; }
    }
    """

    def __init__(self, changes: Sequence[str], effects: Sequence[str], who: str, *, run: str, saved: bool) -> None:
        super().__init__()
        self._told = lines(
            [
                *(cell(each, STRONG) for each in changes),
                cell(""),
                *(cell(each) for each in effects),
                cell(""),
                cell(f"asked by {who}, of run {run}; it lives as long as the run"),
                *([cell("and is saved to the config for runs to come")] if saved else []),
                cell("The record keeps the change with its before and after.", DIM),
            ]
        )

    def compose(self) -> ComposeResult:
        """The words and two buttons."""
        words = VerticalScroll(Static(self._told, markup=False), can_focus=False)
        buttons = Horizontal(
            Button("Apply", id="yes", compact=True, variant="primary"), Button("Cancel", id="no", compact=True)
        )
        box = self.box("Turn knobs", words, buttons)
        box.styles.height = "auto"
        box.styles.max_height = "90%"
        yield box

    def on_mount(self) -> None:
        """Enter applies."""
        self.query_one("#yes").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button was pressed."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """A key was pressed."""
        self.dismiss(answer)
