"""What is copied from the screen."""

from __future__ import annotations


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
