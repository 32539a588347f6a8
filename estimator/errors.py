"""The errors that bad input can cause, each with the exit code the command line gives it."""


class GlassgateError(Exception):
    """Something an operator can mend: one line that names the thing, the value, the limit and the remedy."""

    exit_code = 1


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
