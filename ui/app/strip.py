"""The strip: the last five minutes as a line of letters, each the gate that closed most passes of its stretch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from textual.content import Content

from ui.app.colours import Mark, gate_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.snapshot import Slice

KNOB_CHANGE: Final = "◆"
"""Stands for the letter in a stretch in which a knob was changed, in the colour of its gate."""
_LABEL: Final = "5 min      "
_LEGENDS: Final = ((120, 50), (100, 34), (0, 18))
"""Cells kept for the legend, by the width of the line from which on they are."""
_MOST_CELLS: Final = 100


def strip_line(slices: Sequence[Slice], width: int) -> Content:
    """The strip with its label before and its legend behind, at most `width` cells."""
    kept = next(cells for least, cells in _LEGENDS if width >= least)
    room = max(10, min(_MOST_CELLS, width - len(_LABEL) - kept))
    cells = _fit(slices, room)
    marks = [gate_mark(each.gate) for each in cells]
    drawn = [
        (KNOB_CHANGE if each.knob_change else mark.sign, mark.style or "dim")
        for each, mark in zip(cells, marks, strict=True)
    ]
    line = Content.assemble((_LABEL, "dim"), *drawn)
    return line + _legend(marks, any(each.knob_change for each in cells), width - line.cell_length)


def _fit(slices: Sequence[Slice], cells: int) -> list[Slice]:
    """As many slices as cells: neighbours merged, the one with more passes kept, or each drawn more than once."""
    if not slices:
        return []
    if len(slices) <= cells:
        wide = cells // len(slices)
        return [
            each if copy == 0 or not each.knob_change else _unmarked(each) for each in slices for copy in range(wide)
        ]
    groups: list[list[Slice]] = [[] for _ in range(cells)]
    for at, each in enumerate(slices):
        groups[at * cells // len(slices)].append(each)
    return [_merged(group) for group in groups]


def _unmarked(each: Slice) -> Slice:
    return type(each)(each.from_ns, each.to_ns, each.gate, each.passes)


def _merged(group: Sequence[Slice]) -> Slice:
    most = max(group, key=lambda each: each.passes)
    return type(most)(
        group[0].from_ns,
        group[-1].to_ns,
        most.gate,
        sum(each.passes for each in group),
        any(each.knob_change for each in group),
    )


def _legend(marks: Sequence[Mark], knob_change: bool, width: int) -> Content:
    """What the letters stand for, the most frequent first, as far as there is room."""
    counted = Counter(mark for mark in marks if mark.sign != " ")
    shown = [mark for mark, _ in counted.most_common()]
    if knob_change:
        shown.append(Mark(KNOB_CHANGE, "", "knob change"))
    legend = Content("  ")
    for mark in shown:
        entry = Content.assemble("  ", (mark.sign, mark.style), " ", (mark.word, "dim"))
        if legend.cell_length + entry.cell_length > width:
            break
        legend += entry
    return legend
