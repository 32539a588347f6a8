"""Knobs as they are in force at a moment, and the changes up to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from controller.knobs import KNOB_SPECS, stored_value
from ui.view.limits import setting_of
from ui.view.snapshot import MOST_ROWS, ChangeRow, KnobPanel, KnobRow

if TYPE_CHECKING:
    from controller.run_directory import RunDirectory
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.snapshot import Presence

CHANGES_SQL: Final = """SELECT at_ns, who, revision, knob, old, new, accepted, why, request FROM knob_changes
WHERE run = ? AND at_ns <= ? ORDER BY id DESC LIMIT ?"""
LAST_CHANGE_SQL: Final = """SELECT at_ns, who FROM knob_changes
WHERE run = ? AND knob = ? AND accepted AND at_ns <= ? ORDER BY id DESC LIMIT 1"""


def read_knobs(moment: Moment, memory: Memory, presence: Presence, folder: RunDirectory | None) -> KnobPanel:
    """The knobs at a moment. Raises sqlite3.Error."""
    execute, run = moment.connection.execute, moment.run.id
    limits = memory.limits(moment, moment.revision)
    rows = []
    for spec in KNOB_SPECS:
        knob = limits.knobs.get(spec.name)
        if knob is None:
            continue
        changed = execute(LAST_CHANGE_SQL, (run, spec.name, moment.at_ns)).fetchone() or (None, None)
        rows.append(
            KnobRow(
                spec.name, spec.unit, spec.kind, spec.gate, spec.bounds, knob.set_to, knob.effective, knob.state,
                knob.why, *changed,
            )
        )  # fmt: skip
    changes = tuple(
        ChangeRow(
            at_ns, who, revision, knob, stored_value(knob, old), stored_value(knob, new), bool(accepted), why, request
        )
        for at_ns, who, revision, knob, old, new, accepted, why, request in execute(
            CHANGES_SQL, (run, moment.at_ns, MOST_ROWS)
        )
    )
    why_not = _why_not(moment, presence, folder)
    return KnobPanel(
        moment.revision, tuple(rows), changes, not why_not, why_not, setting_of(moment.run),
        str(folder.path) if folder is not None else "",
    )  # fmt: skip


def _why_not(moment: Moment, presence: Presence, folder: RunDirectory | None) -> str:
    """Why no change can be asked for; empty when one can."""
    if folder is None:
        return "this database lies apart from its run's folder, in which a request would be left"
    if presence == "ended":
        return "the run has ended; its knobs stay as they were"
    if presence == "engine_gone":
        return "the engine is gone, and nobody would take the request"
    if not moment.following:
        return "this is a past moment; go to the run's end to turn its knobs"
    requests = folder.requests
    if not os.access(requests if requests.is_dir() else folder.path, os.W_OK):
        return f"{requests} cannot be written; only the owner of the run can turn its knobs"
    return ""
