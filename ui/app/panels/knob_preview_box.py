"""The preview as it stands in the panel of the knobs: how far it is, its fidelity, and the figures side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from ui.app.panels.knob_preview import COLUMNS, NO_DRAFT, SPANS, KnobPreview, preview_cells
from ui.app.panels.table import KeyedTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult

    from ui.app.panels.knob_draft import Value
    from ui.view.snapshot import Head, Snapshot

_TICK_SECONDS: Final = 0.25


class PreviewBox(Vertical):
    """No room is taken while there is no preview; `previewed` stands on whoever holds it while there are figures."""

    DEFAULT_CSS = """
    PreviewBox {
        height: auto; margin-top: 1; display: none;
        & > .words { height: auto; max-height: 3; text-wrap: wrap; }
        & > .remarks { height: auto; max-height: 4; text-wrap: wrap; }
        & > .figures, & > .remarks { display: none; }
        &.shown { display: block; }
        &.figured { height: 2fr; min-height: 6; }
        &.figured > .figures, &.figured > .remarks { display: block; }
        &.figured > .figures { height: 1fr; }
    }
    """

    class Changed(Message):
        """It is shown now, or has figures, or does not any more."""

    def __init__(self) -> None:
        super().__init__()
        self.preview = KnobPreview()
        self._snapshot: Snapshot | None = None

    def compose(self) -> ComposeResult:
        """The words, what the figures do not say, and the figures."""
        yield Static(classes="words")
        yield Static(classes="remarks")
        yield KeyedTable(COLUMNS, id="figures").add_class("figures")

    def on_mount(self) -> None:
        """Look now and then what came of it."""
        self.set_interval(_TICK_SECONDS, self.look)

    def on_unmount(self) -> None:
        """The screen ends, and a preview with it."""
        self.preview.stop()

    @property
    def figured(self) -> bool:
        """Whether there are figures."""
        return bool(self.preview.rows)

    def look(self) -> None:
        """Take what came of it."""
        if self.preview.look():
            self.draw()

    def ask(self, snapshot: Snapshot, changes: Mapping[str, Value]) -> None:
        """Begin a preview of a draft, in place of the one before."""
        if not changes:
            self.app.notify(NO_DRAFT, timeout=6, markup=False)
            return
        self._snapshot = snapshot
        self.preview.ask(snapshot, changes)
        self.draw()

    def next_span(self, snapshot: Snapshot, changes: Mapping[str, Value]) -> None:
        """Look at another span; a preview that is there is made anew."""
        preview = self.preview
        preview.span = (preview.span + 1) % len(SPANS)
        if preview.shown and changes:
            self.ask(snapshot, changes)
        else:
            self.app.notify(f"a preview looks at {preview.span_words()}", timeout=4, markup=False)

    def show_of(self, head: Head, *, named: bool) -> None:
        """Let go of a preview of another run than the one on the screen; `named` one tells the draft it is of."""
        if not self.preview.belongs_to(head):
            self.drop()
        if named is not self.preview.named:
            self.preview.named = named
            self.draw()

    def stop(self) -> None:
        """End one that is being made."""
        self.preview.stop()
        self.draw()

    def drop(self) -> None:
        """Neither make nor show one."""
        self.preview.drop()
        self.draw()

    def draw(self) -> None:
        """Say what there is to say."""
        if not self.is_mounted or self._snapshot is None:
            return
        preview, figured = self.preview, self.figured
        changed = (self.has_class("shown"), self.has_class("figured")) != (preview.shown, figured)
        self.set_class(preview.shown, "shown")
        self.set_class(figured, "figured")
        self.query_one(".words", Static).update(preview.words(self._snapshot.head))
        self.query_one(".remarks", Static).update(preview.remarks(self._snapshot.head))
        self.query_one("#figures", KeyedTable).fill(preview.rows, lambda row: row.words, preview_cells)
        if changed:
            self.post_message(self.Changed())
