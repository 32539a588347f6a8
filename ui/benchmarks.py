"""The admission benchmark: what deciding, recording and keeping cost here. Medians, for reading, never asserted."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import PassResult
from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.traces import open_trace
from controller.engines.replay.workload import Workload
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.limits import Limits, Setting, effective
from controller.plan import Plan
from controller.recorder import Recorder
from controller.request import Candidate, Capacity, PrefixMatch
from estimator.batch import BatchEstimator
from store.collect import collect_run
from store.named import NAMED
from store.queries import run_query
from store.telemetry_bench import scheduler_span_ns, sending_cost
from store.why import why
from store.words import counted
from ui.replaying import DEFAULT_MODEL, ReplayOptions, replay
from ui.whatif.played import play
from ui.whatif.recorded import read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.workers import Workers
from ui.where import database_of

PAGE: Final = 64
BATCHES: Final = (1, 4, 16)
QUEUES: Final = (10, 100_000)
_CAPACITY: Final = Capacity(pool_tokens=8_000_000, free_tokens=4_000_000, evictable_tokens=2_000_000)


class Measurement(NamedTuple):
    """One line of the benchmark: what was measured, the figure with its unit, and how it was got."""

    what: str
    value: float
    unit: str
    note: str = ""


class NullJournal:
    """A journal that keeps nothing, to measure the record without the write."""

    def append(self, payload: bytes) -> int:
        """Take a frame and forget it."""
        return len(payload)


class FreeEngine:
    """An engine whose loads succeed and which keeps nothing."""

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """Load everything."""
        del candidate
        return LoadAnswer(tokens)

    def commit(self, candidate: Candidate, plan: Plan) -> None:
        """Keep nothing."""


def median_us(work: Callable[[], object], rounds: int, per: int = 1) -> float:
    """Median time of one call over `rounds`, in microseconds, divided by `per`."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1_000 / per


def candidates(count: int) -> list[Candidate]:
    """Waiting requests with a device hit, a host hit and something to compute."""
    match = PrefixMatch(device_tokens=8_192, unlocked_tokens=4_096, host_tokens=4_096, resident_tokens=4_096)
    return [Candidate(number, 14_000 + 64 * (number % 7), 512, match) for number in range(count)]


def limits_for(members: int) -> Limits:
    """Every gate on, and a batch that `members` requests fill."""
    knobs = Knobs.parse(
        {
            "page_size": PAGE,
            "max_requests": members,
            "max_extend_tokens": 1 << 30,
            "max_cached_tokens": 1 << 30,
            "max_buffer_bytes": "1TiB",
            "max_prefill_tokens": 1 << 30,
            "chunked_prefill_size": 1 << 30,
        }
    )
    return effective(knobs, Setting())


def one_pass(limits: Limits, queue: list[Candidate], estimator: BatchEstimator | None) -> PassResult:
    """One pass that fills its batch and then turns one request away."""
    return AdmissionPass(limits, _CAPACITY, estimator).run(iter(queue), FreeEngine())


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
    """Cost of the record alone, for passes of ten decisions."""
    result = one_pass(limits_for(9), candidates(10), None)
    decisions = len(result.decisions)

    def record(recorder: Recorder) -> Callable[[], object]:
        return lambda: recorder.passed(_CAPACITY, result, start_ns=0, decide_ns=0, queue=10, queued_tokens=0)

    bare = median_us(record(Recorder(NullJournal())), rounds, decisions)
    with (
        tempfile.TemporaryDirectory(prefix="glassgate-bench-") as folder,
        JournalWriter(Path(folder) / "journal", run_id="bench") as journal,
    ):
        kept = median_us(record(Recorder(journal)), rounds, decisions)
    yield Measurement("record of a decision, encoded", bare, "us", f"passes of {decisions} decisions")
    yield Measurement("record of a decision, appended to the journal", kept, "us", "one append a pass")


def telling(recorded_us: float) -> Iterator[Measurement]:
    """What OpenTelemetry would cost where our record stands, and what the collector pays instead."""
    span_us = scheduler_span_ns() / 1_000
    sending = sending_cost()
    yield Measurement("OpenTelemetry span in the scheduler thread", span_us, "us", "12 attributes, created and queued")
    yield Measurement("our record against that span", span_us / recorded_us, "x cheaper", "appended to the journal")
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
    seconds = statistics.median(play(recorded, span, steps, {"max_requests": 8}).wall_s for _ in range(3))
    minutes = (span.until_ns - span.since_ns) / 60e9
    yield Measurement(
        f"what if: {name} under one knob set", seconds, "s",
        f"{len(span.requests):,} requests in {minutes:.0f} min, one core",
    )  # fmt: skip
    points, rates = 8 if quick else 64, []
    for processes in sorted({1, os.cpu_count() or 1}):
        with Workers(recorded, span, steps, processes) as workers:
            for future in [workers.submit({"max_requests": 1}) for _ in range(processes)]:
                future.result()  # each process reads the span once
            began = time.perf_counter()
            asked = [workers.submit({"max_requests": 1 + point}) for point in range(points)]
            for each in asked:
                each.result()
            rates.append(points / (time.perf_counter() - began))
        yield Measurement(
            f"search: {points} points on {counted(processes, 'process', 'processes')}", rates[-1], "points/s",
            f"{rates[-1] / rates[0]:.2f} times one process",
        )  # fmt: skip


def run_all(*, trace: str | None, quick: bool) -> Iterator[Measurement]:
    """Every measurement in turn. Raises what a replay raises for a bad trace."""
    rounds = 200 if quick else 2_000
    yield from deciding(rounds)
    recorded_us = 0.0
    for measurement in recording(rounds):
        recorded_us = measurement.value
        yield measurement
    yield from telling(recorded_us)
    knobs = Knobs(page_size=PAGE)
    with tempfile.TemporaryDirectory(prefix="glassgate-bench-") as folder:
        options = ReplayOptions(knobs=knobs, base=Path(folder))
        yield from replaying(agent_sessions(sessions=60 if quick else 300), options)
        if trace is not None:
            yield from replaying(open_trace(trace, limit=1_000 if quick else None), options)
        yield from supposing(trace, options, quick=quick)
