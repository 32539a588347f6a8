"""One pass as one line: its number, its members, its batch as a bar, and the gate that closed it with the number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from store.words import size
from ui.app.colours import COMPUTED, DEVICE, DIM, LOADED, ROOM, gate_mark
from ui.app.figures import bar, of_limit, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.snapshot import PassRow, Stop

_STEPS: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_PASS: Final = 9
_MEMBERS: Final = 3
_GATE: Final = 13
_LEAST_BAR: Final = 12


class Shape(msgspec.Struct, frozen=True):
    """The widths of the columns, in cells; a column of 0 is left out."""

    time: int
    bar: int
    computed: int
    cached: int
    number: int


def shape(width: int) -> Shape:
    """The columns that fit: the bar takes what is left."""
    fixed = _PASS + 1 + _MEMBERS + 2 + 2 + 2 + _GATE + 1
    if width < 74:
        columns = (0, 0, 0, max(0, min(11, width - fixed - _LEAST_BAR)))
    elif width < 92:
        columns = (0, 7, 0, 15)
    elif width < 110:
        columns = (9, 7, 7, 15)
    else:
        columns = (9, 7, 7, 31)
    time, computed, cached, number = columns
    return Shape(time, max(_LEAST_BAR, width - fixed - sum(columns)), computed, cached, number)


def scale_of(rows: Sequence[PassRow], *, computed_only: bool) -> int:
    """Tokens that a full bar stands for: the largest batch with its room, rounded up so that it seldom changes."""
    most = max((_total(row, computed_only=computed_only) for row in rows), default=0)
    if most <= 10:
        return 10
    power = int(10 ** (len(str(most)) - 2))
    return next(step * power for step in _STEPS if step * power >= most)


def _total(row: PassRow, *, computed_only: bool) -> int:
    cached = 0 if computed_only else row.device + row.loaded
    return cached + row.computed + (row.room or 0)


def legend(width: int, scale: int, *, computed_only: bool) -> Content:
    """The line above the passes: what the columns and marks are, and what a full bar stands for."""
    columns = shape(width)
    tiers = (COMPUTED, ROOM) if computed_only else (DEVICE, LOADED, COMPUTED, ROOM)
    marks = Content.assemble(*(part for mark in tiers for part in (f"{mark.word} ", (mark.sign, mark.style), "  ")))
    full = f"full bar {short(scale)}"
    room = columns.bar + 2
    if marks.cell_length + len(full) > room:
        marks = Content.assemble(*(part for mark in tiers for part in ((mark.sign, mark.style), f"{mark.word[:6]} ")))
    if marks.cell_length + len(full) <= room:
        marks = marks.pad_right(room - marks.cell_length - len(full)) + full
    marks = marks.truncate(room, ellipsis=True).pad_right(max(0, room - marks.cell_length))
    return Content.assemble(
        "time".ljust(columns.time) if columns.time else "",
        f"{'pass':>{_PASS}} ",
        f"{'n':>{_MEMBERS}}  ",
        marks,
        f"{'comp.':>{columns.computed}}" if columns.computed else "",
        f"{'cached':>{columns.cached}}" if columns.cached else "",
        "  closed by",
    ).stylize(DIM)


def pass_line(row: PassRow, width: int, scale: int, *, time: str = "", computed_only: bool = False) -> Content:
    """One pass. One that admitted nothing is a thin line; passes that repeat its refusal are counted on it."""
    columns = shape(width)
    cells = columns.bar
    if row.members:
        parts = [(row.computed, COMPUTED), (row.room or 0, ROOM)]
        if not computed_only:
            parts = [(row.device, DEVICE), (row.loaded, LOADED), *parts]
        drawn = bar(parts, scale, cells)
        number = Content(f"{row.number:>{_PASS},} {len(row.members):>{_MEMBERS}}  ")
    else:
        words = " nothing entered" + (f", nor in {row.repeats:,} passes more " if row.repeats else " ")
        drawn = Content.styled(words.center(cells, "╌")[:cells], DIM)
        number = Content.styled(f"{row.number:>{_PASS},} {'-':>{_MEMBERS}}  ", DIM)
    figures = ""
    if columns.computed:
        figures += f"{short(row.computed) if row.members else '':>{columns.computed}}"
    if columns.cached:
        figures += f"{short(row.device + row.loaded) if row.members else '':>{columns.cached}}"
    return Content.assemble(
        (time.ljust(columns.time), DIM) if columns.time else "",
        number,
        drawn,
        "  ",
        (figures, DIM),
        "  ",
        _closed(row.closed, columns.number),
    ).truncate(width, ellipsis=True)


def _closed(stop: Stop | None, width: int) -> Content:
    """The gate that closed the pass and the number, in `width` cells beside its name."""
    if stop is None:
        return Content.styled("took all of its queue", DIM).truncate(_GATE + 1 + width, ellipsis=True)
    mark = gate_mark(stop.gate)
    return Content.assemble((f"{stop.gate:<{_GATE}} ", mark.style), stop_number(stop, width))


def stop_number(stop: Stop, width: int) -> str:
    """The number of a stop that says most in `width` cells; empty when none fits."""
    brief = (
        "" if not stop.short_by else f"{size(stop.short_by) if stop.unit == 'bytes' else f'{stop.short_by:,}'} short"
    )
    limit = "" if stop.limit is None else f"limit {size(stop.limit) if stop.unit == 'bytes' else f'{stop.limit:,}'}"
    whole = of_limit(stop.observed, stop.limit, stop.short_by, stop.unit) if stop.observed is not None else ""
    spent = whole if not stop.short_by else ""
    for words in (whole, brief, spent, limit):
        if words and len(words) <= width:
            return words
    return ""
