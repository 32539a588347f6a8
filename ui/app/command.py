"""One command of the screen: from it come its key, its place in the footer, its palette entry and its line of help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from textual.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN: Final = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "question_mark": "?",
    "exclamation_mark": "!",
    "slash": "/",
    "colon": ":",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
}


class Command(msgspec.Struct, frozen=True):
    """`action` is a Textual action, `keys` are comma-separated as Textual's bindings take them."""

    name: str
    keys: str
    action: str
    footer: str
    """The word in the footer; empty keeps it out."""
    help: str
    changes: bool = False
    """It asks for a change, so that --readonly turns it off."""
    key_shown: str = ""
    """What the footer shows instead of the key's own name."""

    @property
    def shown(self) -> str:
        """The keys as people write them, the first alone in the footer when `key_shown` does not say otherwise."""
        return self.key_shown or key_words(self.keys.split(",")[0])


def key_words(keys: str) -> str:
    """Comma-separated keys as people write them: `[`, `PgUp`, `ctrl+p`."""
    return " ".join(_SHOWN.get(key, key) for key in keys.split(",") if key)


def bindings(commands: Iterable[Command]) -> list[Binding]:
    """What Textual binds; a command without keys is reached through the palette alone."""
    return [
        Binding(each.keys, each.action, each.help, show=bool(each.footer), key_display=each.shown, id=None)
        for each in commands
        if each.keys
    ]


NO_COMMANDS: Final[tuple[Command, ...]] = ()
