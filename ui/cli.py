"""The `glassgate` command. stdout is data, stderr is narration, exit codes are in docs/reference/cli.md."""

import importlib
import os
import sys
from typing import Any, Final, NoReturn

import click

from estimator.errors import GlassgateError, StorageError

INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    0: "done",
    1: "something went wrong that has no code of its own",
    2: "the command's arguments do not fit together",
    3: "a knob has a value it cannot have",
    4: "a case file, trace, setting or model description cannot be read as one",
    5: "a journal, run directory or database is missing, not ours, or of a newer version",
    6: "the disk is full or a folder cannot be written; what was recorded before stays readable",
    7: "the record holds nothing under that name",
    8: "another module named controller, estimator, gpu_probe, store or ui is found before ours",
    9: "a device cannot be probed, or its memory did not hold what was asked",
    INTERRUPTED: "interrupted by Ctrl-C; what was recorded before stays readable",
}

COMMANDS: Final = ("demo", "replay", "decide", "why", "query", "estimate", "smoke", "bench")
"""The commands in the order in which help lists them; each is the function of its name in ui.commands."""


class Commands(click.Group):
    """The commands, imported when they are asked for; every error an operator can mend is one line and an exit code."""

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

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
            return answer  # noqa: TRY300 # the flush above is what may fail
        except GlassgateError as error:
            click.echo(f"glassgate: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("glassgate: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output has gone, as `| head` does; there is nobody left to tell.
            _drop_output()
            ctx.exit(0)
        except OSError as error:
            _drop_output()
            click.echo(f"glassgate: the output cannot be written: {error.strerror}", err=True)
            ctx.exit(StorageError.exit_code)


def _drop_output() -> None:
    """Send what is still buffered for stdout nowhere, so that closing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="glassgate", message="%(package)s %(version)s")
def cli() -> None:
    """Glassgate: a prefill admission controller whose every decision can be seen, kept and questioned.

    stdout is data, stderr is narration. Exit codes: docs/reference/cli.md.
    """


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    cli.main(prog_name="glassgate")
