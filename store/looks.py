"""Looks: what passes decided about one request, in order, and the stays in the queue they make up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.vocabulary import Gate, HostHit, Outcome, Reason, Verdict, unit_of
from store.life import Entry, Part
from store.waits import HELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store.waits import Key

LOOKS_SQL: Final = """SELECT d.pass, p.start_ns, p.revision, d.outcome, d.gate, d.reason,
    d.observed, d.limit_value, d.short_by, d.prompt_tokens, d.done_tokens, d.device_hit_tokens, d.extend_tokens,
    d.output_tokens, d.host_hit, d.matched_tokens, d.asked_tokens, d.evicted_tokens,
    CASE WHEN d.outcome IN (0, 1) THEN d.checks END AS checks, coalesce(t.count, 0), t.observed_last, t.limit_last
FROM decisions d INDEXED BY decisions_request
CROSS JOIN passes p ON p.run = d.run AND p.number = d.pass
LEFT JOIN repeats t ON t.run = d.run AND t.first_pass = d.pass AND t.request = d.request
WHERE d.run = ? AND d.request = ? ORDER BY d.pass, d.position"""

_ADMITTED: Final = (Outcome.ADMIT, Outcome.ADMIT_CHUNK)


class Look(NamedTuple):
    """One decision about the request, with its pass and its repeats. Tokens unless said; see the table `decisions`."""

    number: int
    """The pass."""
    start_ns: int
    revision: int
    outcome: int
    gate: int | None
    reason: int | None
    observed: int | None
    limit: int | None
    short_by: int | None
    prompt: int
    done: int
    device_hit: int
    extend: int
    output: int
    host: int
    matched: int
    asked: int
    evicted: int
    checks: str | None
    repeats: int
    observed_last: int | None
    limit_last: int | None

    @property
    def times(self) -> int:
        """How often a pass decided this, repeats counted."""
        return 1 + self.repeats

    @property
    def loading(self) -> int:
        """What the load-back plan brings."""
        return self.matched if self.host in (HostHit.PLANNED, HostHit.LOADED) else 0


class Revision(NamedTuple):
    """What of a knob revision says how a request was charged. None where the record does not hold it."""

    page: int | None
    chunked: bool | None


class Stay:
    """One stay in the queue, and what came after its end."""

    __slots__ = ("after", "computing", "looks", "start_ns")

    def __init__(self, start_ns: int, after: str) -> None:
        self.start_ns = start_ns
        self.after = after
        self.looks: list[Look] = []
        """Looks while it waited, the one that ended it among them."""
        self.computing: list[Look] = []
        """Looks at its continuing chunk."""

    @property
    def ended_by(self) -> Look | None:
        """The look that admitted or refused it, None while it waits."""
        last = self.looks[-1] if self.looks else None
        return last if last is not None and last.outcome in (*_ADMITTED, Outcome.REFUSE) else None


def stays_of(arrival_ns: int | None, looks: list[Look], given_back: Iterable[tuple[int, str]]) -> list[Stay]:
    """The stays in the queue of one request. `given_back` holds (time, `retract` or `preempt`), in order."""
    stays: list[Stay] = []
    if arrival_ns is not None:
        stays.append(Stay(arrival_ns, "arrival"))
    moments: list[tuple[int, int, Look | str]] = [(look.start_ns, 1, look) for look in looks]
    moments += [(at_ns, 0, kind) for at_ns, kind in given_back]
    moments.sort(key=lambda moment: moment[:2])
    for at_ns, _, what in moments:
        waiting = bool(stays) and stays[-1].ended_by is None
        if isinstance(what, str):
            if not waiting:
                stays.append(Stay(at_ns, what))
        elif waiting:
            stays[-1].looks.append(what)
        elif (
            stays and what.outcome not in (Outcome.WAIT, Outcome.REFUSE) and (what.done or what.outcome == Outcome.PARK)
        ):
            stays[-1].computing.append(what)
        else:  # what brought it back into the queue is missing from the record
            stays.append(Stay(at_ns, "retract" if stays else "arrival"))
            stays[-1].looks.append(what)
    return stays


def parts_of(spent: Mapping[Key, int], looks: list[Look], revisions: Mapping[int, Revision]) -> tuple[Part, ...]:
    """The parts of a wait, the longest first, each with the numbers of the last look."""
    parts = []
    for (kind, stop), ns in spent.items():
        if stop is None:
            parts.append(Part(kind=kind, ns=ns))
        elif kind == HELD:
            saying = [look for look in looks if (look.gate, look.reason) == stop and look.outcome == Outcome.WAIT]
            parts.append(as_part(ns, saying, revisions))
        else:
            parts.append(Part(kind=kind, ns=ns, gate=Gate(stop[0]).word, reason=Reason(stop[1]).word))
    return tuple(sorted(parts, key=lambda part: -part.ns))


def as_part(ns: int, looks: list[Look], revisions: Mapping[int, Revision]) -> Part:
    """Time a gate held the request, with the numbers of the last of some looks that name that gate."""
    last = looks[-1]
    gate, reason = Gate(last.gate or 0), Reason(last.reason or 0)
    observed, limit, short_by = last.observed or 0, last.limit or 0, last.short_by or 0
    if last.observed_last is not None and last.limit_last is not None:
        short_by += (last.observed_last - last.limit_last) - (observed - limit)
        observed, limit = last.observed_last, last.limit_last
    needs = _needs(gate, last, observed, revisions.get(last.revision, Revision(None, None)))
    return Part(
        kind=HELD,
        ns=ns,
        gate=gate.word,
        reason=reason.word,
        looks=sum(look.times for look in looks),
        observed=observed,
        limit=limit,
        short_by=short_by,
        unit=unit_of(gate, reason),
        needs=needs,
        left=None if needs is None else limit - (observed - needs),
    )


def entry_of(stay: Stay, until_ns: int, revisions: Mapping[int, Revision]) -> Entry:
    """The admission that ended a stay, and how its prompt was computed until it left the engine or the record ends."""
    first = stay.looks[-1]
    computed = [first, *(look for look in stay.computing if look.outcome in _ADMITTED)]
    parked = [look for look in stay.computing if look.outcome == Outcome.PARK]
    failed = [look for look in stay.looks if look.asked and look.host != HostHit.LOADED]
    skipped = first.host not in (HostHit.PLANNED, HostHit.LOADED)
    return Entry(
        number=first.number,
        at_ns=first.start_ns,
        device_hit_tokens=first.device_hit,
        host_loaded_tokens=first.loading,
        chunks=tuple((look.number, look.extend) for look in computed),
        host_hit=HostHit(first.host).word,
        matched_tokens=first.matched,
        recomputed_tokens=first.matched if skipped else 0,
        failed_load_tokens=failed[-1].asked if failed else 0,
        evicted_tokens=sum(look.evicted for look in failed),
        exempt=_gates_that_said(Verdict.EXEMPT, first),
        would_refuse=_gates_that_said(Verdict.WOULD_REFUSE, first),
        parked_by=as_part(_parked_ns(stay.computing, until_ns), parked, revisions) if parked else None,
    )


def _parked_ns(computing: list[Look], until_ns: int) -> int:
    """Time from each park to the next look at the chunk, or to the end of it all."""
    begins = [look.start_ns for look in computing]
    ends = [*begins[1:], until_ns]
    return sum(
        max(0, end_ns - look.start_ns)
        for look, end_ns in zip(computing, ends, strict=False)
        if look.outcome == Outcome.PARK
    )


def _needs(gate: Gate, look: Look, observed: int, revision: Revision) -> int | None:
    """What the request itself asked of a gate; None where that is no single number."""
    page = revision.page
    if gate is Gate.KV_CAPACITY:
        return observed
    if gate is Gate.CACHED_TOKENS:
        return look.device_hit + look.loading
    if page is None:
        return None
    if gate is Gate.EXTEND_TOKENS or (gate is Gate.INPUT_TOKENS and revision.chunked is False):
        return _aligned(look.extend, page)
    if gate is Gate.CHUNK_TOKENS:
        whole = _aligned(look.prompt - look.done - look.device_hit - look.loading, page)
        return whole if look.extend else page
    return None


def _aligned(tokens: int, page: int) -> int:
    return -(-tokens // page) * page


def _gates_that_said(verdict: Verdict, look: Look) -> tuple[str, ...]:
    checks = json.loads(look.checks or "[]")
    return tuple(gate.word for gate in Gate if 3 * gate < len(checks) and checks[3 * gate] == verdict)
