"""What panels write cells with: text of the record made harmless, values of knobs, sparklines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from ui.app.figures import ABSENT, lasting, with_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPARKS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


def plain(text: str) -> str:
    """Text of the record on one line: what cannot be printed, such as an escape, becomes a mark."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _UNPRINTABLE for each in text)


def cell(text: str, style: str = "") -> Content:
    """One cell: a line of text in one style, never markup."""
    return Content.styled(plain(text), style) if style else Content(plain(text))


def since(at_ns: int | None, now_ns: int | None) -> str:
    """How long ago a moment of the run's clock was at another; absent when either is."""
    return ABSENT if at_ns is None or now_ns is None else lasting(max(0, now_ns - at_ns))


def clock(at_ns: int | None, first_ns: int | None) -> str:
    """A moment as time since the run began: 1:02:03.4."""
    if at_ns is None:
        return ABSENT
    tenths = max(0, at_ns - (first_ns or 0)) // 100_000_000
    minutes, tenths = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{tenths // 10:02}.{tenths % 10}"


def value_of(value: int | bool | None, unit: str) -> str:
    """A knob's value: on, off, or a number with its unit. None is no limit."""
    return "off" if value is None else with_unit(value, unit)


def length(part: float, cells: int) -> str:
    """A part of one as a bar of that many cells, in eighths of a cell; what is not nothing shows."""
    eighths = round(min(1.0, max(0.0, part)) * cells * 8)
    full, rest = divmod(max(eighths, 1 if part > 0 else 0), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def spark(values: Sequence[float | None], most: float | None = None, cells: int | None = None) -> str:
    """Values as one line of bars, the newest at the right; a stretch without a value is a blank.

    `most` is what a full bar stands for, by default the largest value. With `cells`, as many of the newest values as
    that, and the least of each where several share a cell.
    """
    if cells is not None and len(values) > cells > 0:
        values = [
            _least(values[len(values) * each // cells : len(values) * (each + 1) // cells]) for each in range(cells)
        ]
    top = max((each for each in values if each is not None), default=0.0) if most is None else most
    line = "".join(
        " " if each is None else _SPARKS[min(7, max(0, round(each / top * 7)))] if top > 0 else _SPARKS[0]
        for each in values
    )
    return line if cells is None else line.rjust(cells)


def _least(values: Sequence[float | None]) -> float | None:
    return min((each for each in values if each is not None), default=None)
