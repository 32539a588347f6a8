"""The embedded engine: a workload, a prefix cache, a clock and a step-time model, driven through the controller."""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from controller.engines.replay.cache import PrefixCache
from controller.engines.replay.loop import ServingLoop
from controller.engines.replay.record import ReplayRecord
from controller.engines.replay.step_time import StepTimeModel
from controller.engines.replay.summary import Summary
from controller.knob_requests import KnobRequest
from controller.knob_turning import FORMAT, Answer, answer
from controller.limits import Setting, effective, largest_prompt
from controller.prefixes import BlockPrefixes
from controller.request import UNBOUNDED
from estimator.errors import StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.engines.replay.cache import WritePolicy
    from controller.engines.replay.durations import StepTime
    from controller.engines.replay.pace import Pace
    from controller.engines.replay.record import PassRecorder
    from controller.engines.replay.schedule import KnobsAt
    from controller.engines.replay.workload import Workload
    from controller.knobs import Knobs
    from controller.records import Smoke
    from controller.vocabulary import HostHit
    from estimator.batch import BatchEstimator

Role = Literal["unified", "prefill"]
"""`unified` prefills and decodes; `prefill` is a prefill node, which holds KV until it is handed over."""

DEFAULT_DEVICE_TOKENS: Final = 4_000_000
DEFAULT_HOST_TOKENS: Final = 8_000_000
DEFAULT_NEW_TOKEN_RATIO: Final = 0.7
PROGRESS_NS: Final = 100_000_000
"""Progress is told about every so often, in ns of wall time."""


class Progress(NamedTuple):
    """How far a replay is."""

    requests: int
    """Requests that arrived."""
    finished: int
    passes: int
    waiting: int
    running: int
    simulated_ns: int
    fraction: float | None
    """Part of the workload that was read, from 0 to 1; None where its length is not known."""


class ReplayEngine:
    """The embedded engine: serves a workload in simulated time and records every decision.

    `device_tokens` and `host_tokens` are the tiers' sizes: None is unbounded, and 0 host tokens mean no host tier.
    `setting` says how the engine runs; more than one owner lane needs the role `prefill`, since a page-interleaved pool
    does not decode. `new_token_ratio` is the part of its remaining output that a running request reserves.
    `fail_load` lets a test fail load-backs: it gets the request's number and answers a reason, or None to go on.
    `run` and `version` name the run and the program in the record, `model` the model, `context` is the estimator's run
    context as JSON, `smoke` what a start-up allocation found. `pace` holds simulated time back to wall time; without
    one the replay goes as fast as it can. `stretch_ns` bounds the decode steps taken in one piece, simulated ns; a pace
    has its own. `began_wall_ns` is the Unix time that simulated time 0 stands for, by default that at which `run` is
    called. `changes` are knobs turned at known moments, in order. `salt` (16 bytes, by default random ones) goes into
    the hashes of prefixes; without `hashes` the record has none. `summary` is what is added up into, by default a new
    one.

    Raises UsageError, InputError or KnobError for arguments that do not fit together.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        knobs: Knobs,
        step_time: StepTime,
        recorder: PassRecorder,
        setting: Setting | None = None,
        device_tokens: int | None = DEFAULT_DEVICE_TOKENS,
        host_tokens: int | None = DEFAULT_HOST_TOKENS,
        role: Role = "unified",
        write_policy: WritePolicy = "write_through",
        new_token_ratio: float = DEFAULT_NEW_TOKEN_RATIO,
        estimator: BatchEstimator | None = None,
        fail_load: Callable[[int], HostHit | None] | None = None,
        run: str = "replay",
        version: str = "",
        model: str = "",
        context: str = "",
        smoke: Smoke | None = None,
        pace: Pace | None = None,
        began_wall_ns: int | None = None,
        stretch_ns: int | None = None,
        changes: Sequence[KnobsAt] = (),
        salt: bytes | None = None,
        hashes: bool = True,
        summary: Summary | None = None,
    ) -> None:
        setting = Setting(has_model=estimator is not None) if setting is None else setting
        if setting.lanes > 1 and role != "prefill":
            raise UsageError(
                f"{setting.lanes} owner lanes with role {role}: a page-interleaved pool does not decode; "
                "set role prefill, or one lane"
            )
        if not 0.0 <= new_token_ratio <= 1.0:
            raise UsageError(f"new_token_ratio is {new_token_ratio}; it is a number from 0 to 1")
        limits = effective(knobs, setting)
        self._estimator = estimator  # with the run's own safety factor
        recorder.estimator = None if estimator is None else estimator.with_safety(knobs.buffer_safety_percent)
        self.knobs = knobs
        self.summary = Summary() if summary is None else summary
        if pace is not None:
            stretch_ns = pace.stretch_ns
        prefixes = BlockPrefixes(salt or secrets.token_bytes(16), workload.block_tokens) if hashes else None
        self.loop = ServingLoop(
            cache=PrefixCache(
                page_tokens=knobs.page_size,
                block_tokens=workload.block_tokens,
                device_tokens=device_tokens,
                host_tokens=host_tokens,
                lanes=setting.lanes,
                write_policy=write_policy,
            ),
            limits=limits,
            slots=setting.slots,
            block_tokens=workload.block_tokens,
            step_time=step_time,
            record=(record := ReplayRecord(recorder, prefixes)),
            summary=self.summary,
            hands_over=role == "prefill",
            new_token_ratio=new_token_ratio,
            estimator=recorder.estimator,
            fail_load=fail_load,
            pace=pace,
            stretch_ns=stretch_ns,
        )
        self._manner = _manner(role, write_policy, new_token_ratio, workload.block_tokens, step_time, stretch_ns)
        if estimator is not None:
            self._manner["geometry"] = json.dumps(asdict(estimator.geometry))
        self._changes = deque(changes)
        self._pace = pace
        self._began_wall_ns = began_wall_ns
        self._record = record
        self._workload = workload
        self._setting = setting
        self._names = (run, version, model, context)
        self._smoke = smoke
        self._host_tokens = UNBOUNDED if host_tokens is None else host_tokens

    def run(self, progress: Callable[[Progress], None] | None = None) -> Summary:
        """Serve the workload to its end, or until `stop`. What was recorded stays readable whatever ends the run.

        `progress` is called between passes, about every PROGRESS_NS of wall time, also while a paced replay waits: it
        is where knobs are turned. Raises ReplayStuck where no event can
        ever admit the head of the queue, InputError for a bad line in the workload, StorageError when the journal
        cannot be written.
        """
        begun_ns = time.perf_counter_ns()
        summary, record, loop = self.summary, self._record, self.loop
        pool_tokens = loop.cache.pool_tokens
        summary.largest_prompt_tokens = largest_prompt(loop.limits, pool_tokens)
        wall_ns = time.time_ns() if self._began_wall_ns is None else self._began_wall_ns
        record.begin(self._names, self._setting, loop.limits, pool_tokens, self._host_tokens, wall_ns, self._manner)
        record.knobs(0, self.knobs, self._setting)
        if self._smoke is not None:
            record.note(self._smoke)
        record.append_noted()
        if self._pace is not None:
            self._pace.begin()
        try:
            reason = loop.serve(iter(self._workload), self._between_steps(progress))
        except StorageError:
            raise  # there is nowhere to record the end
        except BaseException:  # a bad line, a stuck queue, or an interrupt that nobody turned into `stop`
            record.end(loop.now_ns, "failed", summary.requests)
            raise
        record.end(loop.now_ns, reason, summary.requests)
        summary.simulated_ns = loop.now_ns
        summary.wall_ns = time.perf_counter_ns() - begun_ns
        return summary

    def stop(self) -> None:
        """End the run at the next pass boundary. Any thread or signal handler may call it."""
        self.loop.stopped = True

    def turn(self, request: KnobRequest) -> Answer:
        """Answer a request for a knob change, record the answer, and put the knobs in force if it is accepted.

        Call it from `progress`: the next pass is the first one decided under the next revision. Raises StorageError
        when the journal cannot be written.
        """
        record, loop = self._record, self.loop
        found = answer(request, self.knobs, self._setting)
        if found.knobs is not None and found.limits is not None:
            record.recorder.end_repeats()
            loop.limits = found.limits
            if self._estimator is not None:
                estimator = self._estimator.with_safety(found.knobs.buffer_safety_percent)
                loop.estimator = record.recorder.estimator = estimator
            self.knobs = found.knobs
            loop.due = True
        record.note(found.record(loop.now_ns))
        if found.accepted:
            record.knobs(loop.now_ns, self.knobs, self._setting)
        record.append_noted()
        return found

    def _between_steps(self, progress: Callable[[Progress], None] | None) -> Callable[[], None] | None:
        """What is to be done between steps: knobs turned when their moment comes, progress told when it is time to."""
        if progress is None:
            return self._turn_due if self._changes else None
        clock, told_ns = time.perf_counter_ns, time.perf_counter_ns()

        def between() -> None:
            nonlocal told_ns
            if self._changes:
                self._turn_due()
            if clock() - told_ns >= PROGRESS_NS:
                progress(self.progress())
                told_ns = clock()

        return between

    def _turn_due(self) -> None:
        """Turn the knobs whose moment has come."""
        changes, loop, recorder = self._changes, self.loop, self._record.recorder
        while changes and changes[0].at_ns <= loop.now_ns and changes[0].after_passes <= recorder.passes:
            change = changes.popleft()
            content = {"format": FORMAT, "who": change.who, "changes": change.values, "left_unix_ns": 0}
            self.turn(KnobRequest("", content, None))

    def progress(self) -> Progress:
        """How far the replay is; only from the thread that runs it."""
        summary, loop = self.summary, self.loop
        running = loop.running.size + len(loop.held)
        return Progress(
            summary.requests,
            summary.finished,
            summary.passes,
            len(loop.queue),
            running,
            loop.now_ns,
            self._workload.position(),
        )


def _manner(
    role: Role, write_policy: WritePolicy, ratio: float, block_tokens: int, step_time: StepTime, stretch_ns: int | None
) -> dict[str, int | float | str]:
    """How a replay serves, for its record, so that the record can be replayed."""
    manner: dict[str, int | float | str] = {
        "role": role,
        "write_policy": write_policy,
        "new_token_ratio": ratio,
        "block_tokens": block_tokens,
    }
    if isinstance(step_time, StepTimeModel):
        manner["step_time"] = json.dumps(asdict(step_time))
    if stretch_ns is not None:
        manner["stretch_ns"] = stretch_ns
    return manner
