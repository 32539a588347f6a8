"""Finding the record a command asks about: a database, a run, or the newest run."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from controller.liveness import is_held
from controller.run_directory import DATABASE, RunDirectory, default_base, list_runs, ranks_of
from estimator.errors import NotFoundError, RecordError, StorageError
from store.collect import Collector
from ui.output import narrate
from ui.settings import load_settings
from ui.where import database_of

WAIT_SECONDS: Final = 30.0
"""How long a command waits for another one that is collecting the same run."""


class Record(NamedTuple):
    """A database, and the run asked about in it; None is the one begun last."""

    database: Path
    run: str | None


@contextmanager
def find_record(database: Path | None, run: str | None) -> Iterator[Record]:
    """The record that `--database` and `--run` name; without either the newest run's, brought up to date.

    Where the run's own database cannot be written, as on a full disk, the journal is read into one that lasts as long
    as the question; what belongs to another user is read as it is. Raises NotFoundError when there is no such run, and
    what opening a run or database raises.
    """
    if database is not None:
        yield Record(database, run)
        return
    base = load_settings().runs
    found = RunDirectory.find(run, base) if run else _newest(base)
    path, name = database_of(found), found.info.run_id
    if found.stranger is not None and (found.path / DATABASE).is_file():
        narrate(f"glassgate: run {found.path.name} is user {found.stranger}'s: shown as far as it was collected")
        yield Record(found.path / DATABASE, name)
        return
    try:
        for each in (ranks := _together(found, path)):
            _bring_up_to_date(each, path)
    except StorageError as error:
        with tempfile.TemporaryDirectory(prefix="glassgate-") as folder:
            narrate(f"glassgate: read into a passing database, since {error}")
            for each in ranks:
                _collect(each, Path(folder) / DATABASE)
            yield Record(Path(folder) / DATABASE, name)
        return
    except RecordError as error:
        raise RecordError(
            f"{error}; the run's journal holds what has not been cleared away yet: move {path} aside and ask again"
        ) from None
    yield Record(path, name)


def _together(run: RunDirectory, database: Path) -> list[RunDirectory]:
    """The ranks of a run that are collected into one database."""
    return [
        each for each in ranks_of(run) if each.path == run.path or database_of(each).resolve() == database.resolve()
    ]


def _bring_up_to_date(run: RunDirectory, database: Path) -> None:
    """Take the journal into the database, unless somebody else is at it; then wait until there is something to read."""
    lock = run.path / "collector.lock"
    deadline = time.monotonic() + WAIT_SECONDS
    while is_held(lock):
        if database.exists() and run.state == "live":
            return  # the engine's own collector keeps it within a second of now
        if time.monotonic() > deadline:
            narrate(f"glassgate: another process is still collecting run {run.path.name}; shown as far as it came")
            return
        time.sleep(0.05)
    try:
        held = run.hold_collector_lock()
    except StorageError:
        if is_held(lock):
            _bring_up_to_date(run, database)
            return
        raise
    with held:
        _collect(run, database)


def _collect(run: RunDirectory, database: Path) -> None:
    """Take the journal in, and say what of it cannot be read."""
    with Collector(run, database) as collector:
        collector.poll()
        if collector.damage is not None:
            narrate(f"glassgate: {collector.damage}")


def _newest(base: Path | None) -> RunDirectory:
    for listed in list_runs(base) if base is None or base.exists() else []:
        if listed.info is not None:
            return listed.run
    raise NotFoundError(
        f"no run is recorded under {base or default_base()} yet; record one with `glassgate replay`, or name a "
        "database with --database"
    )
