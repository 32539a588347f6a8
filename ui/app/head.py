"""The headline: whose run this is and whether it lives, which gate binds, and the strip of five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widget import Widget

from ui.app.colours import DIM, PRESENCES, STRONG, WARN, gate_style
from ui.app.figures import ABSENT, both_ends, lasting, of_limit, percent, whole
from ui.app.moments import age, clock, into_run
from ui.app.strip import strip_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.view.snapshot import Head, Quantiles

_FEW: Final = 30
"""Passes below which a share is said to rest on few."""
_WIDE: Final = 96
"""Columns from which the verdict is told in full."""
_SHORTEST_NS: Final = 100_000_000
"""A gate that binds for less has only just begun to."""
OLD: Final = frozenset({"engine_gone", "collector_gone"})
"""What makes every number on the screen one of the past."""


def is_old(head: Head) -> bool:
    """The numbers are the last of what died, and are shown as that; a moment that was gone to is what it is."""
    return head.presence in OLD and head.following


class Headline(Widget):
    """Three lines at the top."""

    DEFAULT_CSS = """
    Headline { height: 3; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._head: Head | None = None
        self._past = False
        self._told = ""

    def show(self, head: Head, *, past: bool) -> None:
        """Draw it; `past` says that the moment shown is not the newest one."""
        if head != self._head or past != self._past:
            self._head, self._past = head, past
            self.refresh()

    def render(self) -> Content:
        """The three lines."""
        if self._head is None:
            return Content.assemble(("Glassgate", STRONG), ("  reading the record ...", DIM))
        width = self.content_size.width
        return Content("\n").join(head_lines(self._head, width, past=self._past))


def head_lines(head: Head, width: int, *, past: bool) -> list[Content]:
    """The three lines, each at most `width` cells."""
    return [
        _who(head, width, past=past),
        _binding(head, width, past=past),
        strip_line(head.strip, width).truncate(width, ellipsis=True),
    ]


Segment = tuple[int, "Content | str"]
"""What gives way first, from 9 down to 0, which stays; and what it says."""


def _who(head: Head, width: int, *, past: bool) -> Content:
    """Engine, run and knobs at the left; presence in the middle; queue and percentiles at the right."""
    mark = PRESENCES[head.presence]
    old = is_old(head)
    number = DIM if old else ""
    left: list[Segment] = [
        (7, Content.styled("Glassgate", STRONG)),
        (6, " ".join(each for each in (head.engine, head.model) if each) or "unknown engine"),
        (3, f"rank {head.rank}"),
        (0, f"run {head.run[:12]}"),
        (2, "" if head.revision is None else f"knobs r{head.revision}"),
    ]
    when = age(head.last_pass_age_ns) if head.last_pass_age_ns is not None else ""
    middle: list[Segment] = [
        (0, Content.styled(f"{mark.sign} {mark.word}{_why_ended(head)}", mark.style)),
        (8, "simulated" if head.simulated else ""),
        (1, Content.styled("" if head.last_pass is None else f"pass {head.last_pass:,}", number)),
        (0, Content.styled("SHADOW: soft gates only record" if head.enforce is False else "", WARN)),
        (0, f"at {clock(head, head.at_ns)}" if past or not when else when),
        (8, into_run(head, head.at_ns) if past else ""),
    ]
    right: list[Segment] = [
        (3, Content.styled(f"q {whole(head.queue)}", number)),
        (8, Content.styled("" if head.running is None else f"running {head.running:,}", number)),
        (4, Content.styled(_quantiles("TTFT", head.ttft), number)),
        (9, Content.styled(_quantiles("queued", head.queue_time), number)),
    ]
    if old:
        right.insert(0, (0, Content.styled("old", DIM)))
    return spread((left, middle, right), width)


def _why_ended(head: Head) -> str:
    """The reason of an end that was not the regular one."""
    regular = head.presence != "ended" or head.end_reason in (None, "finished")
    return "" if regular else f": {head.end_reason}"


def _quantiles(name: str, values: Quantiles) -> str:
    if not values.count:
        return f"{name} {ABSENT}"
    return f"{name} p50 {lasting(values.p50_ns)} p95 {lasting(values.p95_ns)}"


def spread(groups: Sequence[Sequence[Segment]], width: int) -> Content:
    """Groups of segments over a line, two cells between segments; what has the highest number goes until they fit."""
    kept = [[(rank, _content(each)) for rank, each in group if each] for group in groups]

    def length() -> int:
        each = [sum(part.cell_length + 2 for _, part in group) - 2 for group in kept if group]
        return sum(each) + 3 * (len(each) - 1)

    while length() > width:
        most = max((rank for group in kept for rank, _ in group), default=0)
        if most == 0:
            break
        kept = [[part for part in group if part[0] != most] for group in kept]
    drawn = [Content("  ").join([part for _, part in group]) for group in kept if group]
    spare = max(0, width - sum(each.cell_length for each in drawn))
    line = Content("")
    for number, each in enumerate(drawn):
        line += each
        gaps = len(drawn) - 1 - number
        if gaps:
            gap = spare // gaps
            line += " " * gap
            spare -= gap
    return line.truncate(width, ellipsis=True)


def _content(text: Content | str) -> Content:
    return text if isinstance(text, Content) else Content(text)


def _binding(head: Head, width: int, *, past: bool) -> Content:
    """The gate that binds, its numbers, and how much the verdict rests on."""
    label = "binds now  " if head.presence == "live" and not past else "bound then " if past else "bound last "
    if head.binding is None:
        told = "the last pass took the whole queue" if head.passes_in_window else ""
        since = f"{head.passes_in_window:,} passes" if head.passes_in_window else "no pass"
        nothing: list[Segment] = [(0, Content.styled(f"{label}nothing", DIM)), (1, Content.styled(told, DIM))]
        return spread((nothing, [(2, Content.styled(f"{since} in the last 5 min", DIM))]), width)
    binding = head.binding
    stop = binding.stop
    old = is_old(head)
    told = of_limit(stop.observed, stop.limit, stop.short_by, stop.unit)
    left: list[Segment] = [
        (0, Content.assemble((label, DIM), (stop.gate, f"bold {gate_style(stop.gate)}"))),
        (5, stop.reason if stop.reason not in ("limit", "budget") else ""),
        (1, Content.styled(told if told != ABSENT else "", DIM if old else "")),
        (6, "" if stop.request is None else f"{both_ends(stop.request, 16)} waits"),
    ]
    few = ", too few to tell" if binding.passes < _FEW else ""
    lasted = None if binding.since_ns is None or head.at_ns is None else max(0, head.at_ns - binding.since_ns)
    long = width >= _WIDE
    rests = Content.assemble(
        (percent(binding.share), DIM if old else ""),
        (f" of the last 5 min, from {binding.passes:,} passes{few}" if long else f" of {binding.passes:,} passes", DIM),
    )
    told = "" if lasted is None or old or lasted < _SHORTEST_NS else f"for {lasting(lasted)}"
    right: list[Segment] = [(7, told), (2, rests)]
    return spread((left, right), width)
