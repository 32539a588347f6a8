"""Where the sinks of a run stand: told by the collector as it goes, and by the record when it is not there."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from controller.journal import Cursor, read_cursors
from controller.liveness import is_held
from controller.whole_file import read_json, write_whole
from estimator.errors import GlassgateError
from store.collect import SINK
from store.database import reading
from store.lag import Behind, JournalHead

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controller.run_directory import RunDirectory, RunState
    from store.pipe import Reasons
    from store.sinks import SinkStatus

_FILE: Final = "collector.json"
_ENGINE: Final[dict[str, Literal["live", "ended", "gone"]]] = {
    "live": "live", "collector_gone": "live", "ended": "ended", "engine_gone": "gone"
}  # fmt: skip


class Standing(NamedTuple):
    """Where one sink of one run stood when its collector last looked."""

    status: SinkStatus
    behind: Behind
    state: RunState
    reasons: Reasons


class SinkStanding(msgspec.Struct, frozen=True):
    """Where one sink of one run stands, collector or not. Counts are its last collector's, times Unix ns."""

    run: str
    rank: int
    engine: Literal["live", "ended", "gone"]
    collected: bool
    """Whether a collector runs at this moment."""
    sink: str
    segment: int
    """Segment, byte offset and number of the frame that is next."""
    offset: int
    seq: int
    frames_behind: int
    bytes_behind: int
    delivered: int = 0
    left_out: int = 0
    lost: int = 0
    failures: int = 0
    last_error: str = ""
    last_delivery_ns: int = 0
    losses: dict[str, int] = {}
    """Frames the database knows it does not hold, by reason; for the sink `sqlite` alone."""


class _Kept(msgspec.Struct, frozen=True):
    """What a collector writes beside a run of one sink."""

    delivered: int
    left_out: int
    lost: int
    failures: int
    last_error: str
    last_delivery_ns: int


class _File(msgspec.Struct, frozen=True):
    pid: int
    at_ns: int
    sinks: dict[str, _Kept]


def write_standings(run: RunDirectory, standings: Sequence[Standing]) -> None:
    """Leave word beside the run; a folder that takes no file goes without."""
    sinks = {standing.status.sink: _Kept(*standing.status[4:]) for standing in standings}
    content = msgspec.json.encode(_File(os.getpid(), time.time_ns(), sinks))
    with suppress(OSError):
        write_whole(run.path / _FILE, content + b"\n")


def read_standings(run: RunDirectory, database: Path) -> list[SinkStanding]:
    """Where each sink of a run stands at this moment. Nothing is written, and no lock is held.

    Raises RecordError for a run that cannot be read.
    """
    info, engine = run.info, _ENGINE[run.state]
    collected = is_held(run.path / "collector.lock")
    places = read_cursors(run.journal)
    kept = _read_kept(run)
    losses: dict[str, int] = {}
    with suppress(GlassgateError), reading(database) as connection:
        query = "SELECT id FROM runs WHERE name = ? AND rank = ?"
        number = connection.execute(query, (info.run_id, info.rank)).fetchone()
        if number is not None:
            query = "SELECT segment, byte_offset, seq FROM cursors WHERE run = ?"
            for place in connection.execute(query, number):
                places[SINK] = Cursor(*place)
            query = "SELECT reason, sum(frames) FROM losses WHERE run = ? GROUP BY reason ORDER BY reason"
            losses = dict(connection.execute(query, number).fetchall())
    head = JournalHead(run.journal)
    head.look()
    standings = []
    for sink in sorted({*places, *kept}, key=lambda name: (name != SINK, name)):
        place = places.get(sink)
        behind = head.behind(place)
        counted: dict[str, Any] = msgspec.structs.asdict(kept[sink]) if sink in kept else {}
        standings.append(
            SinkStanding(
                info.run_id, info.rank, engine, collected, sink, *(place or Cursor(0, 0, 0)), behind.frames,
                behind.bytes, **counted, losses=losses if sink == SINK else {},
            )
        )  # fmt: skip
    head.close()
    return standings


def read_alarms(database: Path, run: str, rank: int) -> dict[str, tuple[int, int]]:
    """How often each standing alarm of a run was raised, and how many of those are not over.

    Empty while the database is not there or cannot be read.
    """
    query = """SELECT k.alarm, count(a.number),
    coalesce(sum(a.number IS NOT NULL AND a.closed_ns IS NULL AND r.end_ns IS NULL), 0)
FROM alarm_kinds k JOIN runs r ON r.name = ? AND r.rank = ?
LEFT JOIN alarms a ON a.run = r.id AND a.alarm = k.alarm GROUP BY k.alarm"""
    with suppress(GlassgateError), reading(database) as connection:
        return {alarm: (raised, standing) for alarm, raised, standing in connection.execute(query, (run, rank))}
    return {}


def _read_kept(run: RunDirectory) -> dict[str, _Kept]:
    """What the last collector left; nothing if it left nothing that can be read."""
    with suppress(OSError, msgspec.DecodeError):
        return read_json(run.path / _FILE, _File).sinks
    return {}
