"""The ladder of one decision, from the integers in which the record keeps it."""

from __future__ import annotations

import json
from typing import Final

from controller.decision import read_check
from controller.gates import STRICT_GATES
from controller.vocabulary import LADDER_GATES, Gate, Reason, Verdict, unit_of
from ui.view.snapshot import CheckView, Stop

SHADOWED: Final = Verdict.WOULD_REFUSE.word
"""The verdict, and here the reason, of a gate that only records what it would do."""


def read_ladder(text: str | None, *, lane: bool = False) -> tuple[CheckView, ...]:
    """The checks of a decision in order. With `lane` the gate that refused counts pages."""
    flat = json.loads(text) if text else []
    found = []
    for gate in LADDER_GATES[: len(flat) // 3]:
        check = read_check(gate, *flat[3 * gate : 3 * gate + 3])
        by_lane = lane and gate is Gate.KV_CAPACITY
        short_by = None
        if check.evaluated and check.limit is not None:
            short_by = max(0, check.observed - check.limit + (gate in STRICT_GATES))
        observed = check.observed if check.evaluated else None
        unit = unit_of(gate, Reason.LANE if by_lane else None)
        found.append(CheckView(gate.word, check.verdict.word, observed, check.limit, short_by or None, unit))
    return tuple(found)


def would_refuse(text: str | None, request: str) -> Stop | None:
    """What the first gate that only records, in shadow mode, would have refused the request for; None for none."""
    for check in read_ladder(text):
        if check.verdict == SHADOWED:
            return Stop(check.gate, SHADOWED, check.observed, check.limit, check.short_by, check.unit, request)
    return None
