"""What a pass decided, as flat tuples of integers on the hot path and as named fields for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from controller.gates import STRICT_GATES
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason, Verdict, unit_of

if TYPE_CHECKING:
    from controller.plan import Plan

_FIELDS: Final = 17
_CHECKS: Final = 3 * len(LADDER_GATES)


class PassResult(NamedTuple):
    """What one pass decided."""

    batch: tuple[tuple[int, ...], ...]
    """Members as (number, outcome, extend, device hit, loaded, done before), the continuing chunk first."""
    decisions: tuple[tuple[int, ...], ...]
    """One flat tuple for each request looked at, the continuing chunk first; see `Decision.read`."""
    closed_by: tuple[Gate, Reason] | None
    looked_at: int
    """Waiting requests looked at; the rest of the queue was not reached."""
    estimate: Any
    """The estimator's state for the whole batch, or None without a model."""
    quota_tokens: int
    """Free + evictable - promised, as the pass leaves it."""
    room_tokens: int
    """The same without what is reserved for output."""


def decision_tuple(
    plan: Plan, outcome: Outcome, stop: tuple[Gate, Reason] | None, checks: tuple[int, ...], before: tuple[int, ...]
) -> tuple[int, ...]:
    """One decision as a flat tuple; a cut member names the gate that cut it."""
    gate, reason, observed, limit, short = -1, -1, 0, 0, 0
    named = stop if stop is not None else plan.cut_by
    if named is not None:
        gate, reason = named
        _, observed, limit = checks[3 * gate : 3 * gate + 3]
        short = observed - limit
        if gate in STRICT_GATES and outcome >= Outcome.WAIT:
            short += 1
    return (
        plan.number, outcome, gate, reason, observed, limit, short, plan.prompt, plan.done, plan.device_hit,
        plan.extend, plan.output, plan.host, plan.resident, plan.wanted, plan.asked, plan.evicted, *checks, *before,
    )  # fmt: skip


class Check(msgspec.Struct, frozen=True):
    """What one gate said of one request."""

    gate: Gate
    verdict: Verdict
    observed: int
    limit: int | None

    @property
    def evaluated(self) -> bool:
        """Whether the ladder got this far."""
        return self.verdict is not Verdict.NOT_EVALUATED


class Decision(msgspec.Struct, frozen=True):
    """What one pass decided about one request. Tokens unless `unit` says otherwise."""

    number: int
    outcome: Outcome
    gate: Gate | None
    reason: Reason | None
    observed: int
    limit: int
    short_by: int
    prompt_tokens: int
    done_tokens: int
    device_hit_tokens: int
    extend_tokens: int
    output_tokens: int
    host: HostHit
    resident_tokens: int
    matched_tokens: int
    asked_tokens: int
    evicted_tokens: int
    checks: tuple[int, ...]
    """(verdict, observed, limit) for each gate in order."""
    checks_before_load_failure: tuple[int, ...]
    """The ladder as it was before a load failed, or empty."""

    @classmethod
    def read(cls, flat: tuple[int, ...]) -> Decision:
        """The named form of a flat tuple made by `decision_tuple`."""
        number, outcome, gate, reason, *rest = flat[:_FIELDS]
        observed, limit, short, prompt, done, hit, extend, output, host, resident, matched, asked, evicted = rest
        return cls(
            number, Outcome(outcome), Gate(gate) if gate >= 0 else None, Reason(reason) if reason >= 0 else None,
            observed, limit, short, prompt, done, hit, extend, output, HostHit(host), resident, matched, asked, evicted,
            flat[_FIELDS : _FIELDS + _CHECKS], flat[_FIELDS + _CHECKS :],
        )  # fmt: skip

    @property
    def loaded_tokens(self) -> int:
        """Host tokens the load brought."""
        return self.asked_tokens if self.host is HostHit.LOADED else 0

    @property
    def unit(self) -> str | None:
        """The unit of observed, limit and short_by."""
        return None if self.gate is None else unit_of(self.gate, self.reason)

    def ladder(self, flat: tuple[int, ...] | None = None) -> tuple[Check, ...]:
        """The checks in evaluation order, of this decision or of its ladder before a load failure."""
        values = self.checks if flat is None else flat
        return tuple(
            read_check(gate, *values[3 * gate : 3 * gate + 3]) for gate in LADDER_GATES if 3 * gate < len(values)
        )


def read_check(gate: Gate, verdict: int, observed: int, limit: int) -> Check:
    """One check from its three integers; a gate that is off has no limit."""
    said = Verdict(verdict)
    return Check(gate, said, observed, None if said in (Verdict.OFF, Verdict.NOT_EVALUATED) else limit)
