"""What the screen shows of a run and its passes: the headline, the batches, the opened pass.

Times are ns of the run's clock unless the name says `wall` (Unix ns). None is what the record does not hold.
"""

from typing import Literal

import msgspec

Presence = Literal["live", "idle", "ended", "engine_gone", "collector_gone", "recording"]
"""`live`: passes come. `idle`: the engine lives and nothing waits. `ended`: in good order. `engine_gone`: its process
died. `collector_gone`: nothing feeds the store, so its numbers are old. `recording`: a database without its run's
folder, of which nobody can say more."""


class Stop(msgspec.Struct, frozen=True):
    """What a gate said, with its numbers."""

    gate: str
    reason: str
    observed: int | None = None
    limit: int | None = None
    short_by: int | None = None
    unit: str = ""
    request: str | None = None
    """The id of the request it was about."""


class Quantiles(msgspec.Struct, frozen=True):
    """Percentiles over the window, ns, and how many values they rest on. None where there is no value."""

    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    count: int


class Slice(msgspec.Struct, frozen=True):
    """One cell of the strip: the gate that closed most passes of that stretch of time."""

    from_ns: int
    to_ns: int
    gate: str | None
    """"" when passes came and nothing closed them; None when there was no pass."""
    passes: int
    knob_change: bool = False


class Binding(msgspec.Struct, frozen=True):
    """The gate that binds: it closed the last pass that had a queue to look at."""

    stop: Stop
    since_ns: int | None
    """When it began to close every pass; None for what is longer ago than an hour."""
    share: float
    """Part of the window's passes that it closed, 0 to 1."""
    passes: int
    """Passes that share rests on."""


class Head(msgspec.Struct, frozen=True):
    """The headline."""

    run: str
    rank: int
    engine: str | None
    version: str | None
    model: str | None
    simulated: bool
    presence: Presence
    at_ns: int | None
    """The moment shown."""
    wall_ns: int | None
    """The same as Unix time."""
    first_ns: int | None
    """The run's beginning, or of what is left of it."""
    last_ns: int | None
    """The newest thing the record holds."""
    last_pass: int | None
    last_pass_age_ns: int | None
    """Real time since the last pass; None for what is not live."""
    revision: int | None
    queue: int | None
    """Requests that wait at the moment, by the count of the last pass and the arrivals after it."""
    running: int | None
    """Requests that ran when the last pass began."""
    ttft: Quantiles
    queue_time: Quantiles
    binding: Binding | None
    strip: tuple[Slice, ...]
    """The last five minutes, oldest first."""
    passes_in_window: int
    end_reason: str | None = None
    """Why it ended by the moment, by the record or, where that breaks off before, by run.json; None for no end."""
    lag_ns: int | None = None
    """How far the store is behind the journal; None when it cannot be told."""
    losses: int = 0
    """Frames the record is known not to hold."""
    following: bool = True
    """The moment is the record's end and moves with it."""
    changes_ns: tuple[int, ...] = ()
    """When knobs were changed, over the whole run, the last MOST_ROWS of them: marks for a bar of time."""
    enforce: bool | None = None
    """The knob of that name as in force at the moment; False is shadow mode. None where the record does not say."""


class MemberBar(msgspec.Struct, frozen=True):
    """One member of a batch, as tokens."""

    request: str
    device: int
    """Cached on the device."""
    loaded: int
    """Loaded from the host."""
    computed: int
    done: int
    """Computed by earlier passes of the same request."""
    outcome: str
    waited_ns: int | None = None


class PassRow(msgspec.Struct, frozen=True):
    """One pass: its batch as a bar, and what closed it."""

    number: int
    start_ns: int
    members: tuple[MemberBar, ...]
    """Empty when the pass admitted nothing."""
    device: int
    loaded: int
    computed: int
    room: int
    """Tokens that it might have computed more, up to the tightest limit that holds: on what a pass computes, or the
    pool's."""
    closed: Stop | None
    queue: int
    not_reached: int
    revision: int
    decide_ns: int
    step_ns: int | None
    peak_bytes: int | None
    repeats: int
    """Passes after this one that met the same refusal, which stand for rows of their own."""
    shadowed: Stop | None = None
    """In shadow mode, the first stop by a gate that let the candidate pass and recorded what it would have done."""


class CheckView(msgspec.Struct, frozen=True):
    """One gate of one decision's ladder."""

    gate: str
    verdict: str
    observed: int | None
    limit: int | None
    short_by: int | None
    unit: str


class DecisionView(msgspec.Struct, frozen=True):
    """One decision with its full ladder, in order of evaluation."""

    request: str
    outcome: str
    stop: Stop | None
    prompt: int
    done: int
    output: int
    extend: int
    device: int
    host_status: str
    host_reason: str | None
    resident: int
    matched: int
    asked: int
    evicted: int
    checks: tuple[CheckView, ...]
    checks_before_load_failure: tuple[CheckView, ...] = ()


class PassDetail(msgspec.Struct, frozen=True):
    """The pass under the cursor, opened."""

    row: PassRow
    decisions: tuple[DecisionView, ...]
    free: int
    evictable: int
    reserved: int
    running: int
    quota_after: int
    room_after: int
    lanes: tuple[tuple[int, int], ...]
    """(free pages, evictable pages) of each owner lane."""
    parts: tuple[tuple[str, int], ...]
    """Bytes of each part at the estimated peak, the largest first."""
    raw: str
    """The record as indented JSON."""
