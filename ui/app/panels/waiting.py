"""The waiting room: who waits, for what, since when, and who can never fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from textual.content import Content

from ui.app.colours import DIM, NEVER, gate_mark, gate_style
from ui.app.figures import whole
from ui.app.panels.messages import OpenRequest
from ui.app.panels.part import PartPanel
from ui.app.panels.table import Column, KeyedTable, Row
from ui.app.panels.words import cell, plain, since

if TYPE_CHECKING:
    from typing import Any

    from textual.app import ComposeResult

    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot, WaitingRow

_COLUMNS: Final = (
    Column("mark", "", 1),
    Column("request", "request", 14),
    Column("reason", "held by", 26, grows=True),
    Column("since", "for", 9, right=True),
    Column("tried", "tried", 6, right=True, drop=3),
    Column("overtaken", "overtaken", 9, right=True, drop=2),
    Column("needs", "needs tok", 10, right=True),
    Column("limit", "of", 10, right=True, drop=1),
)


class WaitingPanel(PartPanel):
    """The queue with the last reason of each request in its row."""

    PART: ClassVar[PanelName] = "waiting"
    TITLE = "Waiting room"
    HELP = "Requests that wait."

    def compose(self) -> ComposeResult:
        """One table."""
        yield KeyedTable(_COLUMNS)

    def part(self, snapshot: Snapshot) -> Any:
        """The room, and the moment that durations are told from."""
        return None if snapshot.waiting is None else (snapshot.waiting, snapshot.head.at_ns)

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the table."""
        room = snapshot.waiting
        if room is None:
            return
        now = snapshot.head.at_ns
        self.query_one(KeyedTable).fill([_row(row, now) for row in room.rows])
        never = f", {whole(room.never_in_window)} can never fit" if room.never_in_window else ""
        self.border_title = f"{self.TITLE}  {whole(room.total)} wait{never}"

    def on_data_table_row_selected(self) -> None:
        """Open the request under the cursor."""
        key = self.query_one(KeyedTable).key_at
        if key is not None:
            self.post_message(OpenRequest(key))


def _row(row: WaitingRow, now: int | None) -> Row:
    stop = row.stop
    style = NEVER if row.never else ""
    mark = gate_mark(stop.gate) if stop is not None else None
    return Row(
        row.request,
        {
            "mark": cell("✗", NEVER) if row.never else cell(mark.sign, mark.style) if mark else cell(" "),
            "request": cell(row.request, style),
            "reason": _reason(row),
            "since": cell(since(row.since_ns if row.since_ns is not None else row.arrival_ns, now)),
            "tried": cell(whole(row.attempts)),
            "overtaken": cell(whole(row.overtaken)),
            "needs": cell(whole(row.needs), style),
            "limit": cell(whole(stop.limit if stop is not None else None)),
        },
    )


def _reason(row: WaitingRow) -> Content:
    stop = row.stop
    if row.never:
        return cell("can_never", NEVER)
    words = cell(f"{stop.gate} {stop.reason}", gate_style(stop.gate)) if stop is not None else Content("")
    if row.behind is not None:
        behind = cell(f"behind {plain(row.behind)}")
        return behind if stop is None else Content.assemble(behind, cell("  last "), words)
    return words if stop is not None else cell("not looked at yet", DIM)
