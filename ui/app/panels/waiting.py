"""The waiting room: who waits, for what, since when, and who can never fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.content import Content

from ui.app.colours import BAD, DIM, NEVER, gate_mark, gate_style
from ui.app.command import Command
from ui.app.figures import of_limit, whole
from ui.app.panels.messages import FilterWaiting, OpenRequest
from ui.app.panels.part import PartPanel, indented
from ui.app.panels.sql import of_run
from ui.app.panels.table import Column, KeyedTable
from ui.app.panels.words import cell, plain, short_span, since, span

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.app.lines import Lines
    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot, WaitingRoom, WaitingRow

_NEVER_MARK: Final = "✗"
_LONGEST_ID: Final = 40
"""Cells that an id gets where there is room; those that vLLM draws have 23 and more."""
_COLUMNS: Final = (
    Column("mark", "", 1, gap=1),
    Column("request", "request", 9),
    Column("reason", "held by", 19, grows=True),
    Column("since", "for", 7, right=True),
    Column("tried", "tried", 5, right=True, drop=4),
    Column("overtaken", "overtaken", 9, right=True, drop=3),
    Column("needs", "needs tok", 9, right=True),
    Column("waited", "waited", 13, right=True, drop=2),
    Column("numbers", "observed of limit", 38, drop=1),
)
_SQL: Final = """SELECT q.id AS request, q.arrival_ns, q.prompt_tokens, q.ended, d.pass AS last_pass, g.gate, e.reason,
    d.observed, d.limit_value AS "limit", d.short_by
FROM requests q LEFT JOIN decisions d ON d.run = q.run AND d.request = q.number AND d.pass = (
    SELECT max(l.pass) FROM decisions l WHERE l.run = q.run AND l.request = q.number)
LEFT JOIN gates g ON g.id = d.gate LEFT JOIN reasons e ON e.id = d.reason
WHERE q.run = :run AND q.admit_pass IS NULL AND (q.ended IS NULL OR q.ended = 'can_never')
ORDER BY q.ended IS NULL, q.number LIMIT :limit"""


class WaitingPanel(PartPanel):
    """The queue with the last reason of each request in its row."""

    PART: ClassVar[PanelName] = "waiting"
    TITLE = "Waiting room"
    HELP = """Every request that waits, the oldest first. Those that can never fit the pool stand before them, marked
✗: they were refused at once and hold nobody up.

* **held by**: the gate and the reason the request was told last; the letter and colour are the gate's. `behind X`:
  no pass got as far as this request; it stands behind X, which was looked at, or behind the gate X, which closed the
  last pass when a member had spent its budget.
* **for**: how long that reason has held without a break; of one that was never looked at, since it arrived.
* **tried**: passes that looked at it. **overtaken**: requests that arrived later and entered before it.
* **needs tok**: tokens it needs to enter. **waited**: since it arrived. Of one that can never fit, **for** and
  **waited** are until it was refused.
* **observed of limit**: what the gate saw with this request in the batch, what it allows, and by how much it is short.

Of a long queue a page is shown; past its last or first row the cursor goes on to the next page, as do `>` and `<`.
`—` is what the record does not hold. *Enter* opens the request. On a narrow screen columns go in this order:
observed of limit, waited, overtaken, tried."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("open request", "enter", "open_request", "open", "Show the life of the request under the cursor."),
        Command("later rows", "greater_than_sign", "page(1)", "", "Show the next rows of a long queue."),
        Command("earlier rows", "less_than_sign", "page(-1)", "", "Show the rows before."),
    )

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        self._comes_to = (-1, 0)
        """The first row of the page that was asked for, and the way to it, until it is there."""

    def compose(self) -> ComposeResult:
        """One table."""
        yield KeyedTable(_COLUMNS)

    def part(self, snapshot: Snapshot) -> Any:
        """The room, and the moment that durations are told from."""
        return None if snapshot.waiting is None else (snapshot.waiting, snapshot.head.at_ns)

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the table and tell how many there are."""
        room = snapshot.waiting
        if room is None:
            return
        now = snapshot.head.at_ns
        table = self.query_one(KeyedTable)
        table.want("request", min(_LONGEST_ID, max((len(row.request) for row in room.rows), default=0)))
        table.fill(room.rows, lambda row: str(row.number), lambda row: _cells(row, now))
        if room.rows and self._comes_to[0] == room.offset:
            table.go_to(str(room.rows[0 if self._comes_to[1] > 0 else -1].number))
            self._comes_to = (-1, 0)
        told = [f"{whole(room.total)} wait"]
        if room.fit is not None:
            told = [f"{whole(room.fit)} of {whole(room.total)} fit the filter"]
        if room.never_in_window:
            told.append(f"{whole(room.never_in_window)} can never fit")
        if room.unnamed:
            told.append(f"{whole(room.unnamed)} older ones not listed")
        told += _page_words(room)
        if snapshot.ask.waiting_filter:
            told.append(f"filter {plain(snapshot.ask.waiting_filter)}")
        self.border_title = Content(f"{self.TITLE}  {', '.join(told)}").markup

    def on_lines_chosen(self) -> None:
        """Enter, or a click on the row of the cursor."""
        self.action_open_request()

    def on_lines_beyond(self, event: Lines.Beyond) -> None:
        """The cursor would leave the rows shown: to the page that holds what is there, the cursor at its near end."""
        self.action_page(1 if event.index > 0 else -1)

    def action_open_request(self) -> None:
        """Open the request under the cursor."""
        row = self._row_at()
        if row is not None:
            self.post_message(OpenRequest(row.request))

    def action_page(self, pages: int) -> None:
        """Ask for the rows after or before those shown."""
        room = None if self.snapshot is None else self.snapshot.waiting
        if self.snapshot is None or room is None:
            return
        ask = self.snapshot.ask
        offset = max(0, room.offset + pages * ask.rows)
        if offset < max(1, _pageable(room)) and offset != room.offset:
            self._comes_to = (offset, pages)
            self.post_message(FilterWaiting(ask.waiting_filter, offset))

    def raw(self) -> str | None:
        """The row under the cursor as JSON."""
        return indented(self._row_at())

    def _row_at(self) -> WaitingRow | None:
        room = None if self.snapshot is None else self.snapshot.waiting
        key = self.query_one(KeyedTable).key_at
        return None if room is None else next((row for row in room.rows if str(row.number) == key), None)

    def as_sql(self) -> str | None:
        """The requests that have not entered, with the last decision about each."""
        return None if self.snapshot is None else of_run(_SQL, self.snapshot.head)


def _pageable(room: WaitingRoom) -> int:
    """Requests that wait which the rows are a page of."""
    return room.total if room.fit is None else room.fit


def _page_words(room: WaitingRoom) -> list[str]:
    """Which rows of a long queue these are, and the keys that show the others."""
    shown = sum(not row.never for row in room.rows)
    if _pageable(room) <= shown:
        return []
    last = room.offset + shown
    keys = ("<" if room.offset else "") + (">" if last < _pageable(room) else "")
    return [f"rows {room.offset + 1:,} to {last:,}" + (f" ({' '.join(keys)} for others)" if keys else "")]


def _cells(row: WaitingRow, now: int | None) -> dict[str, Content]:
    stop = row.stop
    style = BAD if row.never else ""
    mark = gate_mark(stop.gate) if stop is not None else None
    numbers = "" if stop is None else of_limit(stop.observed, stop.limit, stop.short_by, stop.unit)
    return {
        "mark": cell(_NEVER_MARK, NEVER) if row.never else cell(mark.sign, mark.style) if mark else cell(" "),
        "request": cell(row.request, NEVER if row.never else ""),
        "reason": _reason(row),
        "since": cell(
            short_span(row.waited_ns)
            if row.never
            else since(row.since_ns if row.since_ns is not None else row.arrival_ns, now, in_short=True)
        ),
        "tried": cell(whole(row.attempts)),
        "overtaken": cell(whole(row.overtaken)),
        "needs": cell(whole(row.needs), style),
        "waited": cell(span(row.waited_ns) if row.never else since(row.arrival_ns, now)),
        "numbers": cell(numbers, style),
    }


def _reason(row: WaitingRow) -> Content:
    stop = row.stop
    if row.never:
        return cell("can_never", NEVER)
    words = None if stop is None else cell(f"{stop.gate} {stop.reason}", gate_style(stop.gate))
    if row.behind is not None:
        behind = cell(f"behind {row.behind}")
        return behind if words is None else Content.assemble(behind, "  last ", words)
    if words is None and row.behind_gate is not None:
        return Content.assemble(cell("behind ", DIM), cell(row.behind_gate, gate_style(row.behind_gate)))
    return cell("not looked at yet", DIM) if words is None else words
