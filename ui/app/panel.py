"""What every panel of the screen is: a titled box that draws one part of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ui.app.command import NO_COMMANDS, bindings

if TYPE_CHECKING:
    from textual.binding import BindingType

    from ui.app.command import Command
    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot


class Panel(Vertical):
    """One panel. `small` is its form beside the batches; otherwise it has the screen to itself.

    A panel draws what `show` gives it and holds no data of its own but the last snapshot and where its cursor is.
    The keys of `COMMANDS` work while the focus is in it.
    """

    PART: ClassVar[PanelName]
    """What it asks the reader for when it has the screen to itself."""
    TITLE: ClassVar[str]
    HELP: ClassVar[str]
    """A paragraph or two: what it shows, what the columns mean, where the numbers come from. Markup is Markdown."""
    COMMANDS: ClassVar[tuple[Command, ...]] = NO_COMMANDS
    BINDINGS: ClassVar[list[BindingType]] = []
    DEFAULT_CSS = """
    Panel.failed > * { display: none; }
    Panel.failed > .failure { display: block; height: auto; text-wrap: wrap; }
    """

    def __init_subclass__(cls, **more: Any) -> None:
        """Bind the keys of the panel's own commands."""
        if "COMMANDS" in cls.__dict__:
            cls.BINDINGS = [*cls.__dict__.get("BINDINGS", ()), *bindings(cls.COMMANDS)]
        super().__init_subclass__(**more)

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(classes="panel small" if small else "panel")
        self.small = small
        self.border_title = self.TITLE
        self._failure: Static | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What asks for a change is off, and shown as such, where the screen is read-only."""
        del parameters
        if getattr(self.app, "readonly", False) and any(
            command.changes and command.action.split("(")[0] == action for command in self.COMMANDS
        ):
            return None
        return True

    def present(self, snapshot: Snapshot) -> None:
        """Draw the snapshot. An error in drawing stays in this panel, which says so until it can be drawn again."""
        try:
            self.show(snapshot)
            whole = self.holds(snapshot)
        except Exception as error:  # noqa: BLE001 - a fault of one panel must not take the screen from the operator
            self.failed(error)
        else:
            if whole and self._failure is not None:
                self.remove_class("failed")
                self._failure.remove()
                self._failure = None

    def failed(self, error: Exception) -> None:
        """Say that this panel could not be drawn, in place of what it shows."""
        self.forget()
        words = Content(f"could not be drawn: {error_words(error)}; the record is untouched, report this")
        if self._failure is None and self.is_attached:
            self._failure = Static(words, classes="failure")
            self.mount(self._failure)
            self.add_class("failed")
        elif self._failure is not None:
            self._failure.update(words)

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot has what this panel draws, and there is something to draw on."""
        del snapshot
        return self.is_mounted

    def forget(self) -> None:
        """Let go of what was drawn, so that the next snapshot is drawn anew whether or not it differs."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw the snapshot. Called on the screen's thread, at most four times a second."""
        raise NotImplementedError

    def raw(self) -> str | None:
        """The raw record of what the cursor is on, as text; None where there is none."""
        return None

    def as_json(self) -> str | None:
        """What the panel shows as JSON, for copying."""
        return None

    def as_sql(self) -> str | None:
        """SQL (for `glassgate query`) that asks for what the panel shows."""
        return None


def error_words(error: Exception) -> str:
    """An error of our own code in one line, for a report."""
    return " ".join(f"{type(error).__name__}: {error}".split())
