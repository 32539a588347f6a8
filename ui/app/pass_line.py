"""One pass as one line: its number, its members, its batch as a bar, and the gate that closed it with the number."""

from __future__ import annotations

from statistics import median_high
from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from store.words import count, counted
from ui.app.colours import COMPUTED, DEVICE, DIM, LOADED, ROOM, VERDICTS, gate_mark
from ui.app.figures import bar, brief_size, of_limit, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.snapshot import PassRow, Stop

_STEPS: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_FINE: Final = range(10, 101)
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
    fixed = _PASS + 1 + _MEMBERS + 2 + 2 + _GATE + 1
    if width < 74:
        columns = (0, 0, 0, max(0, min(14, width - fixed - _LEAST_BAR)))
    elif width < 92:
        columns = (0, 0, 0, 14)
    elif width < 110:
        columns = (9, 8, 7, 15)
    else:
        columns = (9, 8, 8, 31)
    time, computed, cached, number = columns
    return Shape(time, max(_LEAST_BAR, width - fixed - sum(columns)), computed, cached, number)


class Scale(msgspec.Struct, frozen=True):
    """Tokens that a full bar stands for. Cached and computed tokens have one each unless `joined`."""

    cached: int
    computed: int
    joined: bool = False


def scale_of(rows: Sequence[PassRow], *, joined: bool) -> Scale:
    """The scale that holds every batch; a full bar of computed tokens is their limit in most passes, if there is one.

    Room beyond that ends with the bar, so that one pass that another gate closed does not shrink all others.
    """
    cached = max((row.device + row.loaded for row in rows), default=0)
    computed = max((row.computed for row in rows), default=0)
    limits = [row.computed + row.room for row in rows if row.members]
    if limits:
        computed = max(computed, median_high(limits))
    if joined:
        most = max((row.device + row.loaded + row.computed + row.room for row in rows), default=0)
        return Scale(_rounded(most), _rounded(most), joined=True)
    return Scale(_rounded(cached), _rounded(computed, _FINE))


def _rounded(most: int, steps: Sequence[int] = _STEPS) -> int:
    """Rounded up to few digits, so that it seldom changes."""
    if most <= 10:
        return 10
    power = int(10 ** (len(str(most)) - 2))
    return next(step * power for step in steps if step * power >= most)


def _halves(cells: int) -> tuple[int, int]:
    """Cells of cached and of computed tokens, one being left for the line between them."""
    cached = (cells - 1) * 2 // 5
    return cached, cells - 1 - cached


def legend(width: int, scale: Scale) -> Content:
    """The line above the passes: what the columns are, and what a full bar stands for."""
    columns = shape(width)
    cached, computed = _halves(columns.bar)
    bars = (
        _full("a full bar is", scale.computed, columns.bar)
        if scale.joined
        else f"{_full('cached, full', scale.cached, cached)}│{_full('computed, full', scale.computed, computed)}"
    )
    return Content.assemble(
        "time".ljust(columns.time) if columns.time else "",
        f"{'pass':>{_PASS}} ",
        f"{'n':>{_MEMBERS}}  ",
        bars,
        f"{'comp.':>{columns.computed}}" if columns.computed else "",
        f"{'cached':>{columns.cached}}" if columns.cached else "",
        "  closed by",
    ).stylize(DIM)


def _full(words: str, tokens: int, cells: int) -> str:
    """What a full bar stands for, in that many cells."""
    told = short(tokens).replace(".0", "")
    tellings = (f"{words} {told}", f"{words.split(', ', maxsplit=1)[0]} {told}", told)
    return next((each for each in tellings if len(each) <= cells), told[:cells]).ljust(cells)


def marks() -> Content:
    """What the marks of a bar stand for."""
    tiers = (DEVICE, LOADED, COMPUTED, ROOM)
    return Content("  ").join(Content.assemble((mark.sign, mark.style), " ", (mark.word, DIM)) for mark in tiers)


def _drawn(row: PassRow, scale: Scale, cells: int) -> Content:
    """The batch as a bar, exactly as many cells."""
    cached = [(row.device, DEVICE), (row.loaded, LOADED)]
    computed = [(row.computed, COMPUTED), (row.room, ROOM)]
    if scale.joined:
        return bar([*cached, *computed], scale.computed, cells)
    left, right = _halves(cells)
    return Content.assemble(bar(cached, scale.cached, left), ("│", DIM), bar(computed, scale.computed, right))


def pass_line(row: PassRow, width: int, scale: Scale, *, time: str = "") -> Content:
    """One pass. One that admitted nothing is a thin line; passes that repeat its refusal are counted on it."""
    columns = shape(width)
    cells = columns.bar
    if row.members:
        drawn = _drawn(row, scale, cells)
        number = Content(f"{row.number:>{_PASS},} {len(row.members):>{_MEMBERS}}  ")
    else:
        drawn = Content.styled(_nothing(row.repeats, cells).center(cells, "╌")[:cells], DIM)
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
        (figures, DIM),
        "  ",
        _closed(row, columns.number),
    ).truncate(width, ellipsis=True)


def _nothing(repeats: int, cells: int) -> str:
    """That nothing entered, and in how many passes, as far as it fits."""
    tellings = (
        (f" nothing entered, nor in {counted(repeats, 'pass', 'passes')} more ", f" nothing, {repeats + 1:,} times ")
        if repeats
        else (" nothing entered ",)
    )
    return next((each for each in tellings if len(each) <= cells), " nothing ")


def _closed(row: PassRow, width: int) -> Content:
    """The gate that closed the pass and the number, in `width` cells beside its name; else what one would have done."""
    stop = row.closed
    if stop is None and row.shadowed is not None:
        would, sign = row.shadowed, VERDICTS["would_refuse"]
        gate = (f"{would.gate:<{_GATE - 1}} ", gate_mark(would.gate).style)
        return Content.assemble((sign.sign, sign.style), gate, stop_number(would, width - 1))
    if stop is None:
        words = "took the whole queue" if row.members else "nothing closed it"
        return Content.styled(words, DIM).truncate(_GATE + 1 + width, ellipsis=True)
    mark = gate_mark(stop.gate)
    return Content.assemble((f"{stop.gate:<{_GATE}} ", mark.style), stop_number(stop, width))


def stop_number(stop: Stop, width: int) -> str:
    """The number of a stop that says most in `width` cells; empty when none fits."""
    told = brief_size if stop.unit == "bytes" else count
    brief = f"{told(stop.short_by)} short" if stop.short_by else ""
    limit = f"limit {told(stop.limit)}" if stop.limit is not None else ""
    whole = of_limit(stop.observed, stop.limit, stop.short_by, stop.unit) if stop.observed is not None else ""
    spent = whole if not stop.short_by else ""
    for words in (whole, brief, spent, limit):
        if words and len(words) <= width:
            return words
    return ""
