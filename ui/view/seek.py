"""Seeking: the nearest pass, stop, knob change or alarm before or after a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ui.view.words import GATES

if TYPE_CHECKING:
    import sqlite3

    from ui.view.moment import RunRow
    from ui.view.snapshot import Ask

# Of passes that begin at one time the next one is that of the next time.
LATER_SQL: Final = "SELECT min(start_ns) FROM passes WHERE run = :run AND start_ns > :at"
EARLIER_SQL: Final = "SELECT max(start_ns) FROM passes WHERE run = :run AND start_ns < :at"
STOP_SQL: Final = """SELECT start_ns FROM passes
WHERE run = :run AND start_ns > :at AND closed_gate IS NOT NULL AND (:gate IS NULL OR closed_gate = :gate)
ORDER BY start_ns LIMIT 1"""
STOP_BACK_SQL: Final = """SELECT start_ns FROM passes
WHERE run = :run AND start_ns < :at AND closed_gate IS NOT NULL AND (:gate IS NULL OR closed_gate = :gate)
ORDER BY start_ns DESC LIMIT 1"""
KNOB_SQL: Final = "SELECT min(at_ns) FROM knob_changes WHERE run = :run AND at_ns > :at"
KNOB_BACK_SQL: Final = "SELECT max(at_ns) FROM knob_changes WHERE run = :run AND at_ns < :at"
FAULT_SQL: Final = "SELECT min(opened_ns) FROM alarms WHERE run = :run AND opened_ns > :at"
FAULT_BACK_SQL: Final = "SELECT max(opened_ns) FROM alarms WHERE run = :run AND opened_ns < :at"

_SQL: Final = {
    ("pass", False): LATER_SQL, ("pass", True): EARLIER_SQL, ("stop", False): STOP_SQL,
    ("stop", True): STOP_BACK_SQL, ("knob", False): KNOB_SQL, ("knob", True): KNOB_BACK_SQL,
    ("fault", False): FAULT_SQL, ("fault", True): FAULT_BACK_SQL,
}  # fmt: skip
_WHAT: Final = {"pass": "pass", "stop": "pass that a gate closed", "knob": "knob change", "fault": "alarm"}


def seek(connection: sqlite3.Connection, run: RunRow, ask: Ask) -> tuple[int | None, str]:
    """Where the asked-for thing is in the run's time, or None and what was not found. Raises sqlite3.Error."""
    what = ask.seek or "pass"
    gate = GATES.index(ask.seek_gate) if ask.seek_gate in GATES else None
    from_ns = ask.at_ns
    if from_ns is None:
        from_ns = run.last_ns + 1 if ask.seek_back else run.last_ns
    row = connection.execute(_SQL[what, ask.seek_back], {"run": run.id, "at": from_ns, "gate": gate}).fetchone()
    if row is not None and row[0] is not None:
        return int(row[0]), ""
    which = f"pass that {ask.seek_gate} closed" if what == "stop" and gate is not None else _WHAT[what]
    return None, f"no {which} {'before' if ask.seek_back else 'after'} this moment"
