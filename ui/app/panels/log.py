"""Alarms, those that stand first, and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Static

from ui.app.colours import BAD, DIM
from ui.app.figures import lines, whole
from ui.app.moments import clock
from ui.app.panels.part import PartPanel
from ui.app.panels.words import cell

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot


class LogPanel(PartPanel):
    """Alarms above the log; its small form is the alarms alone."""

    PART: ClassVar[PanelName] = "log"
    TITLE = "Alarms and log"
    HELP = "What happened."

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        if small:
            self.border_title = "Alarms"

    def compose(self) -> ComposeResult:
        """A few lines."""
        yield Static()

    def part(self, snapshot: Snapshot) -> Any:
        """The log."""
        return snapshot.log

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the alarms that stand."""
        log = snapshot.log
        if log is None:
            return
        told = [
            cell(f"! {each.alarm}  {whole(each.measured)} of {whole(each.threshold)} {each.unit}", BAD)
            for each in log.alarms
            if each.closed_ns is None
        ] or [cell("none", DIM)]
        if not self.small:
            told += [cell(f"{clock(snapshot.head, each.at_ns)}  {each.text}") for each in log.lines]
        self.query_one(Static).update(lines(told))
