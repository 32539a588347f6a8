"""Host hits: what the host cache held, what of it was used, and why the rest was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.widgets import Static

from ui.app.figures import lines, short
from ui.app.panels.part import PartPanel

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot


class HitsPanel(PartPanel):
    """The funnel and the skips."""

    PART: ClassVar[PanelName] = "hits"
    TITLE = "Host hits"
    HELP = "The host cache."

    def compose(self) -> ComposeResult:
        """A few lines."""
        yield Static()

    def part(self, snapshot: Snapshot) -> Any:
        """The hits."""
        return snapshot.hits

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the funnel and what was skipped."""
        hits = snapshot.hits
        if hits is None:
            return
        funnel = hits.funnel
        skips = " · ".join(f"{reason} {short(tokens)}" for reason, tokens, _ in hits.skips[:3]) or "none"
        self.query_one(Static).update(
            lines(
                [
                    f"resident {short(funnel.resident)}  matched {short(funnel.matched)}  asked {short(funnel.asked)}",
                    f"loaded {short(funnel.loaded)}  used {short(funnel.used)}",
                    f"skipped: {skips}",
                ]
            )
        )
