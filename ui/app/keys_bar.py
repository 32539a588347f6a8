"""The footer: the panels by digit, then what the focused panel and the screen can do, as far as there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from ui.app.commands import LOOK_COMMANDS, PANEL_COMMANDS, TIME_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ui.app.command import Command


class KeysBar(Widget):
    """One line; a click on a key does what the key does."""

    DEFAULT_CSS = """
    KeysBar { height: 1; padding: 0 1; }
    """

    def __init__(self, enabled: Callable[[Command], bool]) -> None:
        super().__init__()
        self._enabled = enabled
        self._view = ""
        self._told: tuple[Command, ...] = ()
        """The commands beside the panels that may be used and have a word."""

    def show(self, view: str, panel_commands: tuple[Command, ...]) -> None:
        """Draw it for this panel, if that or what may be done now is another than before."""
        commands = (*panel_commands, *LOOK_COMMANDS, *TIME_COMMANDS)
        told = tuple(each for each in commands if each.footer and self._enabled(each))
        if (view, told) != (self._view, self._told):
            self._view, self._told = view, told
            self.refresh()

    def render(self) -> Content:
        """The line."""
        others = by_word(self._told)
        last = [each for each in others if each[0] in ("help", "quit")]
        first = [each for each in others if each not in last]
        return keys_line(self._view, first, last, self.content_size.width, self._enabled)


Group = tuple[str, "list[Command]"]
"""Commands that share a word in the footer."""


def by_word(commands: Sequence[Command]) -> list[Group]:
    """Commands by their word in the footer, in their order."""
    groups: dict[str, list[Command]] = {}
    for command in commands:
        groups.setdefault(command.footer, []).append(command)
    return list(groups.items())


def keys_line(
    view: str, first: Sequence[Group], last: Sequence[Group], width: int, enabled: Callable[[Command], bool]
) -> Content:
    """Panels, then what else fits, with help and the way out always there.

    A narrow screen names the panel it shows alone, and leaves the other digits to what can be done in it.
    """
    roomy = width >= 96  # from a terminal of 100 columns on
    gap = "  " if width >= 100 else " "
    panels = [
        keys_entry(
            command.footer if roomy or command.name == view else "", [command], enabled, here=command.name == view
        )
        for command in PANEL_COMMANDS
    ]
    end = [keys_entry(word, commands, enabled) for word, commands in last]
    if sum(each.cell_length + len(gap) for each in (*panels, *end)) > width + len(gap):
        end = [keys_entry("", commands, enabled) for _, commands in last]
    room = width - sum(each.cell_length + len(gap) for each in (*panels, *end))
    middle = []
    for word, commands in first:
        entry = keys_entry(word, commands, enabled)
        if entry.cell_length + len(gap) <= room:
            middle.append(entry)
            room -= entry.cell_length + len(gap)
    return Content(gap).join([*panels, *middle, *end]).truncate(width)


def keys_entry(
    word: str,
    commands: Sequence[Command],
    enabled: Callable[[Command], bool] = lambda _: True,
    *,
    here: bool = False,
    of: str = "app",
) -> Content:
    """The keys in bold and the word, dim where the command is off, reversed where it is what is shown.

    A click asks `of`, in Textual's words `app` or `screen`, to run the command by its name.
    """
    parts: list[tuple[str, str | Style]] = []
    for command in commands:
        key = Style(bold=True) if enabled(command) else Style(dim=True)
        parts += [(command.shown, key + _click(command, of)), (" " if word or command is not commands[-1] else "", "")]
    style = Style(reverse=here, dim=not here)
    return Content.assemble(*parts, (word, style + _click(commands[0], of)))


def _click(command: Command, of: str) -> Style:
    return Style.from_meta({"@click": f"{of}.by_name({command.name!r})"})
