"""Growth: decisions made, journalled, taken into the store and asked about, up to as many as wanted."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.journal import JournalWriter
from controller.journal.frames import OVERHEAD_BYTES
from controller.run_directory import DATABASE
from estimator.errors import GlassgateError
from store.collect import Collector
from store.database import reading
from store.named import NAMED
from store.pruning import bytes_in_use
from store.queries import run_query
from store.why import why
from ui.bench.curves import Point
from ui.bench.load import Load, load_run
from ui.bench.measure import Measurement, Spread, spread_us, time_us
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
"""Decisions at which the store is asked, as far as is wanted."""
WHY: Final = "why"
SNAPSHOT: Final = "first snapshot of the screen"
MADE: Final = "made and journalled"
TAKEN: Final = "journal to SQLite"
_STRETCH: Final = 100_000
"""Decisions made before the store takes them."""
_PASS_NS: Final = 5_000_000
_WHY_ROUNDS: Final = 21
_ROUNDS: Final = 5
_SLOW_US: Final = 5_000_000
"""What takes longer is measured once."""


class _Sized:
    """A journal that knows how much was ever written to it."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self.bytes = 0

    def append(self, payload: bytes) -> int:
        """Append one frame."""
        self.bytes += len(payload) + OVERHEAD_BYTES
        return self._journal.append(payload)


class _Time(NamedTuple):
    """Seconds of the wall clock, and of CPU in this process: what else the machine does adds to the first alone."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def with_work(self, work: Callable[[], object]) -> _Time:
        """This and what the work took."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return _Time(self.wall_s + time.perf_counter() - wall, self.cpu_s + time.process_time() - cpu)


class _Stand(NamedTuple):
    """How far a growth is, and what it took."""

    decisions: int
    requests: int
    journal_bytes: int
    made: _Time
    taken: _Time


def growth(decisions: int, told: Callable[[str], None]) -> Iterator[Point | Measurement]:
    """The costs of a store as it grows to so many decisions, and at the end what the whole way took.

    A load that is not paced makes them, its clock moving 5 ms a pass, and the store takes them in turns with it.
    `told` hears how far it is. The record is gone afterwards. Raises what recording and reading raise.
    """
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassgate-bench-")))
        run = load_run(base)
        stack.callback(run.release)
        name, database = run.info.run_id, run.path / DATABASE
        journal = stack.enter_context(JournalWriter(run.journal, run_id=name, on_full="raise", stall="wait"))
        sized = _Sized(journal)
        clock = iter(range(0, 1 << 62, _PASS_NS // 2))  # looked at twice a pass, when it begins and when it has ended
        load = Load.begun(name, sized, clock=partial(next, clock))
        collector = stack.enter_context(Collector(run, database))
        made = taken = _Time()
        for size in (*(each for each in SIZES if each < decisions), decisions):
            while load.decisions < size:
                made = made.with_work(partial(load.run_to, min(size, load.decisions + _STRETCH)))
                taken = taken.with_work(collector.poll)
            stand = _Stand(load.decisions, load.requests, sized.bytes, made, taken)
            told(f"{size:,} decisions made in {made.wall_s:,.0f} s, taken into the store in {taken.wall_s:,.0f} s")
            yield from _asked(database, name, stand, size)
        yield from _whole(stand, database)


def _asked(database: Path, run: str, stand: _Stand, x: int) -> Iterator[Point]:
    """What `why`, the named queries and the screen's first snapshot take on the store as it is."""
    number = iter(range(1, _WHY_ROUNDS + 1))

    def ask_why() -> None:  # of requests all over the run, those that wait now left out
        why(database, f"load-{stand.requests * next(number) // (_WHY_ROUNDS + 2):08d}", run)

    yield Point.of("store", WHY, x, spread_us(ask_why, _WHY_ROUNDS, 1_000), "ms")
    yield Point.of("store", SNAPSHOT, x, _spread(partial(_snapshot, database)), "ms")
    for query in NAMED:
        try:
            spread = _spread(partial(run_query, database, query, run=run))
        except GlassgateError:  # it was stopped after the time a query may take
            continue
        yield Point.of("store", query, x, spread, "ms")


def _spread(work: Callable[[], object]) -> Spread:
    """Milliseconds of a few rounds, or of the first one alone if that was slow."""
    first = time_us(work)
    more = 0 if first > _SLOW_US else _ROUNDS - 1
    return Spread.of([us / 1_000 for us in (first, *(time_us(work) for _ in range(more)))])


def _snapshot(database: Path) -> None:
    view = View(Source.open(str(database)))
    try:
        view.answer(Ask())
    finally:
        view.close()


def _whole(stand: _Stand, database: Path) -> Iterator[Measurement]:
    count, what = stand.decisions, f"{stand.decisions:,} decisions"
    for way, took in ((MADE, stand.made), (TAKEN, stand.taken)):
        note = f"{took.wall_s:,.0f} s, of which {took.cpu_s:,.0f} s CPU"
        yield Measurement(f"{way}, {what}", count / took.wall_s, "decisions/s", note)
        yield Measurement(f"{way}, {what}, by CPU time", count / took.cpu_s, "decisions/s")
    yield Measurement(f"journal, {what}", stand.journal_bytes / count, "bytes/decision", "all records included")
    with reading(database) as connection:
        stored = bytes_in_use(connection)
    note = f"{stand.requests / count:.2f} requests each"
    yield Measurement(f"SQLite, {what}", stored / count, "bytes/decision", note)
