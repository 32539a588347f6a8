"""The parts of a snapshot that were asked for, put together at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.words import size
from ui.view.alarms import count_open, read_alarms
from ui.view.buffers import read_buffers
from ui.view.detail import read_detail
from ui.view.gates import read_gates
from ui.view.head import read_head, read_standing
from ui.view.hits import read_hits
from ui.view.knobs import read_knobs
from ui.view.log import read_log
from ui.view.moment import moment_of
from ui.view.passes import read_passes
from ui.view.request import read_request
from ui.view.snapshot import Log, Snapshot
from ui.view.waiting import read_waiting

if TYPE_CHECKING:
    from ui.view.head import Standing
    from ui.view.memory import Memory
    from ui.view.moment import Moment
    from ui.view.presence import Pulse
    from ui.view.snapshot import Ask


PLACE_SQL: Final = "SELECT segment, byte_offset FROM cursors WHERE run = ?"
# What of a journal's end cannot be read is not waited for.
END_SQL: Final = """SELECT 1 FROM losses
WHERE run = ? AND reason IN ('torn_end', 'damaged_end') AND segment = ? AND byte_offset = ?"""


def fill(ask: Ask, moment: Moment, memory: Memory, pulse: Pulse, deadline_ns: int | None) -> Snapshot:
    """The snapshot of a moment, without the runs. Raises sqlite3.Error."""
    panels, live = ask.panels, "live" in ask.panels
    window = memory.window.at(moment, deadline_ns)
    standing = read_standing(moment)
    place = moment.connection.execute(PLACE_SQL, (moment.run.id,)).fetchone()
    life = pulse.life(moment.run, standing if moment.following else _standing_at_the_end(moment, pulse), place)
    passes = read_passes(moment, ask, memory) if live else None
    detail = None
    if passes is not None:
        newest = passes.rows[0].number if passes.rows else None
        for number in (ask.open_pass, newest):
            if detail is None and number is not None:
                detail = read_detail(moment, number, memory)
    log = None
    if "log" in panels:
        log = read_log(moment, ask)
    elif live:
        log = Log(read_alarms(moment), count_open(moment), (), 0)
    buffers = None
    if live or "buffers" in panels:
        buffers = read_buffers(moment, window, memory, windows="buffers" in panels)
    return Snapshot(
        ask=ask,
        head=read_head(moment, window, memory, life, standing),
        runs=(),
        passes=passes.rows if passes is not None else (),
        older_passes=passes is not None and passes.older,
        newer_passes=passes is not None and passes.newer,
        detail=detail,
        waiting=read_waiting(moment, ask, standing, memory) if live or "waiting" in panels else None,
        gates=read_gates(moment, window, memory) if live or "gates" in panels else None,
        hits=read_hits(moment, window) if live or "hits" in panels else None,
        buffers=buffers,
        knobs=read_knobs(moment, memory, life.presence, pulse.folder) if live or "knobs" in panels else None,
        request=read_request(moment, ask.request) if "request" in panels else None,
        log=log,
        missing=_uncollected(moment, pulse, place),
        complete=window.complete,
    )


def _standing_at_the_end(moment: Moment, pulse: Pulse) -> Standing | None:
    """Who waits and runs by the newest pass, whatever moment is shown: a run lives at its end."""
    return read_standing(moment_of(moment.connection, moment.run, None, pulse.now_ns(moment.run)))


def _uncollected(moment: Moment, pulse: Pulse, place: tuple[int, int] | None) -> str:
    """What to do about a record that is over and does not go on to the journal's end."""
    behind = pulse.uncollected(place)
    if not behind or place is None or pulse.folder is None:
        return ""
    if moment.connection.execute(END_SQL, (moment.run.id, *place)).fetchone() is not None:
        return ""
    name = pulse.folder.path.name
    return f"the journal of run {name} holds {size(behind)} not collected yet; `glassgate collect {name}` takes it in"
