"""Finding the record a command asks about: a database, a run, or the newest run."""

from pathlib import Path
from typing import NamedTuple

import click

from controller.liveness import is_held
from controller.run_directory import RunDirectory, default_base, list_runs
from estimator.errors import NotFoundError, StorageError
from store.collect import collect_run
from ui.settings import load_settings

DATABASE = "glassgate.db"
"""The database of a run, in the run's folder unless another was named when it began."""


class Record(NamedTuple):
    """A database, and the run asked about in it; None is the one begun last."""

    database: Path
    run: str | None


def database_of(run: RunDirectory) -> Path:
    """The database a run is collected into."""
    named = run.info.context.get("database")
    return Path(named) if isinstance(named, str) else run.path / DATABASE


def find_record(database: Path | None, run: str | None) -> Record:
    """The record that `--database` and `--run` name; without either the newest run's, brought up to date.

    Raises NotFoundError when there is no such run, and what opening a run or database raises.
    """
    if database is not None:
        return Record(database, run)
    base = load_settings().runs
    found = RunDirectory.find(run, base) if run else _newest(base)
    path = database_of(found)
    if not is_held(found.path / "collector.lock"):
        try:
            with found.hold_collector_lock():
                collect_run(found, path)
        except StorageError as error:
            # Reading goes on without what is not collected yet, if there is anything to read.
            if not path.exists():
                raise
            click.echo(f"glassgate: shown as far as it was collected before: {error}", err=True)
    return Record(path, found.info.run_id)


def _newest(base: Path | None) -> RunDirectory:
    for listed in list_runs(base) if base is None or base.exists() else []:
        if listed.info is not None:
            return listed.run
    raise NotFoundError(
        f"no run is recorded under {base or default_base()} yet; record one with `glassgate replay`, or name a "
        "database with --database"
    )
