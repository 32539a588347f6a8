"""`glassgate query`: named queries and SQL over a record, read-only."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from estimator.errors import UsageError
from store.named import NAMED
from store.queries import DEFAULT_SECONDS, run_query
from ui.options import Finite, json_option, record_options
from ui.output import print_answer, print_csv, print_json, print_table
from ui.record import find_record

MOST_SECONDS = 86_400.0
GRACE_SECONDS = 2.0
"""What a query may take beyond its time until its process is ended."""


@click.command()
@click.argument("what", metavar="[NAME | SQL]", required=False)
@click.option("--limit", type=click.IntRange(min=0, max=1 << 40), help="Rows at most [default: 20 for a named query].")
@click.option(
    "--seconds",
    type=Finite(min=0.001),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Stop a query that runs longer.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@record_options
@json_option
def query(
    *,
    what: str | None,
    limit: int | None,
    seconds: float,
    as_csv: bool,
    database: Path | None,
    run: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Ask a record: a named query, or one SELECT of your own.

    Without NAME or SQL the named queries are listed. Nothing is ever written. SQL may use :run and :limit; the tables
    and views are in docs/store.md.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json are both given; choose one")
    if what is None:
        _list(as_json=as_json, as_csv=as_csv)
        return
    with find_record(database, run) as record:
        # A run's own database needs no name of the run; SQL that does not use :run would refuse one.
        asked = record.run if _asks_for_run(what) else run if database is not None else None
        with _ended_after(min(seconds, MOST_SECONDS)) as bound:
            answer = run_query(record.database, what, run=asked, limit=limit, seconds=bound)
    if as_json:
        print_json(answer.as_dicts())
    elif as_csv:
        print_csv([column.name for column in answer.columns], answer.rows)
    else:
        print_answer(answer)
    if answer.more:
        click.echo(f"glassgate: there are more than {len(answer.rows):,} rows; raise --limit to see them", err=True)


@contextmanager
def _ended_after(seconds: float) -> Iterator[float]:
    """End the process where SQLite does not stop: between two of its steps it looks, within one function it cannot.

    The connection only reads, so that nothing is left half done.
    """

    def end() -> None:
        click.echo(f"glassgate: the query ran longer than {seconds:g} s and could not be stopped otherwise", err=True)
        os._exit(UsageError.exit_code)

    watch = threading.Timer(seconds + GRACE_SECONDS, end)
    watch.daemon = True
    watch.start()
    try:
        yield seconds
    finally:
        watch.cancel()


def _asks_for_run(what: str) -> bool:
    return what in NAMED or ":run" in what


def _list(*, as_json: bool, as_csv: bool) -> None:
    rows = [(named.name, named.description) for named in NAMED.values()]
    if as_json:
        print_json([{"name": name, "description": description} for name, description in rows])
    elif as_csv:
        print_csv(("name", "description"), rows)
    else:
        print_table(("query", "what it answers"), rows)
