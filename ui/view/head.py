"""The headline: what binds, for how long, and how the last five minutes went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.vocabulary import Outcome
from store.why import MISSING_SQL
from ui.view.arrivals import joined_since
from ui.view.bucket import NOTHING
from ui.view.moment import OLDEST_SQL
from ui.view.passes import read_pass
from ui.view.quantiles import quantiles
from ui.view.repeats import last_repeat_ns, repeated_by
from ui.view.snapshot import MOST_ROWS, Binding, Head, Presence, Slice
from ui.view.words import GATES

if TYPE_CHECKING:
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.window import Stretch, WindowView

LAST_SQL: Final = f"""SELECT p.queue, p.running, t.count, t.first_ns, t.last_ns, t.queue, (
    SELECT count(*) FROM decisions d WHERE d.run = p.run AND d.pass = p.number AND d.done_tokens = 0
        AND d.outcome IN ({int(Outcome.ADMIT)}, {int(Outcome.ADMIT_CHUNK)}, {int(Outcome.REFUSE)}))
FROM passes p LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number
WHERE p.run = ? AND p.number = ?"""  # noqa: S608 - our own constants
SINCE_SQL: Final = """SELECT start_ns FROM passes
WHERE run = :run AND start_ns <= :at AND start_ns >= :from AND closed_gate IS NOT :gate
ORDER BY start_ns DESC LIMIT 1"""
NEXT_SQL: Final = "SELECT min(start_ns) FROM passes WHERE run = ? AND start_ns > ? AND start_ns <= ?"
CHANGES_SQL: Final = (
    """SELECT DISTINCT at_ns FROM knob_changes WHERE run = ? AND accepted ORDER BY at_ns DESC LIMIT ?"""
)

_HOUR_NS: Final = 3_600_000_000_000


class Standing(NamedTuple):
    """Who waits and runs, by the last pass and what came after it."""

    queue: int
    running: int
    passes: int
    """The last pass, repeats counted."""
    last_ns: int
    """When it began."""


class Bound(NamedTuple):
    """Up to when it is known since when a gate closed every pass."""

    gate: int
    until_ns: int
    since_ns: int | None


class Life(NamedTuple):
    """Whether the run lives, as `ui.view.presence` found it."""

    presence: Presence
    last_pass_age_ns: int | None = None
    lag_ns: int | None = None
    end_reason: str | None = None
    """Why it ended, as its folder says."""


def read_standing(moment: Moment) -> Standing | None:
    """The queue at the moment; None before the first pass. Raises sqlite3.Error."""
    if moment.start_ns is None:
        return None
    row = moment.connection.execute(LAST_SQL, (moment.run.id, moment.number)).fetchone()
    queue, running, count, first_ns, last_ns, repeat_queue, left = row
    come = repeated_by(moment.at_ns, count, first_ns, last_ns)
    began_ns = last_repeat_ns(moment.at_ns, count, first_ns, last_ns) or moment.start_ns
    if come and come == count:
        waiting = repeat_queue + joined_since(moment, began_ns)
    else:  # of the repeats before the last the record has no queue, so it is counted on from the pass itself
        waiting = queue - left + joined_since(moment, moment.start_ns)
    return Standing(waiting, running, moment.number + come, began_ns)


def read_head(moment: Moment, window: WindowView, memory: Memory, life: Life, standing: Standing | None) -> Head:
    """The headline at a moment. Raises sqlite3.Error."""
    run, execute = moment.run, moment.connection.execute
    first = execute(OLDEST_SQL, (run.id,)).fetchone()
    begun = [at for at in (run.start_ns, first[1] if first else None) if at is not None]
    pruned = first is not None and first[0] > 1
    changes = tuple(sorted(at for (at,) in execute(CHANGES_SQL, (run.id, MOST_ROWS))))
    return Head(
        run=run.name, rank=run.rank, engine=run.engine, version=run.version or None, model=run.model or None,
        simulated=bool(run.simulated), presence=life.presence, at_ns=moment.at_ns, wall_ns=run.wall_of(moment.at_ns),
        first_ns=(first[1] if pruned else min(begun)) if begun else None, last_ns=run.last_ns or None,
        last_pass=standing.passes if standing else None, last_pass_age_ns=life.last_pass_age_ns,
        revision=moment.revision,
        queue=standing.queue if standing else None, running=standing.running if standing else None,
        ttft=quantiles([bucket.ttft.sorted_by(moment.at_ns) for bucket in window.buckets]),
        queue_time=quantiles([bucket.queued.sorted_by(moment.at_ns) for bucket in window.buckets]),
        binding=_binding(moment, window, memory),
        strip=tuple(_slice(stretch, changes, moment.at_ns) for stretch in window.stretches),
        passes_in_window=window.passes,
        end_reason=_end_reason(moment, life),
        lag_ns=life.lag_ns, losses=int(execute(MISSING_SQL, (run.id,)).fetchone()[0]),
        following=moment.following, changes_ns=changes, enforce=_enforced(moment, memory),
    )  # fmt: skip


def _end_reason(moment: Moment, life: Life) -> str | None:
    """Why the run ended by the moment; of one whose end never reached the record the folder says it."""
    run = moment.run
    if run.end_ns is not None:
        return run.end_reason if run.end_ns <= moment.at_ns else None
    return life.end_reason if moment.following else None


def _enforced(moment: Moment, memory: Memory) -> bool | None:
    """Whether soft gates are enforced at the moment; None where the record does not say."""
    knob = memory.limits(moment, moment.revision).knobs.get("enforce")
    return None if knob is None or knob.effective is None else bool(knob.effective)


def _binding(moment: Moment, window: WindowView, memory: Memory) -> Binding | None:
    """What closed the last pass, if that had a queue."""
    row = read_pass(moment, moment.number, memory) if moment.number else None
    if row is None or row.closed is None or not row.queue:
        return None
    gate = GATES.index(row.closed.gate)
    share = window.stops().get(gate, 0) / window.passes if window.passes else 0.0
    return Binding(row.closed, _since(moment, gate, row.start_ns, memory), share, window.passes)


def _since(moment: Moment, gate: int, start_ns: int, memory: Memory) -> int | None:
    """Since when a gate closed every pass up to the one that began at `start_ns`; None for more than an hour ago."""
    known = memory.bound
    begun = known is not None and known.gate == gate and known.until_ns <= start_ns
    from_ns = known.until_ns if known is not None and begun else start_ns - _HOUR_NS
    values = {"run": moment.run.id, "at": start_ns, "from": from_ns, "gate": gate}
    other = moment.connection.execute(SINCE_SQL, values).fetchone()
    if other is not None:
        since_ns = _next_start(moment, other[0], start_ns)
    elif known is not None and begun:
        since_ns = known.since_ns
    else:
        since_ns = _next_start(moment, -1, start_ns) if (moment.run.start_ns or 0) >= from_ns else None
    memory.bound = Bound(gate, start_ns, since_ns)
    return since_ns


def _next_start(moment: Moment, after_ns: int, until_ns: int) -> int | None:
    """When the first pass after a time began."""
    at_ns: int | None = moment.connection.execute(NEXT_SQL, (moment.run.id, after_ns, until_ns)).fetchone()[0]
    return at_ns


def _slice(stretch: Stretch, changes: tuple[int, ...], at_ns: int) -> Slice:
    """One cell of the strip."""
    bucket = stretch.bucket
    changed = any(stretch.from_ns <= change < stretch.to_ns and change <= at_ns for change in changes)
    if not bucket.met:
        return Slice(stretch.from_ns, stretch.to_ns, None, 0, changed)
    met = bucket.met_by_gate()
    gate = min(met, key=lambda each: (-met[each], each == NOTHING, each))
    return Slice(stretch.from_ns, stretch.to_ns, "" if gate == NOTHING else GATES[gate], bucket.met, changed)
