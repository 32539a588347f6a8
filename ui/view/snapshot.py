"""What the screen shows at one moment: plain values that never change, made by `ui.view.reader` from the store.

Times are ns of the run's clock unless the name says `wall` (Unix ns). None is what the record does not hold; it is
shown as absent, never as zero. Gates, reasons and outcomes are their words (`controller.vocabulary`). Tokens unless
said.
"""

from typing import Literal

import msgspec

from controller.limits import Setting

MOST_ROWS = 500
"""Rows of any list in a snapshot, at most."""

Panel = Literal["live", "waiting", "gates", "hits", "buffers", "knobs", "request", "log"]
Presence = Literal["live", "idle", "ended", "engine_gone", "collector_gone", "recording"]
"""`live`: passes come. `idle`: the engine lives and nothing waits. `ended`: in good order. `engine_gone`: its process
died. `collector_gone`: nothing feeds the store, so its numbers are old. `recording`: a database without its run's
folder, of which nobody can say more."""


Seek = Literal["pass", "stop", "knob", "fault"]
"""`pass`: the next pass. `stop`: the next that a gate closed. `knob`: the next knob change. `fault`: the next alarm."""


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
    lag_ns: int | None = None
    """How far the store is behind the journal; None when it cannot be told."""
    losses: int = 0
    """Frames the record is known not to hold."""
    following: bool = True
    """The moment is the record's end and moves with it."""
    changes_ns: tuple[int, ...] = ()
    """When knobs were changed, over the whole run, the last MOST_ROWS of them: marks for a bar of time."""


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
    room: int | None
    """Tokens of computing left to the limit that closed it, or to the tightest limit; None when none is set."""
    closed: Stop | None
    queue: int
    not_reached: int
    revision: int
    decide_ns: int
    step_ns: int | None
    peak_bytes: int | None
    repeats: int
    """Passes after this one that met the same refusal, which stand for rows of their own."""


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


class WaitingRow(msgspec.Struct, frozen=True):
    """One request that waits, or that was refused for good."""

    request: str
    number: int
    arrival_ns: int | None
    waited_ns: int | None
    stop: Stop | None
    """The last reason it was given; None when no pass has looked at it."""
    since_ns: int | None
    """When that reason was first given without a break."""
    behind: str | None
    """The id of the request it stands behind, when it was not looked at."""
    attempts: int
    """Passes that looked at it."""
    overtaken: int
    """Requests that arrived after it and entered before it."""
    needs: int | None
    """Tokens it needs to enter."""
    prompt: int | None
    never: bool
    """It can never fit."""


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


class RunChoice(msgspec.Struct, frozen=True):
    """One run and rank that can be shown; `asked` is how."""

    key: int
    """`runs.id` of its database; 0 where that was not opened."""
    run: str
    rank: int
    engine: str | None
    model: str | None
    started_wall_ns: int | None
    presence: Presence
    passes: int | None
    folder: str = ""
    """The run's folder where it has another database than the one that is open."""
    database: str = ""
    """The path of its database."""

    def asked(self, ask: "Ask") -> "Ask":
        """What to ask for to see this run at its end, the rest as in `ask`."""
        return msgspec.structs.replace(
            ask, run=self.key or None, database=self.database, folder=self.folder, at_ns=None, open_pass=None,
            passes_before=None, waiting_offset=0, seek="",
        )  # fmt: skip


class Ask(msgspec.Struct, frozen=True):
    """What the screen wants to see. The reader answers the newest one."""

    run: int | None = None
    """`runs.id`; None is the run begun last."""
    at_ns: int | None = None
    """The moment; None follows the run."""
    panels: frozenset[Panel] = frozenset({"live"})
    """What is visible: `live` is batches with all small panels beside it; nothing else is read."""
    open_pass: int | None = None
    """The pass under the cursor; None is the newest."""
    passes_before: int | None = None
    """Show passes before this one (paging back); None is up to the moment."""
    rows: int = 100
    """Passes, waiting requests and log lines wanted, at most MOST_ROWS."""
    waiting_offset: int = 0
    waiting_filter: str = ""
    """Text in id, gate or reason; a leading `!` inverts."""
    pass_filter: str = ""
    """A gate or reason that closed the pass, or a member's id; a leading `!` inverts."""
    request: str = ""
    log_filter: str = ""
    faults_only: bool = False
    database: str = ""
    """A database other than the one named at the start; see `RunChoice.asked`."""
    folder: str = ""
    """The run's folder in that case."""
    seek: Seek | Literal[""] = ""
    """Go from `at_ns` (or the end) to the nearest of these before showing. The answer's own `ask` says where that is
    in `at_ns`, with `seek` cleared; where there is none it stays, and `Snapshot.sought` says so."""
    seek_gate: str = ""
    """With `stop`: only stops of this gate."""
    seek_back: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """Everything on the screen at one moment. A part nobody asked for is None."""

    ask: Ask
    head: Head
    runs: tuple[RunChoice, ...]
    passes: tuple[PassRow, ...] = ()
    """Newest first."""
    older_passes: bool = False
    newer_passes: bool = False
    detail: PassDetail | None = None
    waiting: WaitingRoom | None = None
    gates: tuple[GateRow, ...] | None = None
    hits: HostHits | None = None
    buffers: Buffers | None = None
    knobs: KnobPanel | None = None
    request: RequestPanel | None = None
    log: Log | None = None
    problem: str = ""
    """Why something could not be read; what was read before stays on the screen."""
    missing: str = ""
    """What is not there yet, such as the database of a run that has just begun; the parts are empty then."""
    sought: str = ""
    """What a seek did not find."""
    complete: bool = True
    """Percentiles and host hits rest on the whole window; else on its newest part, and the rest is being read."""
    took_ns: int = 0
