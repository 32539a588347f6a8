"""Arrivals by a moment. Requests are numbered as they arrive, so that a time is found by halving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ui.view.moment import Moment

NEWEST_SQL: Final = "SELECT max(number) FROM requests WHERE run = ?"
OLDEST_SQL: Final = "SELECT min(number) FROM requests WHERE run = ?"
ARRIVED_SQL: Final = """SELECT number, arrival_ns FROM requests
WHERE run = ? AND number BETWEEN ? AND ? AND arrival_ns IS NOT NULL ORDER BY number DESC LIMIT 1"""
JOINED_SQL: Final = """SELECT count(*) FROM requests
WHERE run = :run AND number > :after AND number <= :newest AND arrival_ns > :since
    AND (end_ns IS NULL OR end_ns > :at)"""
GIVEN_BACK_SQL: Final = "SELECT count(*) FROM retractions WHERE run = ? AND at_ns > ? AND at_ns <= ?"


def newest_by(moment: Moment, at_ns: int) -> int:
    """The number of the last request that had arrived by a time; -1 before the first. Raises sqlite3.Error."""
    execute, run = moment.connection.execute, moment.run.id
    high = execute(NEWEST_SQL, (run,)).fetchone()[0]
    if high is None or (moment.following and at_ns >= moment.at_ns):
        return -1 if high is None else int(high)
    low = int(execute(OLDEST_SQL, (run,)).fetchone()[0])
    newest = -1
    while low <= high:
        middle = (low + high) // 2
        row = execute(ARRIVED_SQL, (run, low, middle)).fetchone()
        if row is None or row[1] <= at_ns:
            newest, low = (newest if row is None else row[0]), middle + 1
        else:
            high = row[0] - 1
    return newest


def joined_since(moment: Moment, since_ns: int) -> int:
    """Requests that joined the queue after a time and had not left by the moment. Raises sqlite3.Error."""
    execute, run = moment.connection.execute, moment.run.id
    newest = newest_by(moment, moment.at_ns)
    values = {
        "run": run, "after": newest_by(moment, since_ns), "newest": newest, "since": since_ns, "at": moment.at_ns,
    }  # fmt: skip
    joined = int(execute(JOINED_SQL, values).fetchone()[0])
    return joined + int(execute(GIVEN_BACK_SQL, (run, since_ns, moment.at_ns)).fetchone()[0])
