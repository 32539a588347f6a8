"""The figures of the benchmark: what deciding, recording and keeping cost here. For reading, never asserted."""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.traces import open_trace
from controller.knobs import Knobs
from estimator.batch import BatchEstimator
from estimator.errors import UsageError
from store.collect import collect_run
from store.named import NAMED
from store.queries import run_query
from store.telemetry_bench import sending_cost
from store.why import why
from store.words import counted
from ui.bench.beside import Way, beside_us
from ui.bench.measure import Measurement, median_us
from ui.bench.scene import PAGE, candidates, limits_for, one_pass
from ui.output import narrate
from ui.replaying import DEFAULT_MODEL, ReplayOptions, replay
from ui.whatif.goal import read_aim
from ui.whatif.played import knobs_at, play
from ui.whatif.recorded import read_recorded
from ui.whatif.search import Question, Search
from ui.whatif.space import space_of
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.workers import Workers
from ui.where import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.engines.replay.workload import Workload
    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span
    from ui.whatif.steps import Steps

BATCHES: Final = (1, 4, 16)
QUEUES: Final = (10, 100_000)


def deciding(rounds: int) -> Iterator[Measurement]:
    """Cost of a decision by batch size, with and without the estimate, and by queue length."""
    estimator = BatchEstimator.for_model(DEFAULT_MODEL)
    for members in BATCHES:
        limits, queue = limits_for(members), candidates(members + 1)
        bare = median_us(partial(one_pass, limits, queue, None), rounds, members + 1)
        full = median_us(partial(one_pass, limits, queue, estimator), rounds, members + 1)
        peak = estimator.explain(one_pass(limits, queue, estimator).estimate).peak_bytes
        yield Measurement(f"decision, batch of {members}", bare, "us", "every gate but buffer_bytes")
        yield Measurement(
            f"decision, batch of {members}, with estimate", full, "us", f"estimated peak {peak / 2**30:.2f} GiB"
        )
    state = estimator.empty
    for _ in range(15):
        state = estimator.add(state, 12_288, 1_712)
    yield Measurement(
        "estimate of one more member, batch of 16", median_us(lambda: estimator.add(state, 12_288, 1_712), rounds), "us"
    )
    limits = limits_for(4)
    costs = []
    for length in QUEUES:
        queue = candidates(length)
        costs.append(median_us(partial(one_pass, limits, queue, None), rounds, 5))
    yield Measurement(
        f"decision with {QUEUES[1]:,} waiting, against {QUEUES[0]}", costs[1] / costs[0], "x", "a pass reads no further"
    )


def recording(rounds: int) -> Iterator[Measurement]:
    """Cost of the record, and of what others would put in its place, turn about."""
    taken = beside_us(rounds)
    ours = taken[Way.APPENDED].median
    for way, spread in taken.items():
        note = f"quartiles {spread.lower:.2f} to {spread.upper:.2f}"
        yield Measurement(way, spread.median, "us a decision", note)
    for way in (Way.SPAN, Way.STATEMENT):
        yield Measurement(f"{way}, against our record", taken[way].median / ours, "x", "appended to the journal")


def telling() -> Iterator[Measurement]:
    """What the collector pays for a span, outside the engine."""
    sending = sending_cost()
    yield Measurement("collector: making a span", sending.make_ns / 1_000, "us", "from a record, ids derived")
    yield Measurement("collector: encoding a span for OTLP", sending.encode_ns / 1_000, "us")
    yield Measurement("collector: spans over OTLP", sending.spans_per_second, "spans/s", "made and encoded on one core")


def asking(database: Path, run: str) -> Iterator[Measurement]:
    """How long questions take on the record just made."""
    slowest, name = max((median_us(partial(run_query, database, name, run=run), 3), name) for name in NAMED)
    yield Measurement("slowest named query", slowest / 1_000, "ms", name)
    waited = run_query(database, "slowest-waits", run=run, limit=1).rows
    if waited:
        request = str(waited[0][0])
        yield Measurement("why", median_us(partial(why, database, request, run), 5) / 1_000, "ms", f"of {request}")


def replaying(workload: Workload, options: ReplayOptions) -> Iterator[Measurement]:
    """A whole replay with its record, and its journal into a fresh database."""
    name = workload.name
    replayed = replay(workload, options)
    summary = replayed.summary
    decisions = sum(summary["decisions"]["by_outcome"].values())
    loop = summary["wall_seconds"] - summary["collect_seconds"]
    yield Measurement(
        f"replay: {name}", summary["requests"] / loop, "requests/s",
        f"{summary['requests']:,} requests, {decisions:,} decisions, every one in the journal",
    )  # fmt: skip
    yield Measurement(
        f"replay and database: {name}",
        summary["requests_per_second"],
        "requests/s",
        "SQLite filled in the same process",
    )
    database = replayed.run.path / "again.db"
    began = time.perf_counter()
    collect_run(replayed.run, database)
    seconds = time.perf_counter() - began
    journal = sum(path.stat().st_size for path in replayed.run.journal.iterdir() if path.is_file())
    yield Measurement("journal to SQLite", decisions / seconds, "decisions/s", f"{decisions:,} decisions")
    yield Measurement("journal", journal / decisions, "bytes/decision", "passes, arrivals and finishes included")
    yield Measurement("SQLite", database.stat().st_size / decisions, "bytes/decision", "tables and indexes, all checks")
    yield from asking(database, replayed.run.info.run_id)


def supposing(trace: str | None, options: ReplayOptions, *, quick: bool) -> Iterator[Measurement]:
    """A what-if of a whole recorded run, and how a search over it scales with the cores."""
    sessions = 60 if quick else 300
    workload = agent_sessions(sessions=sessions) if trace is None else open_trace(trace, limit=1_000 if quick else None)
    name, run = workload.name, replay(workload, options).run
    began = time.perf_counter()
    recorded = read_recorded(database_of(run), run.info.run_id)
    span, steps = read_span(recorded), steps_of(recorded)
    yield Measurement(f"what if: reading {name}", time.perf_counter() - began, "s", "a run's record from SQLite")
    taken = []
    for _ in range(3):
        spent = time.process_time()
        seconds = play(recorded, span, steps, {"max_requests": 8}).wall_s
        taken.append((seconds, time.process_time() - spent))
    minutes = (span.until_ns - span.since_ns) / 60e9
    yield Measurement(
        f"what if: {name} under one knob set", statistics.median(wall for wall, _ in taken), "s",
        f"{len(span.requests):,} requests in {minutes:.0f} min; {statistics.median(cpu for _, cpu in taken):.2f} s of "
        "one core",
    )  # fmt: skip
    try:
        yield from searching(recorded, span, steps, options.base or Path(), points=8 if quick else 64)
    except UsageError as error:
        narrate(f"the search is not measured: {error}")


def searching(recorded: Recorded, span: Span, steps: Steps, folder: Path, *, points: int) -> Iterator[Measurement]:
    """How a search scales with the cores: the same points by one process and by one on each core."""
    knobs, rates = knobs_at(recorded, span.since_ns), []
    aims = (read_aim("tokens_per_second", maximise=True),)
    question = Question(aims=aims, bounds=(), space=space_of(recorded, knobs), fixed={})
    for processes in sorted({1, os.cpu_count() or 1}):
        study = folder / f"{processes}.tune"
        search = Search(question, question.asked(recorded, span, steps), storage=str(study))
        before = _spent_by_children()
        with Workers(recorded, span, steps, processes) as workers:
            for future in [workers.submit({"max_requests": 1}) for _ in range(processes)]:
                future.result()  # each process reads the span once
            began = time.perf_counter()
            search.run(workers, knobs, points)
            rates.append(points / (time.perf_counter() - began))
        spent = (_spent_by_children() - before) / (points + processes)
        yield Measurement(
            f"search: {points} points on {counted(processes, 'process', 'processes')}", rates[-1], "points/s",
            f"{rates[-1] / rates[0]:.2f} times one process; {spent:.2f} s of a core for each point",
        )  # fmt: skip


def _spent_by_children() -> float:
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_all(*, trace: str | None, quick: bool) -> Iterator[Measurement]:
    """Every measurement in turn. Raises what a replay raises for a bad trace."""
    rounds = 200 if quick else 2_000
    yield from deciding(rounds)
    yield from recording(max(20, rounds // 10))
    yield from telling()
    knobs = Knobs(page_size=PAGE)
    with tempfile.TemporaryDirectory(prefix="glassgate-bench-") as folder:
        options = ReplayOptions(knobs=knobs, base=Path(folder))
        yield from replaying(agent_sessions(sessions=60 if quick else 300), options)
        if trace is not None:
            yield from replaying(open_trace(trace, limit=1_000 if quick else None), options)
        yield from supposing(trace, options, quick=quick)
