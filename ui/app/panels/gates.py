"""The gates: what stops batches, how much is left at each, and what is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ui.app.colours import gate_mark, gate_style
from ui.app.figures import ABSENT, percent, whole, with_unit
from ui.app.panels.messages import NextEvent
from ui.app.panels.part import PartPanel
from ui.app.panels.table import Column, KeyedTable, Row
from ui.app.panels.words import cell, length, spark, value_of

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import GateRow, Snapshot
    from ui.view.snapshot import Panel as PanelName

_SMALL: Final = (
    Column("mark", "", 1),
    Column("gate", "gate", 13),
    Column("share", "stops", 5, right=True),
    Column("left", "room", 5, right=True),
    Column("limit", "limit", 12, right=True, grows=True),
)
_FULL: Final = (
    Column("mark", "", 1),
    Column("gate", "gate", 13),
    Column("stops", "stops", 7, right=True),
    Column("share", "share", 5, right=True),
    Column("bar", "", 10, drop=3),
    Column("left", "room", 5, right=True),
    Column("headroom", "headroom", 20, drop=2),
    Column("observed", "observed", 14, right=True, drop=4),
    Column("limit", "limit", 14, right=True),
    Column("set", "set", 14, right=True, drop=5),
    Column("effective", "effective", 14, right=True),
    Column("state", "state", 11),
    Column("why", "why", 30, drop=1, grows=True),
)


class GatesPanel(PartPanel):
    """The ladder, a row a gate."""

    PART: ClassVar[PanelName] = "gates"
    TITLE = "Gates"
    HELP = "The gates."

    def compose(self) -> ComposeResult:
        """One table."""
        yield KeyedTable(_SMALL if self.small else _FULL)

    def part(self, snapshot: Snapshot) -> Any:
        """The rows."""
        return snapshot.gates

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the table."""
        self.query_one(KeyedTable).fill([_row(row) for row in snapshot.gates or ()])

    def on_data_table_row_selected(self) -> None:
        """Jump to the next event of the gate under the cursor."""
        key = self.query_one(KeyedTable).key_at
        if key is not None:
            self.post_message(NextEvent(key))


def _row(row: GateRow) -> Row:
    mark = gate_mark(row.gate)
    style = gate_style(row.gate)
    known = [each for each in row.headroom if each is not None]
    return Row(
        row.gate,
        {
            "mark": cell(mark.sign, mark.style),
            "gate": cell(row.gate, style),
            "stops": cell(whole(row.stops)),
            "share": cell(percent(row.share)),
            "bar": cell(length(row.share or 0, 10), style),
            "left": cell(percent(known[-1]) if known else ABSENT),
            "headroom": cell(spark(row.headroom, 1.0, 20), style),
            "observed": cell(with_unit(row.observed, row.unit)),
            "limit": cell(value_of(row.limit, row.unit)),
            "set": cell(value_of(row.set_to, row.unit) if row.knob else ABSENT),
            "effective": cell(value_of(row.effective, row.unit) if row.knob else ABSENT),
            "state": cell(row.state),
            "why": cell(row.why),
        },
    )
