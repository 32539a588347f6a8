"""Two runs beside each other: their batches aligned in time, where they part, and one row opened.

A what-if that was kept has a clock of its own, which begins where the replay did. The clocks are brought together by
the requests that both runs have; without any, the runs are laid side by side from their starts.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from estimator.errors import NotFoundError
from store.database import failures
from ui.view.alignment import Batch, Row, rows_of
from ui.view.clock import SystemClock
from ui.view.detail import read_detail
from ui.view.moment import moment_of, read_runs
from ui.view.opened import Opened
from ui.view.words import GATES, OUTCOMES, REASONS, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ui.view.batches import PassDetail
    from ui.view.clock import Clock
    from ui.view.moment import Moment, RunRow
    from ui.view.source import Source

CHUNK: Final = 2_000
"""Passes that are read at once; between two chunks it is told how far the reading is."""
REQUESTS_SQL: Final = "SELECT id, arrival_ns FROM requests WHERE run = ? AND id IS NOT NULL AND arrival_ns IS NOT NULL"
COUNT_SQL: Final = "SELECT count(*) FROM passes WHERE run = ? AND start_ns BETWEEN ? AND ? AND members > 0"
PASSES_SQL: Final = """SELECT number, start_ns, device_hit_tokens, host_loaded_tokens, extend_tokens, closed_gate,
    closed_reason
FROM passes WHERE run = ? AND number > ? AND start_ns BETWEEN ? AND ? AND members > 0 ORDER BY number LIMIT ?"""
DECISIONS_SQL: Final = """SELECT d.pass, d.request, q.id, d.outcome, d.gate, d.reason
FROM json_each(:numbers) j CROSS JOIN decisions d ON d.run = :run AND d.pass = j.value
LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
ORDER BY d.pass, d.position"""
_ADMITTED: Final = 1
"""Outcomes up to this one let a request in."""


class Side(msgspec.Struct, frozen=True):
    """One of the two runs."""

    run: str
    rank: int
    engine: str
    workload: str
    """What it served, as its folder says it; empty where there is none."""
    batches: int
    """In the span that is compared."""


class Beside(msgspec.Struct, frozen=True):
    """Both runs. Times are ns of the left run's clock."""

    left: Side
    right: Side
    rows: tuple[Row, ...] = ()
    parting: tuple[int, ...] = ()
    """Places of the rows that part."""
    knobs: tuple[tuple[str, int | bool | None, int | bool | None, str], ...] = ()
    """(name, left, right, unit) of the knobs that differ at the end of the span."""
    from_ns: int = 0
    until_ns: int = 0
    """The span that is compared: where both have a record, up to a request that one of them alone was asked."""
    wall_ns: int | None = None
    """Unix time of 0 on the clock; None where that is not known."""
    start_ns: int = 0
    """When the left run began."""
    shared: int = 0
    """Requests that both have."""
    fraction: float = 1.0
    """How much of both is read."""
    problem: str = ""


class Opening(msgspec.Struct, frozen=True):
    """The row at a place, opened: both passes with every decision."""

    place: int
    left: PassDetail | None
    right: PassDetail | None


class _Read(NamedTuple):
    """One run that is open."""

    opened: Opened
    run: RunRow
    moment: Moment
    requests: dict[str, int]
    """Arrivals by id, on the run's own clock."""


class BesideView:
    """Reads two runs, for one thread."""

    def __init__(self, left: Source, right: Source, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sources = left, right
        self._opened: list[Opened] = []
        self._sides: list[_Read] = []

    def read(self, tell: Callable[[float], None] | None = None) -> Beside:
        """Both runs aligned, read anew. Raises RecordError, StorageError and NotFoundError."""
        self.close()
        self._sides = [self._side(source) for source in self._sources]
        left, right = self._sides
        shift_ns, shared = _shift(left, right)
        from_ns, until_ns = _span(left, right, shift_ns)
        shifts = 0, shift_ns
        counts = [_count(each, from_ns - by, until_ns - by) for each, by in zip(self._sides, shifts, strict=True)]
        done = 0
        batches: list[list[Batch]] = []
        for each, by in zip(self._sides, shifts, strict=True):
            found: list[Batch] = []
            for chunk in _batches(each, from_ns - by, until_ns - by, by):
                found += chunk
                done += len(chunk)
                if tell is not None:
                    tell(done / max(1, sum(counts)))
            batches.append(found)
        rows = rows_of(batches[0], batches[1])
        wall = left.run.wall_of(0)
        return Beside(
            left=_told(left, len(batches[0])),
            right=_told(right, len(batches[1])),
            rows=rows,
            parting=tuple(place for place, row in enumerate(rows) if row.parts),
            knobs=_knobs(left, right, until_ns, until_ns - shift_ns),
            from_ns=from_ns,
            until_ns=until_ns,
            wall_ns=wall,
            start_ns=left.run.start_ns or 0,
            shared=shared,
        )

    def open(self, beside: Beside, place: int) -> Opening:
        """A row opened. Raises RecordError and StorageError."""
        row = beside.rows[place]
        found: list[PassDetail | None] = []
        for each, batch in zip(self._sides, (row.left, row.right), strict=True):
            if batch is None:
                found.append(None)
                continue
            with failures(each.opened.place.database):
                found.append(read_detail(each.moment, batch.number, each.opened.memory(each.run)))
        return Opening(place, found[0], found[1])

    @property
    def changed(self) -> bool:
        """Whether either database was written to since it was read. Raises StorageError."""
        for each in self._sides:
            with failures(each.opened.place.database):
                if each.opened.changed:
                    return True
        return False

    def close(self) -> None:
        """Close both databases."""
        for each in self._opened:
            each.close()
        self._opened, self._sides = [], []

    def _side(self, source: Source) -> _Read:
        place = source.place
        opened = Opened(place, source.base, self._clock)
        self._opened.append(opened)
        with failures(place.database):
            opened.look()
            rows = read_runs(opened.connection)
            fitting = [row for row in rows if place.run is None or (row.name, row.rank) == (place.run, place.rank)]
            if not fitting:
                raise NotFoundError(
                    f"nothing of run {place.run} is in {place.database} yet; `glassgate collect {place.run}` takes its "
                    "journal in"
                )
            run = fitting[0]
            moment = moment_of(opened.connection, run, None)
            requests = dict(opened.connection.execute(REQUESTS_SQL, (run.id,)).fetchall())
        return _Read(opened, run, moment, requests)


def both_names(left: Source, right: Source) -> tuple[Side, Side]:
    """What is known of both before either was read."""
    sides = [
        Side(each.place.run or each.place.database.name, each.place.rank or 0, "", "", 0) for each in (left, right)
    ]
    return sides[0], sides[1]


def _told(side: _Read, batches: int) -> Side:
    folder = side.opened.pulse(side.run).folder
    workload = folder.info.context.get("workload", "") if folder is not None else ""
    return Side(side.run.name, side.run.rank, side.run.engine or "", str(workload), batches)


def _shift(left: _Read, right: _Read) -> tuple[int, int]:
    """What the right clock is to be put forward by, and how many requests both have."""
    shared = left.requests.keys() & right.requests.keys()
    if not shared:
        return (left.run.start_ns or 0) - (right.run.start_ns or 0), 0
    shifts = Counter(left.requests[each] - right.requests[each] for each in shared)
    return max(shifts, key=lambda by: (shifts[by], -by)), len(shared)


def _span(left: _Read, right: _Read, shift_ns: int) -> tuple[int, int]:
    """Where both can be compared, on the left clock."""
    sides = (left, 0), (right, shift_ns)
    from_ns = max((side.run.start_ns or 0) + by for side, by in sides)
    until_ns = min(side.run.last_ns + by for side, by in sides)
    shared = left.requests.keys() & right.requests.keys()
    last_ns = max((left.requests[each] for each in shared), default=until_ns)
    alone = [
        at_ns + by for side, by in sides for each, at_ns in side.requests.items()
        if each not in shared and at_ns + by > last_ns
    ]  # fmt: skip
    return from_ns, min([until_ns, *(at_ns - 1 for at_ns in alone)])


def _count(side: _Read, from_ns: int, until_ns: int) -> int:
    with failures(side.opened.place.database):
        row = side.opened.connection.execute(COUNT_SQL, (side.run.id, from_ns, until_ns)).fetchone()
    return int(row[0])


def _batches(side: _Read, from_ns: int, until_ns: int, shift_ns: int) -> Iterator[list[Batch]]:
    """The batches of a stretch of a run's own clock, some at a time, on the left clock."""
    execute, run, last = side.opened.connection.execute, side.run.id, -1
    database: Path = side.opened.place.database
    while True:
        with failures(database):
            passes = execute(PASSES_SQL, (run, last, from_ns, until_ns, CHUNK)).fetchall()
            if not passes:
                return
            last = passes[-1][0]
            numbers = json.dumps([row[0] for row in passes])
            decisions = execute(DECISIONS_SQL, {"run": run, "numbers": numbers}).fetchall()
        members: dict[int, list[str]] = {}
        told: dict[int, list[tuple[str, str, str, str]]] = {}
        for number, request, identity, outcome, gate, reason in decisions:
            name = named(identity, request)
            if outcome <= _ADMITTED:
                members.setdefault(number, []).append(name)
            else:
                told.setdefault(number, []).append((name, OUTCOMES[outcome], *_words(gate, reason)))
        yield [
            Batch(
                number, start_ns + shift_ns, tuple(members.get(number, ())), device, loaded, computed,
                *_words(gate, reason), tuple(told.get(number, ())),
            )
            for number, start_ns, device, loaded, computed, gate, reason in passes
        ]  # fmt: skip


def _words(gate: int | None, reason: int | None) -> tuple[str, str]:
    return "" if gate is None else GATES[gate], "" if reason is None else REASONS[reason]


def _knobs(left: _Read, right: _Read, left_ns: int, right_ns: int) -> tuple[tuple[str, Any, Any, str], ...]:
    """The knobs that differ between the two at the end of what is compared."""
    held = []
    for side, at_ns in ((left, left_ns), (right, right_ns)):
        with failures(side.opened.place.database):
            moment = moment_of(side.opened.connection, side.run, at_ns)
            held.append(side.opened.memory(side.run).limits(moment, moment.revision).knobs)
    one, other = held
    return tuple(
        (name, one[name].set_to, other[name].set_to, one[name].unit)
        for name in one
        if name in other and one[name].set_to != other[name].set_to
    )
