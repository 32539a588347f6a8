"""The moment a snapshot is of: one run at one time of its clock, and the five minutes before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import sqlite3

BUCKET_NS: Final = 3_000_000_000
"""The window is looked at in stretches so long, ns of the run's clock; they begin at multiples of it."""
BUCKETS: Final = 100
"""Stretches of the window, five minutes in all; the last one is that of the moment."""
_EARLIEST_NS: Final = -(1 << 62)
"""The first moment that is looked at; SQLite holds a window before it too."""

NEWEST_SQL: Final = "SELECT number, start_ns FROM passes WHERE run = ? ORDER BY number DESC LIMIT 1"
BEGUN_SQL: Final = (
    "SELECT number, start_ns FROM passes WHERE run = ? AND start_ns <= ? ORDER BY start_ns DESC, number DESC LIMIT 1"
)
OLDEST_SQL: Final = "SELECT number, start_ns FROM passes WHERE run = ? ORDER BY number LIMIT 1"
REVISION_SQL: Final = "SELECT revision FROM knobs WHERE run = ? AND at_ns <= ? ORDER BY revision DESC LIMIT 1"


class RunRow(NamedTuple):
    """One rank of a run as the table `runs` has it. Times are ns of the run's clock, tokens otherwise."""

    id: int
    name: str
    rank: int
    engine: str | None
    version: str | None
    model: str | None
    simulated: int | None
    start_ns: int | None
    wall_ns: int | None
    pool_tokens: int | None
    slots: int | None
    setting: str | None
    context: str | None
    end_ns: int | None
    end_reason: str | None
    passes: int | None
    requests: int | None
    last_ns: int

    def wall_of(self, at_ns: int) -> int | None:
        """A time of the run's clock as Unix ns."""
        if self.wall_ns is None or self.start_ns is None:
            return None
        return self.wall_ns + at_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Moment:
    """One run at one time. Nothing that happened after `at_ns` belongs to it."""

    connection: sqlite3.Connection
    run: RunRow
    at_ns: int
    following: bool
    """It is the record's end: nothing in the record is later."""
    number: int
    """The last pass written whole that had begun; 0 before the first."""
    start_ns: int | None
    """When that pass began."""
    revision: int | None
    """The knob revision in force."""

    @property
    def from_ns(self) -> int:
        """Where the window begins."""
        return (self.at_ns // BUCKET_NS - BUCKETS + 1) * BUCKET_NS


def read_runs(connection: sqlite3.Connection) -> list[RunRow]:
    """Every rank of every run in the database, the latest begun first, ranks of one run in order."""
    sql = f"SELECT {', '.join(RunRow._fields)} FROM runs ORDER BY coalesce(wall_ns, 0) DESC, id DESC"  # noqa: S608
    runs = [RunRow(*row) for row in connection.execute(sql)]
    first: dict[str, int] = {}
    for place, run in enumerate(runs):
        first.setdefault(run.name, place)
    return sorted(runs, key=lambda run: (first[run.name], run.rank))


def moment_of(connection: sqlite3.Connection, run: RunRow, at_ns: int | None, now_ns: int | None = None) -> Moment:
    """The moment at a time of the run's clock; None is the record's end, or `now_ns` if the run's clock is past that.

    A time beyond the end is taken for the end, without going on with it, one before every clock for the first there
    may be. Raises sqlite3.Error.
    """
    following = at_ns is None
    end_ns = max(run.last_ns, now_ns or 0)
    moment_ns = end_ns if at_ns is None else max(min(at_ns, end_ns), _EARLIEST_NS)
    if following:
        row = connection.execute(NEWEST_SQL, (run.id,)).fetchone()
    else:
        row = connection.execute(BEGUN_SQL, (run.id, moment_ns)).fetchone()
    number, start_ns = row or (0, None)
    revision = connection.execute(REVISION_SQL, (run.id, moment_ns)).fetchone()
    return Moment(
        connection, run, moment_ns, following, number, start_ns, None if revision is None else int(revision[0])
    )
