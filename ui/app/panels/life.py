"""The life of a request as a bar of time: a letter and colour for the gate that held it, marks for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content

from ui.app.colours import COMPUTED, DEVICE, DIM, STRONG, WARN, Mark, gate_mark
from ui.app.figures import lines
from ui.app.panels.words import cell, flow, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.snapshot import LifeSpan

_WHATS: Final = {
    "computing": Mark("█", COMPUTED.style, "computing"),
    "decoding": Mark("▓", DEVICE.style, "decoding"),
    "between passes": Mark("·", DIM, "between passes"),
}
_OTHER: Final = Mark("?", WARN, "")
_UNDER: Final = {"held": "━", "behind": "╌"}
"""Under a gate's letters: the request was looked at and held, or stood behind one that was."""


def life_bar(spans: Sequence[LifeSpan], cells: int) -> Content:
    """The bar, and a line that tells held from behind.

    Every stretch has at least one cell as long as there are enough; a stretch without an end lasts to the last moment.
    """
    if not spans or cells <= 0:
        return cell("no part of its life is in the record", DIM)
    last = _last(spans)
    widths = _widths([max(0, _end(each, last) - each.from_ns) for each in spans], cells)
    bar, under = [], []
    for each, width in zip(spans, widths, strict=True):
        mark = _mark(each)
        bar.append(cell(mark.sign * width, mark.style))
        under.append(cell(_UNDER.get(each.what, " ") * width, mark.style))
    return lines([Content.assemble(*bar), Content.assemble(*under)])


def _end(each: LifeSpan, last: int) -> int:
    return last if each.to_ns is None else each.to_ns


def _mark(each: LifeSpan) -> Mark:
    return gate_mark(each.gate) if each.gate else _WHATS.get(each.what, _OTHER)


def _last(spans: Sequence[LifeSpan]) -> int:
    """The last moment that is known of it."""
    return max(each.to_ns if each.to_ns is not None else each.from_ns for each in spans)


def life_legend(spans: Sequence[LifeSpan], width: int) -> Content:
    """What each mark stands for, and how long it was in all, the longest first, in lines of that width."""
    if not spans:
        return Content("")
    last = _last(spans)
    times: dict[tuple[str, str | None], int] = {}
    for each in spans:
        kind = (each.what, each.gate)
        times[kind] = times.get(kind, 0) + max(0, _end(each, last) - each.from_ns)
    marks = {(each.what, each.gate): _mark(each) for each in spans}
    told = []
    for kind in sorted(times, key=lambda kind: -times[kind]):
        what, gate = kind
        sign = marks[kind].sign + _UNDER.get(what, "")
        words = f" {what} {gate} " if gate else f" {what} "
        told.append(Content.assemble(cell(sign, marks[kind].style), cell(words), cell(span(times[kind]), STRONG)))
    return flow(told, width)


def _widths(lengths: Sequence[int], cells: int) -> list[int]:
    """Cells of each stretch, in proportion, one at least while there are enough; they add up to `cells` exactly."""
    total = sum(lengths)
    least = 1 if len(lengths) <= cells else 0
    spare = cells - least * len(lengths)
    widths, reached, drawn = [], 0, 0
    for each in lengths:
        reached += each
        end = round(reached * spare / total) if total else 0
        widths.append(least + end - drawn)
        drawn = end
    if not total and widths:
        widths[-1] += spare
    return widths
