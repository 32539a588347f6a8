"""What `glassgate ui [DB | RUN]` names: a database, a run, or the run begun last; and the runs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from controller.run_directory import DATABASE, RunDirectory, default_base, list_runs, ranks_of
from estimator.errors import GlassgateError, NotFoundError, RecordError
from ui.where import database_of

if TYPE_CHECKING:
    from ui.view.moment import RunRow
    from ui.view.snapshot import Ask


class Place(NamedTuple):
    """A database, and the run asked about in it; without a name the run begun last."""

    database: Path
    run: str | None = None
    rank: int | None = None
    folder: RunDirectory | None = None
    """The run's folder, if there is one."""

    @property
    def key(self) -> tuple[Path, str | None, int | None]:
        """What tells one place from another."""
        return self.database, self.run, self.rank


class Source:
    """Where the screen reads. `base` is the folder that keeps the runs."""

    def __init__(self, place: Place, base: Path) -> None:
        self.place = place
        self.base = base

    @classmethod
    def open(cls, name: str | None = None, base: Path | None = None) -> Source:
        """Find what a name stands for: a database's path, a run's id, the beginning of one or path; None is the newest.

        Raises NotFoundError for what is not there, UsageError where a beginning fits several runs, RecordError for a
        path that is neither a run nor a file, or a run that cannot be read.
        """
        base = default_base() if base is None else base
        if name is None:
            return cls(place_of(_newest(base)), base)
        path = Path(name)
        if path.is_file():
            return cls(_place_of_database(path), base)
        if path.suffix in (".db", ".sqlite") and not path.is_dir():
            raise RecordError(f"no database at {path}; name one, or a run that `glassgate runs` lists")
        return cls(place_of(RunDirectory.find(name, base)), base)

    def place_for(self, ask: Ask) -> Place:
        """Where an answer is to be found. Raises RecordError for a folder that is no run."""
        if ask.folder:
            return place_of(RunDirectory(ask.folder))
        if ask.database and Path(ask.database) != self.place.database:
            return _place_of_database(Path(ask.database))
        return self.place

    def folders(self) -> list[RunDirectory]:
        """The folders of the runs there are, the latest begun first; none where they cannot be listed."""
        try:
            found = [listed.run for listed in list_runs(self.base) if listed.info is not None]
        except GlassgateError:
            found = []
        own = self.place.folder
        if own is not None and own.path.absolute() not in {each.path.absolute() for each in found}:
            found.insert(0, own)
        return found


def place_of(run: RunDirectory) -> Place:
    """Where a run's record is. Raises RecordError for one whose run.json cannot be read."""
    info = run.info
    return Place(database_of(run), info.run_id, info.rank, run)


def folder_of(run: RunRow, database: Path, base: Path) -> RunDirectory | None:
    """The folder of a run that a database holds, None where there is none: beside the database, or where runs are."""
    name = f"{run.name}-{run.rank}" if run.rank else run.name
    for path in (database.parent, base / name):
        try:
            found = RunDirectory(path)
            info = found.info
        except GlassgateError:
            continue
        if (info.run_id, info.rank) == (run.name, run.rank):
            return found
    return None


def _place_of_database(path: Path) -> Place:
    """The place of a database: with its run's folder if it lies in one."""
    if path.name == DATABASE and (path.parent / "run.json").is_file():
        try:
            found = place_of(RunDirectory(path.parent))
        except RecordError:
            return Place(path)
        return found._replace(database=path)
    return Place(path)


def _newest(base: Path) -> RunDirectory:
    """The first rank of the run begun last: the others keep digests of what it decided."""
    for listed in list_runs(base) if base.exists() else []:
        if listed.info is not None:
            return ranks_of(listed.run)[0]
    raise NotFoundError(
        f"no run is recorded under {base} yet; record one with `glassgate demo` or `glassgate replay`, or name a "
        "database"
    )
