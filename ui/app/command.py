"""One command of the screen: from it come its key, its place in the footer, its palette entry and its line of help."""

from typing import Final

import msgspec


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


NO_COMMANDS: Final[tuple[Command, ...]] = ()
