"""What opens over the screen: help, a raw record, and the choice of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ui.app.batches import CURSOR_COMMANDS
from ui.app.colours import DIM, PRESENCES, STRONG
from ui.app.command import Command, bindings, key_words
from ui.app.figures import ABSENT, whole
from ui.app.lines import HoldsLines, Lines
from ui.app.moments import day_and_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ui.view.snapshot import RunChoice

CLOSE: Final = Command("close", "escape,q", "close", "close", "Close this.")


class Dialog(ModalScreen[Any]):
    """A box over the screen that Escape closes; its commands are told in its lower border."""

    KEYS: ClassVar[tuple[Command, ...]] = (CLOSE,)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings((CLOSE,))]

    def __init_subclass__(cls, **more: Any) -> None:
        """Bind the keys of the dialog's commands."""
        cls.BINDINGS = [*bindings(cls.KEYS)]
        super().__init_subclass__(**more)

    def box(self, title: str, *inside: Any) -> Vertical:
        """The box with what is in it."""
        box = Vertical(*inside)
        box.border_title = title
        told = [f"{each.shown} {each.footer}" for each in self.KEYS if each.footer]
        box.border_subtitle = "  ".join(told)
        return box

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)


class TextLines(Lines):
    """Plain text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows = text.expandtabs(4).splitlines() or [""]

    def line(self, index: int, width: int) -> Content:
        """One line."""
        row = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in self.rows[index])
        return Content(row).truncate(width, ellipsis=True)


class LinesDialog(HoldsLines, Dialog):
    """A dialog around lines with a cursor."""

    def __init__(self, title: str, lines: Lines) -> None:
        super().__init__()
        self._title = title
        self.lines = lines

    def compose(self) -> ComposeResult:
        """The lines in their box."""
        yield self.box(self._title, self.lines)

    def on_mount(self) -> None:
        """Put the focus where the keys are."""
        self.lines.focus()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Nobody else needs to know."""
        event.stop()


class RawDialog(LinesDialog):
    """A raw record, to read and to copy."""

    KEYS = (
        *CURSOR_COMMANDS,
        Command("copy", "c,y", "copy", "copy", "Copy it through the terminal (OSC 52)."),
        CLOSE,
    )

    def __init__(self, title: str, text: str) -> None:
        super().__init__(title, TextLines(text))
        self.text = text

    def action_copy(self) -> None:
        """Copy it."""
        self.app.copy_to_clipboard(self.text)
        self.app.notify("copied, where the terminal allows it (OSC 52)", timeout=4)


class RunLines(Lines):
    """Runs that can be shown."""

    def __init__(self, runs: Sequence[RunChoice], shown: tuple[str, int]) -> None:
        super().__init__()
        self.rows = tuple(runs)
        self.shown = shown

    def line(self, index: int, width: int) -> Content:
        """One run."""
        run = self.rows[index]
        mark = PRESENCES[run.presence]
        here = (run.run, run.rank) == self.shown
        return Content.assemble(
            ("> " if here else "  ", STRONG),
            (f"{mark.sign} {mark.word:<15}", mark.style),
            (f"{run.run[:12]:<13}", STRONG),
            f"rank {run.rank:<3}",
            f"{(run.engine or ABSENT)[:7]:<8}{(run.model or ABSENT)[:15]:<16}",
            f"{whole(run.passes):>10} passes  ",
            (day_and_clock(run.started_wall_ns), DIM),
        ).truncate(width, ellipsis=True)


class RunsDialog(LinesDialog):
    """The choice of a run and rank; gives back what was chosen."""

    KEYS = (*CURSOR_COMMANDS, Command("choose", "enter", "choose", "show", "Show this run."), CLOSE)

    def __init__(
        self, runs: Sequence[RunChoice], shown: tuple[str, int], title: str = "Runs and ranks (started, UTC)"
    ) -> None:
        self.run_lines = RunLines(runs, shown)
        super().__init__(title, self.run_lines)

    def on_lines_chosen(self) -> None:
        """A second click chooses."""
        self.action_choose()

    def action_choose(self) -> None:
        """Show the run under the cursor."""
        lines = self.run_lines
        self.dismiss(lines.rows[lines.cursor] if lines.count else None)


class HelpDialog(Dialog):
    """What the focused panel shows, its keys, and every key of the screen."""

    def __init__(self, title: str, text: str, sections: Sequence[tuple[str, Sequence[Command]]]) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._sections = sections

    def compose(self) -> ComposeResult:
        """The panel's words, then the keys."""
        from textual.widgets import Markdown  # noqa: PLC0415 - only help needs it, and it costs a tenth of a second

        keys = [Static(keys_table(name, commands), classes="help") for name, commands in self._sections if commands]
        yield self.box(self._title, VerticalScroll(Markdown(self._text), *keys))


def keys_table(name: str, commands: Sequence[Command]) -> Content:
    """Keys and what they do."""
    rows = [
        Content.assemble("  ", (f"{key_words(each.keys):<22}", STRONG), f"{each.help}")
        for each in commands
        if each.keys
    ]
    return Content("\n").join([Content.styled(name, STRONG), *rows, Content("")])
