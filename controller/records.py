"""The records a journal holds. Each is an array whose first element is its tag; several stand in one frame.

All times are nanoseconds of the run's monotonic clock (simulated for a replay); a segment's anchor ties them to wall
time. A field is only ever added at the end, with a default, so that older records stay readable.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

Flat = tuple[int, ...]

_TAGS: Final = {
    "Record": 0,
    "RunStart": 1,
    "KnobsInForce": 2,
    "Arrival": 3,
    "Pass": 4,
    "Repeat": 5,
    "StepEnd": 6,
    "Finish": 7,
    "Abort": 8,
    "Retract": 9,
    "Preempt": 10,
    "LoadDone": 11,
    "KnobChange": 12,
    "Smoke": 13,
    "RunEnd": 14,
    "Digest": 15,
    "PrefixHashes": 16,
}


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=lambda name: _TAGS[name]):
    """Something that happened in a run."""


class RunStart(Record, frozen=True):
    """The first record of a run on one rank."""

    run: str
    engine: str
    version: str
    rank: int
    group: str
    model: str
    at_ns: int
    wall_ns: int
    """Unix time of `at_ns`."""
    simulated: bool
    pool_tokens: int
    host_tokens: int
    slots: int
    largest_prompt_tokens: int
    setting: Mapping[str, int | bool | float | str]
    context: str = ""
    """The estimator's run context as JSON, or empty without a model."""


class KnobsInForce(Record, frozen=True):
    """One revision's knobs with their effective values: (name, unit, set to, effective, state, why)."""

    at_ns: int
    revision: int
    knobs: tuple[tuple[str, str, int | bool | None, int | bool | None, str, str], ...]


class Arrival(Record, frozen=True):
    """A request joined the waiting queue."""

    number: int
    id: str
    at_ns: int
    prompt_tokens: int
    output_tokens: int
    """What it may generate."""
    prefix_hashes: tuple[int, ...] = ()
    """Salted hashes of its prefix, one for each 512 tokens (for each block of a replayed workload), without those of
    the blocks that lie wholly in `shared_tokens`; see `controller.prefixes`."""
    traceparent: str = ""
    like: int = -1
    """The number of the earlier request whose beginning it shares longest; -1 where it shares none."""
    shared_tokens: int = 0
    """How far the two agree; of a replayed workload in whole blocks."""
    known_tokens: int = 0
    """Tokens of prompt and output, from the first, whose content is known by hash or reference."""
    ignore_eos: bool = False
    """It generates until `output_tokens`, whatever comes out."""


class Pass(Record, frozen=True):
    """One pass: what it began with, what it decided, how it left things. Tokens unless said."""

    number: int
    start_ns: int
    decide_ns: int
    """Real time the deciding took."""
    revision: int
    queue: int
    """Waiting requests at the start."""
    queued_tokens: int
    not_reached: int
    batch: tuple[Flat, ...]
    """(request number, outcome, extend, device hit, loaded, done before) for each member."""
    closed_gate: int
    """-1 when nothing closed the pass."""
    closed_reason: int
    peak_bytes: int
    """Estimated peak of the batch's temporary buffers; -1 without a model."""
    parts: Flat
    """What each of `estimator.PARTS` has at that peak, bytes."""
    before: Flat
    """(free, evictable, reserved, running requests) at the start."""
    after: Flat
    """(quota: free + evictable - promised, room: the same less reserved) at the end."""
    decisions: tuple[Flat, ...]
    """See `controller.decision.Decision`."""
    lanes: tuple[Flat, ...] = ()
    """(free pages, evictable pages) of each owner lane at the start."""


class Repeat(Record, frozen=True):
    """The same refusal again: same head, gate and reason, nothing admitted. Cumulative since `first_pass`."""

    first_pass: int
    """The pass that was written whole; the repeats are those after it."""
    last_pass: int
    count: int
    """Passes after `first_pass`, up to and with `last_pass`."""
    first_ns: int
    """Start of the first repeat."""
    last_ns: int
    number: int
    gate: int
    reason: int
    observed: Flat
    """(first, last, least, greatest)."""
    limit: Flat
    """(first, last, least, greatest)."""
    queue: int
    """Waiting requests at the last repeat."""
    not_reached: int
    revision: int
    ended: bool
    """The refusal is over; no further repeat follows."""


class StepEnd(Record, frozen=True):
    """A batch's forward step ended: a pass's prefill, or a stretch of decode steps when `passed` is -1."""

    passed: int
    """The pass whose batch ran."""
    start_ns: int
    end_ns: int
    first_tokens: Flat
    """Numbers of the requests whose prompt is complete, so that they have their first token."""


class Finish(Record, frozen=True):
    """A request is done: its last token is out, or (prefill role) its KV was handed over."""

    number: int
    at_ns: int
    generated_tokens: int


class Abort(Record, frozen=True):
    """A request left without being served."""

    number: int
    at_ns: int
    why: str


class Retract(Record, frozen=True):
    """A running request gave its KV back and waits again."""

    number: int
    at_ns: int
    generated_tokens: int
    freed_tokens: int


class Preempt(Record, frozen=True):
    """A running request was put aside for one of higher priority."""

    number: int
    at_ns: int
    by: int


class LoadDone(Record, frozen=True):
    """A load-back reached the device."""

    number: int
    at_ns: int
    tokens: int


class KnobChange(Record, frozen=True):
    """Somebody asked for a knob change; `why` says why it was not accepted."""

    at_ns: int
    who: str
    revision: int
    """In force after the change."""
    changes: tuple[tuple[str, int | bool | None, int | bool | None], ...]
    """(name, old, new)."""
    accepted: bool
    why: str = ""
    request: str = ""
    """The name of the request that was left for it in the run directory."""


class Smoke(Record, frozen=True):
    """The start-up allocation on one device. Bytes."""

    at_ns: int
    device: str
    asked: int
    reserved: int
    peak: int
    free_before: int
    passed: bool
    why: str = ""


class RunEnd(Record, frozen=True):
    """The run ended in good order."""

    at_ns: int
    reason: str
    passes: int
    requests: int


class Digest(Record, frozen=True):
    """What a rank other than the first of its group decided in one pass, as `controller.digest` sums it up.

    A pass that repeats the refusal before it has none.
    """

    passed: int
    digest: bytes
    """16 bytes; empty for word that passes up to this one repeated the refusal of the last pass with a digest."""


class PrefixHashes(Record, frozen=True):
    """What an `Arrival` says of a request's prefix, where it came later; a later one knows more tokens.

    `like` and `shared_tokens` stand as they were told first.
    """

    number: int
    hashes: tuple[int, ...]
    like: int = -1
    shared_tokens: int = 0
    known_tokens: int = 0


AnyRecord = (
    RunStart
    | KnobsInForce
    | Arrival
    | Pass
    | Repeat
    | StepEnd
    | Finish
    | Abort
    | Retract
    | Preempt
    | LoadDone
    | KnobChange
    | Smoke
    | RunEnd
    | Digest
    | PrefixHashes
)

encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(list[AnyRecord])


def decode(payload: bytes) -> list[AnyRecord]:
    """The records of one frame. Raises msgspec.DecodeError when the payload is not one of ours."""
    return _decoder.decode(payload)
