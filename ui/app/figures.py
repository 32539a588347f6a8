"""Numbers and bars of a fixed width, so that columns line up and nothing moves when a value changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from store.words import count, duration, size
from ui.app.colours import DIM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.app.colours import Mark

ABSENT: Final = "—"
"""What the record does not hold."""
_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MINUTE_NS: Final = 60_000_000_000
_UNITS: Final = {"tokens": "tok", "requests": "req"}


def whole(number: int | None) -> str:
    """A whole number with its thousands grouped, or absent."""
    return ABSENT if number is None else count(number)


def short(number: int | None) -> str:
    """A whole number in at most five characters: 812, 8,120, 81.2k, 812k, 1.2M; or absent."""
    if number is None:
        return ABSENT
    if abs(number) < 10_000:
        return count(number)
    for step, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(number) >= step * 0.9995:
            value = number / step
            return f"{value:.1f}{unit}" if abs(value) < 99.95 else f"{value:.0f}{unit}"
    return count(number)


def brief_size(number: int) -> str:
    """Bytes in at most eight characters: `4.46 GiB`, `471 MiB`, `12.3 KiB`, `812 B`."""
    for step, unit in _SIZES:
        if abs(number) >= step:
            value = number / step
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{number} B"


def with_unit(number: int | bool | None, unit: str) -> str:
    """A number with its unit: `4.00 GiB`, `65,536 tok`, `12 slots`, `on`; or absent."""
    if number is None:
        return ABSENT
    if isinstance(number, bool):
        return "on" if number else "off"
    if unit == "bytes":
        return size(number)
    return f"{count(number)} {_UNITS.get(unit, unit)}".rstrip()


def lasting(ns: int | None) -> str:
    """A duration in ns in at most twelve characters: `649 ms`, `58 min 3 s`, `2 h 33 min`, `4 d 7 h`; or absent."""
    if ns is None:
        return ABSENT
    minutes = ns // _MINUTE_NS
    if minutes < 60:
        return duration(ns)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 100 else f"{hours // 24:,} d {hours % 24} h"


def percent(part: float | None) -> str:
    """A part of one as whole percent; what is not nothing is never `0 %`, what is not all never `100 %`. Or absent."""
    if part is None:
        return ABSENT
    if 0 < part < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= part < 1 else f"{part * 100:.0f} %"


def figure(number: int | None, unit: str) -> str:
    """A number where its unit is known: bytes with their unit, all else without."""
    return with_unit(number, unit) if unit == "bytes" else whole(number)


def both_ends(text: str, cells: int) -> str:
    """A text in so many characters; of a longer one the beginning and the end."""
    begin = cells // 2
    return text if len(text) <= cells else f"{text[:begin]}…{text[begin + 1 - cells :]}"


def of_limit(observed: int | None, limit: int | None, short_by: int | None, unit: str) -> str:
    """A check's numbers: `66,496 of 65,536, 960 short`. What is absent is left out."""
    told = figure(observed, unit)
    words = told if limit is None else f"{told} of {figure(limit, unit)}"
    if short_by is not None and short_by > 0:
        words += f", {figure(short_by, unit)} short"
    return words


def bar(parts: Sequence[tuple[int, Mark]], total: int, cells: int) -> Content:
    """Parts of a total as marks, exactly `cells` wide when they sum up to it.

    A part that is not nothing gets at least one cell; where that makes too many, the widest gives way.
    """
    if total <= 0 or cells <= 0:
        return Content(" " * max(cells, 0))
    widths = _shares([amount for amount, _ in parts], total, cells)
    drawn = [(mark.sign * width, mark.style) for width, (_, mark) in zip(widths, parts, strict=True) if width]
    return Content.assemble(*drawn, " " * (cells - sum(widths)))


def _shares(amounts: Sequence[int], total: int, cells: int) -> list[int]:
    """Cells of each amount, rounded where the running sum stands so that they add up."""
    widths, reached, drawn = [], 0, 0
    for amount in amounts:
        reached += amount
        end = min(cells, round(reached * cells / total))
        width = max(end - drawn, 1 if amount > 0 else 0)
        widths.append(width)
        drawn += width
    while sum(widths) > cells:
        widths[widths.index(max(widths))] -= 1
    return widths


def whole_items(items: Sequence[Content], width: int) -> Content:
    """Items one behind the other, those that fit in so many cells and `…` for the others: no number is cut.

    The first alone is cut where not even that fits.
    """
    line, room = items[0], width - items[0].cell_length
    for at, item in enumerate(items[1:], start=1):
        last = at == len(items) - 1
        if item.cell_length > room - (0 if last else 2):
            return line.truncate(width, ellipsis=True) + Content.styled(" …" if room > 1 else "", DIM)
        line, room = line + item, room - item.cell_length
    return line.truncate(width, ellipsis=True)


def lines(parts: Sequence[Content | str]) -> Content:
    """Contents under each other."""
    return Content("\n").join(parts)
