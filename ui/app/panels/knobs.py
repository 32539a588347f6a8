"""The knobs: what is set, what is in force, and a draft of what to turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ui.app.panels.part import PartPanel
from ui.app.panels.table import Column, KeyedTable, Row
from ui.app.panels.words import cell, since, value_of

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import KnobRow, Snapshot
    from ui.view.snapshot import Panel as PanelName

_COLUMNS: Final = (
    Column("knob", "knob", 22),
    Column("set", "set", 14, right=True),
    Column("effective", "effective", 14, right=True),
    Column("state", "state", 11),
    Column("changed", "changed", 10, right=True, drop=2),
    Column("by", "by", 10, drop=1),
    Column("bounds", "bounds", 30, drop=3, grows=True),
)


class KnobsPanel(PartPanel):
    """Every knob, a row each."""

    PART: ClassVar[PanelName] = "knobs"
    TITLE = "Knobs"
    HELP = "The knobs."

    def compose(self) -> ComposeResult:
        """One table."""
        yield KeyedTable(_COLUMNS)

    def part(self, snapshot: Snapshot) -> Any:
        """The knobs, and the moment that durations are told from."""
        return None if snapshot.knobs is None else (snapshot.knobs, snapshot.head.at_ns)

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the table."""
        if snapshot.knobs is not None:
            now = snapshot.head.at_ns
            self.query_one(KeyedTable).fill([_row(row, now) for row in snapshot.knobs.knobs])


def _row(row: KnobRow, now: int | None) -> Row:
    return Row(
        row.name,
        {
            "knob": cell(row.name),
            "set": cell(value_of(row.set_to, row.unit)),
            "effective": cell(value_of(row.effective, row.unit)),
            "state": cell(row.state),
            "changed": cell(since(row.changed_ns, now)),
            "by": cell(row.changed_by or ""),
            "bounds": cell(row.bounds),
        },
    )
