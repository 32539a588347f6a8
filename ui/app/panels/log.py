"""Alarms, those that stand first, and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from textual.content import Content
from textual.widgets import Static

from ui.app.colours import BAD, DIM, WARN, gate_mark
from ui.app.command import Command
from ui.app.figures import lines, whole
from ui.app.moments import clock
from ui.app.panels.messages import FilterLog, OpenPass, OpenRequest
from ui.app.panels.part import PartPanel, indented
from ui.app.panels.sql import named
from ui.app.panels.table import Column, KeyedTable
from ui.app.panels.words import cell, in_unit, plain, span
from ui.view.snapshot import LogLine

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.view.snapshot import AlarmRow, Head, Log, Snapshot
    from ui.view.snapshot import Panel as PanelName

_ALARMS: Final = (
    Column("mark", "", 1, gap=1),
    Column("alarm", "alarm", 18),
    Column("since", "since", 11),
    Column("lasted", "for", 11, right=True),
    Column("count", "count", 7, right=True),
    Column("measured", "measured of threshold", 25, right=True, drop=3),
    Column("gate", "gate", 13, drop=2),
    Column("request", "request", 12),
    Column("detail", "detail", 30, drop=1, grows=True),
)
_LINES: Final = (
    Column("mark", "", 1, gap=1),
    Column("at", "at", 11),
    Column("kind", "kind", 8),
    Column("text", "what happened", 30, grows=True),
    Column("pass", "pass", 9, right=True, drop=2),
    Column("request", "request", 12, drop=1),
)
_T = TypeVar("_T")
_STANDS: Final = "!"
_FAULT: Final = "✗"


class LogPanel(PartPanel):
    """Alarms above the log; its small form is the alarms alone."""

    PART: ClassVar[PanelName] = "log"
    TITLE = "Alarms and log"
    HELP = """Above, the alarms: those that stand first, marked `!`, then those that are over.

* **since**, **for**: when it began, and how long it stood or has stood. **count**: how often its cause was seen.
* **measured of threshold**: the largest value seen, and the one above which it is an alarm.
* The line below the table says what the alarm under the cursor means; in the log, all of the line under the cursor.

Below, what happened, the newest first: runs that began and ended, knob changes, alarms, refusals for good, aborts,
retractions, smoke allocations, losses of the record, pruning. Faults are marked ✗. `/` filters, with `!` in front it
turns the filter round, `!` alone shows faults only; the title says how many lines are hidden.

*Enter* opens the pass of a line, else its request; *y* shows its raw record."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("open cause", "enter", "open_cause", "open", "Open the pass the line is about, else its request."),
        Command("open request", "o", "open_request", "request", "Open the request the line is about."),
        Command("only this kind", "e", "only", "only", "Show only lines of the kind of the one under the cursor."),
        Command("every kind", "x", "every", "", "Show every line again, faults or not."),
    )
    DEFAULT_CSS = """
    LogPanel {
        & > .alarms { height: auto; }
        & > .alarms > Rows { height: auto; max-height: 6; }
        & > .meaning { height: auto; max-height: 2; text-wrap: wrap; margin-bottom: 1; }
        &.calm > .alarms { display: none; }
        & > .few { height: 1fr; }
    }
    """

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        if small:
            self.border_title = "Alarms"

    def compose(self) -> ComposeResult:
        """The alarms; with the screen to itself, the log below them."""
        if self.small:
            yield Static(classes="few")
            return
        yield KeyedTable(_ALARMS, id="alarms").add_class("alarms")
        yield Static(classes="meaning")
        yield KeyedTable(_LINES, id="lines")

    def part(self, snapshot: Snapshot) -> Any:
        """The log, and the moment that the age of an alarm is told from."""
        log = snapshot.log
        if log is None:
            return None
        ask = snapshot.ask
        return log, snapshot.head.at_ns if log.open_alarms else None, ask.log_filter, ask.faults_only

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the alarms and fill the log."""
        log, head = snapshot.log, snapshot.head
        if log is None:
            return
        if self.small:
            self.border_title = f"Alarms  {whole(log.open_alarms)} stand" if log.open_alarms else "Alarms"
            self.query_one(".few", Static).update(_few_lines(log, head), layout=False)
            return
        self.set_class(not log.alarms, "calm")
        self.border_title = Content("  ".join([self.TITLE, *_title(log, snapshot)])).markup
        self.query_one("#alarms", KeyedTable).fill(
            log.alarms, lambda each: str(each.number), lambda each: _alarm_cells(each, head)
        )
        self.query_one("#lines", KeyedTable).fill(
            log.lines,
            lambda each: "newest" if each is log.lines[0] else f"{each.at_ns} {each.kind} {each.text}",
            lambda each: _line_cells(each, head),
        )
        self._say_meaning()

    def on_lines_moved(self) -> None:
        """Say what the alarm means, or the whole of the line, that the cursor came to."""
        if not self.small:
            self._say_meaning()

    on_descendant_focus = on_lines_moved

    def on_lines_chosen(self) -> None:
        """A click on the row of the cursor."""
        self.action_open_cause()

    def action_open_cause(self) -> None:
        """Open the pass that a line is about, else its request."""
        at = self._at()
        if isinstance(at, LogLine) and at.pass_number is not None:
            self.post_message(OpenPass(at.pass_number))
        else:
            self.action_open_request()

    def action_open_request(self) -> None:
        """Open the request that a line or an alarm is about."""
        at = self._at()
        if at is not None and at.request is not None:
            self.post_message(OpenRequest(at.request))

    def action_only(self) -> None:
        """Filter the log by the kind of the line under the cursor."""
        at, snapshot = self._at(), self.snapshot
        if snapshot is not None and isinstance(at, LogLine):
            self.post_message(FilterLog(at.kind, faults_only=snapshot.ask.faults_only))

    def action_every(self) -> None:
        """Take every filter off the log."""
        self.post_message(FilterLog("", faults_only=False))

    def raw(self) -> str | None:
        """The record of the line under the cursor; of an alarm, its row."""
        at = self._at()
        return at.raw if isinstance(at, LogLine) else indented(at)

    def as_sql(self) -> str | None:
        """The named query `alarms`."""
        return None if self.snapshot is None else named("alarms", self.snapshot.head)

    def _at(self) -> AlarmRow | LogLine | None:
        log = None if self.snapshot is None else self.snapshot.log
        if log is None or self.small:
            return None
        alarms, table = self.query_one("#alarms", KeyedTable), self.query_one("#lines", KeyedTable)
        return _nth(log.alarms, alarms.place) if alarms.active else _nth(log.lines, table.place)

    def _say_meaning(self) -> None:
        log = None if self.snapshot is None else self.snapshot.log
        if log is None:
            return
        alarms, table = self.query_one("#alarms", KeyedTable), self.query_one("#lines", KeyedTable)
        alarm, line = _nth(log.alarms, alarms.place), _nth(log.lines, table.place)
        if line is not None and (alarm is None or table.active):
            words = cell(line.text, WARN if line.fault else "")
        else:
            words = cell("no alarm", DIM) if alarm is None else _meaning(alarm)
        self.query_one(".meaning", Static).update(words)


def _nth(rows: tuple[_T, ...], place: int) -> _T | None:
    return rows[place] if 0 <= place < len(rows) else None


def _title(log: Log, snapshot: Snapshot) -> list[str]:
    told = []
    if log.open_alarms:
        told.append(f"{whole(log.open_alarms)} stand")
    if snapshot.ask.faults_only:
        told.append("faults alone, ! shows all")
    if snapshot.ask.log_filter:
        told.append(f"filter {plain(snapshot.ask.log_filter)}")
    if log.hidden:
        told.append(f"{whole(log.hidden)} lines hidden")
    return told


def _lasted(alarm: AlarmRow, head: Head) -> int | None:
    """How long it stood: to its end, else to the moment shown."""
    end = alarm.closed_ns if alarm.closed_ns is not None else head.at_ns
    return None if end is None else max(0, end - alarm.opened_ns)


def _meaning(alarm: AlarmRow) -> Content:
    about = f"{alarm.alarm}: {alarm.meaning.rstrip('.')}" + (f". {alarm.detail}" if alarm.detail else "")
    return cell(about, DIM if alarm.closed_ns is not None else "")


def _few_lines(log: Log, head: Head) -> Content:
    standing = [each for each in log.alarms if each.closed_ns is None]
    if not standing:
        return cell("none", DIM)
    return lines(
        [
            Content.assemble(
                cell(f"{_STANDS} {each.alarm}", BAD),
                cell(f"  {in_unit(each.measured, each.unit)} for {span(_lasted(each, head))}"),
                cell(f"  {each.request}" if each.request else ""),
            )
            for each in standing
        ]
    )


def _alarm_cells(alarm: AlarmRow, head: Head) -> dict[str, Content]:
    stands = alarm.closed_ns is None
    style = BAD if stands else DIM
    least = "≥" if alarm.at_least else ""
    gate = gate_mark(alarm.gate) if alarm.gate else None
    measured = in_unit(alarm.measured, alarm.unit if alarm.unit == "ns" else "")
    return {
        "mark": cell(_STANDS if stands else " ", style),
        "alarm": cell(alarm.alarm, style),
        "since": cell(clock(head, alarm.opened_ns)),
        "lasted": cell(span(_lasted(alarm, head))),
        "count": cell(f"{least}{whole(alarm.count)}"),
        "measured": cell(f"{least}{measured} of {in_unit(alarm.threshold, alarm.unit)}"),
        "gate": cell(alarm.gate or "", gate.style if gate is not None else ""),
        "request": cell(alarm.request or ""),
        "detail": cell(alarm.detail, DIM),
    }


def _line_cells(line: LogLine, head: Head) -> dict[str, Content]:
    style = WARN if line.fault else ""
    return {
        "mark": cell(_FAULT if line.fault else " ", style),
        "at": cell(clock(head, line.at_ns)),
        "kind": cell(line.kind, DIM if not line.fault else style),
        "text": cell(line.text, style),
        "pass": cell("" if line.pass_number is None else whole(line.pass_number)),
        "request": cell(line.request or ""),
    }
