"""`glassgate trace`: recorded runs as traces."""

import gzip
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from controller.whole_file import followed, whole_file
from estimator.errors import NotFoundError, StorageError, UsageError
from store.words import counted
from ui.options import span_options
from ui.output import narrate
from ui.record import find_record
from ui.whatif.recorded import Recorded, read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import Steps, steps_of
from ui.whatif.trace import trace_lines


@click.group()
def trace() -> None:
    """Recorded runs as traces that `glassgate replay` and other readers of Mooncake traces take."""


@trace.command()
@click.argument("run", required=False)
@span_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file, packed where it ends in .gz [stdout]."
)
@click.option("--ids", is_flag=True, help="Also write the requests' ids; they may name people.")
@click.option("--database", type=click.Path(path_type=Path), help="Read this database instead of a run's.")
def export(
    *, run: str | None, since: str | None, until: str | None, rank: int | None, output: Path | None, ids: bool,
    database: Path | None,
) -> None:  # fmt: skip
    """Write RUN (the newest by default) as a trace: Mooncake JSON lines, one request each.

    Lengths, times and numbered blocks leave the machine, and how the run was served; no text, no tokens, no names. What
    the requests before --since did is written too, as far as it may have left something in the cache.
    """
    with find_record(database, run) as record:
        recorded = read_recorded(record.database, record.run, rank)
        span = read_span(recorded, since, until)
        steps = _steps(recorded)
        lines = trace_lines(
            recorded, span, None if steps is None else steps.model, ids=ids,
            new_token_ratio=None if steps is None else steps.new_token_ratio,
        )  # fmt: skip
        written = _write(lines, output)
    narrate(f"{counted(written, 'request')} of run {recorded.name}, {span.words}")


def _steps(recorded: Recorded) -> Steps | None:
    """How long steps took; None, which is told, where that cannot be found from the record."""
    try:
        return steps_of(recorded)
    except (NotFoundError, UsageError) as error:
        narrate(f"the trace does not say how long steps take: {error}")
        return None


def _write(lines: Iterable[bytes], output: Path | None) -> int:
    """Write lines, whole or not at all where it is a file, and return how many."""
    if output is None:
        return _count(lines, sys.stdout.buffer)
    try:
        with _file(output) as file:
            return _count(lines, file)
    except OSError as error:
        raise StorageError(f"{output} cannot be written: {error.strerror}; free space or name another file") from None


def _count(lines: Iterable[bytes], file: IO[bytes] | gzip.GzipFile) -> int:
    written = 0
    for line in lines:
        file.write(line)
        written += 1
    return written


@contextmanager
def _file(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """What is written to. A device or a pipe stays what it is, where a file is there whole or not at all."""
    # Resolved, so that a link goes on pointing to the file.
    with path.open("wb") if path.exists() and not path.is_file() else whole_file(followed(path)) as plain:
        if path.name.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=plain, mode="wb") as packed:
                yield packed
        else:
            yield plain
