"""A table of at most 500 rows that is updated in place: only cells that changed, the cursor kept by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import DataTable

from ui.view.snapshot import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
_SCROLLBAR: Final = 1
_FEW: Final = 20
"""Rows taken off the end one by one; more of them at once are cheaper to fill anew."""


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


class Row(msgspec.Struct, frozen=True):
    """One row: the key of what it is about, and its cells by the names of their columns."""

    key: str
    cells: Mapping[str, Content]


class KeyedTable(DataTable[Content], inherit_bindings=False):
    """Rows are slots that stay; what they show changes, so that a refill costs what has changed.

    Enter is its panel's, and left and right are the screen's.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        each for each in DataTable.BINDINGS if isinstance(each, Binding) and each.key not in {"enter", "left", "right"}
    ]

    DEFAULT_CSS = """
    KeyedTable {
        background: transparent;
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        &:focus { background-tint: transparent; }
        & > .datatable--header, &:ansi > .datatable--header, &:focus > .datatable--header {
            background: transparent; background-tint: transparent; text-style: dim;
        }
        & > .datatable--even-row, &:dark > .datatable--even-row { background: transparent; }
        & > .datatable--hover, & > .datatable--cursor { background: transparent; color: $foreground; text-style: none; }
        &:focus > .datatable--cursor {
            background: $cursor; color: $foreground; text-style: $block-cursor-text-style;
        }
    }
    """

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(cursor_type="row", cursor_foreground_priority="renderable", cell_padding=0, id=id)
        self.all_columns = tuple(columns)
        self.shown: tuple[Column, ...] = ()
        """The columns there is room for."""
        self._keys: list[str] = []
        self._cells: list[list[Content]] = []
        self._wanted: tuple[Row, ...] = ()

    @property
    def key_at(self) -> str | None:
        """The key of what the cursor is on; None in an empty table."""
        return self._keys[self.cursor_row] if 0 <= self.cursor_row < len(self._keys) else None

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows, the first 500 of them."""
        self._wanted = tuple(rows[:MOST_ROWS])
        if self.shown:
            self._fill()

    def go_to(self, key: str) -> bool:
        """Put the cursor on the row of this key; False when there is none."""
        if key not in self._keys:
            return False
        self.move_cursor(row=self._keys.index(key))
        return True

    def on_resize(self) -> None:
        """Choose the columns that fit beside a scrollbar, and fill them."""
        columns = _fitting(self.all_columns, self.outer_size.width - self.styles.gutter.width - _SCROLLBAR)
        if columns == self.shown:
            return
        key = self.key_at
        self.shown = columns
        self.clear(columns=True)
        self._cells = []
        for column in columns:
            header = column.header.rjust(column.width) if column.right else column.header
            self.add_column(Text(header, no_wrap=True, end=""), width=column.width + column.gap, key=column.name)
        self._fill()
        if key is not None:
            self.go_to(key)

    def _fill(self) -> None:
        held, place = self.key_at, self.cursor_row
        self._shorten(len(self._wanted))
        for slot, row in enumerate(self._wanted):
            if slot == len(self._cells):
                self.add_row(*(_laid(row.cells[column.name], column) for column in self.shown), key=str(slot))
                self._cells.append([row.cells[column.name] for column in self.shown])
                continue
            held_cells = self._cells[slot]
            for place_of, column in enumerate(self.shown):
                new = row.cells[column.name]
                if not new.is_same(held_cells[place_of]):
                    self.update_cell(str(slot), column.name, _laid(new, column))
                    held_cells[place_of] = new
        self._keys = [row.key for row in self._wanted]
        if held in self._keys:
            place = self._keys.index(held)
        if self._keys and place != self.cursor_row:
            self.move_cursor(row=min(place, len(self._keys) - 1))

    def _shorten(self, rows: int) -> None:
        """Take rows off the end."""
        if len(self._cells) - rows > _FEW:
            self.clear()
            self._cells = []
        for slot in range(rows, len(self._cells)):
            self.remove_row(str(slot))
        del self._cells[rows:]


def _laid(content: Content, column: Column) -> Content:
    """A cell as wide as its column."""
    short = content.truncate(column.width, ellipsis=True)
    return short.pad_left(max(0, column.width - short.cell_length)) if column.right else short


def _fitting(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """The columns that fit, those to be dropped first left out, and the one that grows grown."""

    def taken() -> int:
        return sum(column.width + column.gap for column in chosen) - (chosen[-1].gap if chosen else 0)

    chosen = list(columns)
    for column in sorted((each for each in columns if each.drop), key=lambda each: each.drop):
        if taken() <= width:
            break
        chosen.remove(column)
    spare = width - taken()
    growing = [column for column in chosen if column.grows]
    for place, column in enumerate(growing):
        share = spare * (place + 1) // len(growing) - spare * place // len(growing)
        chosen[chosen.index(column)] = msgspec.structs.replace(column, width=max(1, column.width + share))
    return tuple(chosen)
