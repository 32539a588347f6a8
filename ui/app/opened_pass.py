"""The pass under the cursor, opened: its members, and every decision with its gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual.message import Message

from ui.app.batches import CURSOR_COMMANDS
from ui.app.command import Command
from ui.app.detail_lines import DetailLine, detail_lines
from ui.app.figures import whole_items
from ui.app.lines import HoldsLines, Lines
from ui.app.panel import Panel
from ui.app.panels.messages import OpenRequest

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.content import Content

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import PassDetail, Snapshot


class DecisionLines(Lines):
    """The lines of the pass."""

    def __init__(self) -> None:
        super().__init__(id="decisions")
        self.rows: tuple[DetailLine, ...] = ()

    def line(self, index: int, width: int) -> Content:
        """One line."""
        return whole_items(self.rows[index].items, width)


class OpenedPass(HoldsLines, Panel):
    """One pass with its decisions."""

    PART: ClassVar[PanelName] = "live"
    TITLE = "Pass"
    HELP = """\
The pass under the cursor of the batches. First what it was decided from, then each decision in the order in which it
was made: a member of the batch with its tokens, or a request that was kept out, with the gate and the numbers. Last
what the pass never looked at, since a gate had closed it, and what was left of the pool.

Enter shows the gates of a decision in the order of their evaluation: observed (the demand, with this request in it),
limit, and how much it was short. `exempt` is over a soft limit but the first of its batch; `would refuse` is shadow
mode.
"""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        *CURSOR_COMMANDS,
        Command("gates of a decision", "enter", "gates", "gates", "Show or hide the gates of the decision."),
        Command("all gates", "a", "gates_of_all", "all gates", "Show or hide the gates of every decision."),
        Command("life of request", "o", "life", "request", "Show the life of the request under the cursor."),
        Command("back to batches", "escape", "back", "back", "Go back to the batches."),
    )

    lines: DecisionLines

    class Back(Message):
        """The operator goes back to the batches."""

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        self.snapshot: Snapshot | None = None
        self._detail: PassDetail | None = None
        self._opened: frozenset[int] = frozenset()
        self.lines = DecisionLines()

    def compose(self) -> ComposeResult:
        """The lines."""
        yield self.lines

    def show(self, snapshot: Snapshot) -> None:
        """Draw the pass; another one begins with its gates hidden."""
        detail = snapshot.detail
        self.snapshot = snapshot
        if detail is None or detail == self._detail:
            return
        if self._detail is None or detail.row.number != self._detail.row.number:
            self._opened = frozenset()
            cursor = 0
        else:
            cursor = self.lines.cursor
        self._detail = detail
        self._draw(cursor)
        self.border_title = f"{self.TITLE} {detail.row.number:,}"

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether a pass is open."""
        return snapshot.detail is not None

    def forget(self) -> None:
        """The pass is drawn anew, whether or not it differs."""
        self._detail = None

    def _draw(self, cursor: int) -> None:
        if self._detail is None or self.snapshot is None:
            return
        self.lines.rows = tuple(detail_lines(self._detail, self.snapshot.head, self._opened))
        self.lines.changed(cursor)

    @property
    def _decision(self) -> int | None:
        """The decision under the cursor, by its place."""
        lines = self.lines
        return lines.rows[lines.cursor].decision if lines.cursor < lines.count else None

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Nobody else needs to know."""
        event.stop()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """A second click shows the gates."""
        event.stop()
        self.action_gates()

    def action_gates(self) -> None:
        """Show or hide the gates of the decision; on a line of the whole pass, of all."""
        at = self._decision
        if at is None:
            self.action_gates_of_all()
            return
        self._opened ^= {at}
        first = next(number for number, row in enumerate(self.lines.rows) if row.decision == at)
        self._draw(first)
        if at in self._opened:
            self.lines.show_from(first)

    def action_gates_of_all(self) -> None:
        """Show or hide the gates of every decision."""
        if self._detail is None:
            return
        everything = frozenset(range(len(self._detail.decisions)))
        self._opened = frozenset() if self._opened == everything else everything
        self._draw(0)

    def action_life(self) -> None:
        """Show the life of the request."""
        at = self._decision
        if at is not None and self._detail is not None:
            self.post_message(OpenRequest(self._detail.decisions[at].request))

    def action_back(self) -> None:
        """Go back."""
        self.post_message(self.Back())

    def raw(self) -> str | None:
        """The pass as it was recorded."""
        return None if self._detail is None else self._detail.raw

    def as_json(self) -> str | None:
        """The pass, its decisions and their checks."""
        if self._detail is None:
            return None
        return msgspec.json.format(msgspec.json.encode(self._detail), indent=2).decode()

    def as_sql(self) -> str | None:
        """The checks of the pass."""
        from ui.app.panels.sql import of_run  # noqa: PLC0415 - it brings the store's queries with it

        if self._detail is None or self.snapshot is None:
            return None
        sql = "SELECT * FROM checks WHERE run = :run AND pass = {} ORDER BY position, gate_number"
        return of_run(sql.format(self._detail.row.number), self.snapshot.head)
