"""The waiting room: who waits at a moment, found from the newest arrival back to as many as the pass counted."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.vocabulary import Outcome
from ui.view.arrivals import newest_by
from ui.view.looks import Told, read_told
from ui.view.passes import read_pass
from ui.view.snapshot import MOST_ROWS, WaitingRoom, WaitingRow
from ui.view.words import named, stop_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.head import Standing
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.snapshot import Ask

_WAITS: Final = "arrival_ns <= :at AND (admit_ns IS NULL OR admit_ns > :at) AND (end_ns IS NULL OR end_ns > :at)"
WALK_SQL: Final = f"""SELECT min(number), count(*) FROM (
    SELECT number FROM requests WHERE run = :run AND number BETWEEN :floor AND :newest AND {_WAITS}
    ORDER BY number DESC LIMIT :wanted)"""  # noqa: S608 - our own text
FIRST_SQL: Final = f"""SELECT number FROM requests WHERE run = :run AND number BETWEEN :floor AND :newest AND {_WAITS}
ORDER BY number LIMIT 1"""  # noqa: S608 - our own text
ROWS_SQL: Final = f"""SELECT number, id, arrival_ns, prompt_tokens, first_pass FROM requests
WHERE run = :run AND number BETWEEN :low AND :newest AND {_WAITS}
UNION ALL
SELECT q.number, q.id, q.arrival_ns, q.prompt_tokens, q.first_pass
FROM json_each(:others) j CROSS JOIN requests q ON q.run = :run AND q.number = j.value
ORDER BY 1 LIMIT :limit OFFSET :offset"""  # noqa: S608 - our own text
# Those who gave their KV back and have not entered again; the last of them alone.
BACK_SQL: Final = f"""SELECT t.request, max(t.at_ns) FROM (
    SELECT request, at_ns FROM retractions WHERE run = :run AND at_ns <= :at ORDER BY at_ns DESC LIMIT 300
) t JOIN requests q ON q.run = :run AND q.number = t.request
WHERE (q.end_ns IS NULL OR q.end_ns > :at) AND NOT EXISTS (
    SELECT 1 FROM decisions d INDEXED BY decisions_request CROSS JOIN passes p ON p.run = d.run AND p.number = d.pass
    WHERE d.run = :run AND d.request = t.request AND d.outcome <= {int(Outcome.ADMIT_CHUNK)}
        AND p.start_ns >= t.at_ns AND p.start_ns <= :at)
GROUP BY 1"""  # noqa: S608 - our own text
TOLD_SQL: Final = f"""SELECT request FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = :run AND d.pass = :pass AND d.outcome = {int(Outcome.WAIT)} AND {_WAITS}"""  # noqa: S608 - the same
NEVER_SQL: Final = f"""SELECT d.request, q.id, q.arrival_ns, p.start_ns, q.end_ns, d.gate, d.reason, d.observed,
    d.limit_value, d.short_by, d.prompt_tokens
FROM decisions d INDEXED BY decisions_refused JOIN passes p ON p.run = d.run AND p.number = d.pass
LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = :run AND d.outcome = {int(Outcome.REFUSE)} AND d.pass <= :pass AND p.start_ns >= :from
ORDER BY d.pass DESC LIMIT :limit"""  # noqa: S608 - our own constant
OVERTOOK_SQL: Final = """SELECT number FROM requests
WHERE run = :run AND number > :low AND number <= :newest AND admit_ns <= :at ORDER BY number DESC LIMIT :limit"""
ENTERED_SQL: Final = f"""SELECT d.request
FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request AND q.admit_pass = d.pass
WHERE d.run = :run AND d.pass > :after AND d.pass <= :pass AND d.done_tokens = 0
    AND d.outcome <= {int(Outcome.ADMIT_CHUNK)}"""  # noqa: S608 - our own constant

_LARGEST: Final = (1 << 63) - 1
"""What SQLite's integers hold; a damaged record may number a request so."""
_WALKED: Final = 200_000
"""Arrivals that are looked at, at most, to find those who wait."""
_FURTHER: Final = 2_000
"""Arrivals that are looked at beyond as many as were counted, for those who were left out of the count."""
_FILTERED: Final = 5_000
"""Requests that a filter looks at, at most."""
_OVERTAKERS: Final = 100_000
_NEVER_SHOWN: Final = 50


class Room(NamedTuple):
    """Who waits: those in a range of numbers whose rows say so, and others."""

    number: int
    """The pass by which this was found."""
    at_ns: int
    low: int
    newest: int
    others: dict[int, int | None]
    """By number, since when they wait again, None for since they arrived."""
    unnamed: int


class Overtaken(NamedTuple):
    """How many had overtaken a request by a pass."""

    number: int
    by: int


def read_waiting(moment: Moment, ask: Ask, standing: Standing | None, memory: Memory) -> WaitingRoom:
    """The waiting room at a moment. Raises sqlite3.Error."""
    room = _room(moment, standing.queue if standing is not None else _WALKED, memory)
    never = _never(moment)
    wanted = max(1, min(ask.rows, MOST_ROWS))
    text = ask.waiting_filter.strip()
    offset = max(0, ask.waiting_offset)
    fit = None
    if text.strip("! "):
        waiting = _rows(moment, room, memory, _FILTERED, 0)
        rows = [row for row in (*never, *waiting) if _fits(row, text)]
        fit = sum(not row.never for row in rows)
        rows = rows[offset : offset + wanted]
    else:
        shown = [] if offset else list(never[:_NEVER_SHOWN])
        waiting = _rows(moment, room, memory, min(wanted, MOST_ROWS - len(shown)), offset)
        rows = shown + waiting
    if standing is None:  # no pass has counted them
        return WaitingRoom(tuple(rows), len(waiting), offset, len(never), 0, fit)
    return WaitingRoom(tuple(rows), standing.queue, offset, len(never), room.unnamed, fit)


def _room(moment: Moment, queue: int, memory: Memory) -> Room:
    """Who waits, found anew, or from what was found for an earlier moment."""
    execute = moment.connection.execute
    newest = newest_by(moment, moment.at_ns)
    values: dict[str, Any] = {"run": moment.run.id, "at": moment.at_ns, "newest": newest, "pass": moment.number}
    back: dict[int, int | None] = dict(execute(BACK_SQL, values))
    known = memory.room
    if known is not None and known.at_ns <= moment.at_ns and newest - known.low <= _WALKED:
        unnamed = known.unnamed
        row = execute(FIRST_SQL, {**values, "floor": known.low}).fetchone()
        low = row[0] if row is not None else min(newest + 1, _LARGEST)
    else:
        wanted = max(0, queue - len(back))
        found, count = execute(WALK_SQL, {**values, "floor": newest - _WALKED, "wanted": wanted}).fetchone()
        low = min(newest + 1, _LARGEST) if found is None else found
        row = execute(FIRST_SQL, {**values, "floor": low - _FURTHER, "newest": low - 1}).fetchone()
        low = row[0] if row is not None else low
        unnamed = max(0, wanted - count)
    for (number,) in execute(TOLD_SQL, values):
        if number < low:
            back.setdefault(number, None)
    memory.room = Room(moment.number, moment.at_ns, low, newest, back, unnamed)
    return memory.room


def _rows(moment: Moment, room: Room, memory: Memory, limit: int, offset: int) -> list[WaitingRow]:
    """Those who wait, the oldest first."""
    values = {
        "run": moment.run.id, "at": moment.at_ns, "low": room.low, "newest": room.newest, "limit": limit,
        "offset": offset, "others": json.dumps(list(room.others)),
    }  # fmt: skip
    found = moment.connection.execute(ROWS_SQL, values).fetchall()
    overtaken = _overtaken(moment, room, [row[0] for row in found], memory)
    last = read_pass(moment, moment.number, memory) if found and moment.number else None
    began_ns = 0 if last is None else last.start_ns
    rows = []
    for number, identity, arrival_ns, prompt, first_pass in found:
        name = named(identity, number)
        told: Told | None = None
        if first_pass is not None and first_pass <= moment.number:
            told = read_told(moment, number, name, memory)
        since_ns = room.others.get(number) or arrival_ns
        looked_at = told is not None and told.passed == moment.number
        tokens = told is not None and told.stop is not None and told.stop.unit == "tokens"
        closed = None if last is None or looked_at else last.closed
        spent = closed is not None and closed.request is None and (arrival_ns or 0) <= began_ns
        rows.append(
            WaitingRow(
                name, number, arrival_ns, None if since_ns is None else max(0, moment.at_ns - since_ns),
                told.stop if told else None, told.since_ns if told else None,
                None if closed is None or closed.request == name else closed.request,
                told.attempts if told else 0, overtaken[number],
                told.needs if told is not None and tokens else None, prompt, never=False,
                behind_gate=closed.gate if closed is not None and spent else None,
            )
        )  # fmt: skip
    return rows


def _overtaken(moment: Moment, room: Room, numbers: list[int], memory: Memory) -> dict[int, int]:
    """How many overtook each of these, counted on from what is remembered."""
    counts: dict[int, int] = {}
    fresh: list[int] = []
    entered: dict[int, list[int]] = {}
    execute = moment.connection.execute
    for number in numbers:
        known = memory.overtaken.get(number)
        if known is None or known.number > moment.number:
            fresh.append(number)
            continue
        if known.number not in entered:
            values = {"run": moment.run.id, "after": known.number, "pass": moment.number}
            rows = execute(ENTERED_SQL, values) if known.number < moment.number else ()
            entered[known.number] = sorted(row[0] for row in rows)
        since = entered[known.number]
        counts[number] = known.by + len(since) - bisect_right(since, number)
    if fresh:
        values = {
            "run": moment.run.id, "low": min(fresh), "newest": room.newest, "at": moment.at_ns, "limit": _OVERTAKERS,
        }  # fmt: skip
        overtook = sorted(row[0] for row in execute(OVERTOOK_SQL, values))
        counts.update((number, len(overtook) - bisect_right(overtook, number)) for number in fresh)
    for number, count in counts.items():
        memory.overtaken.put(number, Overtaken(moment.number, count))
    return counts


def _never(moment: Moment) -> Sequence[WaitingRow]:
    """Those of the window that can never fit, the latest first."""
    values = {"run": moment.run.id, "pass": moment.number, "from": moment.from_ns, "limit": MOST_ROWS}
    rows = []
    for number, identity, arrival_ns, start_ns, end_ns, gate, reason, *numbers, prompt in moment.connection.execute(
        NEVER_SQL, values
    ):
        name = named(identity, number)
        stop = stop_of(gate, reason, (numbers[0], numbers[1], numbers[2]), name) if gate is not None else None
        until_ns = start_ns if end_ns is None else min(start_ns, end_ns)
        waited_ns = None if arrival_ns is None else max(0, until_ns - arrival_ns)
        rows.append(
            WaitingRow(name, number, arrival_ns, waited_ns, stop, start_ns, None, 1, 0, numbers[0], prompt, never=True)
        )
    return rows


def _fits(row: WaitingRow, text: str) -> bool:
    """Whether a filter lets a row through."""
    inverse, wanted = text.startswith("!"), text.lstrip("! ").lower()
    words = [row.request, "can_never" if row.never else ""]
    if row.stop is not None:
        words += [row.stop.gate, row.stop.reason]
    return any(wanted in word.lower() for word in words) is not inverse
