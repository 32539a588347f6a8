"""What every panel of the screen is: a titled box that draws one part of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.containers import Vertical

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

    def __init_subclass__(cls, **more: Any) -> None:
        """Bind the keys of the panel's own commands."""
        if "COMMANDS" in cls.__dict__:
            cls.BINDINGS = [*cls.__dict__.get("BINDINGS", ()), *bindings(cls.COMMANDS)]
        super().__init_subclass__(**more)

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(classes="panel small" if small else "panel")
        self.small = small
        self.border_title = self.TITLE

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What asks for a change is off, and shown as such, where the screen is read-only."""
        del parameters
        if getattr(self.app, "readonly", False) and any(
            command.changes and command.action.split("(")[0] == action for command in self.COMMANDS
        ):
            return None
        return True

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
