"""The gates: what stops batches, how much is left at each, and what is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.content import Content
from textual.widgets import Static

from controller.knobs import SPEC_BY_NAME
from ui.app.colours import DIM, STRONG, gate_mark, gate_style
from ui.app.command import Command
from ui.app.figures import ABSENT, lines, percent, whole, with_unit
from ui.app.panels.messages import NextEvent
from ui.app.panels.part import PartPanel, indented
from ui.app.panels.sql import named
from ui.app.panels.table import Column, KeyedTable
from ui.app.panels.words import brief, cell, length, since, spark, state_style, value_of

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.app.panels.chart import Chart
    from ui.view.snapshot import GateRow, Snapshot
    from ui.view.snapshot import Panel as PanelName

_BAR: Final = 8
_SPARK: Final = 12
_SMALL: Final = (
    Column("mark", "", 1, gap=1),
    Column("gate", "gate", 13),
    Column("share", "stops", 5, right=True),
    Column("left", "left", 5, right=True),
    Column("short", "limit", 11, right=True, grows=True),
)
_FULL: Final = (
    Column("mark", "", 1, gap=1),
    Column("gate", "gate", 13),
    Column("stops", "stops", 6, right=True),
    Column("share", "share", 5, right=True, gap=1),
    Column("bar", "", _BAR, drop=3),
    Column("left", "left", 5, right=True, gap=1),
    Column("headroom", "headroom", _SPARK, drop=6),
    Column("observed", "last asked", 13, right=True, drop=4),
    Column("limit", "limit", 13, right=True),
    Column("set", "knob set", 13, right=True, drop=2),
    Column("effective", "effective", 13, right=True, drop=5),
    Column("state", "state", 11),
    Column("why", "why", 24, drop=1, grows=True),
)
_LEAST_FOR_CHART: Final = 19
_LEAST_FOR_WORDS: Final = 14
_NO_KNOB: Final = "the engine's own; no knob bounds it"


class GatesPanel(PartPanel):
    """The ladder, a row a gate, and the headroom of the gate under the cursor."""

    PART: ClassVar[PanelName] = "gates"
    TITLE = "Gates"
    HELP = """The gates of the ladder in the order in which they are evaluated, over the last five minutes.

* **stops**, **share**: passes that the gate closed, and which part of all passes that is. They rest on the number of
  passes in the headline.
* **left**, **headroom**: the part of the limit that was left when passes ended, last and over time, the least of each
  stretch; a full bar is an untouched limit, a blank is a stretch in which the gate was not evaluated.
* **last asked**, **limit**: what the gate saw at the last pass, the candidate in it, and the limit in force then.
* **knob set**, **effective**, **state**, **why**: the knob's value as it was set, what is in force of it, and what made
  the two differ: *clamped* to less, *raised*, *derived* without being set, *off*, *dead* (it does nothing in this
  engine), *not binding* (something else is always reached first).

Below, what the knob of the gate under the cursor bounds, and its headroom. The cursor begins on the gate with the most
stops. *Enter* jumps to the gate's next stop. On a
narrow screen columns go in this order: why, knob set, the bar, last asked, effective, headroom."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("next stop", "enter", "next_event", "next stop", "Jump to the next pass that this gate closed."),
    )
    DEFAULT_CSS = """
    GatesPanel {
        & > KeyedTable { height: auto; }
        & > KeyedTable > Rows { height: auto; max-height: 9; }
        & > .told { height: auto; max-height: 4; margin-top: 1; text-wrap: wrap; }
        & > Chart { height: 1fr; max-height: 20; }
        &.low > Chart, &.lower > .told { display: none; }
        &.small > KeyedTable { height: 1fr; }
        &.small > KeyedTable > Rows { height: 1fr; max-height: 100%; }
    }
    """

    def compose(self) -> ComposeResult:
        """The table; with the screen to itself, the gate under the cursor below it."""
        yield KeyedTable(_SMALL if self.small else _FULL)
        if not self.small:
            from ui.app.panels.chart import Chart  # noqa: PLC0415 - plotext is not wanted for the first paint

            yield Static(classes="told")
            yield Chart()

    def part(self, snapshot: Snapshot) -> Any:
        """The rows, and how many passes they rest on."""
        return None if snapshot.gates is None else (snapshot.gates, snapshot.head.passes_in_window)

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the table."""
        gates, table = snapshot.gates or (), self.query_one(KeyedTable)
        begins = table.key_at is None
        table.fill(gates, lambda row: row.gate, _cells)
        if not self.small:
            self.border_title = f"{self.TITLE}  {whole(snapshot.head.passes_in_window)} passes in 5 min"
            if begins and gates:
                table.go_to(max(gates, key=lambda row: row.stops).gate)
            self.set_class(self.size.height < _LEAST_FOR_CHART, "low")
            self.set_class(self.size.height < _LEAST_FOR_WORDS, "lower")
            self._draw_gate()

    def on_lines_moved(self) -> None:
        """Draw the gate that the cursor came to."""
        if not self.small:
            self._draw_gate()

    def on_lines_chosen(self) -> None:
        """Enter, or a click on the row of the cursor."""
        self.action_next_event()

    def action_next_event(self) -> None:
        """Jump to the next event of the gate under the cursor."""
        key = self.query_one(KeyedTable).key_at
        if key is not None:
            self.post_message(NextEvent(key))

    def raw(self) -> str | None:
        """The row under the cursor as JSON."""
        return indented(self._row_at())

    def as_sql(self) -> str | None:
        """The named query `stops`."""
        return None if self.snapshot is None else named("stops", self.snapshot.head)

    def _row_at(self) -> GateRow | None:
        key = self.query_one(KeyedTable).key_at
        rows = self.snapshot.gates if self.snapshot is not None else None
        return next((row for row in rows or () if row.gate == key), None)

    def _draw_gate(self) -> None:
        """Tell what the knob of the gate under the cursor bounds, and draw its headroom."""
        row, snapshot = self._row_at(), self.snapshot
        if row is None or snapshot is None:
            return
        from ui.app.panels.chart import Chart  # noqa: PLC0415 - as above

        chart = self.query_one(Chart)
        chart.visible = any(each is not None for each in row.headroom)
        charted = "" if self.has_class("low") or not chart.visible else "headroom over time; "
        self.query_one(".told", Static).update(_told(row, snapshot.head.at_ns, charted))
        _draw(chart, row, snapshot)


def _draw(chart: Chart, row: GateRow, snapshot: Snapshot) -> None:
    from ui.app.panels.chart import Series  # noqa: PLC0415 - as above

    strip = snapshot.head.strip
    if strip and row.headroom:
        first, last = strip[0].from_ns, strip[-1].to_ns
        step = (last - first) / len(row.headroom)
        points = tuple((round(first + step * (place + 1)), value) for place, value in enumerate(row.headroom))
    else:
        points = ()
    mark = gate_mark(row.gate)
    chart.show_series([Series(row.gate, mark.style, points, mark.sign)], most=1.0, told=percent)


def _told(row: GateRow, now: int | None, charted: str) -> Content:
    """Two lines on a gate: its last stop, and what its knob bounds."""
    style = gate_style(row.gate)
    last = (
        f"last closed a pass {since(row.last_stop_ns, now)} ago" if row.last_stop_ns is not None else "closed no pass"
    )
    first = Content.assemble(cell(row.gate, f"bold {style}"), f"  {charted}{last}")
    if row.knob is None:
        return lines([first, cell(_NO_KNOB, DIM)])
    spec = SPEC_BY_NAME.get(row.knob)
    bounds = f" bounds {spec.bounds}" if spec is not None else ""
    why = f" {row.state}" + (f": {row.why}" if row.why else "")
    told = f"  set {value_of(row.set_to, row.unit)}, effective {value_of(row.effective, row.unit)},"
    return lines([first, Content.assemble(cell(row.knob, STRONG), cell(bounds)), cell((told + why).strip())])


def _cells(row: GateRow) -> dict[str, Content]:
    mark, style = gate_mark(row.gate), gate_style(row.gate)
    known = [each for each in row.headroom if each is not None]
    off = row.limit is None
    limit = value_of(row.limit, row.unit)
    return {
        "mark": cell(mark.sign, mark.style),
        "gate": cell(row.gate, DIM if off and not row.stops else style),
        "stops": cell(whole(row.stops)),
        "share": cell(percent(row.share)),
        "bar": cell(length(row.share or 0, _BAR), style),
        "left": cell(percent(known[-1]) if known else ABSENT),
        "headroom": cell(spark(row.headroom, 1.0, _SPARK), style),
        "observed": cell(with_unit(row.observed, row.unit)),
        "limit": cell(limit, DIM if off else ""),
        "short": cell(limit if off else brief(row.limit, row.unit)),
        "set": cell(value_of(row.set_to, row.unit) if row.knob else ABSENT),
        "effective": cell(value_of(row.effective, row.unit) if row.knob else ABSENT),
        "state": cell(row.state, state_style(row.state)),
        "why": cell(row.why),
    }
