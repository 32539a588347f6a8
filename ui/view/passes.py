"""Passes: each batch as a bar of its members, with what closed it; filtered, and read page by page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.vocabulary import Gate, HostHit, Outcome
from ui.view.ladder import would_refuse
from ui.view.repeats import repeated_by
from ui.view.snapshot import MOST_ROWS, MemberBar, PassRow, Stop
from ui.view.words import GATES, OUTCOMES, REASONS, named, stop_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ui.view.limits import InForce
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.snapshot import Ask

_COLUMNS: Final = """p.number, p.start_ns, p.decide_ns, p.revision, p.queue, p.not_reached, p.extend_tokens,
    p.device_hit_tokens, p.host_loaded_tokens, p.closed_gate, p.closed_reason, p.peak_bytes, p.room_after, (
        SELECT max(s.end_ns - s.start_ns) FROM steps s WHERE s.run = p.run AND s.pass = p.number AND s.end_ns <= :at
    ), t.count, t.first_ns, t.last_ns"""
ROWS_SQL: Final = f"""SELECT {_COLUMNS}
FROM passes p LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number
WHERE p.run = :run AND p.number < :before ORDER BY p.number DESC LIMIT :limit"""  # noqa: S608 - our own columns
NUMBERED_SQL: Final = f"""SELECT {_COLUMNS}
FROM json_each(:numbers) j CROSS JOIN passes p ON p.run = :run AND p.number = j.value
LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number
ORDER BY p.number DESC"""  # noqa: S608 - our own columns
MEMBERS_SQL: Final = """SELECT d.pass, d.outcome, d.gate, d.reason, d.observed, d.limit_value, d.short_by, d.request,
    q.id, d.device_hit_tokens, d.host_hit, d.asked_tokens, d.extend_tokens, d.done_tokens, q.arrival_ns,
    CASE WHEN d.pass IN (SELECT value FROM json_each(:shadowed)) THEN d.checks END
FROM json_each(:numbers) j CROSS JOIN decisions d ON d.run = :run AND d.pass = j.value
LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
ORDER BY d.pass, d.position"""
CLOSED_SQL: Final = """SELECT number, closed_gate, closed_reason FROM passes
WHERE run = :run AND number < :before ORDER BY number DESC LIMIT :scan"""
IDS_SQL: Final = "SELECT number FROM requests INDEXED BY requests_id WHERE id >= ? AND id < ? AND run = ? LIMIT ?"
OF_REQUEST_SQL: Final = """SELECT DISTINCT pass FROM decisions INDEXED BY decisions_request
WHERE run = ? AND request = ? AND pass < ? ORDER BY pass DESC LIMIT ?"""

_SCANNED: Final = 100_000
"""A filter looks at so many passes at most before it shows what it has."""
_IDS: Final = 50
_ADMITTED: Final = (int(Outcome.ADMIT), int(Outcome.ADMIT_CHUNK))
_TOLD: Final = (int(Outcome.WAIT), int(Outcome.PARK))


class Batch(NamedTuple):
    """What of a pass never changes: its members, and what its candidates were told."""

    members: tuple[MemberBar, ...]
    told: tuple[Stop, ...]
    """What candidates were told to wait for, in order."""
    charged: int
    """Tokens its members compute, in whole pages."""
    shadowed: Stop | None
    """What a gate would have stopped first, had it been enforced."""


class PassList(NamedTuple):
    """A page of passes, the newest first."""

    rows: tuple[PassRow, ...]
    older: bool
    newer: bool


def read_passes(moment: Moment, ask: Ask, memory: Memory) -> PassList:
    """The page of passes that was asked for. Raises sqlite3.Error."""
    wanted = max(1, min(ask.rows, MOST_ROWS))
    paging = ask.passes_before is not None and ask.passes_before <= moment.number
    before = ask.passes_before if paging and ask.passes_before is not None else moment.number + 1
    values = {"run": moment.run.id, "at": moment.at_ns, "before": before, "limit": wanted + 1}
    if ask.pass_filter.strip(" !"):
        numbers, more = _filtered(moment, ask.pass_filter, before, wanted)
        found = moment.connection.execute(NUMBERED_SQL, {**values, "numbers": json.dumps(numbers)}).fetchall()
    else:
        found = moment.connection.execute(ROWS_SQL, values).fetchall()
        more = len(found) > wanted
    return PassList(build_rows(moment, found[:wanted], memory), more, paging)


def read_pass(moment: Moment, number: int, memory: Memory) -> PassRow | None:
    """One pass that began by the moment; None for none. Raises sqlite3.Error."""
    if number > moment.number:
        return None
    values = {"run": moment.run.id, "at": moment.at_ns, "numbers": json.dumps([number])}
    rows = build_rows(moment, moment.connection.execute(NUMBERED_SQL, values).fetchall(), memory)
    return rows[0] if rows else None


def build_rows(moment: Moment, found: Sequence[tuple[int, ...]], memory: Memory) -> tuple[PassRow, ...]:
    """Rows of the columns above as rows of the screen."""
    shadowed = [row[0] for row in found if memory.limits(moment, row[3]).shadow]
    batches = _batches(moment, {row[0]: row[1] for row in found}, shadowed, memory)
    rows = []
    for row in found:
        number, start_ns, decide_ns, revision, queue, not_reached, extend, device, loaded, gate, reason = row[:11]
        peak, room_after, step_ns, count, first_ns, last_ns = row[11:]
        batch = batches[number]
        limits = memory.limits(moment, revision)
        row_of = PassRow(
            number, start_ns, batch.members, device, loaded, extend, _room(limits, batch.charged, room_after),
            _closed(limits, batch, gate, reason), queue, not_reached, revision, decide_ns, step_ns,
            peak if batch.members else None, repeated_by(moment.at_ns, count, first_ns, last_ns), batch.shadowed,
        )  # fmt: skip
        rows.append(row_of)
    return tuple(rows)


def _batches(moment: Moment, starts: dict[int, int], shadowed: list[int], memory: Memory) -> dict[int, Batch]:
    """The batches of passes that began when `starts` says, read where they are not remembered.

    Of those in `shadowed` the checks are read too, for what a gate would have done.
    """
    held = {number: memory.batches.get(number) for number in starts}
    missing = [number for number, batch in held.items() if batch is None]
    found: dict[int, Batch] = {number: batch for number, batch in held.items() if batch is not None}
    if not missing:
        return found
    members: dict[int, list[MemberBar]] = {number: [] for number in missing}
    told: dict[int, list[Stop]] = {number: [] for number in missing}
    would: dict[int, Stop] = {}
    page = memory.limits(moment, moment.revision).page
    values = {"run": moment.run.id, "numbers": json.dumps(sorted(missing)), "shadowed": json.dumps(shadowed)}
    for row in moment.connection.execute(MEMBERS_SQL, values):
        number, outcome, gate, reason, observed, limit, short_by, request, identity = row[:9]
        device, host, asked, extend, done, arrival_ns, checks = row[9:]
        name = named(identity, request)
        if outcome in _ADMITTED:
            loaded = asked if host == HostHit.LOADED else 0
            waited = None if arrival_ns is None or done else max(0, starts[number] - arrival_ns)
            members[number].append(MemberBar(name, device, loaded, extend, done, OUTCOMES[outcome], waited))
        elif outcome in _TOLD and gate is not None:
            told[number].append(stop_of(gate, reason, (observed, limit, short_by), name))
        if checks is not None and number not in would and (stop := would_refuse(checks, name)) is not None:
            would[number] = stop
    for number in missing:
        charged = sum(-(-member.computed // page) * page for member in members[number])
        found[number] = memory.batches.put(
            number, Batch(tuple(members[number]), tuple(told[number]), charged, would.get(number))
        )
    return found


def _room(limits: InForce, charged: int, room_after: int) -> int:
    """Tokens left to the tightest limit: on what a pass computes, of the pool. What is not enforced is no limit."""
    soft = Gate.EXTEND_TOKENS if limits.shadow else None
    left = (limit - charged for gate, limit in limits.compute.items() if gate is not soft)
    return max(0, min([room_after, *left]))


def _closed(limits: InForce, batch: Batch, gate: int | None, reason: int | None) -> Stop | None:
    """What closed a pass: as a candidate was told, or the budget that its members had spent."""
    if gate is None or reason is None:
        return None
    for told in reversed(batch.told):
        if told.gate == GATES[gate]:
            return told
    limit = limits.compute.get(Gate(gate))
    return stop_of(gate, reason, (None if limit is None else batch.charged, limit, None))


def _filtered(moment: Moment, text: str, before: int, wanted: int) -> tuple[list[int], bool]:
    """Numbers of the passes that a filter lets through, newest first, and whether there may be more."""
    inverse, text = text.strip().startswith("!"), text.strip().lstrip("!").strip()
    gates = {number for number, word in enumerate(GATES) if text.lower() in word}
    reasons = {number for number, word in enumerate(REASONS) if text.lower() in word}
    of_request: set[int] = set()
    if not (gates or reasons):
        of_request = set(_passes_of(moment, text, before, MOST_ROWS + 1 if not inverse else _SCANNED))
        if not inverse:
            numbers = sorted(of_request, reverse=True)
            return numbers[:wanted], len(numbers) > wanted
    values = {"run": moment.run.id, "before": before, "scan": _SCANNED}
    numbers = []
    scanned = 0
    for number, gate, reason in moment.connection.execute(CLOSED_SQL, values):
        scanned += 1
        if ((gate in gates or reason in reasons) or number in of_request) is not inverse:
            numbers.append(number)
            if len(numbers) > wanted:
                break
    return numbers[:wanted], len(numbers) > wanted or scanned == _SCANNED


def _passes_of(moment: Moment, text: str, before: int, most: int) -> Iterable[int]:
    """Passes that looked at a request whose id begins with a text."""
    values = (text, text + "\U0010ffff", moment.run.id, _IDS)
    for (request,) in moment.connection.execute(IDS_SQL, values).fetchall():
        for (number,) in moment.connection.execute(OF_REQUEST_SQL, (moment.run.id, request, before, most)):
            yield number
