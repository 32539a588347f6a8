"""One request, found by id: its life in the words of `why`, and as stretches of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from controller.vocabulary import Gate
from estimator.errors import NotFoundError
from store.looks import LOOKS_SQL
from store.runs import stored_runs
from store.waits import BEHIND, BETWEEN, HELD, UNATTRIBUTED
from store.why import life_of
from ui.view.snapshot import MOST_ROWS, LifeSpan, RequestLife, RequestPanel

if TYPE_CHECKING:
    from store.life import Life
    from store.waits import Piece
    from ui.view.moment import Moment

MATCHES_SQL: Final = """SELECT DISTINCT id FROM requests INDEXED BY requests_id
WHERE id >= ? AND id < ? AND run = ? ORDER BY id LIMIT ?"""
_MATCHES: Final = 20
_WHAT: Final = {
    HELD: "held", BEHIND: "behind", BETWEEN: "between passes", UNATTRIBUTED: "unattributed",
}  # fmt: skip


def read_request(moment: Moment, text: str) -> RequestPanel:
    """What a search finds: the request of that id, or the only one that begins with it. Raises sqlite3.Error."""
    text = text.strip()
    if not text:
        return RequestPanel(text, None, ())
    values = (text, text + "\U0010ffff", moment.run.id, _MATCHES)
    matches = tuple(row[0] for row in moment.connection.execute(MATCHES_SQL, values))
    if text in matches:
        name = text
    elif len(matches) == 1:
        name = matches[0]
    else:
        problem = "" if matches else f"no request of run {moment.run.name} has an id that begins with {text!r}"
        return RequestPanel(text, None, matches, problem)
    stored = next(run for run in stored_runs(moment.connection) if run.id == moment.run.id)
    try:
        life, waits = life_of(moment.connection, stored, name)
    except NotFoundError as error:
        return RequestPanel(text, None, (), str(error))
    spans = tuple(spans_of(life, waits))
    passes = [row[0] for row in moment.connection.execute(LOOKS_SQL, (stored.id, life.number)).fetchmany(MOST_ROWS)]
    raw = msgspec.json.format(msgspec.json.encode(life.as_dict()), indent=2).decode()
    last_ns = max((span.to_ns or span.from_ns for span in spans), default=moment.at_ns)
    found = RequestLife(name, tuple(life.words()), longest(spans), tuple(passes), raw)
    return RequestPanel(text, found, (), later=last_ns > moment.at_ns)


def spans_of(life: Life, waits: tuple[tuple[Piece, ...], ...]) -> list[LifeSpan]:
    """A life as stretches in order of time: what each wait was spent on, computing, and decoding."""
    spans = [
        LifeSpan(piece.from_ns, piece.to_ns, _WHAT[piece.key[0]], _gate(piece)) for pieces in waits for piece in pieces
    ]
    over = life.end_ns is not None
    end_ns = life.end_ns if life.end_ns is not None else life.record_end_ns
    for entry in life.entries:
        until_ns = min((at_ns for at_ns, _, _ in life.retractions if at_ns >= entry.at_ns), default=None)
        left_ns = until_ns if until_ns is not None else end_ns
        open_end = until_ns is None and not over
        token_ns = life.first_token_ns
        if token_ns is not None and entry.at_ns <= token_ns <= left_ns:
            spans.append(LifeSpan(entry.at_ns, token_ns, "computing", None))
            spans.append(LifeSpan(token_ns, None if open_end else left_ns, "decoding", None))
        else:
            what = "computing" if token_ns is None or token_ns > left_ns else "computing and decoding"
            spans.append(LifeSpan(entry.at_ns, None if open_end else left_ns, what, None))
    return sorted(spans, key=lambda span: span.from_ns)


def longest(spans: tuple[LifeSpan, ...]) -> tuple[LifeSpan, ...]:
    """At most MOST_ROWS spans, the longest, in order of time."""
    if len(spans) <= MOST_ROWS:
        return spans
    kept = sorted(spans, key=lambda span: -((span.to_ns or span.from_ns) - span.from_ns))[:MOST_ROWS]
    return tuple(sorted(kept, key=lambda span: span.from_ns))


def _gate(piece: Piece) -> str | None:
    stop = piece.key[1]
    return None if stop is None else Gate(stop[0]).word
