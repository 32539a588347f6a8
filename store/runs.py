"""The runs a database holds, and how one is named."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from estimator.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    import sqlite3

_SHOWN = 8


class StoredRun(NamedTuple):
    """One rank of a run as the database has it. Times are nanoseconds of the run's clock."""

    id: int
    """The number other tables know it by."""
    name: str
    rank: int
    start_ns: int | None
    wall_ns: int | None
    """Unix time of `start_ns`."""
    simulated: int | None
    last_ns: int
    """The latest time any record of it carries."""
    end_ns: int | None
    largest_prompt_tokens: int | None

    def utc(self, at_ns: int) -> str | None:
        """A moment of its clock as UTC time; None where time is simulated, or the record does not say when it began."""
        if self.simulated or self.wall_ns is None or self.start_ns is None:
            return None
        moment = dt.datetime.fromtimestamp((self.wall_ns + at_ns - self.start_ns) / 1e9, tz=dt.UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stored_runs(connection: sqlite3.Connection) -> list[StoredRun]:
    """Every rank of every run, the latest begun first, ranks of one run in order."""
    columns = ", ".join(StoredRun._fields)
    found = connection.execute(
        f"SELECT {columns} FROM runs ORDER BY coalesce(wall_ns, 0) DESC, id DESC"  # noqa: S608 - our own columns
    )
    runs = [StoredRun(*row) for row in found]
    first: dict[str, int] = {}
    for place, run in enumerate(runs):
        first.setdefault(run.name, place)
    return sorted(runs, key=lambda run: (first[run.name], run.rank))


def find_run(connection: sqlite3.Connection, name: str | None = None) -> StoredRun:
    """The lowest rank of the run with that id, or unique beginning of one; without a name the run begun last.

    Raises NotFoundError if there is none, UsageError if a beginning fits several.
    """
    runs = stored_runs(connection)
    if not runs:
        raise NotFoundError("the database holds no run yet; record one into it")
    if name is None:
        return runs[0]
    fitting = [run for run in runs if run.name == name] or [run for run in runs if name and run.name.startswith(name)]
    names = list(dict.fromkeys(run.name for run in fitting))
    if not names:
        known = list(dict.fromkeys(run.name for run in runs))
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        raise NotFoundError(f"no run {name!r} in the database; it holds {', '.join(known[:_SHOWN])}{more}")
    if len(names) > 1:
        raise UsageError(f"run {name!r} fits {len(names)} runs ({', '.join(names[:_SHOWN])}); write more of its id")
    return fitting[0]
