"""A panel that draws only when its part of the snapshot is another than the one drawn last."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from ui.app.panel import Panel

if TYPE_CHECKING:
    from ui.view.snapshot import Snapshot


class PartPanel(Panel):
    """Calls `draw` when what `part` gives has changed, when its own size has, and once it is mounted."""

    DEFAULT_CSS = """
    PartPanel Static { text-wrap: nowrap; text-overflow: ellipsis; }
    PartPanel VerticalScroll { scrollbar-size-vertical: 1; }
    PartPanel VerticalScroll, PartPanel Rows {
        scrollbar-color: $line; scrollbar-background: $background; scrollbar-color-hover: $line-focus;
        scrollbar-background-hover: $background; scrollbar-color-active: $line-focus;
        scrollbar-background-active: $background;
    }
    """

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        self.snapshot: Snapshot | None = None
        self._drawn: Any = None

    @abstractmethod
    def part(self, snapshot: Snapshot) -> Any:
        """What of the snapshot is drawn; None when nobody asked for it, and what was drawn before stays."""

    @abstractmethod
    def draw(self, snapshot: Snapshot) -> None:
        """Draw it. The panel's widgets are there and `part` is not None."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw the snapshot if its part has changed."""
        part = self.part(snapshot)
        if part is None:
            return
        self.snapshot = snapshot
        if self.is_mounted and part != self._drawn:
            self._drawn = part
            self.draw(snapshot)

    def on_mount(self) -> None:
        """Draw what was shown before there was anything to draw on."""
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        """Draw anew: what fits is another."""
        self.redraw()

    def redraw(self) -> None:
        """Draw the last snapshot again."""
        self.forget()
        if self.snapshot is not None:
            self.present(self.snapshot)

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether its part is there, and something to draw on."""
        return self.is_mounted and self.part(snapshot) is not None

    def forget(self) -> None:
        """The part is drawn anew, whether or not it differs."""
        self._drawn = None

    def as_json(self) -> str | None:
        """What was drawn last, as indented JSON."""
        return indented(None if self.snapshot is None else getattr(self.snapshot, self.PART, None))


def indented(value: Any) -> str | None:
    """A part of a snapshot as indented JSON; None for None."""
    return None if value is None else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
