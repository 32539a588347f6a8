"""Printing that nobody reads."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from ui.output import print_json


class NoBytes(io.RawIOBase):
    """A binary stream that keeps nothing."""

    def write(self, content: Any) -> int:
        """All of it is gone."""
        return len(content)


class Nowhere(io.TextIOBase):
    """A text stream that keeps nothing, and takes only what a terminal's own would."""

    encoding = "utf-8"
    buffer = NoBytes()

    def write(self, text: str) -> int:
        """Encode it, as writing would."""
        text.encode(errors="replace")
        return len(text)


def quietly(call: Callable[[], object]) -> None:
    """Call something whose output nobody reads."""
    nowhere = Nowhere()
    with redirect_stdout(nowhere), redirect_stderr(nowhere):
        call()


def printed_json(value: Any) -> None:
    """Print a value as a command prints it."""
    quietly(lambda: print_json(value))
