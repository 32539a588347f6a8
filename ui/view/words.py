"""The record's integers as the words and stops that people read."""

from controller.vocabulary import Gate, Outcome, Reason, unit_of
from ui.view.snapshot import Stop

GATES: tuple[str, ...] = tuple(gate.word for gate in Gate)
"""The gates' words in the order of evaluation; the integer in the record is the place."""
REASONS: tuple[str, ...] = tuple(reason.word for reason in Reason)
OUTCOMES: tuple[str, ...] = tuple(outcome.word for outcome in Outcome)


def stop_of(
    gate: int,
    reason: int,
    numbers: tuple[int | None, int | None, int | None] = (None, None, None),
    request: str | None = None,
) -> Stop:
    """A stop from the integers of the record; `numbers` are observed, limit and short by."""
    observed, limit, short_by = numbers
    return Stop(GATES[gate], REASONS[reason], observed, limit, short_by, unit_of(Gate(gate), Reason(reason)), request)


def named(identity: str | None, number: int) -> str:
    """A request's id, or its number where the record of its arrival was lost."""
    return identity if identity is not None else f"#{number}"
