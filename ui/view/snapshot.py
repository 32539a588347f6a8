"""What the screen shows at one moment: plain values that never change, made by `ui.view.reader` from the store.

Times are ns of the run's clock unless the name says `wall` (Unix ns). None is what the record does not hold; it is
shown as absent, never as zero. Gates, reasons and outcomes are their words (`controller.vocabulary`). Tokens unless
said.
"""

from typing import Literal

import msgspec

from ui.view.batches import (
    Binding,
    CheckView,
    DecisionView,
    Head,
    MemberBar,
    PassDetail,
    PassRow,
    Presence,
    Quantiles,
    Slice,
    Stop,
)
from ui.view.panels import (
    AlarmRow,
    BufferPoint,
    Buffers,
    ChangeRow,
    Funnel,
    GateRow,
    HostHits,
    KnobPanel,
    KnobRow,
    LifeSpan,
    Log,
    LogLine,
    RequestLife,
    RequestPanel,
    WaitingRoom,
    WaitingRow,
    WindowBar,
)

__all__ = [
    "MOST_ROWS",
    "AlarmRow",
    "Ask",
    "Binding",
    "BufferPoint",
    "Buffers",
    "ChangeRow",
    "CheckView",
    "DecisionView",
    "Funnel",
    "GateRow",
    "Head",
    "HostHits",
    "KnobPanel",
    "KnobRow",
    "LifeSpan",
    "Log",
    "LogLine",
    "MemberBar",
    "Panel",
    "PassDetail",
    "PassRow",
    "Presence",
    "Quantiles",
    "RequestLife",
    "RequestPanel",
    "RunChoice",
    "Seek",
    "Slice",
    "Snapshot",
    "Stop",
    "WaitingRoom",
    "WaitingRow",
    "WindowBar",
]

MOST_ROWS = 500
"""Rows of any list in a snapshot, at most."""

Panel = Literal["live", "waiting", "gates", "hits", "buffers", "knobs", "request", "log"]
Seek = Literal["pass", "stop", "knob", "fault"]
"""`pass`: the next pass. `stop`: the next that a gate closed. `knob`: the next knob change. `fault`: the next alarm."""


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

    @property
    def choice(self) -> RunChoice | None:
        """The run and rank on the screen among those that can be shown; None when it is not among them."""
        shown = self.head.run, self.head.rank
        return next((each for each in self.runs if (each.run, each.rank) == shown), None)
