"""What really happened in a span, by the record."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from controller.vocabulary import HostHit
from store.database import reading
from ui.whatif.played import Life, Passed, Played

if TYPE_CHECKING:
    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span

_LOADED: Final = int(HostHit.LOADED)
_MEMBERS: Final = f"""SELECT p.number, p.start_ns, p.closed_gate, p.peak_bytes, d.request, d.extend_tokens,
    d.done_tokens + d.device_hit_tokens, CASE d.host_hit WHEN {_LOADED} THEN d.asked_tokens ELSE 0 END
FROM passes p CROSS JOIN decisions d ON d.run = p.run AND d.pass = p.number
WHERE p.run = ? AND p.start_ns BETWEEN ? AND ? AND p.members > 0 AND d.outcome <= 1
ORDER BY p.number, d.position"""  # noqa: S608 - our own constant
_REFUSED: Final = (
    """SELECT count(*) FROM requests WHERE run = ? AND arrival_ns BETWEEN ? AND ? AND ended = 'can_never'"""
)
_RETRACTIONS: Final = "SELECT count(*) FROM retractions WHERE run = ? AND at_ns BETWEEN ? AND ?"


def read_happened(recorded: Recorded, span: Span) -> Played:
    """The passes and requests of a span as they were. Raises RecordError and StorageError."""
    since_ns, until_ns = span.since_ns, span.until_ns
    key = recorded.id, since_ns, until_ns
    with reading(recorded.database) as connection:
        rows = connection.execute(_MEMBERS, key).fetchall()
        refused = connection.execute(_REFUSED, key).fetchone()[0]
        retractions = connection.execute(_RETRACTIONS, key).fetchone()[0]
    passes = []
    for _, group in groupby(rows, key=lambda row: row[0]):
        members = list(group)
        number, start_ns, closed, peak, *_ = members[0]
        loaded = sum(row[7] for row in members)
        passes.append(
            Passed(
                start_ns,
                tuple([row[4] for row in members]),
                sum(row[5] for row in members),
                sum(row[6] for row in members) + loaded,
                loaded,
                -1 if closed is None else closed,
                -1 if peak is None else peak,
                number,
            )
        )
    lives = {
        each.number: Life(
            each.arrival_ns,
            each.admit_ns,
            each.first_token_ns,
            each.end_ns if each.ended == "finish" else None,
            each.prompt_tokens,
            each.generated_tokens or 0,
        )
        for each in span.requests
        if since_ns <= each.arrival_ns <= until_ns
    }
    return Played(tuple(passes), lives, refused, retractions, 0.0)
