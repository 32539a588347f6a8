"""A table of at most 500 rows: fixed columns, only the lines in view drawn, only those that changed drawn again."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import msgspec
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from ui.app.colours import DIM
from ui.app.lines import Lines
from ui.view.snapshot import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Click

_SCROLLBAR: Final = 1


class Column(msgspec.Struct, frozen=True):
    """One column. `width` is in cells; `drop` says in which order columns go when they do not fit, 0 never."""

    name: str
    header: str
    width: int
    right: bool = False
    drop: int = 0
    grows: bool = False
    """It takes what is left over, with others that do in equal shares."""
    gap: int = 2
    """Blank cells after it."""


class Rows(Lines):
    """The rows of a table. The cursor keeps to what it is on, and what is in view moves with it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "by(-1)", "Up", show=False),
        Binding("down", "by(1)", "Down", show=False),
        Binding("pageup", "by_page(-1)", "Page up", show=False),
        Binding("pagedown", "by_page(1)", "Page down", show=False),
        Binding("home", "to_end(-1)", "First row", show=False),
        Binding("end", "to_end(1)", "Last row", show=False),
    ]

    def __init__(self, draw: Callable[[int], Content]) -> None:
        super().__init__()
        self.keys: tuple[str, ...] = ()
        self._draw = draw
        self._drawn: dict[int, Content] = {}
        self._fresh = False
        """It got the focus and nothing was done there yet: the click that gave it the focus chooses nothing."""

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.keys)

    def line(self, index: int, width: int) -> Content:
        """One row, as it was drawn last."""
        del width
        if index not in self._drawn:
            self._drawn[index] = self._draw(index)
        return self._drawn[index]

    def _measure(self) -> None:
        """Tell how long it is; where its height does not follow its rows any that is in view at once is one length.

        Another length costs a layout of the whole screen.
        """
        height = self.styles.height
        rows = self.count if height is not None and height.is_auto else max(self.count, self.page)
        self.virtual_size = Size(self.width, rows)

    def refill(self, keys: tuple[str, ...]) -> None:
        """The rows are others."""
        key = self.keys[self.cursor] if self.cursor < len(self.keys) else None
        held, top, rows = self.cursor, self.scroll_offset.y, len(self.keys)
        drawn, self._drawn, self.keys = self._drawn, {}, keys
        self.cursor = keys.index(key) if key in keys else max(0, min(held, len(keys) - 1))
        self._measure()
        if self.cursor != held:
            self.scroll_to(y=top + self.cursor - held, animate=False)
            self._into_view()
            self.refresh()
            return
        for index in range(top, min(top + self.page, max(rows, len(keys)))):
            before = drawn.get(index)
            if before is None or index >= len(keys) or not self.line(index, 0).is_same(before):
                self.refresh_line(index)

    def on_focus(self) -> None:
        """A click that came with the focus is no choice."""
        self._fresh = True

    def on_click(self, event: Click) -> None:
        """Move the cursor to the row clicked; a click on it again chooses it."""
        fresh, self._fresh = self._fresh, False
        if fresh and event.y + self.scroll_offset.y == self.cursor:
            event.prevent_default().stop()

    def redraw(self) -> None:
        """All of it looks otherwise."""
        self._drawn = {}
        self.refresh()

    def action_by(self, rows: int) -> None:
        """Move the cursor by rows."""
        self.move(self.cursor + rows)

    def action_by_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.move(self.cursor + pages * self.page)

    def action_to_end(self, end: int) -> None:
        """Move the cursor to the first row, or the last."""
        self.move(0 if end < 0 else self.count - 1)


class KeyedTable(Vertical):
    """Rows under the line of their columns. The focus is on `rows`, and Enter is the panel's that holds it."""

    DEFAULT_CSS = """
    KeyedTable { height: 1fr; }
    KeyedTable > Static { height: 1; text-wrap: nowrap; }
    KeyedTable > Rows { scrollbar-size-horizontal: 0; }
    """

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.all_columns = tuple(columns)
        self.shown: tuple[Column, ...] = ()
        """The columns there is room for."""
        self.rows = Rows(self._line)
        self._header = Static(markup=False)
        self._items: Sequence[Any] = ()
        self._cells: Callable[[Any], Mapping[str, Content]] = dict
        self._wanted: dict[str, int] = {}

    def compose(self) -> ComposeResult:
        """The line of columns and the rows."""
        yield self._header
        yield self.rows

    @property
    def place(self) -> int:
        """The place of the row under the cursor."""
        return self.rows.cursor

    @property
    def key_at(self) -> str | None:
        """The key of what the cursor is on; None in an empty table."""
        return self.rows.keys[self.place] if self.place < self.rows.count else None

    @property
    def active(self) -> bool:
        """Whether the focus is on its rows."""
        return self.rows.has_focus

    def fill(
        self, items: Sequence[Any], key: Callable[[Any], str], cells: Callable[[Any], Mapping[str, Content]]
    ) -> None:
        """Show these rows, the first 500 of them. `cells` is called for those in view alone."""
        self._items, self._cells = items[:MOST_ROWS], cells
        self.rows.refill(tuple(key(each) for each in self._items))

    def go_to(self, key: str) -> bool:
        """Put the cursor on the row of this key; False when there is none."""
        if key not in self.rows.keys:
            return False
        self.rows.move(self.rows.keys.index(key))
        return True

    def want(self, name: str, cells: int) -> None:
        """Let a column be so wide where there is room; it keeps the most it ever wanted, so that nothing sways."""
        if cells > self._wanted.get(name, 0):
            self._wanted[name] = cells
            if self.size.width:
                self.on_resize()

    def on_resize(self) -> None:
        """Choose the columns that fit beside a scrollbar."""
        columns = fitting(self.all_columns, self.size.width - _SCROLLBAR, self._wanted)
        if columns != self.shown:
            self.shown = columns
            titles = [
                each.header.rjust(each.width) if each.right else each.header.ljust(each.width) for each in columns
            ]
            told = "".join(title + " " * each.gap for title, each in zip(titles, columns, strict=True))
            self._header.update(Content.styled(told.rstrip(), DIM))
            self.rows.redraw()

    def focus(self, scroll_visible: bool = True) -> Self:
        """Give the focus to the rows."""
        self.rows.focus(scroll_visible)
        return self

    def _line(self, index: int) -> Content:
        cells = self._cells(self._items[index])
        parts: list[Content] = []
        for column in self.shown:
            parts += [_laid(cells[column.name], column), Content(" " * column.gap)]
        return Content("").join(parts)


def _laid(content: Content, column: Column) -> Content:
    """A cell as wide as its column."""
    short = content.truncate(column.width, ellipsis=True)
    blank = max(0, column.width - short.cell_length)
    return short.pad_left(blank) if column.right else short.pad_right(blank)


def fitting(
    columns: Sequence[Column], width: int, wanted: Mapping[str, int] = MappingProxyType({})
) -> tuple[Column, ...]:
    """The columns that fit, those to be dropped first left out, and those that grow grown.

    What is left over goes first to columns whose values want more than their own width, by their names in `wanted`.
    """

    def taken() -> int:
        return sum(column.width + column.gap for column in chosen) - (chosen[-1].gap if chosen else 0)

    chosen = list(columns)
    for column in sorted((each for each in columns if each.drop), key=lambda each: each.drop):
        if taken() <= width:
            break
        chosen.remove(column)
    for place, column in enumerate(chosen):
        more = min(wanted.get(column.name, 0) - column.width, width - taken())
        if more > 0:
            chosen[place] = msgspec.structs.replace(column, width=column.width + more)
    spare = width - taken()
    growing = [column for column in chosen if column.grows]
    for place, column in enumerate(growing):
        share = spare * (place + 1) // len(growing) - spare * place // len(growing)
        chosen[chosen.index(column)] = msgspec.structs.replace(column, width=max(1, column.width + share))
    return tuple(chosen)
