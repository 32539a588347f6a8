"""The knobs of a run as they stand: from its database, and from what of its journal is not in there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from controller.journal import DATA, Cursor, JournalReader
from controller.knobs import KNOB_SPECS, stored_value
from controller.records import KnobChange, KnobsInForce, decode
from estimator.errors import RecordError
from store.database import reading
from store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controller.records import AnyRecord

KNOBS_SQL: Final = """SELECT knob, unit, set_to, effective, state, why, revision FROM knobs
WHERE run = :run AND revision = (SELECT max(revision) FROM knobs WHERE run = :run)"""
CHANGED_SQL: Final = """SELECT knob, at_ns, who FROM knob_changes WHERE id IN (
    SELECT max(id) FROM knob_changes WHERE run = ? AND accepted AND knob IS NOT NULL GROUP BY knob)"""
_CURSOR_SQL: Final = "SELECT segment, byte_offset, seq FROM cursors WHERE run = ?"


class KnobState(NamedTuple):
    """One knob as it stands. Switches are booleans; `changed_wall_ns` is Unix ns, None if it never changed."""

    name: str
    unit: str
    set_to: int | bool | None
    effective: int | bool | None
    state: str
    why: str
    changed_wall_ns: int | None
    changed_by: str | None


class KnobsOfRun(NamedTuple):
    """The knobs of one run in their order. `revision` is None where the record does not hold them."""

    revision: int | None
    knobs: tuple[KnobState, ...]


def knobs_of(database: Path, run: str | None, journal: Path | None = None) -> KnobsOfRun:
    """The knobs last in force in a run. Raises as opening a database and `find_run` do.

    With `journal` what it holds beyond the database counts too, so that a change just made is seen.
    """
    with reading(database) as connection:
        found = find_run(connection, run)
        rows = connection.execute(KNOBS_SQL, {"run": found.id}).fetchall()
        changed = {knob: (at_ns, who) for knob, at_ns, who in connection.execute(CHANGED_SQL, (found.id,))}
        place = connection.execute(_CURSOR_SQL, (found.id,)).fetchone()
    revision = rows[0][6] if rows else None
    in_force = {row[0]: row[1:6] for row in rows}
    for record in _beyond(journal, Cursor(*place) if place else None):
        if isinstance(record, KnobsInForce):
            revision = record.revision
            in_force = {row[0]: row[1:] for row in record.knobs}
        elif isinstance(record, KnobChange) and record.accepted:
            changed |= {name: (record.at_ns, record.who) for name, _, _ in record.changes}
    wall_ns = None if found.wall_ns is None else found.wall_ns - (found.start_ns or 0)
    return KnobsOfRun(revision, tuple(_states(in_force, changed, wall_ns)))


def _states(
    in_force: dict[str, tuple[str, int | None, int | None, str, str]],
    changed: dict[str, tuple[int, str]],
    wall_ns: int | None,
) -> Iterator[KnobState]:
    for spec in KNOB_SPECS:
        if spec.name not in in_force:
            continue
        unit, set_to, effective, state, why = in_force[spec.name]
        at_ns, who = changed.get(spec.name, (None, None))
        at_wall = None if at_ns is None or wall_ns is None else wall_ns + at_ns
        values = stored_value(spec.name, set_to), stored_value(spec.name, effective)
        yield KnobState(spec.name, unit, *values, state, why, at_wall, who)


def _beyond(journal: Path | None, place: Cursor | None) -> Iterator[AnyRecord]:
    """The records of a journal from a place on; what of it cannot be read is passed over."""
    if journal is None:
        return
    try:
        with JournalReader(journal, start=place) as reader:
            for frame in reader:
                if frame.kind == DATA:
                    yield from decode(frame.payload)
    except (RecordError, msgspec.DecodeError):
        return
