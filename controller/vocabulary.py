"""The closed lists a decision is written in: gates, reasons, outcomes, verdicts, host-hit answers.

Records carry the integer values, readers print the names. A value is never reused for another meaning.
"""

from enum import IntEnum
from typing import Final


class Word(IntEnum):
    """An integer in the record whose name, in lower case, is what people read."""

    @property
    def word(self) -> str:
        """The name as it is printed, for instance `kv_capacity`."""
        return self.name.lower()


class Gate(Word):
    """The gates in the order in which they are evaluated."""

    BATCH_MODE = 0
    REQUEST_SLOTS = 1
    REQUEST_COUNT = 2
    KV_CAPACITY = 3
    EXTEND_TOKENS = 4
    CACHED_TOKENS = 5
    BUFFER_BYTES = 6
    INPUT_TOKENS = 7
    CHUNK_TOKENS = 8


class Reason(Word):
    """Why a gate closed; which reasons a gate may give is in `GATE_REASONS`."""

    SINGLE_REQUEST = 0
    SLOTS = 1
    LIMIT = 2
    POOL = 3
    LANE = 4
    CAN_NEVER = 5
    CHUNK_BUDGET = 6
    BUDGET = 7
    SECOND_CHUNK = 8


class Outcome(Word):
    """What became of a request in one pass."""

    ADMIT = 0
    ADMIT_CHUNK = 1
    PARK = 2
    WAIT = 3
    REFUSE = 4


class Verdict(Word):
    """What one gate said of one request."""

    PASS = 0
    REFUSE = 1
    EXEMPT = 2
    OFF = 3
    WOULD_REFUSE = 4
    NOT_EVALUATED = 5


class HostHit(Word):
    """What became of a host-cache hit: planned or loaded, else the reason it was skipped."""

    PLANNED = 0
    LOADED = 1
    BELOW_THRESHOLD = 2
    QUOTA = 3
    OWNER_LANE = 4
    ALLOCATOR = 5
    IN_FLIGHT = 6
    DISABLED = 7
    NONE_RESIDENT = 8

    @property
    def status(self) -> str:
        """`planned`, `loaded` or `skipped`."""
        return self.word if self in (HostHit.PLANNED, HostHit.LOADED) else "skipped"


GATE_REASONS: Final[dict[Gate, tuple[Reason, ...]]] = {
    Gate.BATCH_MODE: (Reason.SINGLE_REQUEST,),
    Gate.REQUEST_SLOTS: (Reason.SLOTS,),
    Gate.REQUEST_COUNT: (Reason.LIMIT,),
    Gate.KV_CAPACITY: (Reason.POOL, Reason.LANE, Reason.CAN_NEVER),
    Gate.EXTEND_TOKENS: (Reason.LIMIT, Reason.CHUNK_BUDGET),
    Gate.CACHED_TOKENS: (Reason.LIMIT,),
    Gate.BUFFER_BYTES: (Reason.LIMIT,),
    Gate.INPUT_TOKENS: (Reason.BUDGET,),
    Gate.CHUNK_TOKENS: (Reason.BUDGET, Reason.SECOND_CHUNK),
}

SOFT_GATES: Final = frozenset({Gate.REQUEST_COUNT, Gate.EXTEND_TOKENS, Gate.CACHED_TOKENS, Gate.BUFFER_BYTES})

_UNITS: Final = {
    Gate.BATCH_MODE: "requests",
    Gate.REQUEST_SLOTS: "slots",
    Gate.REQUEST_COUNT: "requests",
    Gate.BUFFER_BYTES: "bytes",
}


def unit_of(gate: Gate, reason: Reason | None = None) -> str:
    """The unit of a gate's observed value and limit: tokens, requests, slots, bytes, or pages for a lane."""
    if reason is Reason.LANE:
        return "pages"
    return _UNITS.get(gate, "tokens")
