"""Load: an engine without a device. Requests arrive, the real pass admits them, they run for a while and end."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from importlib.metadata import version
from random import Random
from typing import TYPE_CHECKING, Final

from controller.admission import AdmissionPass
from controller.knobs import Knobs
from controller.limits import Setting, effective, explain, largest_prompt
from controller.recorder import Recorder, refusal_key
from controller.records import Arrival, Finish, KnobsInForce, RunEnd, RunStart, StepEnd
from controller.request import CLIP_OUTPUT_TOKENS, Candidate, Capacity, PrefixMatch
from controller.run_directory import RunDirectory
from estimator.batch import BatchEstimator
from ui.bench.scene import PAGE, FreeEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from controller.recorder import Journal

POOL_TOKENS: Final = 1_500_000
WAITING: Final = 400
"""Requests that wait, kept up whatever is admitted."""
MODEL: Final = "deepseek-v3.2"
KNOBS: Final = Knobs(
    page_size=PAGE, max_requests=8, max_extend_tokens=24_576, max_cached_tokens=32_768, max_buffer_bytes=9 << 30,
    max_prefill_tokens=131_072, chunked_prefill_size=None,
)  # fmt: skip
"""The four limits, and the pool, close some of the batches each."""
SLOTS: Final = 2048
NEW_TOKEN_RATIO: Final = 0.7
_BLOCK_TOKENS: Final = 512
_MOST_BLOCKS: Final = 64
_SHORTEST_RUN, _LONGEST_RUN = 10, 110
"""Passes for which a request runs."""
_NAMES: Final = "load-{:08d}"


def load_run(folder: Path) -> RunDirectory:
    """A new run under a folder, for a load to begin. Raises what creating one raises."""
    return RunDirectory.create(folder, engine="load", version=version("glassgate"), model=MODEL, knobs=KNOBS.as_dict())


class Load:
    """Keeps `WAITING` requests in the queue and makes one pass a `step`. Times are ns of `clock`, lengths tokens.

    The same `seed` makes the same decisions.
    """

    def __init__(self, recorder: Recorder, *, seed: int = 0, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._recorder = recorder
        self._random = Random(seed)  # noqa: S311 - a workload, no secret
        self._clock = clock
        self._engine = FreeEngine()
        self._setting = Setting(slots=SLOTS)
        self._limits = effective(KNOBS, self._setting)
        self._queue: deque[Candidate] = deque()
        self._queued_tokens = 0
        # What runs, by the pass before which it ends: (number, prompt, output) each.
        self._ending: dict[int, list[tuple[int, int, int]]] = {}
        self._held = self._held_back = self._running = 0
        self._last_step: tuple[int, int, tuple[int, ...]] | None = None
        self._last_key: tuple[int, ...] | None = None
        self.costs_us: list[float] = []
        """Deciding and recording of each pass, µs a decision, until somebody takes them."""
        self.requests = 0
        self.decisions = 0
        """Those the record holds one by one; a refusal that repeats is counted once."""

    @property
    def passes(self) -> int:
        """Passes made."""
        return self._recorder.passes

    @property
    def running(self) -> int:
        """Requests that run."""
        return self._running

    @classmethod
    def begun(cls, run: str, journal: Journal, *, clock: Callable[[], int] = time.monotonic_ns) -> Load:
        """A load of the model it is made for, its record kept in a journal, in which its run has begun just now."""
        load = cls(Recorder(journal, BatchEstimator.for_model(MODEL)), clock=clock)
        load.begin(run, version("glassgate"), time.time_ns())
        return load

    def begin(self, run: str, version: str, wall_ns: int) -> None:
        """Record the start of the run; `wall_ns` is the Unix time of this moment."""
        now = self._clock()
        words: dict[str, int | bool | float | str] = {"lanes": 1, "has_model": self._recorder.estimator is not None}
        self._recorder.note(
            RunStart(
                run, "load", version, 0, "", MODEL, now, wall_ns, False, POOL_TOKENS, 0, SLOTS,
                largest_prompt(self._limits, POOL_TOKENS), words,
            )
        )  # fmt: skip
        knobs = tuple(dataclasses.astuple(knob)[:6] for knob in explain(KNOBS, self._setting))
        self._recorder.note(KnobsInForce(now, 0, knobs))
        self._recorder.flush()

    def step(self) -> int:
        """One pass with all that goes with it; the decisions it adds to the record, at least 1."""
        now = self._clock()
        self._end_step(now)
        self._finish(now)
        while len(self._queue) < WAITING:
            self._arrive(now)
        recorder = self._recorder
        capacity = self._capacity()
        began = time.perf_counter_ns()
        result = AdmissionPass(self._limits, capacity, recorder.estimator).run(self._queue, self._engine)
        decided = time.perf_counter_ns()
        number = recorder.passed(
            capacity, result, start_ns=now, decide_ns=decided - began, queue=len(self._queue),
            queued_tokens=self._queued_tokens,
        )  # fmt: skip
        made = len(result.decisions)
        self.costs_us.append((time.perf_counter_ns() - began) / 1_000 / made)
        for _ in result.batch:  # the queue is admitted from its front
            self._start(number, self._queue.popleft())
        if result.batch:
            self._last_step = number, now, tuple(member[0] for member in result.batch)
        key = refusal_key(result, recorder.revision, capacity.running)
        repeated = key is not None and key == self._last_key
        self._last_key = key
        if repeated:
            return 1
        self.decisions += made
        return made

    def run_to(self, decisions: int) -> None:
        """Make passes until there are so many decisions in all."""
        while self.decisions < decisions:
            self.step()

    def end(self, reason: str = "finished") -> None:
        """Record the end of the run."""
        now = self._clock()
        self._end_step(now)
        self._recorder.end_repeats()
        self._recorder.note(RunEnd(now, reason, self.passes, self.requests))
        self._recorder.flush()

    def _capacity(self) -> Capacity:
        left = max(0, POOL_TOKENS - self._held)
        return Capacity(
            pool_tokens=POOL_TOKENS, free_tokens=left // 4, evictable_tokens=left - left // 4,
            reserved_tokens=self._held_back * NEW_TOKEN_RATIO, running=self._running, slots=SLOTS,
        )  # fmt: skip

    def _arrive(self, now: int) -> None:
        random, number = self._random.random, self.requests
        self.requests = number + 1
        prompt = 500 + int(30_000 * random() ** 3)
        device = int(prompt * 0.9 * random()) // PAGE * PAGE
        host = int((prompt - device) * 0.8 * random()) // PAGE * PAGE if random() < 0.25 else 0
        output = 20 + int(1_000 * random() ** 2)
        blocks = min(_MOST_BLOCKS, (prompt - device) // _BLOCK_TOKENS)
        hashes = tuple(self._random.getrandbits(32) for _ in range(blocks))
        like = number - 1 if device and number else -1
        name = _NAMES.format(number)
        self._recorder.note(Arrival(number, name, now, prompt, output, hashes, "", like, device, prompt))
        self._queue.append(Candidate(number, prompt, output, PrefixMatch(device, device // 2, host, host)))
        self._queued_tokens += prompt

    def _start(self, passed: int, request: Candidate) -> None:
        prompt, output = request.prompt_tokens, request.output_tokens
        self._queued_tokens -= prompt
        self._held += prompt
        self._held_back += min(output, CLIP_OUTPUT_TOKENS)
        self._running += 1
        at = passed + self._random.randrange(_SHORTEST_RUN, _LONGEST_RUN)
        self._ending.setdefault(at, []).append((request.number, prompt, output))

    def _end_step(self, now: int) -> None:
        if self._last_step is not None:
            number, began, members = self._last_step
            self._recorder.note(StepEnd(number, began, now, members))
            self._last_step = None

    def _finish(self, now: int) -> None:
        for number, prompt, output in self._ending.pop(self.passes, ()):
            self._held -= prompt
            self._held_back -= min(output, CLIP_OUTPUT_TOKENS)
            self._running -= 1
            self._recorder.note(Finish(number, now, output))
