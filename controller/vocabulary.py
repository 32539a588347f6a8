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
    """The gates: those of the ladder in the order in which they are evaluated, then those only an engine has."""

    BATCH_MODE = 0
    REQUEST_SLOTS = 1
    REQUEST_COUNT = 2
    KV_CAPACITY = 3
    EXTEND_TOKENS = 4
    CACHED_TOKENS = 5
    BUFFER_BYTES = 6
    INPUT_TOKENS = 7
    CHUNK_TOKENS = 8
    BATCH_FULL = 9
    PREFILL_DELAY = 10
    SHARD_SCRATCH = 11
    TILE_BUDGET = 12
    STATE_SLOTS = 13
    LORA = 14
    POOLING_MODE = 15
    STORAGE = 16
    LOAD_BACK = 17
    UNATTRIBUTED = 18
    REQUEST_STATE = 19
    ENCODER = 20
    PAUSED = 21


LADDER_GATES: Final = tuple(Gate)[:9]
"""The gates of the ladder, the first of `Gate`. A decision's checks hold one entry for each of them."""


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
    ENGINE_LIMIT = 9
    CURRENT = 10
    WINDOW = 11
    FLOOR = 12
    FLAG = 13
    DELAYER = 14
    FREE_SLOTS = 15
    INTERVAL = 16
    SCRATCH = 17
    TILES = 18
    ADAPTER = 19
    MODE = 20
    PREFETCH = 21
    STAGING = 22
    DEFERRED = 23
    NOT_TOLD = 24
    PREEMPTION = 25
    WATERMARK = 26
    RESERVED = 27
    LONG_PREFILL = 28
    ALIGNMENT = 29
    LOADING = 30
    LOOKUP = 31
    GRAMMAR = 32
    MORE_INPUT = 33
    STALE_OUTPUT = 34
    TRANSFER = 35
    PAUSED = 36
    CADENCE = 37


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
    CONTROLLER = 9
    NOT_TOLD = 10

    @property
    def status(self) -> str:
        """`planned`, `loaded` or `skipped`."""
        return self.word if self in (HostHit.PLANNED, HostHit.LOADED) else "skipped"


GATE_REASONS: Final[dict[Gate, tuple[Reason, ...]]] = {
    Gate.BATCH_MODE: (Reason.SINGLE_REQUEST,),
    Gate.REQUEST_SLOTS: (Reason.SLOTS,),
    Gate.REQUEST_COUNT: (Reason.LIMIT, Reason.ENGINE_LIMIT),
    Gate.KV_CAPACITY: (
        Reason.POOL,
        Reason.LANE,
        Reason.CAN_NEVER,
        Reason.CURRENT,
        Reason.WINDOW,
        Reason.PREEMPTION,
        Reason.WATERMARK,
        Reason.RESERVED,
    ),
    Gate.EXTEND_TOKENS: (Reason.LIMIT, Reason.CHUNK_BUDGET),
    Gate.CACHED_TOKENS: (Reason.LIMIT,),
    Gate.BUFFER_BYTES: (Reason.LIMIT,),
    Gate.INPUT_TOKENS: (Reason.BUDGET,),
    Gate.CHUNK_TOKENS: (Reason.BUDGET, Reason.SECOND_CHUNK, Reason.FLOOR, Reason.LONG_PREFILL, Reason.ALIGNMENT),
    Gate.BATCH_FULL: (Reason.FLAG, Reason.SLOTS, Reason.POOL),
    Gate.PREFILL_DELAY: (Reason.DELAYER, Reason.FREE_SLOTS, Reason.INTERVAL, Reason.CADENCE),
    Gate.SHARD_SCRATCH: (Reason.SCRATCH,),
    Gate.TILE_BUDGET: (Reason.TILES,),
    Gate.STATE_SLOTS: (Reason.SLOTS,),
    Gate.LORA: (Reason.ADAPTER,),
    Gate.POOLING_MODE: (Reason.MODE,),
    Gate.STORAGE: (Reason.PREFETCH, Reason.STAGING),
    Gate.LOAD_BACK: (Reason.DEFERRED, Reason.LOADING, Reason.LOOKUP),
    Gate.UNATTRIBUTED: (Reason.NOT_TOLD,),
    Gate.REQUEST_STATE: (Reason.GRAMMAR, Reason.MORE_INPUT, Reason.STALE_OUTPUT),
    Gate.ENCODER: (Reason.BUDGET, Reason.TRANSFER),
    Gate.PAUSED: (Reason.PAUSED,),
}

SOFT_GATES: Final = frozenset({Gate.REQUEST_COUNT, Gate.EXTEND_TOKENS, Gate.CACHED_TOKENS, Gate.BUFFER_BYTES})

NOT_READY_GATES: Final = frozenset(
    {Gate.PREFILL_DELAY, Gate.STORAGE, Gate.LOAD_BACK, Gate.REQUEST_STATE, Gate.ENCODER, Gate.PAUSED}
)
"""Gates at which a request, or the engine, waits for something on its way: nobody turned the request away."""

_UNITS: Final = {
    Gate.BATCH_MODE: "requests",
    Gate.REQUEST_SLOTS: "slots",
    Gate.REQUEST_COUNT: "requests",
    Gate.BUFFER_BYTES: "bytes",
    Gate.BATCH_FULL: "requests",
    Gate.PREFILL_DELAY: "requests",
    Gate.STATE_SLOTS: "slots",
    Gate.LORA: "requests",
    Gate.POOLING_MODE: "requests",
    Gate.UNATTRIBUTED: "requests",
    Gate.REQUEST_STATE: "requests",
    Gate.PAUSED: "requests",
}


def unit_of(gate: Gate, reason: Reason | None = None) -> str:
    """The unit of a gate's observed value and limit: tokens, requests, slots, bytes, or pages for a lane."""
    if reason is Reason.LANE:
        return "pages"
    if gate is Gate.BATCH_FULL and reason in (Reason.SLOTS, Reason.POOL):
        return "slots" if reason is Reason.SLOTS else "tokens"
    return _UNITS.get(gate, "tokens")
