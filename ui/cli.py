"""The `glassgate` command. stdout is data, stderr is narration, exit codes are in docs/reference/cli.md."""

import contextlib
import errno
import importlib
import io
import os
import sys
from typing import Final, NoReturn

import click

from estimator import launch
from estimator.errors import GlassgateError, StorageError, UsageError, shown

INTERRUPTED: Final = launch.INTERRUPTED

EXIT_CODES: Final = {
    0: "done",
    1: "something went wrong that has no code of its own",
    2: "the command's arguments do not fit together",
    3: "a knob has a value it cannot have, or a run refused a knob change",
    4: "a case file, trace, setting or model description cannot be read as one",
    5: "a journal, run directory or database is missing, not ours, or of a newer version",
    6: "the disk is full or a folder cannot be written; what was recorded before stays readable",
    7: "the record holds nothing under that name, or the run is not live",
    8: "another module named controller, gpu_probe, store or ui is found before ours",
    9: "a device cannot be probed, or its memory did not hold what was asked",
    10: "a run did not answer a knob request in time",
    11: "doctor found something that keeps Glassgate from doing what it is asked for",
    12: "a replay does not reproduce the record well enough to draw conclusions from it",
    INTERRUPTED: "interrupted by Ctrl-C; what was recorded before stays readable",
}

COMMANDS: Final = (
    "demo",
    "replay",
    "decide",
    "runs",
    "knobs",
    "why",
    "query",
    "ui",
    "whatif",
    "tune",
    "trace",
    "estimate",
    "smoke",
    "collect",
    "doctor",
    "db",
    "bench",
)
"""The commands in the order in which help lists them; each is the function of its name in ui.commands."""


class Commands(click.Group):
    """The commands, imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, or None."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"ui.commands.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. Raises UsageError for a name so long that the system takes it for none of a file."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or error.filename is None:
                raise
            raise UsageError(f"{shown(str(error.filename))} is too long for a name of a file or run") from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="glassgate", message="%(package)s %(version)s")
def cli() -> None:
    """Glassgate: a prefill admission controller whose every decision can be seen, kept and questioned.

    stdout is data, stderr is narration. Exit codes: docs/reference/cli.md.
    """


def main() -> NoReturn:
    """Run the command line and exit with its code; every error an operator can mend is one line."""
    if sys.stdout is None or sys.stderr is None:  # closed by whoever started us
        _fail("stdout or stderr is closed; open both, for instance with >/dev/null", StorageError.exit_code)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows what it can
    try:
        if any(text != text.encode(errors="replace").decode() for text in sys.argv):
            raise UsageError("an argument is not UTF-8; write it as UTF-8")
        with launch.raising_interrupts():
            code = cli.main(prog_name="glassgate", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        _fail(error.format_message(), error.exit_code, prefix="")
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "glassgate"
        _fail(f"{error.format_message()} (see {where} --help)", error.exit_code)
    except GlassgateError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        # Where it came out of an exec of a text, as dataclasses make, CPython would end by the signal although it was
        # caught here; an exec that ends well takes that back.
        exec("")  # noqa: S102
        _fail("interrupted", INTERRUPTED)
    except OSError as error:
        _fail_to_write(error)
    sys.exit(code if isinstance(code, int) else 0)


def _fail_to_write(error: OSError) -> NoReturn:
    """End after a failure of the operating system: quietly when the reader of our output has gone, as `| head` does."""
    if error.filename is None:
        # What is still buffered goes nowhere, so that closing it at exit cannot fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        sys.exit(0)
    what = error.filename or "the output cannot be written"
    _fail(f"{what}: {error.strerror}; free space or mend its permissions", StorageError.exit_code)


def _fail(words: str, code: int, prefix: str = "glassgate: ") -> NoReturn:
    """One line on stderr, as far as there is one, and the exit code."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{prefix}{words}\n")
        sys.stderr.flush()
    sys.exit(code)
