"""The errors that bad input can cause, each with the exit code the command line gives it."""

from typing import Any, Final

LONGEST_WORDS: Final = 1_000
"""Characters of an error's line; of a longer one the middle is left out, since the remedy stands at its end."""
_LONGEST_VALUE: Final = 60


class GlassgateError(Exception):
    """Something an operator can mend: one line that names the thing, the value, the limit and the remedy.

    What it was made from may hold whatever somebody sent: its text is one line of bounded length without characters
    that could steer a terminal.
    """

    exit_code = 1

    def __str__(self) -> str:
        """The line."""
        return one_line(super().__str__())


class UsageError(GlassgateError):
    """A command's arguments do not fit together."""

    exit_code = 2


class KnobError(GlassgateError):
    """A knob has a value it cannot have."""

    exit_code = 3


class InputError(GlassgateError):
    """A case file, trace or model description cannot be read as one."""

    exit_code = 4


class RecordError(GlassgateError):
    """A journal, run directory or database is missing, not ours, or of a newer version."""

    exit_code = 5


class StorageError(GlassgateError):
    """The disk is full or a folder cannot be written; what was recorded before stays readable."""

    exit_code = 6


class NotFoundError(GlassgateError):
    """The record holds nothing under that name."""

    exit_code = 7


class NoAnswerError(GlassgateError):
    """Nobody answered a knob request in time."""

    exit_code = 10


class FidelityError(GlassgateError):
    """A replay does not reproduce the record well enough to draw conclusions from it."""

    exit_code = 12


def one_line(words: str) -> str:
    """Words as one line: what is not printable as its code, and no longer than LONGEST_WORDS characters."""
    words = _cut(words)
    if words.isprintable():
        return words
    return _cut(
        "".join(each if each.isprintable() else " " if each == "\n" else f"\\x{ord(each):02x}" for each in words)
    )


def _cut(words: str) -> str:
    if len(words) <= LONGEST_WORDS:
        return words
    half = (LONGEST_WORDS - 5) // 2
    return f"{words[:half]} ... {words[-half:]}"


def shown(value: Any) -> str:
    """A value as an error shows it: short, on one line, and never an error itself."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number or a nesting too long to print
        return "a value too long to show"
    return text if len(text) < _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
