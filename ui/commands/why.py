"""`glassgate why`: the life of one request in words and numbers."""

from pathlib import Path

import click

from store.why import why as why_request
from ui.options import json_option, record_options
from ui.output import data, print_json, printable
from ui.record import find_record


@click.command()
@click.argument("request")
@record_options
@json_option
def why(*, request: str, database: Path | None, run: str | None, as_json: bool) -> None:
    """Tell the life of REQUEST: what it waited for and how long, how it entered, what became of it.

    `glassgate query slowest-waits` names requests worth asking about.
    """
    with find_record(database, run) as record:
        life = why_request(record.database, request, run=record.run)
    if as_json:
        print_json(life.as_dict())
    else:
        for line in life.words():
            data().print(printable(line), markup=False, soft_wrap=True)
