"""How a knob and a change of one stand in their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.knobs import SPEC_BY_NAME
from ui.app.colours import BAD, DIM, GOOD, STRONG, WARN
from ui.app.moments import clock
from ui.app.panels.knob_draft import told_change
from ui.app.panels.table import Column
from ui.app.panels.words import cell, since, state_style, value_of

if TYPE_CHECKING:
    from textual.content import Content

    from controller.limits import EffectiveKnob
    from ui.app.panels.knob_draft import Value
    from ui.view.snapshot import ChangeRow, Head, KnobRow

COLUMNS: Final = (
    Column("mark", "", 1, gap=1),
    Column("knob", "knob", 21),
    Column("set", "set", 13, right=True),
    Column("effective", "effective", 13, right=True),
    Column("state", "state", 11),
    Column("changed", "changed", 10, right=True, drop=4),
    Column("by", "by", 14, drop=3),
    Column("bounds", "bounds", 40, drop=2, grows=True),
    Column("why", "why", 40, drop=1),
)
CHANGES: Final = (
    Column("at", "changed at", 11),
    Column("who", "by", 12),
    Column("change", "knob, before and after", 30, grows=True),
    Column("result", "answer", 18, grows=True),
)


def knob_cells(row: KnobRow, value: Value, coming: EffectiveKnob | KnobRow, now: int | None) -> dict[str, Content]:
    """One knob; while there is a draft, with its drafted value and as it would be in force."""
    drafted, moved = value != row.set_to, coming.effective != row.effective
    return {
        "mark": cell("*" if drafted else "~" if moved else " ", WARN),
        "knob": cell(row.name, STRONG if drafted else ""),
        "set": cell(value_of(value, row.unit), WARN if drafted else ""),
        "effective": cell(value_of(coming.effective, row.unit), WARN if moved else ""),
        "state": cell(coming.state, state_style(coming.state)),
        "changed": cell(since(row.changed_ns, now)),
        "by": cell(row.changed_by or ""),
        "bounds": cell(row.bounds, DIM),
        "why": cell(coming.why),
    }


def change_cells(change: ChangeRow, head: Head) -> dict[str, Content]:
    """One change that was asked for: who, from what to what, and the answer."""
    spec = SPEC_BY_NAME.get(change.knob or "")
    unit = spec.unit if spec is not None else ""
    told = told_change(change.knob, change.old, change.new, unit) if change.knob else "nothing that can be read"
    answer = f"revision {change.revision:,}" if change.accepted else f"refused: {change.why}"
    return {
        "at": cell(clock(head, change.at_ns)),
        "who": cell(change.who),
        "change": cell(told),
        "result": cell(answer, GOOD if change.accepted else BAD),
    }
