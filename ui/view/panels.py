"""What the screen's panels show: waiting room, gates, host hits, buffers, knobs, one request, alarms and log.

Times are ns of the run's clock. None is what the record does not hold.
"""

import msgspec

from controller.limits import Setting
from ui.view.batches import Stop


class WaitingRow(msgspec.Struct, frozen=True):
    """One request that waits, or that was refused for good."""

    request: str
    number: int
    arrival_ns: int | None
    waited_ns: int | None
    """Since it arrived or gave its KV back; of one that was refused for good, until then."""
    stop: Stop | None
    """The last reason it was given; None when no pass has looked at it."""
    since_ns: int | None
    """When that reason was first given without a break."""
    behind: str | None
    """The id of the request it stands behind, when the last pass did not look at it."""
    attempts: int
    """Passes that looked at it."""
    overtaken: int
    """Requests that arrived after it and entered before it."""
    needs: int | None
    """Tokens it needs to enter."""
    prompt: int | None
    never: bool
    """It can never fit."""
    behind_gate: str | None = None
    """The gate that closed the last pass before its turn, once its members had spent the gate's budget."""


class WaitingRoom(msgspec.Struct, frozen=True):
    """The queue, oldest first, those that can never fit before it."""

    rows: tuple[WaitingRow, ...]
    total: int
    """Requests that wait; the rows are at most MOST_ROWS of them, from `offset` on."""
    offset: int
    """Counts those that wait. Only the first page has those that can never fit, beside the rows that were asked for."""
    never_in_window: int
    unnamed: int = 0
    """Of `total`, older ones that could not be found without reading the whole record."""
    fit: int | None = None
    """Of `total`, those that the filter lets through, counted among the oldest 5,000; None without a filter."""


class GateRow(msgspec.Struct, frozen=True):
    """One gate of the ladder over the window."""

    gate: str
    unit: str
    stops: int
    share: float | None
    """Part of the window's passes that it closed; None without passes."""
    headroom: tuple[float | None, ...]
    """Part of the limit left at the end of passes, the least in each stretch of the window, oldest first; for
    `kv_capacity` part of the whole pool."""
    observed: int | None
    """At the last pass."""
    limit: int | None
    """In force at the last pass; None is off."""
    knob: str | None
    set_to: int | bool | None
    effective: int | bool | None
    state: str
    why: str
    last_stop_ns: int | None


class Funnel(msgspec.Struct, frozen=True):
    """Host-hit tokens over the window."""

    resident: int
    matched: int
    asked: int
    loaded: int
    used: int


class HostHits(msgspec.Struct, frozen=True):
    """The host cache over the window."""

    funnel: Funnel
    skips: tuple[tuple[str, int, int], ...]
    """(reason, tokens, decisions), the most tokens first."""
    recomputed: int
    """Tokens computed although the host held them."""
    trend: tuple[tuple[int, int, int], ...]
    """(time, loaded, skipped) of each stretch of the window."""
    recent: tuple[tuple[int, str, str, int], ...]
    """(pass, request, reason, tokens) of the last skips, newest first."""


class BufferPoint(msgspec.Struct, frozen=True):
    """The largest estimate of one stretch of the window, bytes. None when no batch ran in it."""

    at_ns: int
    peak: int | None
    parts: tuple[tuple[str, int], ...]


class WindowBar(msgspec.Struct, frozen=True):
    """One buffer of the last batch, and the phases in which it is alive."""

    name: str
    stream: str
    bytes: int
    phases: tuple[bool, ...]


class Buffers(msgspec.Struct, frozen=True):
    """Estimated temporary buffers over the window, bytes."""

    points: tuple[BufferPoint, ...]
    limit: int | None
    safety_percent: int | None
    smoke_asked: int | None
    smoke_peak: int | None
    smoke_device: str | None
    smoke_passed: bool | None
    last: int | None
    most: int | None
    phases: tuple[str, ...]
    phase_bytes: tuple[int, ...]
    windows: tuple[WindowBar, ...]
    """The largest first; empty when the run has no model or its context is not known."""
    of_pass: int | None
    """The pass whose batch the windows are of."""


class KnobRow(msgspec.Struct, frozen=True):
    """One knob."""

    name: str
    unit: str
    kind: str
    gate: str
    bounds: str
    set_to: int | bool | None
    effective: int | bool | None
    state: str
    why: str
    changed_ns: int | None
    changed_by: str | None


class ChangeRow(msgspec.Struct, frozen=True):
    """One knob of one change, taken or refused."""

    at_ns: int
    who: str
    revision: int
    knob: str | None
    old: int | bool | None
    new: int | bool | None
    accepted: bool
    why: str
    request: str = ""
    """The name of the request that was left for it."""


class KnobPanel(msgspec.Struct, frozen=True):
    """The knobs as they are in force at the moment shown, and their changes, newest first."""

    revision: int | None
    knobs: tuple[KnobRow, ...]
    changes: tuple[ChangeRow, ...]
    may_change: bool
    """The run lives and its folder can be written."""
    why_not: str
    setting: Setting | None = None
    """How the engine runs (`runs.setting`), from which the effect of a change is told before it is asked for."""
    folder: str = ""
    """The run's folder, in which a request for a change is left; empty where there is none."""


class LifeSpan(msgspec.Struct, frozen=True):
    """One stretch of a request's life."""

    from_ns: int
    to_ns: int | None
    what: str
    """`held`, `behind`, `between passes`, `computing`, `decoding` and such, as `why` says it."""
    gate: str | None


class RequestLife(msgspec.Struct, frozen=True):
    """One request, found by id."""

    request: str
    words: tuple[str, ...]
    """The words of `glassgate why`."""
    spans: tuple[LifeSpan, ...]
    passes: tuple[int, ...]
    """Passes that looked at it, at most MOST_ROWS."""
    raw: str


class RequestPanel(msgspec.Struct, frozen=True):
    """What a search for a request found."""

    text: str
    found: RequestLife | None
    matches: tuple[str, ...]
    """Ids that begin with the text, at most 20, when it is not one request."""
    problem: str = ""
    later: bool = False
    """The life goes on after the moment shown, and is told whole all the same."""


class AlarmRow(msgspec.Struct, frozen=True):
    """One alarm."""

    number: int
    alarm: str
    state: str
    opened_ns: int
    last_ns: int
    closed_ns: int | None
    count: int
    measured: int
    threshold: int
    unit: str
    request: str | None
    gate: str | None
    detail: str
    meaning: str
    at_least: bool = False
    """At a past moment of an alarm that went on: `count` and `measured` are the least they were by then."""


class LogLine(msgspec.Struct, frozen=True):
    """One thing that happened."""

    at_ns: int
    kind: str
    """`run`, `knob`, `alarm`, `refuse`, `abort`, `retract`, `preempt`, `smoke`, `loss`, `prune`."""
    text: str
    fault: bool
    pass_number: int | None
    request: str | None
    raw: str


class Log(msgspec.Struct, frozen=True):
    """Alarms, those that stand first, and the log, newest first."""

    alarms: tuple[AlarmRow, ...]
    open_alarms: int
    lines: tuple[LogLine, ...]
    hidden: int
    """Lines the filter left out."""
