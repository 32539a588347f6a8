"""An opened pass as lines: what it was decided from, each decision, its gates in order, and what was not reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from store.words import counted, size, times
from ui.app.colours import BAD, DIM, OUTCOMES, STRONG, VERDICTS, Mark, gate_style
from ui.app.figures import ABSENT, both_ends, figure, lasting, of_limit
from ui.app.moments import clock
from ui.view.ladder import SHADOWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ui.view.snapshot import CheckView, DecisionView, Head, MemberBar, PassDetail, Stop

_ID: Final = 12
_UNKNOWN: Final = Mark("?", "", "")


class DetailLine(msgspec.Struct, frozen=True):
    """One line, and the decision it belongs to, by its place in the pass; None for what is of the whole pass."""

    items: tuple[Content, ...]
    """What does not fit is left out item by item."""
    decision: int | None = None


Items = tuple[Content, ...]


def _one(text: str, style: str) -> Items:
    """One item; none for no text."""
    return (Content.styled(text, style),) if text else ()


def _spaced(told: Iterable[str]) -> Items:
    """Items with two blanks between them, all dim."""
    return tuple(Content.styled(f"  {each}" if at else each, DIM) for at, each in enumerate(told))


def detail_lines(detail: PassDetail, head: Head, opened: frozenset[int]) -> Iterator[DetailLine]:
    """The lines of an opened pass; `opened` says which decisions show their gates."""
    row = detail.row
    yield DetailLine(_decided_from(detail, head))
    members = {member.request: member for member in row.members}
    if members:
        yield DetailLine(_columns())
    for at, decision in enumerate(detail.decisions):
        yield DetailLine(_decision(decision, members.get(decision.request)), at)
        if at in opened:
            for items in _ladder(decision):
                yield DetailLine(items, at)
    if not detail.decisions:
        yield DetailLine(_one("no decision is kept of this pass", DIM))
    if row.shadowed is not None:
        yield DetailLine(_would(row.shadowed))
    yield DetailLine((_not_reached(detail),))
    if row.repeats:
        yield DetailLine(_one(f"the same refusal was met {times(row.repeats)} more", DIM))
    yield DetailLine(_capacity(detail))
    if detail.parts:
        yield DetailLine(_parts(detail))


def _decided_from(detail: PassDetail, head: Head) -> Items:
    row = detail.row
    told = [
        clock(head, row.start_ns),
        f"knobs r{row.revision}",
        f"queue {row.queue:,}",
        f"decided in {lasting(row.decide_ns)}",
        f"step {lasting(row.step_ns)}" if row.step_ns is not None else "step not recorded" if row.members else "",
    ]
    return _spaced(each for each in told if each)


def _columns() -> Items:
    header = (f"  {'request':<{_ID}} ", f"{'cached':>10}", f"{'from host':>11}", f"{'computed':>10}", f"{'waited':>14}")
    return tuple(Content.styled(each, DIM) for each in header)


def _decision(decision: DecisionView, member: MemberBar | None) -> Items:
    mark = OUTCOMES.get(decision.outcome, _UNKNOWN)
    start = Content.assemble((mark.sign, mark.style), " ", f"{_cut(decision.request):<{_ID}} ")
    if member is None:
        return (start + _held(decision), *_numbers(decision.stop))
    cached = member.device + member.loaded
    figures = (f"{cached:>10,}", f"{member.loaded:>11,}", f"{member.computed:>10,}", f"{lasting(member.waited_ns):>14}")
    notes = []
    if decision.outcome == "admit_chunk":
        notes.append("  cut to a chunk")
    if decision.host_status == "skipped" and decision.resident:
        notes.append(f"  host {decision.resident:,} skipped: {decision.host_reason}")
    return (start, *map(Content, figures), *(Content.styled(each, DIM) for each in notes))


def _numbers(stop: Stop | None) -> Items:
    """What a gate saw, its limit, and what was short."""
    if stop is None:
        return ()
    told = of_limit(stop.observed, stop.limit, None, stop.unit)
    short = of_limit(stop.observed, stop.limit, stop.short_by, stop.unit).removeprefix(told)
    return tuple(Content(each) for each in (told, short) if each)


def _would(stop: Stop) -> Items:
    """What a gate would have done, had it been enforced."""
    mark = VERDICTS[SHADOWED]
    told = Content.assemble(
        (f"{mark.sign} in shadow mode, ", mark.style), (stop.gate, gate_style(stop.gate)), f" would have kept out "
        f"{_cut(stop.request or ABSENT)}: ",
    )  # fmt: skip
    return (told, *_numbers(stop))


def _held(decision: DecisionView) -> Content:
    """A decision that kept a request out: the gate and its reason."""
    word = {"wait": "waits", "park": "parked", "refuse": "refused"}.get(decision.outcome, decision.outcome)
    stop = decision.stop
    if stop is None:
        return Content(word)
    never = stop.reason == "can_never"
    return Content.assemble(
        (f"{word}  ", BAD if never else ""),
        (f"{stop.gate} ", gate_style(stop.gate)),
        (f"{stop.reason}  ", BAD if never else DIM),
    )


def _cut(request: str) -> str:
    """An id in its column; the beginning and the end of a long one."""
    clean = "".join(each if each.isprintable() else "?" for each in request)
    return both_ends(clean, _ID)


def _ladder(decision: DecisionView) -> Iterator[Items]:
    """The gates in the order in which they were evaluated."""
    yield _indented(
        f"prompt {decision.prompt:,}", f", {decision.done:,} done before" if decision.done else "",
        f", at most {decision.output:,} to generate", f", {decision.extend:,} charged as extend tokens",
    )  # fmt: skip
    if decision.checks_before_load_failure:
        yield _indented("before the load from the host failed:")
        yield from _checks(decision.checks_before_load_failure)
        tokens = counted(decision.evicted, "token")
        yield _indented(f"and without it, {tokens} evicted for it in vain:" if decision.evicted else "and without it:")
    yield from _checks(decision.checks)
    host = f"host hit {decision.host_status}" + (f": {decision.host_reason}" if decision.host_reason else "")
    yield _indented(
        host, f"  resident {decision.resident:,}", f"  matched {decision.matched:,}", f"  asked {decision.asked:,}"
    )


def _indented(first: str, *others: str) -> Items:
    return tuple(Content.styled(each, DIM) for each in (f"    {first}", *others) if each)


def _checks(checks: tuple[CheckView, ...]) -> Iterator[Items]:
    header = (f"    {'gate':<14}", f"{'observed':>11} ", f"{'limit':>11} ", f"{'short by':>11}", "  verdict")
    yield tuple(Content.styled(each, DIM) for each in header)
    for check in checks:
        mark = VERDICTS.get(check.verdict, _UNKNOWN)
        quiet = check.verdict in ("off", "not_evaluated")
        short = figure(check.short_by, check.unit) if check.short_by else ""
        numbers = (f"{figure(check.observed, check.unit):>11} ", f"{figure(check.limit, check.unit):>11} ")
        words = mark.word or check.verdict
        gate = Content.assemble(
            "  ", (mark.sign, mark.style), " ", (f"{check.gate:<14}", DIM if quiet else gate_style(check.gate))
        )
        yield (
            gate,
            *(Content.styled(each, DIM if quiet else "") for each in (*numbers, f"{short:>11}")),
            Content.styled(f"  {words}", mark.style),
            *_one(", no limit set" if check.verdict == "off" else "", mark.style),
            *_one(f"  {check.unit}" if not quiet and check.unit != "bytes" else "", DIM),
        )


def _not_reached(detail: PassDetail) -> Content:
    row = detail.row
    if not row.not_reached:
        words = Content.styled("every waiting request was looked at", DIM)
    elif row.closed is None:
        words = Content.styled(f"{row.not_reached:,} not reached", STRONG)
    else:
        words = Content.assemble(
            (f"{row.not_reached:,} not reached", STRONG),
            (": ", DIM),
            (row.closed.gate, gate_style(row.closed.gate)),
            (" closed the pass before their turn", DIM),
        )
    return words


def _capacity(detail: PassDetail) -> Items:
    told = [
        f"free {detail.free:,}",
        f"evictable {detail.evictable:,}",
        f"reserved {detail.reserved:,}",
        f"running {detail.running:,}",
        f"room after {detail.room_after:,}",
    ]
    if len(detail.lanes) > 1:
        tightest = min(range(len(detail.lanes)), key=lambda at: sum(detail.lanes[at]))
        free, evictable = detail.lanes[tightest]
        told.append(f"tightest lane {tightest}: {free:,} + {evictable:,} of {len(detail.lanes)} lanes")
    return _spaced(told)


def _parts(detail: PassDetail) -> Items:
    peak = ABSENT if detail.row.peak_bytes is None else size(detail.row.peak_bytes)
    (name, held), *others = detail.parts
    return _spaced([f"buffers peak {peak}: {name} {size(held)}", *(f"{name} {size(held)}" for name, held in others)])
