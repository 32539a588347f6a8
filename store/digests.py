"""Digests compared: passes that a rank decided otherwise than the first rank of its group, seen from 16 bytes each.

Each rank's journal comes at its own pace, so digests wait in the database until both sides are known. A pass without
one repeated a refusal; that too is compared. Where one of two records has losses, only passes that both have are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store.alarms import RANKS_DIFFER

if TYPE_CHECKING:
    import sqlite3

_GROUP: Final = """SELECT o.id, o.rank, o.last_ns, m.seen, m.compared, coalesce(json_extract(o.setting, '$.ranks'), 1),
    EXISTS (SELECT 1 FROM losses x WHERE x.run = o.id AND x.frames > 0)
FROM runs r JOIN runs o ON o.name = r.name AND o.rank_group IS r.rank_group JOIN rank_marks m ON m.run = o.id
WHERE r.id = ? ORDER BY o.rank"""

_DIFFER: Final = """INSERT OR IGNORE INTO rank_differences (run, other, pass, digest, other_digest)
SELECT :run, :other, d.pass, d.digest, e.digest FROM digests d
LEFT JOIN digests e ON e.run = :other AND e.pass = d.pass
WHERE d.run = :run AND d.pass BETWEEN :first AND :last AND e.digest IS NOT d.digest AND (:whole OR e.digest IS NOT NULL)
UNION ALL
SELECT :run, :other, e.pass, NULL, e.digest FROM digests e
WHERE :whole AND e.run = :other AND e.pass BETWEEN :first AND :last
    AND NOT EXISTS (SELECT 1 FROM digests d WHERE d.run = :run AND d.pass = e.pass)"""

_FOUND: Final = """SELECT count(*), min(pass), max(pass) FROM rank_differences
WHERE run = :run AND other = :other AND pass BETWEEN :first AND :last"""

_RAISE: Final = """INSERT INTO alarms (run, number, alarm, opened_ns, last_ns, count, measured, threshold, unit,
    first_pass, last_pass, detail)
VALUES (:run, :number, :alarm, :at_ns, :at_ns, :count, :count, :threshold, :unit, :first, :last, :detail)
ON CONFLICT (run, number) DO UPDATE SET last_ns = max(last_ns, excluded.last_ns), count = count + excluded.count,
    measured = measured + excluded.count, last_pass = max(last_pass, excluded.last_pass)"""


class _Rank(NamedTuple):
    run: int
    rank: int
    last_ns: int
    seen: int
    """The last pass it is known to have made."""
    compared: int
    """The last pass compared with the first rank's."""
    ranks: int
    """Ranks of its group."""
    lossy: int


def mark_seen(connection: sqlite3.Connection, run: int, passed: int) -> None:
    """Note how far a rank is known to have come. Raises sqlite3.Error."""
    connection.execute(
        "INSERT INTO rank_marks VALUES (?, ?, 0) ON CONFLICT (run) DO UPDATE SET seen = max(seen, excluded.seen)",
        (run, passed),
    )


def compare(connection: sqlite3.Connection, run: int) -> None:
    """Compare what a rank brought with the first of its group, or the others with it; raise an alarm where they differ.

    The alarm is the first rank's, whoever came later, and is over with the run. Raises sqlite3.Error.
    """
    group = [_Rank(*row) for row in connection.execute(_GROUP, (run,))]
    if len(group) < 2:
        return
    first, *others = group
    for other in others:
        if run in (first.run, other.run):
            _compare(connection, first, other)
    _clear(connection, first)


def _compare(connection: sqlite3.Connection, first: _Rank, other: _Rank) -> None:
    span = {"run": first.run, "other": other.run, "first": other.compared + 1, "last": min(first.seen, other.seen)}
    if span["last"] < span["first"]:
        return
    connection.execute(_DIFFER, {**span, "whole": not (first.lossy or other.lossy)})
    count, least, greatest = connection.execute(_FOUND, span).fetchone()
    if count:
        values = {
            "run": first.run,
            "number": -other.rank,  # the numbers above belong to the alarms that the records of one rank show
            "alarm": RANKS_DIFFER.name,
            "at_ns": max(first.last_ns, other.last_ns),
            "count": count,
            "threshold": RANKS_DIFFER.threshold,
            "unit": RANKS_DIFFER.unit,
            "first": least,
            "last": greatest,
            "detail": f"ranks {first.rank} and {other.rank} decided differently in pass {least}",
        }
        connection.execute(_RAISE, values)
    connection.execute("UPDATE rank_marks SET compared = ? WHERE run = ?", (span["last"], other.run))
    connection.execute("DELETE FROM digests WHERE run = ? AND pass <= ?", (other.run, span["last"]))


def _clear(connection: sqlite3.Connection, first: _Rank) -> None:
    """Drop the first rank's digests that every other rank has been compared with."""
    others = [_Rank(*row).compared for row in connection.execute(_GROUP, (first.run,))][1:]
    if len(others) >= first.ranks - 1:
        connection.execute("DELETE FROM digests WHERE run = ? AND pass <= ?", (first.run, min(others)))
