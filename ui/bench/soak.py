"""Soak: a load at a steady rate beside the real collector for as long as asked, with everything that could grow."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from controller.journal.segments import list_segments
from controller.run_directory import DATABASE, RunDirectory
from estimator.errors import GlassgateError
from store.collect import SINK
from store.database import reading, wal_bytes
from store.standing import read_standings
from ui.bench.load_process import Beat
from ui.stopping import stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EVERY_S: Final = 10.0
"""Seconds between two samples of a long soak."""
LEAST_SAMPLES: Final = 12
"""So many are taken of a short one."""
FOR_DRIFTS: Final = 8
"""From fewer samples no drift can be told."""
_SETTLE_S: Final = 300.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    """How everything stood at one moment of a soak. Counts and CPU seconds are since its start."""

    at_s: float
    decisions: int
    passes: int
    requests: int
    late_s: float
    cost_us: float
    engine_rss_bytes: int
    engine_cpu_s: float
    collector_rss_bytes: int
    collector_cpu_s: float
    lag_s: float
    """Age of the newest thing in the database."""
    frames_behind: int
    journal_bytes: int
    segments: int
    database_bytes: int
    wal_bytes: int
    machine_load: float
    """Processes that ran or wanted to, a minute's mean, of the whole machine."""


class Ending(NamedTuple):
    """Where the decisions of a soak are once it is over."""

    made: int
    kept: int
    pruned: int
    lost: int

    @property
    def unaccounted(self) -> int:
        """Decisions that are nowhere, or in the database twice where it is below 0."""
        return self.made - self.kept - self.pruned - self.lost


class Drift(NamedTuple):
    """How one figure of a soak went: medians of its quarters, its greatest, and its slope over the second half."""

    what: str
    unit: str
    quarters: tuple[float, float, float, float]
    greatest: float
    per_hour: float


def soak(minutes: float, rate: float, max_bytes: int, took: Callable[[Sample], None]) -> Ending:
    """Decide `rate` times a second for so many minutes beside a collector that keeps its database below `max_bytes`.

    Each sample is told as it is taken. SIGINT or SIGTERM ends it in good order before its time. Raises GlassgateError
    when the engine or the collector fails, and what reading the record raises. The record is gone afterwards.
    """
    seconds = minutes * 60
    every_s = min(EVERY_S, seconds / LEAST_SAMPLES)
    with (
        tempfile.TemporaryDirectory(prefix="glassgate-soak-") as folder,
        _started("ui.bench.load_process", folder, rate, seconds, every_s) as engine,
        stopped_by_signals(engine.terminate),
    ):
        run = RunDirectory(msgspec.json.decode(_line(engine), type=str))
        words = "collect", run.path, "--max-size", max_bytes
        with _started("estimator.launch", *words, stdout=subprocess.DEVNULL) as collector:
            began, beat = time.monotonic(), None
            while line := _line(engine):
                beat = msgspec.json.decode(line, type=Beat)
                if collector.poll() is not None and run.state != "ended":
                    raise GlassgateError(f"the collector of the soak ended with code {collector.returncode}")
                if not beat.over:
                    took(_sample(time.monotonic() - began, beat, run, engine.pid, collector.pid))
            if engine.wait() or beat is None:
                raise GlassgateError(f"the engine of the soak ended with code {engine.returncode}")
            collector.wait(_SETTLE_S)
        return _ending(run, beat)


def drifts(samples: Sequence[Sample]) -> list[Drift]:
    """How each figure that might grow went; nothing of one that was broken off early."""
    if len(samples) < FOR_DRIFTS:
        return []
    engine_cpu = rates([(each.at_s, each.engine_cpu_s) for each in samples])
    collector_cpu = rates([(each.at_s, each.collector_cpu_s) for each in samples])
    made = rates([(each.at_s, each.decisions) for each in samples])
    of = {name: [float(getattr(each, name)) for each in samples] for name in Sample._fields}
    at = of["at_s"]
    return [
        _drift("decisions", "1/s", at[1:], made),
        _drift("engine memory", "bytes", at, of["engine_rss_bytes"]),
        _drift("collector memory", "bytes", at, of["collector_rss_bytes"]),
        _drift("lag of the database", "s", at, of["lag_s"]),
        _drift("journal", "bytes", at, of["journal_bytes"]),
        _drift("database", "bytes", at, of["database_bytes"]),
        _drift("write-ahead log", "bytes", at, of["wal_bytes"]),
        _drift("engine CPU", "cores", at[1:], engine_cpu),
        _drift("collector CPU", "cores", at[1:], collector_cpu),
        _drift("deciding and recording", "us", at, of["cost_us"]),
        _drift("behind its own schedule", "s", at, of["late_s"]),
        _drift("load of the machine", "processes", at, of["machine_load"]),
    ]


def _drift(what: str, unit: str, at: Sequence[float], values: Sequence[float]) -> Drift:
    size = len(values)
    quarters = [statistics.median(values[size * part // 4 : max(1, size * (part + 1) // 4)]) for part in range(4)]
    half = size // 2
    slope = statistics.linear_regression(at[half:], values[half:]).slope * 3600
    return Drift(what, unit, (quarters[0], quarters[1], quarters[2], quarters[3]), max(values), slope)


def rates(points: Sequence[tuple[float, float]]) -> list[float]:
    """What a count grew by a second, between each sample and the next."""
    return [(b - a) / max(1e-9, until - since) for (since, a), (until, b) in pairwise(points)]


@contextmanager
def _started(module: str, *arguments: object, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A module of ours in a process of its own, which Ctrl-C reaches through us alone; it does not outlive us."""
    words = [sys.executable, "-P", "-m", module, *map(str, arguments)]
    with subprocess.Popen(words, stdout=stdout, text=True, process_group=0) as process:  # noqa: S603 - our own module
        try:
            yield process
        finally:
            process.terminate()


def _line(process: subprocess.Popen[str]) -> str:
    """The next line of an engine; empty once it has ended."""
    return "" if process.stdout is None else process.stdout.readline()


def _sample(at_s: float, beat: Beat, run: RunDirectory, engine: int, collector: int) -> Sample:
    database = run.path / DATABASE
    last_ns = 0
    with suppress(GlassgateError), reading(database) as connection:
        row = connection.execute("SELECT last_ns FROM runs").fetchone()
        last_ns = row[0] if row else 0
    lag_s = (time.monotonic_ns() - last_ns) / 1e9 if last_ns else at_s
    behind = [standing.frames_behind for standing in read_standings(run, database) if standing.sink == SINK]
    sizes = [_size(segment.path) for segment in list_segments(run.journal)]
    engine_rss, engine_cpu = _used(engine)
    collector_rss, collector_cpu = _used(collector)
    return Sample(
        round(at_s, 3), beat.decisions, beat.passes, beat.requests, round(beat.late_s, 4), round(beat.cost_us, 3),
        engine_rss, engine_cpu, collector_rss, collector_cpu, round(lag_s, 4), sum(behind), sum(sizes), len(sizes),
        _size(database), wal_bytes(database), round(os.getloadavg()[0], 2),
    )  # fmt: skip


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _used(pid: int) -> tuple[int, float]:
    """Resident bytes and CPU seconds of a process; zeros once it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        # The name, in brackets, may hold spaces; utime and stime are the 14th and 15th field.
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return 0, 0.0
    return pages * _PAGE_BYTES, (int(ticks[11]) + int(ticks[12])) / _TICKS


def _ending(run: RunDirectory, beat: Beat) -> Ending:
    with reading(run.path / DATABASE) as connection:
        kept = connection.execute("SELECT count(*) FROM decisions").fetchone()[0]
        pruned = connection.execute("SELECT coalesce(sum(decisions), 0) FROM pruned").fetchone()[0]
    return Ending(beat.decisions, kept, pruned, beat.lost)
