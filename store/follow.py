"""Follow: the journals of one or many runs into their sinks, each sink at its own pace.

SQLite is written by the thread that calls `Follower.follow`. Every other kind of sink has a thread of its own, which
is left behind if it does not stop in time, so that nothing it waits for delays SQLite or the end.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from controller.journal import remove_cursor
from controller.run_directory import LIVE, RunDirectory, list_runs, ranks_of
from estimator.errors import GlassgateError, RecordError
from store.collect import SINK, SqliteSink
from store.forward import Forwarder
from store.lag import JournalHead
from store.pipe import Pipe
from store.retention import DEFAULT_MAX_BYTES, Retention
from store.standing import Standing, read_alarms, write_standings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from controller.journal import Cursor
    from controller.liveness import LivenessLock
    from controller.run_directory import RunState
    from store.sinks import Sink

POLL_SECONDS: Final = 0.1
"""How long a sink that has everything waits before it looks again."""
STANDING_SECONDS: Final = 1.0
"""How often it is written down where each sink stands, and runs that appeared are looked for."""
SHUTDOWN_SECONDS: Final = 5.0
"""The default bound on stopping."""

_CLOSE_SECONDS: Final = 0.5
"""What letting go takes where nothing more is expected to be delivered."""
_BUSY_MS: Final = 1_000
_RETRY_SECONDS: Final = 5.0
_ENDED_AT_ONCE: Final = 8
"""Runs that are over are caught up so many at a time, which bounds open files and memory."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a follower is to do.

    `runs` is one run with all its ranks on this machine, or a folder of runs; what appears later is followed too.
    `sinks` makes, by name, the sinks beside SQLite. With `once` it catches up and stops, else it also passes on knob
    requests to engines that take them by HTTP. Stopping takes `shutdown_seconds` at most.
    """

    runs: RunDirectory | Path
    database: Callable[[RunDirectory], Path]
    sinks: Mapping[str, Callable[[RunDirectory], Sink]] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    """Sinks whose place is given up, so that they hold no journal back; one that is used again begins anew."""
    once: bool = False
    shutdown_seconds: float = SHUTDOWN_SECONDS
    max_bytes: int = DEFAULT_MAX_BYTES
    """The size each database is kept below, by dropping the oldest."""
    keep_days: float | None = None
    """What ended so many days ago is dropped; None keeps it as long as the size allows."""


class Watcher(Protocol):
    """Somebody who is told, about once a second, how things stand."""

    def seen(self, standings: tuple[Standing, ...]) -> None:
        """Where each sink stands, or stood when its run was left."""

    def alarmed(self, alarms: Mapping[tuple[str, int], Mapping[str, tuple[int, int]]]) -> None:
        """The standing alarms of each run and rank: by name, how many were raised and how many are not over."""


class _Lane(threading.Thread):
    """The pipes of one kind of sink, turned one after another in a thread of their own."""

    def __init__(self, name: str) -> None:
        super().__init__(name=f"glassgate-{name}", daemon=True)
        self.pipes: tuple[Pipe, ...] = ()
        self.closing: tuple[Pipe, ...] = ()
        self.held = False
        """While SQLite is far behind the others wait: what Python does in one thread it does not do in another."""
        self._deadline = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        """Turn pipes until told to stop, then close them within what is left of the time."""
        while not self._over.is_set():
            pipes, closing = self.pipes, self.closing
            for pipe in closing:
                pipe.close(0.0)
            self.closing = tuple(pipe for pipe in self.closing if pipe not in closing)
            if self.held or not sum(pipe.turn() for pipe in pipes):
                self._over.wait(POLL_SECONDS)
        for pipe in (*self.pipes, *self.closing):
            pipe.close(max(0.0, self._deadline - time.monotonic()))

    def stop(self, deadline: float) -> None:
        """Have it settle and end by a moment of the monotonic clock."""
        self._deadline = deadline
        self._over.set()


class _Followed:
    """One run that this process collects."""

    def __init__(self, run: RunDirectory, lock: LivenessLock, pipes: dict[str, Pipe]) -> None:
        self.run = run
        self.lock = lock
        self.pipes = pipes
        self.head = JournalHead(run.journal)
        self.state: RunState = run.state
        self._alarms: dict[str, tuple[int, int]] = {}
        self._alarms_at: object = None

    @property
    def done(self) -> bool:
        """Whether the run is over and everything delivered."""
        return all(pipe.done for pipe in self.pipes.values())

    def look(self, *, once: bool) -> None:
        """See whether the engine lives."""
        self.state = self.run.state
        for pipe in self.pipes.values():
            pipe.run_is_over = once or self.state not in LIVE

    @property
    def place(self) -> Cursor | None:
        """How far the run is in its database."""
        return self.pipes[SINK].sink.cursor

    def read_alarms(self, database: Path, places: object) -> dict[str, tuple[int, int]]:
        """The run's standing alarms; read again when `places`, those of its ranks in the database, have moved."""
        if places != self._alarms_at:
            info = self.run.info
            self._alarms, self._alarms_at = read_alarms(database, info.run_id, info.rank), places
        return self._alarms

    def measure(self) -> list[Standing]:
        """Where each sink stands; also written down beside the run."""
        self.head.look()
        standings = []
        for pipe in self.pipes.values():
            pipe.behind = self.head.behind(pipe.sink.cursor)
            standings.append(Standing(pipe.standing(), pipe.behind, self.state, pipe.reasons()))
        write_standings(self.run, standings)
        return standings


class Follower:
    """Collects the runs of a plan until they are over, or until `stop`.

    `say` is told in one line what an operator should know.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None], watcher: Watcher | None = None) -> None:
        self._plan = plan
        self._say = say
        self._watcher = watcher
        self._alarms: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        self._stopped = False
        self._waited = False
        self._deadline = 0.0
        self._followed: dict[Path, _Followed] = {}
        self._finished: set[Path] = set()
        self._refused: dict[Path, tuple[GlassgateError, float]] = {}
        self._lanes = {name: _Lane(name) for name in plan.sinks}
        self._forwarder = Forwarder(say)
        self._told: dict[str, str] = {}
        self.standings: tuple[Standing, ...] = ()
        """Where each sink stands, or stood when its run was left."""
        self._left: list[Standing] = []

    def stop(self) -> None:
        """End within the bound. Any thread or signal handler may call it."""
        self._stopped = True

    @property
    def seconds_left(self) -> float:
        """What is left of the bound on stopping, once that began."""
        return max(0.0, self._deadline - time.monotonic())

    def follow(self) -> None:
        """Collect until every run is over and delivered, or until `stop`.

        Raises StorageError when another process collects the only run there is; what SQLite or the journal raised when
        that could not be mended; with `once` GlassgateError when a sink did not take everything.
        """
        for lane in self._lanes.values():
            lane.start()
        if not self._plan.once:
            self._forwarder.start()
        try:
            self._turn_until_over()
        finally:
            self._forwarder.stop()
            behind = self._shut_down()
        self._raise_refusals()
        if behind:
            line = "; ".join(behind)
            if self._plan.once:
                raise GlassgateError(f"{line}; collect again when that works")
            self._say(f"{line}; the next collector goes on from there")

    def _turn_until_over(self) -> None:
        look_at = moved_at = 0.0
        marks: object = None
        while not self._stopped:
            now = time.monotonic()
            if now >= look_at:
                look_at = now + STANDING_SECONDS
                self._look()
                found = [standing.status[3:6] for standing in self.standings]
                if found != marks:
                    marks, moved_at = found, now
                if self._plan.once and now - moved_at > self._plan.shutdown_seconds:
                    self._waited = True
                    return
            moved = self._turn_sqlite()
            if self._retire():
                look_at = 0.0  # there may be runs that waited for their turn
            elif not self._followed and self._over():
                return
            if moved:
                moved_at = time.monotonic()
            else:
                time.sleep(POLL_SECONDS / 2)

    def _turn_sqlite(self) -> int:
        """Let SQLite take what it wants of each run; frames moved."""
        total, full = 0, False
        for each in self._followed.values():
            pipe = each.pipes[SINK]
            moved = pipe.turn()
            total += moved
            full = full or moved >= pipe.sink.wants
        for lane in self._lanes.values():
            lane.held = full
        return total

    def _look(self) -> None:
        """Take up runs that appeared, and see where everything stands."""
        self._take_up()
        standings: list[Standing] = []
        for each in self._followed.values():
            try:
                each.look(once=self._plan.once)
            except GlassgateError as error:  # run.json cannot be read at this moment: as it was
                self._tell(f"run {each.run.path.name}", str(error))
            standings += each.measure()
        self._forwarder.runs = tuple(each.run for each in self._followed.values() if each.state in LIVE)
        self.standings = (*self._left, *standings)
        self._tell_watcher()
        for standing in standings:
            self._tell(f"{standing.status.sink} of run {standing.status.run}", standing.status.last_error)

    def _take_up(self) -> None:
        runs, found = self._plan.runs, self._find()
        now = time.monotonic()
        over = sum(each.state not in LIVE for each in self._followed.values())
        for run in found:
            path = run.path
            refused = self._refused.get(path)
            if path in self._followed or (refused is not None and now < refused[1]):
                continue
            try:
                state = run.state
                if path in self._finished and (self._plan.once or state not in LIVE):
                    continue
                if state not in LIVE and over >= _ENDED_AT_ONCE:
                    continue
                self._followed[path] = self._begin(run)
            except GlassgateError as error:
                self._refused[path] = (error, now + _RETRY_SECONDS)
                if not isinstance(runs, RunDirectory) or path != runs.path:  # the run's own error ends us, told then
                    self._tell(f"run {path.name}", str(error))
                continue
            over += state not in LIVE
            self._refused.pop(path, None)
            self._finished.discard(path)
        for name, lane in self._lanes.items():
            lane.pipes = tuple(each.pipes[name] for each in self._followed.values())

    def _find(self) -> list[RunDirectory]:
        runs = self._plan.runs
        if not isinstance(runs, RunDirectory):
            return [listed.run for listed in list_runs(runs)]
        try:
            return ranks_of(runs)
        except GlassgateError:  # why it cannot be read is told when it is begun
            return [runs]

    def _begin(self, run: RunDirectory) -> _Followed:
        """Hold a run's collector lock and open its sinks. Raises what they raise, and then holds nothing."""
        lock = run.hold_collector_lock()
        pipes: dict[str, Pipe] = {}
        try:
            for name in self._plan.forget:
                remove_cursor(run.journal, name)
            retention = Retention(self._plan.max_bytes, self._plan.keep_days)
            sqlite = SqliteSink(run, self._plan.database(run), busy_ms=_BUSY_MS, retention=retention)
            pipes[SINK] = Pipe(run, sqlite)
            for name, make in self._plan.sinks.items():
                pipes[name] = Pipe(run, make(run))
            return _Followed(run, lock, pipes)
        except BaseException:
            for pipe in pipes.values():
                pipe.close(0.0)
            lock.release()
            raise

    def _retire(self) -> bool:
        """Let go of the runs that are over and delivered; whether there were any."""
        retired = []
        for path, each in list(self._followed.items()):
            error = each.pipes[SINK].error
            if isinstance(error, RecordError):  # trying again will not mend it
                self._refused[path] = (error, math.inf)
            elif not each.done:
                continue
            retired.append(path)
            del self._followed[path]
            self._left += each.measure()
            if self._watcher is not None:
                self._read_alarms(each)
            for name, lane in self._lanes.items():
                lane.pipes = tuple(pipe for pipe in lane.pipes if pipe is not each.pipes[name])
                lane.closing = (*lane.closing, each.pipes[name])
            self._let_go(each)
            self._finished.add(path)
        del self._left[:-1000]
        return bool(retired)

    def _let_go(self, each: _Followed) -> None:
        each.pipes[SINK].close(0.0)
        each.head.close()
        each.lock.release()

    def _over(self) -> bool:
        """Whether there is nothing more to wait for."""
        if isinstance(self._plan.runs, RunDirectory) or self._plan.once:
            return True
        return bool(self._finished or self._refused)

    def _shut_down(self) -> list[str]:
        """Settle within the bound; a line for each sink that did not take everything it should have."""
        seconds = self._plan.shutdown_seconds
        # Who has made no progress for that long already is not waited for as long again.
        deadline = self._deadline = time.monotonic() + (min(seconds, _CLOSE_SECONDS) if self._waited else seconds)
        for lane in self._lanes.values():
            lane.stop(deadline)
        for lane in self._lanes.values():
            if lane.ident is not None:
                lane.join(max(0.0, deadline - time.monotonic()))
        behind = []
        standings = list(self._left)
        for path, each in self._followed.items():
            sqlite = each.pipes[SINK]
            if time.monotonic() < deadline:
                sqlite.turn()
            error = sqlite.error
            if error is not None:
                self._refused[path] = (error, 0.0)
            found = each.measure()
            standings += found
            for pipe, standing in zip(each.pipes.values(), found, strict=True):
                # A live engine goes on writing: being a little behind is nothing to tell of.
                at_odds = not pipe.settled or standing.status.last_error or each.state not in LIVE or self._plan.once
                if standing.behind.frames and at_odds:
                    behind.append(_undelivered(standing))
            self._let_go(each)
        self.standings = tuple(standings)
        self._tell_watcher()
        return behind

    def _tell_watcher(self) -> None:
        if self._watcher is None:
            return
        for each in self._followed.values():
            self._read_alarms(each)
        known = {(standing.status.run, standing.status.rank) for standing in self.standings}
        self._alarms = {run: alarms for run, alarms in self._alarms.items() if run in known}
        self._watcher.seen(self.standings)
        self._watcher.alarmed(self._alarms)

    def _read_alarms(self, each: _Followed) -> None:
        status = each.pipes[SINK].sink.status()
        # What another rank brought may have raised an alarm of this one.
        places = (each.place, *(other.place for other in self._followed.values()))
        self._alarms[status.run, status.rank] = each.read_alarms(self._plan.database(each.run), places)

    def _raise_refusals(self) -> None:
        """Raise the first thing that kept a run from being collected into its database."""
        if not self._refused:
            return
        (error, _), *_ = self._refused.values()
        if len(self._refused) == 1 and isinstance(self._plan.runs, RunDirectory):
            raise error
        runs = len({*self._refused, *self._finished, *self._followed})
        raise type(error)(f"{len(self._refused)} of {runs} runs not collected to their end; the first: {error}")

    def _tell(self, about: str, line: str) -> None:
        """Say a line once, until it changes."""
        if line and self._told.get(about) != line:
            self._say(f"{about}: {line}")
        self._told[about] = line


def _undelivered(standing: Standing) -> str:
    status, behind = standing.status, standing.behind
    why = f" ({status.last_error})" if status.last_error else ""
    return f"{status.sink} of run {status.run} has {behind.frames:,} frames still to deliver{why}"
