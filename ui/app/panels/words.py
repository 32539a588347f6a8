"""What panels write cells with: text of the record made harmless, values of knobs, sparklines."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from textual.content import Content

from store.words import duration
from ui.app.colours import BAD, DIM, WARN
from ui.app.figures import ABSENT, short, with_unit
from ui.app.moments import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPARKS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """Text of the record on one line: what cannot be printed, such as an escape, becomes a mark."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _UNPRINTABLE for each in text)


@lru_cache(maxsize=8_192)
def cell(text: str, style: str = "") -> Content:
    """One cell: a line of text in one style, never markup."""
    return Content.styled(plain(text), style) if style else Content(plain(text))


def span(ns: int | None) -> str:
    """A duration, calm enough to be repainted four times a second: tenths below ten seconds, seconds from there on."""
    if ns is None:
        return ABSENT
    if ns < 10 * SECOND:
        return f"{max(0, ns) / SECOND:.1f} s"
    return f"{ns // SECOND} s" if ns < 60 * SECOND else duration(ns)


def short_span(ns: int | None) -> str:
    """A duration in at most seven characters: 0.4 s, 59 s, 4 min, 23.9 h, 12 d."""
    if ns is None or ns < 60 * SECOND:
        return span(ns)
    seconds = ns / SECOND
    if seconds < 3_600:
        return f"{int(seconds / 60)} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 86_400 else f"{int(seconds / 86_400):,} d"


def in_unit(number: int | None, unit: str) -> str:
    """A number with its unit; ns as a duration."""
    return span(number) if unit == "ns" else with_unit(number, unit)


def since(at_ns: int | None, now_ns: int | None, *, in_short: bool = False) -> str:
    """How long ago a moment of the run's clock was at another; absent when either is."""
    if at_ns is None or now_ns is None:
        return ABSENT
    return short_span(now_ns - at_ns) if in_short else span(now_ns - at_ns)


def brief(number: int | None, unit: str) -> str:
    """A number with its unit in at most nine characters: `1.2M tok`, `4.00 GiB`."""
    if number is None or unit == "bytes":
        return with_unit(number, unit)
    return f"{short(number)} {with_unit(1, unit).removeprefix('1')}".replace("  ", " ").rstrip()


def value_of(value: int | bool | None, unit: str) -> str:
    """A knob's value: on, off, or a number with its unit. None is no limit."""
    return "off" if value is None else with_unit(value, unit)


def state_style(state: str) -> str:
    """How the state of a knob stands out."""
    return {"clamped": WARN, "raised": WARN, "dead": BAD, "off": DIM, "not binding": DIM}.get(state, "")


def length(part: float, cells: int) -> str:
    """A part of one as a bar of that many cells, in eighths of a cell; what is not nothing shows."""
    eighths = round(min(1.0, max(0.0, part)) * cells * 8)
    full, rest = divmod(max(eighths, 1 if part > 0 else 0), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def spark(
    values: Sequence[float | None], most: float | None = None, cells: int | None = None, *, most_of: bool = False
) -> str:
    """Values as one line of bars, the newest at the right; a stretch without a value is a blank.

    `most` is what a full bar stands for, by default the largest value. Where several values share one of `cells`, the
    least of them stands, or the most with `most_of`.
    """
    if cells is not None and len(values) > cells > 0:
        edges = [len(values) * each // cells for each in range(cells + 1)]
        pick = max if most_of else min
        values = [
            pick((each for each in values[start:end] if each is not None), default=None)
            for start, end in pairwise(edges)
        ]
    top = max((each for each in values if each is not None), default=0.0) if most is None else most
    line = "".join(" " if each is None else _spark(each, top) for each in values)
    return line if cells is None else line.rjust(cells)


def _spark(value: float, top: float) -> str:
    """One bar; what is beyond the top, or below nothing, is as high or low as a bar gets."""
    return _SPARKS[round(min(1.0, max(0.0, value / top)) * 7)] if top > 0 else _SPARKS[0]


def flow(entries: Sequence[Content], width: int, gap: int = 3) -> Content:
    """Entries beside each other, and under each other where the line is full; none is broken."""
    rows: list[list[Content]] = []
    room = 0
    for each in entries:
        if rows and each.cell_length + gap <= room:
            rows[-1].append(each)
            room -= each.cell_length + gap
        else:
            rows.append([each])
            room = width - each.cell_length
    return Content("\n").join([Content(" " * gap).join(row) for row in rows])
