"""Buffers: the estimate of temporary device memory over time, against its limit and what start-up reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Static

from ui.app.figures import lines, with_unit
from ui.app.panels.part import PartPanel
from ui.app.panels.words import spark

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot


class BuffersPanel(PartPanel):
    """The estimate over time and by part."""

    PART: ClassVar[PanelName] = "buffers"
    TITLE = "Buffers"
    HELP = "Temporary buffers."

    def compose(self) -> ComposeResult:
        """A few lines."""
        yield Static()

    def part(self, snapshot: Snapshot) -> Any:
        """The buffers."""
        return snapshot.buffers

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the estimate."""
        buffers = snapshot.buffers
        if buffers is None:
            return
        points = [each.peak for each in buffers.points]
        self.query_one(Static).update(
            lines(
                [
                    f"{spark(points, cells=16)}  {with_unit(buffers.last, 'bytes')} est",
                    f"limit {with_unit(buffers.limit, 'bytes')}  smoke {with_unit(buffers.smoke_peak, 'bytes')}",
                ]
            )
        )
