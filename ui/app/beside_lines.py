"""Two runs as lines: a row of the batches of both, and one row opened with the ladders of both."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from ui.app.colours import BAD, COMPUTED, DEVICE, DIM, LOADED, OUTCOMES, STRONG, VERDICTS, WARN, Mark, gate_style
from ui.app.figures import bar, both_ends, figure, of_limit, short, whole
from ui.app.moments import SECOND
from ui.app.panels.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.alignment import Batch, Parting, Row
    from ui.view.batches import CheckView, DecisionView, PassDetail
    from ui.view.beside import Beside, Opening

PARTED: Final = "≠"
_TIME: Final = 8
_NUMBER: Final = 7
_MEMBERS: Final = 3
_GATE: Final = 13
_FIGURE: Final = 7
_ROOMY: Final = 52
"""Cells of a side from which the tokens stand beside the bar as numbers."""
_NAME: Final = 14
_LEAST: Final = 6
_UNKNOWN: Final = Mark("?", "", "")


class OpenedLine(msgspec.Struct, frozen=True):
    """One line of a row that is opened, and the request it is about; empty for what is of the whole row."""

    content: Content
    request: str = ""


def time_of(beside: Beside, at_ns: int) -> str:
    """The time of day, UTC, of a moment of the left clock; seconds into the run where that is not known."""
    if beside.wall_ns is None:
        return f"+{(at_ns - beside.start_ns) / SECOND:.1f}"[:_TIME]
    return f"{dt.datetime.fromtimestamp((beside.wall_ns + at_ns) // SECOND, tz=dt.UTC):%H:%M:%S}"


def side_cells(width: int, first: int = _TIME) -> int:
    """Cells of each side of a line, beside the column at its left and the mark between the two."""
    return max(20, (width - first - 4) // 2)


def legend(beside: Beside, width: int) -> Content:
    """The line of columns, with the runs above their sides."""
    cells = side_cells(width)
    names = [
        f"{'pass':>{_NUMBER}} {'n':>{_MEMBERS}} {side.run}"[:cells].ljust(cells) for side in (beside.left, beside.right)
    ]
    return Content.styled(f"{'time':<{_TIME}} {names[0]}   {names[1]}".rstrip(), DIM)


def row_line(row: Row, width: int, scale: int, time: str) -> Content:
    """One row: both batches, and a mark between them where they part."""
    cells = side_cells(width)
    mark = Content.styled(f" {PARTED} ", BAD) if row.parts else Content.styled(" · ", DIM)
    return Content.assemble(
        (time.ljust(_TIME), DIM), " ", _side(row.left, row.parts, cells, scale), mark,
        _side(row.right, row.parts, cells, scale),
    ).truncate(width)  # fmt: skip


def _side(batch: Batch | None, parts: tuple[Parting, ...], cells: int, scale: int) -> Content:
    """One batch, exactly that many cells."""
    if batch is None:
        return Content.styled("no batch".center(cells, "╌"), DIM)
    figures = 2 * _FIGURE if cells >= _ROOMY else 0
    room = max(_LEAST, cells - _NUMBER - _MEMBERS - _GATE - 3 - figures)
    drawn = bar([(batch.device, DEVICE), (batch.loaded, LOADED), (batch.computed, COMPUTED)], scale, room)
    numbers = f"{short(batch.computed):>{_FIGURE}}{short(batch.device + batch.loaded):>{_FIGURE}}" if figures else ""
    gate = batch.gate or "nothing"
    style = gate_style(batch.gate) if batch.gate else DIM
    return Content.assemble(
        f"{batch.number:>{_NUMBER},} ",
        (f"{len(batch.members):>{_MEMBERS}} ", f"bold {WARN}" if "members" in parts or "alone" in parts else ""),
        drawn,
        (numbers, STRONG if "tokens" in parts else DIM),
        " ",
        (f"{gate:<{_GATE}}", f"bold {style}" if "gate" in parts else style),
    ).truncate(cells).pad_right(0)  # fmt: skip


def scale_of(beside: Beside) -> int:
    """The tokens that a full bar stands for: of a hundred batches of both, those of all but the five largest."""
    batches = (each for row in beside.rows for each in (row.left, row.right) if each is not None)
    totals = sorted(each.device + each.loaded + each.computed for each in batches)
    return max(1, totals[int(0.95 * (len(totals) - 1))]) if totals else 1


def parted_words(parts: tuple[Parting, ...]) -> str:
    """What a row parts in, in words."""
    if "alone" in parts:
        return "only one side has a batch here"
    return f"parts in {', '.join(parts)}" if parts else "the same on both sides"


def opened_lines(opening: Opening, width: int, shown: frozenset[str]) -> Iterator[OpenedLine]:
    """A row opened: who was looked at on either side, and the ladders of those in `shown`."""
    cells = side_cells(width, _NAME)
    whole_left, whole_right = _whole(opening.left, cells), _whole(opening.right, cells)
    yield OpenedLine(_line("", whole_left, whole_right, cells, parted=False))
    left, right = _decisions(opening.left), _decisions(opening.right)
    for request in dict.fromkeys([*left, *right]):
        one, other = left.get(request), right.get(request)
        parted = _verdict(one) != _verdict(other)
        sides = _held(one, opening.left), _held(other, opening.right)
        yield OpenedLine(_line(both_ends(plain(request), _NAME), *sides, cells, parted=parted), request)
        if request in shown:
            for content in _ladders(one, other, cells):
                yield OpenedLine(content, request)


def _decisions(detail: PassDetail | None) -> dict[str, DecisionView]:
    return {} if detail is None else {each.request: each for each in detail.decisions}


def _whole(detail: PassDetail | None, cells: int) -> Content:
    """What is of the whole pass."""
    if detail is None:
        return Content.styled("no batch", DIM)
    row = detail.row
    words = [f"pass {row.number:,}", f"queue {row.queue:,}", f"{row.not_reached:,} not reached"]
    while len("  ".join(words)) > cells:
        words.pop()
    return Content.styled("  ".join(words), DIM)


def _line(name: str, left: Content, right: Content, cells: int, *, parted: bool) -> Content:
    left = left.truncate(cells, ellipsis=True)
    mark = Content.styled(f" {PARTED} ", BAD) if parted else Content("   ")
    return Content.assemble(
        f"{name:<{_NAME}} ", left, " " * max(0, cells - left.cell_length), mark, right.truncate(cells, ellipsis=True)
    )


def _verdict(decision: DecisionView | None) -> tuple[str, ...]:
    """What a decision came to, so that two can be compared."""
    if decision is None:
        return ()
    stop = decision.stop
    return (decision.outcome, *(() if stop is None else (stop.gate, stop.reason)))


def _held(decision: DecisionView | None, detail: PassDetail | None) -> Content:
    """What one side decided."""
    if decision is None:
        return Content.styled("" if detail is None else "not looked at", DIM)
    mark = OUTCOMES.get(decision.outcome, _UNKNOWN)
    start = Content.assemble((mark.sign, mark.style), " ")
    member = None if detail is None else next((m for m in detail.row.members if m.request == decision.request), None)
    if member is not None:
        return start + Content(f"{whole(member.computed)} comp. {whole(member.device + member.loaded)} cached")
    stop = decision.stop
    if stop is None:
        return start + Content(decision.outcome)
    short_by = "" if not stop.short_by else f" {figure(stop.short_by, stop.unit)} short"
    return start + Content.assemble((stop.gate, gate_style(stop.gate)), f" {stop.reason}", (short_by, DIM))


def _ladders(left: DecisionView | None, right: DecisionView | None, cells: int) -> Iterator[Content]:
    """The gates in the order of their evaluation, of both sides."""
    one, other = ({each.gate: each for each in (() if side is None else side.checks)} for side in (left, right))
    for gate in dict.fromkeys([*one, *other]):
        a, b = one.get(gate), other.get(gate)
        parted = a is not None and b is not None and a.verdict != b.verdict
        line = _line(f" {gate}"[:_NAME], _check(a), _check(b), cells, parted=parted)
        yield line.stylize(gate_style(gate), 0, _NAME)


def _check(check: CheckView | None) -> Content:
    """One gate of one side: verdict, observed and limit."""
    if check is None:
        return Content("")
    mark = VERDICTS.get(check.verdict, _UNKNOWN)
    if check.verdict in ("off", "not_evaluated"):
        return Content.styled(f"{mark.sign} {mark.word}", DIM)
    numbers = of_limit(check.observed, check.limit, None, check.unit)
    return Content.assemble((mark.sign, mark.style), f" {numbers}", (f"  {mark.word}", DIM))
