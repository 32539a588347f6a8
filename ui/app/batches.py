"""The passes as they happen, newest first, each batch one bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ui.app.command import Command
from ui.app.lines import HoldsLines, Lines
from ui.app.moments import clock
from ui.app.panel import Panel
from ui.app.pass_line import legend, marks, pass_line, scale_of

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import PassRow, Snapshot

CURSOR_COMMANDS: Final = (
    Command("cursor up", "up", "cursor(-1)", "", "Move the cursor up a line."),
    Command("cursor down", "down", "cursor(1)", "", "Move the cursor down a line."),
    Command("page up", "pageup", "cursor_page(-1)", "", "Move the cursor up a page."),
    Command("page down", "pagedown", "cursor_page(1)", "", "Move the cursor down a page."),
    Command("first line", "home", "cursor_end(-1)", "", "Move the cursor to the first line."),
    Command("last line", "end", "cursor_end(1)", "", "Move the cursor to the last line."),
)


class PassLines(Lines):
    """The list of passes."""

    def __init__(self) -> None:
        super().__init__(id="passes")
        self.rows: tuple[PassRow, ...] = ()
        self.times: dict[int, str] = {}
        self.joined = False
        self.scale = scale_of((), joined=False)

    def line(self, index: int, width: int) -> Content:
        """One pass."""
        row = self.rows[index]
        return pass_line(row, width, self.scale, time=self.times.get(row.number, ""))


class BatchesPanel(HoldsLines, Panel):
    """The passes, and the cursor that opens one of them."""

    PART: ClassVar[PanelName] = "live"
    TITLE = "Batches"
    HELP = """\
Each line is one pass: an attempt to form a prefill batch from the queue. The newest is at the top.

The bar is the batch in tokens: at its left what was cached on the device and what was loaded from the host; at its
right what the pass computed and the room left to the tightest limit.
What a full bar stands for is said in the line above. Prefixes are often much longer than what is computed, so the two
have a scale each; `b` draws all of it to one scale. At the end stands the gate that closed the pass and by how much;
with a `~` it is the gate that would have, in shadow mode.

A thin line is a pass that admitted nothing; passes that met the same refusal again are counted on it. The pass under
the cursor is opened below: its members, and every decision with its gates in the order of their evaluation.
"""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        *CURSOR_COMMANDS,
        Command("open pass", "enter", "open", "open", "Go into the pass under the cursor."),
        Command("bar scale", "b", "scale", "", "Draw cached and computed tokens to one scale, or each to its own."),
    )

    lines: PassLines

    class Open(Message):
        """The operator went into the pass under the cursor."""

    class CursorAt(Message):
        """The cursor is on this pass; None is the newest, whichever that comes to be."""

        def __init__(self, number: int | None) -> None:
            super().__init__()
            self.number = number

    class More(Message):
        """The cursor is at the end of what is known: older passes are wanted, or newer ones."""

        def __init__(self, *, older: bool) -> None:
            super().__init__()
            self.older = older

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        self.snapshot: Snapshot | None = None
        self.faults_only = False
        self._number: int | None = None
        self.lines = PassLines()
        self._legend = Static(classes="legend")

    def compose(self) -> ComposeResult:
        """The line of columns, and the passes."""
        yield self._legend
        yield self.lines

    @property
    def row(self) -> PassRow | None:
        """The pass under the cursor."""
        lines = self.lines
        return lines.rows[lines.cursor] if lines.cursor < len(lines.rows) else None

    def show(self, snapshot: Snapshot) -> None:
        """Draw the passes, the cursor kept on the pass it is on."""
        self.snapshot = snapshot
        rows = snapshot.passes
        if self.faults_only:
            rows = tuple(row for row in rows if not row.members)
        scale = scale_of(rows, joined=self.lines.joined)
        if rows != self.lines.rows or scale != self.lines.scale:
            self.lines.rows, self.lines.scale = rows, scale
            self.lines.times = {row.number: clock(snapshot.head, row.start_ns) for row in rows}
            self.lines.changed(self._place())
            self._draw_legend()
        self._draw_title(snapshot)

    def forget(self) -> None:
        """The passes are drawn anew, whether or not they differ."""
        self.lines.rows = ()

    def _place(self) -> int:
        """The line of the pass the cursor is on; the first when it follows the newest."""
        if self._number is None:
            return 0
        for at, row in enumerate(self.lines.rows):
            if row.number <= self._number:
                return at
        return max(0, len(self.lines.rows) - 1)

    def _draw_legend(self) -> None:
        width = self.lines.width
        if width:
            self._legend.update(legend(width, self.lines.scale), layout=False)

    def _draw_title(self, snapshot: Snapshot) -> None:
        filters = [f"filter {snapshot.ask.pass_filter}"] if snapshot.ask.pass_filter else []
        if self.faults_only:
            filters.append("only passes that admitted nothing")
        self.border_title = Content.assemble("  ".join([self.TITLE, *filters]), "  ", marks())
        if self.lines.rows:
            self.border_subtitle = ""
            return
        if filters:
            clears = "! shows all again" if self.faults_only else "/ then Enter clears it"
            words = f"no pass fits the filter; {clears}"
        elif snapshot.head.presence in ("live", "idle"):
            words = "no pass yet: the engine lives and has admitted nothing. Send it a request"
        else:
            words = "this record holds no pass at this moment. Press l to go to its end, r to choose another run"
        self._legend.update(words, layout=False)

    def on_resize(self) -> None:
        """The columns are others."""
        self.call_after_refresh(self._draw_legend_if_rows)

    def _draw_legend_if_rows(self) -> None:
        if self.lines.rows:
            self._draw_legend()

    def go_to(self, number: int | None) -> None:
        """Put the cursor on a pass; None follows the newest."""
        self._number = number
        self.lines.changed(self._place())

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """The cursor is on another pass."""
        event.stop()
        self._tell(event.index)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """A second click goes into the pass."""
        event.stop()
        self.post_message(self.Open())

    def _tell(self, index: int) -> None:
        snapshot = self.snapshot
        at_top = index == 0 and snapshot is not None and not snapshot.newer_passes
        self._number = None if at_top else self.lines.rows[index].number
        self.post_message(self.CursorAt(self._number))

    def on_lines_beyond(self, event: Lines.Beyond) -> None:
        """Past the end more is wanted."""
        event.stop()
        self._want_more(older=event.index > 0)

    def action_cursor_end(self, by: int) -> None:
        """Move to the first or the last line, and want what is beyond."""
        super().action_cursor_end(by)
        self._want_more(older=by > 0)

    def _want_more(self, *, older: bool) -> None:
        snapshot = self.snapshot
        if snapshot is not None and (snapshot.older_passes if older else snapshot.newer_passes):
            self.post_message(self.More(older=older))

    def action_open(self) -> None:
        """Go into the pass."""
        if self.row is not None:
            self.post_message(self.Open())

    def action_scale(self) -> None:
        """One scale for all tokens, or one each for cached and computed ones."""
        self.lines.joined = not self.lines.joined
        if self.snapshot is not None:
            self.show(self.snapshot)

    def raw(self) -> str | None:
        """The record of the pass that is open."""
        return None if self.snapshot is None or self.snapshot.detail is None else self.snapshot.detail.raw

    def as_json(self) -> str | None:
        """The passes."""
        return msgspec.json.format(msgspec.json.encode(self.lines.rows), indent=2).decode()

    def as_sql(self) -> str | None:
        """The passes shown, by number."""
        from ui.app.panels.sql import of_run  # noqa: PLC0415 - it brings the store's queries with it

        rows, snapshot = self.lines.rows, self.snapshot
        if not rows or snapshot is None:
            return None
        sql = "SELECT * FROM v_passes WHERE run = :run AND number BETWEEN {} AND {} ORDER BY number DESC"
        return of_run(sql.format(rows[-1].number, rows[0].number), snapshot.head)
