"""Two runs beside each other: one list with the batches of both, one cursor, and the row under it opened below."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from store.words import counted, duration
from ui.app.batches import CURSOR_COMMANDS
from ui.app.beside_lines import OpenedLine, legend, opened_lines, parted_words, row_line, scale_of, time_of
from ui.app.colours import BAD, DIM, STRONG, WARN
from ui.app.command import Command, bindings
from ui.app.keys_bar import by_word, keys_entry
from ui.app.lines import HoldsLines, Lines
from ui.app.panels.words import value_of
from ui.view.beside import Beside, Opening

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from ui.view.alignment import Row
    from ui.view.beside_reader import BesideReading

HELP: Final = """\
The batches of two runs, aligned in time: at the left the one that the screen is on, at the right the other, such as a
what-if of it that `glassgate whatif --keep` kept. Passes that admitted nobody are left out.

Two batches stand in one row when they have the same members and began within a second of each other, or else when each
is the other's nearest in time. Where the two part a red ≠ stands between them: other members, other tokens of the same
members, another gate that closed the batch, another verdict for those who stayed out, or a batch on one side alone.
What differs is bold. The clocks of both are brought together by the requests that both have, and only the time is
compared in which both have the same ones.

The row under the cursor is opened below, with everybody who was looked at on either side; Enter shows the gates of
both.
"""
CLOSE: Final = Command("back", "escape,B", "back", "back", "Go back to the screen of the run.")


class Heard(Message):
    """The reader has read something."""

    def __init__(self, told: Beside | Opening) -> None:
        super().__init__()
        self.told = told


class BesideRows(Lines):
    """The rows of both runs."""

    class Moved(Lines.Moved):
        """The cursor came to another row."""

    def __init__(self) -> None:
        super().__init__(id="beside-rows")
        self.rows: tuple[Row, ...] = ()
        self._beside: Beside | None = None
        self._scale = 1

    def take(self, beside: Beside) -> None:
        """Show these."""
        self.rows, self._beside, self._scale = beside.rows, beside, scale_of(beside)

    def line(self, index: int, width: int) -> Content:
        """One row."""
        assert self._beside is not None, "there are rows"  # noqa: S101 - they came with it
        row = self.rows[index]
        return row_line(row, width, self._scale, time_of(self._beside, row.start_ns))


class OpenedRows(Lines):
    """The lines of the row that is opened."""

    def __init__(self) -> None:
        super().__init__(id="beside-opened")
        self.rows: tuple[OpenedLine, ...] = ()

    def line(self, index: int, width: int) -> Content:
        """One line."""
        return self.rows[index].content.truncate(width, ellipsis=True)


class BesideScreen(HoldsLines, ModalScreen[None]):
    """The screen of two runs."""

    KEYS: ClassVar[tuple[Command, ...]] = (
        *CURSOR_COMMANDS,
        Command("next parting", "n,right_curly_bracket", "parting(1)", "parting", "Go to the next row that parts."),
        Command("previous parting", "N,left_curly_bracket", "parting(-1)", "parting", "Go to the one before."),
        Command("gates of both", "enter", "gates", "gates", "Go into the row; show or hide the gates of both sides."),
        Command("all gates", "a", "gates_of_all", "all gates", "Show or hide the gates of everybody in the row."),
        Command("other part", "tab", "other_part", "", "From the rows to the one that is opened, and back."),
        Command("copy as JSON", "c", "copy_json", "", "Copy the row under the cursor as JSON."),
        Command("screenshot", "s,ctrl+s", "app.picture", "", "Write the screen to an SVG file."),
        Command("theme", "t", "app.next_theme", "", "Dark, light, or without colour."),
        Command("help", "question_mark", "help", "help", "What stands here, and every key."),
        CLOSE,
        Command("quit", "q,ctrl+q,ctrl+c", "app.quit", "quit", "Leave."),
    )
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(KEYS)]
    DEFAULT_CSS = """
    BesideScreen { background: $background; layout: vertical; }
    BesideScreen .said { height: auto; max-height: 4; padding: 0 1; text-wrap: wrap; }
    BesideScreen .columns { height: 1; text-wrap: nowrap; }
    BesideScreen .keys { height: 1; padding: 0 1; text-wrap: nowrap; }
    BesideScreen #rows { height: 3fr; }
    BesideScreen #opened { height: 2fr; min-height: 5; }
    BesideScreen #opened:focus-within { height: 4fr; }
    """

    lines: OpenedRows

    def __init__(self, reader: BesideReading) -> None:
        super().__init__()
        self._reader = reader
        self.beside: Beside | None = None
        self.opening: Opening | None = None
        self.shown: frozenset[str] = frozenset()
        self.rows = BesideRows()
        self.lines = OpenedRows()
        self._said = Static(classes="said", markup=False)
        self._columns = Static(classes="columns", markup=False)
        self._keys = Static(_keys_line(self.KEYS), classes="keys")

    def compose(self) -> ComposeResult:
        """What is compared, the rows, the row that is opened, and the keys."""
        yield self._said
        with Vertical(id="rows", classes="panel") as rows:
            rows.border_title = "Beside"
            yield self._columns
            yield self.rows
        with Vertical(id="opened", classes="panel"):
            yield self.lines
        yield self._keys

    def on_mount(self) -> None:
        """Begin to read."""
        self.rows.focus()
        self._reader.start(self._hear)

    def _hear(self, told: Beside | Opening) -> None:
        """Called by the reader, from any thread."""
        self.post_message(Heard(told))

    def on_unmount(self) -> None:
        """End the reader."""
        self._reader.close()

    def on_heard(self, event: Heard) -> None:
        """Take what was read; the cursor stays on the batch it is on."""
        if isinstance(event.told, Opening):
            if event.told.place == self.rows.cursor:
                self.opening = event.told
                self._draw_opened()
            return
        first = self.beside is None or not self.beside.rows
        at_ns = None if first or self.beside is None else self.beside.rows[self.rows.cursor].start_ns
        self.beside = event.told
        self.rows.take(event.told)
        self._draw_said(event.told)
        if not event.told.rows:
            self._draw_place(event.told)
            return
        place = 0 if at_ns is None else bisect_left(event.told.rows, at_ns, key=lambda row: row.start_ns)
        if first and event.told.parting:
            place = event.told.parting[0]
        self.rows.changed(min(place, self.rows.count - 1))
        if first:
            self.call_after_refresh(self._show_around)
        self._moved(event.told)

    def on_resize(self) -> None:
        """What fits is another."""
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        if self.beside is not None:
            self._draw_said(self.beside)
            self._draw_place(self.beside)
        self._draw_opened()

    def _draw_said(self, beside: Beside) -> None:
        """What is to be said of both; it is the same wherever the cursor is."""
        self._said.update(_said(beside))

    def _draw_place(self, beside: Beside) -> None:
        """The columns, and which row the cursor is on."""
        self._columns.update(legend(beside, self.rows.width or 78), layout=False)
        cursor = self.rows.cursor
        after = bisect_right(beside.parting, cursor)
        where = f"{after:,} of {counted(len(beside.parting), 'row')} that part" if beside.parting else "no row parts"
        self.query_one("#rows").border_subtitle = (
            f"row {cursor + 1:,} of {len(beside.rows):,}  {where}" if beside.rows else ""
        )

    def _moved(self, beside: Beside) -> None:
        """Another row is under the cursor: open it."""
        self.shown = frozenset()
        self._draw_place(beside)
        self._reader.open(self.rows.cursor)

    def _draw_opened(self) -> None:
        opening, beside = self.opening, self.beside
        if opening is None or beside is None or opening.place >= len(beside.rows):
            return
        row = beside.rows[opening.place]
        held = self.lines.cursor
        self.lines.rows = tuple(opened_lines(opening, self.lines.width or 78, self.shown))
        self.lines.changed(held)
        self.query_one("#opened").border_title = f"{time_of(beside, row.start_ns)}  {parted_words(row.parts)}"

    # keys

    @property
    def in_hand(self) -> Lines:
        """The part that has the focus."""
        return self.lines if self.lines.has_focus else self.rows

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Nobody else needs to know."""
        event.stop()

    def on_beside_rows_moved(self) -> None:
        """Open the row."""
        self.lines.changed(0)
        if self.beside is not None:
            self._moved(self.beside)

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """A second click does what Enter does."""
        event.stop()
        self.action_gates()

    def action_parting(self, by: int) -> None:
        """To the next row that parts, or the one before."""
        beside = self.beside
        if beside is None:
            return
        cursor, parting = self.rows.cursor, beside.parting
        place = bisect_right(parting, cursor) if by > 0 else bisect_left(parting, cursor) - 1
        if 0 <= place < len(parting):
            self.rows.focus()
            self._go_to(parting[place])
        else:
            words = "no row parts" if not parting else f"no row parts {'after' if by > 0 else 'before'} this one"
            self.app.notify(words, timeout=4, markup=False)

    def _go_to(self, place: int) -> None:
        self.rows.move(place)
        self._show_around()

    def _show_around(self) -> None:
        """Show what was before the row and what came after it."""
        self.rows.show_from(max(0, self.rows.cursor - self.rows.page // 2))

    def action_gates(self) -> None:
        """From the rows into the one that is opened; there, the gates of the request under the cursor."""
        if not self.lines.has_focus:
            self.lines.focus()
            return
        request = self.lines.rows[self.lines.cursor].request if self.lines.count else ""
        if not request:
            self.action_gates_of_all()
            return
        self.shown ^= {request}
        self._draw_opened()

    def action_gates_of_all(self) -> None:
        """The gates of everybody in the row, or of nobody."""
        everybody = frozenset(line.request for line in self.lines.rows if line.request)
        self.shown = frozenset() if self.shown == everybody else everybody
        self._draw_opened()

    def action_other_part(self) -> None:
        """From the rows to the one that is opened, and back."""
        (self.rows if self.lines.has_focus else self.lines).focus()

    def action_copy_json(self) -> None:
        """Copy the row."""
        if self.beside is not None and self.beside.rows:
            row = self.beside.rows[self.rows.cursor]
            self.app.copy_to_clipboard(msgspec.json.format(msgspec.json.encode(row), indent=2).decode())
            self.app.notify("row copied as JSON, where the terminal allows it (OSC 52)", timeout=4)

    def action_help(self) -> None:
        """What stands here, and every key."""
        from ui.app.dialogs import HelpDialog  # noqa: PLC0415 - made when it is first wanted

        self.app.push_screen(HelpDialog("Help: two runs beside each other", HELP, (("Keys", self.KEYS),)))

    async def action_by_name(self, name: str) -> None:
        """Run a command by its name, for a click on its key."""
        for command in self.KEYS:
            if command.name == name:
                await self.run_action(command.action)
                return

    def action_back(self) -> None:
        """Out of the opened row first, then out of this screen."""
        if self.lines.has_focus:
            self.rows.focus()
        else:
            self.dismiss(None)


def _keys_line(commands: tuple[Command, ...]) -> Content:
    """The keys, each to be clicked."""
    told = [each for each in commands if each.footer]
    return Content("").join(keys_entry(word, group, of="screen") + "  " for word, group in by_word(told))


def _said(beside: Beside) -> Content:
    """Who is beside whom, and what is to be said of both."""
    parts = []
    for words, side in (("", beside.left), ("beside  ", beside.right)):
        rank = f" rank {side.rank}" if side.rank else ""
        told = f"  {side.workload}" if side.workload else ""
        parts.append(Content.assemble((words, DIM), (f"{side.run}{rank}", STRONG), (told, DIM)))
    first = Content("   ").join(parts)
    lines = [first]
    if beside.problem:
        lines.append(Content.assemble(("cannot read: ", WARN), beside.problem))
    if beside.fraction < 1:
        lines.append(Content(f"reading both records  {beside.fraction:.0%}".replace("%", " %")))
        return Content("\n").join(lines)
    if beside.knobs:
        knobs = ", ".join(f"{name} {value_of(a, unit)} | {value_of(b, unit)}" for name, a, b, unit in beside.knobs)
        lines.append(Content.assemble(("knobs that differ  ", DIM), knobs))
    same = len(beside.rows) - len(beside.parting)
    if beside.rows:
        first_words = ""
        if beside.parting:
            at_ns = beside.rows[beside.parting[0]].start_ns
            first_words = f", first at {time_of(beside, at_ns)} (+{duration(max(0, at_ns - beside.start_ns))})"
        lines.append(
            Content.assemble(
                f"{counted(same, 'row is', 'rows are')} the same, ",
                (f"{counted(len(beside.parting), 'row parts', 'rows part')}", BAD if beside.parting else ""),
                first_words,
                (f"   {_aligned(beside)}", DIM),
            )
        )
    elif not beside.problem:
        lines.append(Content.styled("no batch lies where both have a record, so there is nothing to compare", WARN))
    return Content("\n").join(lines)


def _aligned(beside: Beside) -> str:
    long = duration(max(0, beside.until_ns - beside.from_ns))
    if not beside.shared:
        return f"{long}, from both starts: the two have no request in common"
    return f"{long} with {counted(beside.shared, 'request')} in common"
