"""What passes have said to one request by a moment: the last word, since when, and how often it was looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.vocabulary import Outcome
from store.looks import Look, Revision, as_part
from ui.view.repeats import repeated_by
from ui.view.snapshot import Stop

if TYPE_CHECKING:
    from ui.view.memory import Memory
    from ui.view.moment import Moment

_TOLD: Final = f"d.outcome IN ({int(Outcome.WAIT)}, {int(Outcome.PARK)})"
_FROM: Final = """FROM decisions d INDEXED BY decisions_request
CROSS JOIN passes p ON p.run = d.run AND p.number = d.pass
LEFT JOIN repeats t ON t.run = d.run AND t.first_pass = d.pass AND t.request = d.request"""
LAST_LOOK_SQL: Final = f"""SELECT d.pass, p.start_ns, p.revision, d.outcome, d.gate, d.reason,
    d.observed, d.limit_value, d.short_by, d.prompt_tokens, d.done_tokens, d.device_hit_tokens, d.extend_tokens,
    d.output_tokens, d.host_hit, d.matched_tokens, d.asked_tokens, d.evicted_tokens, NULL, coalesce(t.count, 0),
    t.observed_last, t.limit_last, t.first_ns, t.last_ns
{_FROM}
WHERE d.run = :run AND d.request = :request AND d.pass <= :upto ORDER BY d.pass DESC, d.position DESC LIMIT 1"""
COUNT_SQL: Final = f"""SELECT count(*), coalesce(sum(t.count), 0)
{_FROM}
WHERE d.run = :run AND d.request = :request AND d.pass > :after AND d.pass < :upto"""
# The first of the looks that named the same gate and reason without a break.
SINCE_SQL: Final = f"""SELECT min(p.start_ns)
{_FROM}
WHERE d.run = :run AND d.request = :request AND d.pass <= :upto AND d.pass > (
    SELECT coalesce(max(o.pass), :after) FROM decisions o INDEXED BY decisions_request
    WHERE o.run = :run AND o.request = :request AND o.pass <= :upto AND o.pass > :after
        AND NOT ({_TOLD.replace("d.", "o.")} AND o.gate IS :gate AND o.reason IS :reason))"""  # noqa: S608 - the same

BROKEN_SQL: Final = f"""SELECT 1 FROM decisions d INDEXED BY decisions_request
WHERE d.run = :run AND d.request = :request AND d.pass > :after AND d.pass <= :upto
    AND NOT ({_TOLD} AND d.gate IS :gate AND d.reason IS :reason) LIMIT 1"""  # noqa: S608 - our own text


class Told(NamedTuple):
    """What a request was told last. Times are ns of the run's clock."""

    passed: int
    """The last pass that looked at it."""
    stop: Stop | None
    """What told it to wait; None when that pass let it enter."""
    since_ns: int | None
    attempts: int
    needs: int | None
    """In the gate's unit, which is not always tokens."""


class Counted(NamedTuple):
    """What is remembered of the looks before the last one."""

    upto: int
    """The last look."""
    key: tuple[int | None, int | None]
    since_ns: int | None
    before: int
    """Looks before the last one, repeats counted."""


def read_told(moment: Moment, request: int, identity: str, memory: Memory) -> Told | None:
    """What a request was told last; None when no pass had looked at it. Raises sqlite3.Error."""
    values: dict[str, Any] = {"run": moment.run.id, "request": request, "upto": moment.number}
    row = moment.connection.execute(LAST_LOOK_SQL, values).fetchone()
    if row is None:
        return None
    *fields, first_ns, last_ns = row
    look = Look(*fields)
    come = repeated_by(moment.at_ns, look.repeats, first_ns, last_ns)
    if come < look.repeats or not come:  # what the last repeat said is not known before it
        look = look._replace(repeats=come, observed_last=None, limit_last=None)
    counted = _count(moment, request, look, memory)
    waits = look.outcome in (Outcome.WAIT, Outcome.PARK) and look.gate is not None and look.reason is not None
    if not waits:
        return Told(look.number, None, None, counted.before + 1 + come, None)
    limits = memory.limits(moment, look.revision)
    chunked = limits.knobs.get("chunked_prefill_size")
    revision = Revision(limits.page, None if chunked is None else chunked.effective is not None)
    part = as_part(0, [look], {look.revision: revision})
    stop = Stop(part.gate or "", part.reason or "", part.observed, part.limit, part.short_by, part.unit or "", identity)
    return Told(look.number, stop, counted.since_ns, counted.before + 1 + come, part.needs)


def _count(moment: Moment, request: int, look: Look, memory: Memory) -> Counted:
    """Looks before the last one, counted on from what is remembered."""
    known = memory.looks.get(request)
    if known is not None and known.upto > look.number:
        known = None
    key = look.gate, look.reason
    if known is not None and known.upto == look.number and known.key == key:
        return known
    after = -1 if known is None else known.upto
    values: dict[str, Any] = {"run": moment.run.id, "request": request, "upto": look.number, "after": after - 1}
    whole, repeats = moment.connection.execute(COUNT_SQL, values).fetchone()
    before = whole + repeats + (0 if known is None else known.before)
    values = {**values, "after": after, "gate": look.gate, "reason": look.reason}
    since_ns = moment.connection.execute(SINCE_SQL, values).fetchone()[0]
    if known is not None and known.key == key and not _broken(moment, values):
        since_ns = known.since_ns
    return memory.looks.put(request, Counted(look.number, key, since_ns, before))


def _broken(moment: Moment, values: dict[str, Any]) -> bool:
    """Whether a look since the last one that is remembered said something else."""
    return moment.connection.execute(BROKEN_SQL, values).fetchone() is not None
