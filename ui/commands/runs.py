"""`glassgate runs`: what is recorded on this machine."""

import click

from controller.run_directory import list_runs
from ui.options import json_option
from ui.output import print_json, print_table
from ui.settings import load_settings


@click.command()
@json_option
def runs(*, as_json: bool) -> None:
    """List the runs recorded on this machine, the newest first, with the state of each.

    `live`: the engine is running. `ended`: it ended in good order. `engine_gone`: it died. `collector_gone`: it runs,
    but nothing collects its journal any more.
    """
    base = load_settings().runs
    listed = list_runs(base) if base is None or base.exists() else []
    rows = []
    for run, info, state, error in listed:
        if info is None:
            rows.append((run.path.name, "unreadable", "-", "-", "-", error or ""))
        else:
            workload = info.context.get("workload", "")
            rows.append((run.path.name, state or "-", info.started, info.engine, info.model or "-", str(workload)))
    columns = ("run", "state", "started", "engine", "model", "workload")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
