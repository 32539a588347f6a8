"""Gates over the window: how often each stopped a batch, and how near each was to it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.decision import read_check
from controller.vocabulary import LADDER_GATES, Gate, unit_of
from ui.view.limits import KNOB_OF
from ui.view.snapshot import GateRow

if TYPE_CHECKING:
    from ui.view.bucket import Bucket, Extremes
    from ui.view.limits import InForce
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.window import WindowView

CHECKS_SQL: Final = "SELECT checks FROM decisions WHERE run = ? AND pass = ? ORDER BY position DESC LIMIT 2"


def read_gates(moment: Moment, window: WindowView, memory: Memory) -> tuple[GateRow, ...]:
    """The gates of the ladder in order, then those of the engine that stopped a batch. Raises sqlite3.Error."""
    stops = window.stops()
    observed = _observed(moment)
    limits = memory.limits(moment, moment.revision)
    gates = [*LADDER_GATES, *(Gate(gate) for gate in sorted(stops) if gate >= len(LADDER_GATES))]
    headroom = _headroom(moment, window, memory)
    rows = []
    for gate in gates:
        name = KNOB_OF.get(gate)
        knob = limits.knobs.get(name) if name is not None else None
        seen, limit = observed.get(gate, (None, None))
        if limit is None:
            limit = limits.limit_of(gate)
        last = [bucket.last_stop[gate] for bucket in window.buckets if gate in bucket.last_stop]
        rows.append(
            GateRow(
                gate.word, unit_of(gate), stops.get(gate, 0),
                stops.get(gate, 0) / window.passes if window.passes else None,
                tuple(shares.get(gate) for shares in headroom), seen, limit, name,
                knob.set_to if knob is not None else None, knob.effective if knob is not None else None,
                knob.state if knob is not None else "", knob.why if knob is not None else "",
                max(last) if last else None,
            )
        )  # fmt: skip
    return tuple(rows)


def _observed(moment: Moment) -> dict[Gate, tuple[int, int | None]]:
    """What each gate saw and allowed in the last pass: its last candidate tells up to the gate that stopped it."""
    found: dict[Gate, tuple[int, int | None]] = {}
    for (text,) in moment.connection.execute(CHECKS_SQL, (moment.run.id, moment.number)):
        flat = json.loads(text)
        for gate in LADDER_GATES[: len(flat) // 3]:
            check = read_check(gate, *flat[3 * gate : 3 * gate + 3])
            if check.evaluated:
                found.setdefault(gate, (check.observed, check.limit))
    return found


def _headroom(moment: Moment, window: WindowView, memory: Memory) -> list[dict[Gate, float]]:
    """For each stretch, the least part of its limit that each gate had left at the end of a pass."""
    return [memory.headroom(bucket, partial(_least, moment, bucket, memory)) for bucket in window.buckets]


def _least(moment: Moment, bucket: Bucket, memory: Memory) -> dict[Gate, float]:
    least: dict[Gate, float] = {}
    for revision, extremes in bucket.extremes.items():
        for gate, left in _left(extremes, memory.limits(moment, revision)).items():
            least[gate] = min(left, least.get(gate, left))
    return least


def _left(extremes: Extremes, limits: InForce) -> dict[Gate, float]:
    """The part of each limit that was left where the passes of one revision used the most of it."""
    used: dict[Gate, int | None] = {
        Gate.REQUEST_SLOTS: extremes.slots,
        Gate.REQUEST_COUNT: extremes.members,
        Gate.EXTEND_TOKENS: extremes.extend,
        Gate.CACHED_TOKENS: extremes.cached,
        Gate.BUFFER_BYTES: extremes.peak,
        Gate.INPUT_TOKENS: extremes.extend,
        Gate.CHUNK_TOKENS: extremes.extend,
    }
    left = {}
    for gate, most in used.items():
        limit = limits.limit_of(gate)
        if limit and most is not None:
            left[gate] = max(0.0, 1 - most / limit)
    pool = limits.limit_of(Gate.KV_CAPACITY)
    if pool:
        left[Gate.KV_CAPACITY] = min(1.0, max(0, extremes.least_room) / pool)
    return left
