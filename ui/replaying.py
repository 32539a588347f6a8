"""Replaying a workload with its record: the engine, the journal, the database and the progress bar put together."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from controller.engines.replay import (
    DEFAULT_DEVICE_TOKENS,
    DEFAULT_HOST_TOKENS,
    DEFAULT_NEW_TOKEN_RATIO,
    KnobsAt,
    Pace,
    ReplayEngine,
    Role,
)
from controller.engines.replay import Progress as Standing
from controller.engines.replay.cache import WritePolicy
from controller.engines.replay.step_time import DEFAULT_PRESET, StepTimeModel, step_time_model
from controller.engines.replay.workload import Workload
from controller.journal import JournalWriter
from controller.knob_turning import Answer
from controller.knobs import Knobs
from controller.limits import CLAMPED, DEAD, RAISED, Setting, effective, explain, largest_prompt
from controller.recorder import Recorder
from controller.records import Smoke
from controller.run_directory import RunDirectory
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.errors import GlassgateError, StorageError
from estimator.presets import model as geometry_of
from gpu_probe.smoke import chunk_pieces
from gpu_probe.smoke import smoke as smoke_device
from store.collect import Collector
from store.words import size
from ui.output import cell, narrate
from ui.progress import ReplayProgress
from ui.stopping import stopped_by_signals
from ui.where import database_of

COLLECT_EVERY_S: Final = 1.0
COLLECT_EVERY_PACED_S: Final = 0.15
"""Less than a quarter of a second apart, whatever the moment at which the engine tells of its progress."""
DEFAULT_MODEL: Final = "deepseek-v3.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a workload is replayed. Tokens unless said; None tokens are unbounded."""

    knobs: Knobs = field(default_factory=Knobs)
    device_tokens: int | None = DEFAULT_DEVICE_TOKENS
    host_tokens: int | None = DEFAULT_HOST_TOKENS
    slots: int = 2048
    role: Role = "unified"
    write_policy: WritePolicy = "write_through"
    new_token_ratio: float = DEFAULT_NEW_TOKEN_RATIO
    context_parallel: int = 1
    """Ranks that share KV; more than one needs the role `prefill`."""
    data_parallel: int = 1
    model: str | None = DEFAULT_MODEL
    kv_dtype: Literal["bf16", "fp8"] = "bf16"
    step_time: str = DEFAULT_PRESET
    prefill_tokens_per_second: int | None = None
    smoke: Literal["off", "warn", "require"] = "off"
    """Whether `max_buffer_bytes` is allocated for real before the run, and whether a failure refuses the run."""
    smoke_device: str = "cpu"
    pace: float | None = None
    """Simulated time to wall time; None goes as fast as it can."""
    pace_from: float = 0.0
    """Simulated seconds that are replayed before the pace is kept."""
    over: Callable[[], bool] | None = None
    """Asked several times a second whether to stop."""
    database: Path | None = None
    base: Path | None = None
    """The folder that keeps the runs."""

    def setting(self) -> Setting:
        """How the engine runs."""
        return Setting(
            context_parallel=self.context_parallel > 1,
            data_parallel=self.data_parallel,
            lanes=self.context_parallel,
            slots=self.slots,
            has_model=self.model is not None,
        )

    def estimator(self) -> BatchEstimator | None:
        """The estimator for the model, in the run these options describe."""
        if self.model is None:
            return None
        geometry = geometry_of(self.model)
        ranks = self.context_parallel
        context = RunContext.default_for(
            geometry, page_size=self.knobs.page_size, kv_dtype=self.kv_dtype, cp=ranks, shard_size=ranks
        )
        return BatchEstimator(geometry, context)

    def step_time_model(self) -> StepTimeModel:
        """How long steps take."""
        return step_time_model(self.step_time, prefill_tokens_per_second=self.prefill_tokens_per_second)

    def changes(self) -> Sequence[KnobsAt]:
        """Knobs turned at known moments; a plain workload has none."""
        return ()

    def stretch_ns(self) -> int | None:
        """The bound on decode steps taken in one piece, simulated ns."""
        return None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished replay: its summary as plain data, and its run's folder."""

    summary: dict[str, Any]
    run: RunDirectory


class SimulatedClock:
    """The journal's time base: the engine's simulated time, and the wall time it stands for.

    A replay that makes up for its first `behind_ns` at once began so long ago.
    """

    def __init__(self, behind_ns: int = 0) -> None:
        self.engine: ReplayEngine | None = None
        self.began_wall_ns = time.time_ns() - behind_ns

    def now(self) -> int:
        """Simulated ns since the run began."""
        return 0 if self.engine is None else self.engine.loop.now_ns

    def wall(self) -> int:
        """Unix ns of that moment: simulated time counted from when the run really began."""
        return self.began_wall_ns + self.now()


def replay(workload: Workload, options: ReplayOptions) -> Replayed:
    """Replay a workload, keep the record and take it into the database; requests for a knob change are answered.

    Ctrl-C ends the run at the next pass, with everything recorded. Raises what the engine, the journal and the store
    raise; what was recorded before stays readable.
    """
    estimator, setting, step_time = options.estimator(), options.setting(), options.step_time_model()
    from_ns = int(options.pace_from * 1e9)
    pace = None if options.pace is None else Pace(options.pace, from_ns=from_ns)
    limits = effective(options.knobs, setting)
    smoke = try_smoke(options, estimator)
    program = version("glassgate")
    run = RunDirectory.create(
        options.base,
        engine="replay",
        version=program,
        model=options.model,
        knobs=options.knobs.as_dict(),
        context={
            "workload": workload.name,
            "role": options.role,
            "step_time": step_time.name,
            "pace": options.pace,
            **({} if options.database is None else {"database": str(options.database.absolute())}),
        },
    )
    narrate(f"run {run.path.name}: {workload.name}, role {options.role}, steps as on {step_time.name}")
    if options.device_tokens is not None:
        narrate(f"largest prompt that can be served: {largest_prompt(limits, options.device_tokens):,} tokens")
    if options.pace is not None:
        after = f", after {options.pace_from:,g} s at once" if options.pace_from else ""
        narrate(f"paced: {options.pace:g} s simulated a second{after}; knobs can be turned, Ctrl-C ends it")
    clock = SimulatedClock(0 if pace is None else from_ns)
    if pace is not None:
        pace.begin()  # with the clock, so that the record's wall time is that of the wall
    tell_knobs(options.knobs, setting)
    with _ended(run, clock) as end, workload:
        journal = JournalWriter(
            run.journal, run_id=run.info.run_id, on_full="raise", stall="wait", clock=clock.now, wall_clock=clock.wall
        )
        with journal:
            engine = clock.engine = ReplayEngine(
                workload,
                knobs=options.knobs,
                step_time=step_time,
                recorder=Recorder(journal),
                setting=setting,
                device_tokens=options.device_tokens,
                host_tokens=options.host_tokens,
                role=options.role,
                write_policy=options.write_policy,
                new_token_ratio=options.new_token_ratio,
                estimator=estimator,
                run=run.info.run_id,
                version=program,
                model=options.model or "",
                context="" if estimator is None else json.dumps(estimator.context.as_run()),
                smoke=smoke,
                pace=pace,
                stretch_ns=options.stretch_ns(),
                changes=options.changes(),
                began_wall_ns=clock.began_wall_ns,
            )
            summary = {**_serve(engine, run, options), "skipped_lines": workload.skipped.count}
        _report_skipped(workload)
        end("interrupted" if summary["interrupted"] else "finished")
    return Replayed(summary, run)


def try_smoke(options: ReplayOptions, estimator: BatchEstimator | None) -> Smoke | None:
    """Allocate what `max_buffer_bytes` allows, in the pieces the estimate says; its record, or None when not tried.

    Raises SmokeError when it did not fit and a failure refuses the run.
    """
    asked = options.knobs.max_buffer_bytes
    if options.smoke == "off" or asked is None:
        return None
    narrate(f"smoke allocation of {size(asked)} on {options.smoke_device}")
    pieces = chunk_pieces(estimator, options.knobs.chunked_prefill_size)
    result = smoke_device(options.smoke_device, asked, pieces, clock=lambda: 0)
    if options.smoke == "require":
        result.check()
    elif not result.passed:
        narrate(f"warning: {result.why}")
    return Smoke(**result.record_fields())


def _serve(engine: ReplayEngine, run: RunDirectory, options: ReplayOptions) -> dict[str, Any]:
    """Run the engine to its end, with knobs turned, the database following and the progress told; the summary."""
    database = database_of(run)
    every_s = COLLECT_EVERY_S if options.pace is None else COLLECT_EVERY_PACED_S
    began = time.perf_counter()
    collecting = 0.0
    with (
        Collector(run, database) as collector,
        ReplayProgress() as told,
        stopped_by_signals(engine.stop) as stopped,
    ):
        collected = began
        behind = ""

        def progress(standing: Standing) -> None:
            nonlocal collected, collecting, behind
            for request in run.take_requests():
                told.say(_told(engine.turn(request)))
            if options.over is not None and options.over():
                engine.stop()
            told.show(standing)
            now = time.perf_counter()
            if now - collected >= every_s:
                was, behind = behind, _keep_up(collector)
                if behind and not was:
                    told.say(behind)
                collected = time.perf_counter()
                collecting += collected - now

        try:
            summary = engine.run(progress)
        finally:
            # Also after a failure: what was recorded before it is in the journal and belongs in the database.
            now = time.perf_counter()
            collector.poll()
            collecting += time.perf_counter() - now
    wall = time.perf_counter() - began
    return {
        "run": run.path.name,
        **summary.as_dict(),
        "wall_seconds": round(wall, 6),
        "collect_seconds": round(collecting, 6),
        "requests_per_second": round(summary.requests / wall, 1),
        "interrupted": bool(stopped) or engine.loop.stopped,
        "database": str(database),
        "journal": str(run.journal),
    }


def _keep_up(collector: Collector) -> str:
    """Bring the database up to the journal; what keeps it behind, or "". It stops no engine: the journal has it all."""
    try:
        collector.poll()
    except StorageError as error:
        return f"the database is behind, the journal keeps everything: {error}"
    return ""


def _told(answer: Answer) -> str:
    """The answer to a request for a knob change, for people."""
    changes = ", ".join(f"{name} {cell(old)} -> {cell(new)}" for name, old, new in answer.changes)
    if not answer.accepted:
        return f"knobs: {answer.who} asked for {changes or 'a change'}, refused: {answer.why}"
    return f"knobs: {changes}, revision {answer.revision}, by {answer.who}"


def _report_skipped(workload: Workload) -> None:
    """Say how many lines of a trace were left out, and show the first of them."""
    skipped = workload.skipped
    if skipped.count:
        narrate(f"{skipped.count:,} bad lines left out:")
        for problem in skipped.problems:
            narrate(f"  {problem}")


def tell_knobs(knobs: Knobs, setting: Setting) -> None:
    """Say which knobs an operator set are not in force as set, and why."""
    untouched = Knobs()
    for knob in explain(knobs, setting):
        if knob.state in (CLAMPED, DEAD, RAISED) and knob.set_to != getattr(untouched, knob.name):
            narrate(f"{knob.name} is {cell(knob.set_to)}, in force {cell(knob.effective)} ({knob.state}): {knob.why}")


@contextmanager
def _ended(run: RunDirectory, clock: SimulatedClock) -> Iterator[Callable[[str], None]]:
    """Mark the run's end in good order, with the reason given; one that failed before its first request is no run.

    The run is ours to collect from before its first record until after that mark, so that nobody else begins to, and
    nobody takes it for one that has lost its collector.
    """
    reason = "failed"

    def end(why: str) -> None:
        nonlocal reason
        reason = why

    try:
        collecting = run.hold_collector_lock()
    except StorageError:
        run.discard()
        raise
    with collecting:
        try:
            yield end
        except GlassgateError:
            if clock.engine is None or not clock.engine.summary.requests:
                run.discard()
                raise
            run.end(reason)
            raise
        except BaseException:
            run.end(reason)
            raise
        run.end(reason)
