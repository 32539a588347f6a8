"""Ranks of one run compared: passes of the same number that did not decide the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

# What a pass decided, and what it decided from the queue; tokens free may differ by rank, decisions may not.
ALIKE: Final = """(p.queue, p.not_reached, p.members, p.cut, p.extend_tokens, p.device_hit_tokens,
    p.host_loaded_tokens, p.closed_gate, p.closed_reason, p.revision)
IS (o.queue, o.not_reached, o.members, o.cut, o.extend_tokens, o.device_hit_tokens,
    o.host_loaded_tokens, o.closed_gate, o.closed_reason, o.revision)"""

DECISIONS_ALIKE: Final = """(d.request, d.outcome, d.gate, d.reason, d.extend_tokens, d.device_hit_tokens, d.host_hit)
IS (e.request, e.outcome, e.gate, e.reason, e.extend_tokens, e.device_hit_tokens, e.host_hit)"""

_DIFFERENCES: Final = f"""SELECT count(*), min(p.number), max(p.number)
FROM passes p CROSS JOIN passes o ON o.run = :other AND o.number = p.number
WHERE p.run = :run AND p.number BETWEEN :first AND :last AND NOT ({ALIKE} AND NOT EXISTS (
    SELECT 1 FROM decisions d LEFT JOIN decisions e ON e.run = :other AND e.pass = d.pass AND e.position = d.position
    WHERE d.run = :run AND d.pass = p.number AND NOT {DECISIONS_ALIKE}))"""  # noqa: S608 - our own constants

_OTHERS: Final = """SELECT o.id, o.rank FROM runs r
JOIN runs o ON o.name = r.name AND o.rank_group IS r.rank_group AND o.id != r.id WHERE r.id = ?"""


def differences(connection: sqlite3.Connection, run: int, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """For each other rank of the run: its rank, how many passes from first to last differ, and the outermost two.

    Only passes both have are compared, so that of two ranks the one whose rows come later finds the difference.
    """
    for other, rank in connection.execute(_OTHERS, (run,)).fetchall():
        values = {"run": run, "other": other, "first": first, "last": last}
        passes, least, greatest = connection.execute(_DIFFERENCES, values).fetchone()
        if passes:
            yield rank, passes, least, greatest
