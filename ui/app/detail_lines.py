"""An opened pass as lines: what it was decided from, each decision, its gates in order, and what was not reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from textual.content import Content

from store.words import counted, size, times
from ui.app.colours import BAD, DIM, OUTCOMES, STRONG, VERDICTS, Mark, gate_style
from ui.app.figures import ABSENT, lasting, of_limit, whole, with_unit
from ui.app.moments import clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.snapshot import CheckView, DecisionView, Head, MemberBar, PassDetail

_ID: Final = 12
_UNKNOWN: Final = Mark("?", "", "")


class DetailLine(msgspec.Struct, frozen=True):
    """One line, and the decision it belongs to, by its place in the pass; None for what is of the whole pass."""

    content: Content
    decision: int | None = None


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
            for content in _ladder(decision):
                yield DetailLine(content, at)
    if not detail.decisions:
        yield DetailLine(Content.styled("no decision is kept of this pass", DIM))
    yield DetailLine(_not_reached(detail))
    if row.repeats:
        yield DetailLine(Content.styled(f"the same refusal was met {times(row.repeats)} more", DIM))
    yield DetailLine(_capacity(detail))
    if detail.parts:
        yield DetailLine(_parts(detail))


def _decided_from(detail: PassDetail, head: Head) -> Content:
    row = detail.row
    told = [
        clock(head, row.start_ns),
        f"knobs r{row.revision}",
        f"queue {row.queue:,}",
        f"decided in {lasting(row.decide_ns)}",
        f"step {lasting(row.step_ns)}" if row.step_ns is not None else "step not recorded" if row.members else "",
    ]
    return Content.styled("  ".join(each for each in told if each), DIM)


def _columns() -> Content:
    header = f"  {'request':<{_ID}} {'cached':>10}{'from host':>11}{'computed':>10}{'waited':>14}"
    return Content.styled(header, DIM)


def _decision(decision: DecisionView, member: MemberBar | None) -> Content:
    mark = OUTCOMES.get(decision.outcome, _UNKNOWN)
    start = Content.assemble((mark.sign, mark.style), " ", f"{_cut(decision.request):<{_ID}} ")
    if member is None:
        return start + _held(decision)
    cached = member.device + member.loaded
    line = start + f"{cached:>10,}{member.loaded:>11,}{member.computed:>10,}{lasting(member.waited_ns):>14}"
    if decision.outcome == "admit_chunk":
        line += Content.styled("  cut to a chunk", DIM)
    if decision.host_status == "skipped" and decision.resident:
        line += Content.styled(f"  host {decision.resident:,} skipped: {decision.host_reason}", DIM)
    return line


def _held(decision: DecisionView) -> Content:
    """A decision that kept a request out: the gate and its numbers."""
    word = {"wait": "waits", "park": "parked", "refuse": "refused"}.get(decision.outcome, decision.outcome)
    stop = decision.stop
    if stop is None:
        return Content(word)
    never = stop.reason == "can_never"
    words = Content.assemble(
        (f"{word}  ", BAD if never else ""),
        (f"{stop.gate} ", gate_style(stop.gate)),
        (f"{stop.reason}  ", BAD if never else DIM),
    )
    return words + of_limit(stop.observed, stop.limit, stop.short_by, stop.unit)


def _cut(request: str) -> str:
    """An id in its column; the beginning and the end of a long one."""
    clean = "".join(each if each.isprintable() else "?" for each in request)
    return clean if len(clean) <= _ID else f"{clean[:6]}…{clean[-5:]}"


def _ladder(decision: DecisionView) -> Iterator[Content]:
    """The gates in the order in which they were evaluated."""
    prompt = f"prompt {decision.prompt:,}" + (f", {decision.done:,} done before" if decision.done else "")
    yield _indented(f"{prompt}, at most {decision.output:,} to generate, {decision.extend:,} charged as extend tokens")
    if decision.checks_before_load_failure:
        yield _indented("before the load from the host failed:")
        yield from _checks(decision.checks_before_load_failure)
        tokens = counted(decision.evicted, "token")
        yield _indented(f"and without it, {tokens} evicted for it in vain:" if decision.evicted else "and without it:")
    yield from _checks(decision.checks)
    host = f"host hit {decision.host_status}" + (f": {decision.host_reason}" if decision.host_reason else "")
    funnel = f"resident {decision.resident:,}  matched {decision.matched:,}  asked {decision.asked:,}"
    yield _indented(f"{host}  {funnel}")


def _indented(text: str) -> Content:
    return Content.styled(f"    {text}", DIM)


def _checks(checks: tuple[CheckView, ...]) -> Iterator[Content]:
    yield Content.styled(f"    {'gate':<14}{'observed':>11} {'limit':>11} {'short by':>11}  verdict", DIM)
    for check in checks:
        mark = VERDICTS.get(check.verdict, _UNKNOWN)
        quiet = check.verdict in ("off", "not_evaluated")
        numbers = "".join(f"{_figure(value, check.unit):>11} " for value in (check.observed, check.limit))
        short = _figure(check.short_by, check.unit) if check.short_by else ""
        words = mark.word or check.verdict
        yield Content.assemble(
            "  ",
            (mark.sign, mark.style),
            " ",
            (f"{check.gate:<14}", DIM if quiet else gate_style(check.gate)),
            (f"{numbers}{short:>11}  ", DIM if quiet else ""),
            (words if check.verdict != "off" else "off, no limit set", mark.style),
            (f"  {check.unit}" if not quiet and check.unit != "bytes" else "", DIM),
        )


def _figure(value: int | None, unit: str) -> str:
    return with_unit(value, unit) if unit == "bytes" else whole(value)


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


def _capacity(detail: PassDetail) -> Content:
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
    return Content.styled("  ".join(told), DIM)


def _parts(detail: PassDetail) -> Content:
    peak = ABSENT if detail.row.peak_bytes is None else size(detail.row.peak_bytes)
    parts = "  ".join(f"{name} {size(held)}" for name, held in detail.parts)
    return Content.styled(f"buffers peak {peak}: {parts}", DIM)
