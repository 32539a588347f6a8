"""The serving loop: one engine in simulated time, from the first arrival to the last token."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import Decision
from controller.engines.replay.cache import PrefixCache
from controller.engines.replay.decode import RunningBatch
from controller.engines.replay.inflight import InFlight, known_tokens
from controller.engines.replay.record import ReplayRecord
from controller.engines.replay.step_time import causal_pairs
from controller.engines.replay.summary import Summary
from controller.engines.replay.waiting import WaitingQueue
from controller.limits import Setting, effective, largest_prompt
from controller.records import Abort, Arrival, Finish, KnobChange, LoadDone, Retract, StepEnd
from controller.request import UNBOUNDED, ActiveChunk, Candidate, Capacity
from controller.vocabulary import Outcome
from estimator.errors import GlassgateError, KnobError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.decision import PassResult
    from controller.engines.replay.cache import WritePolicy
    from controller.engines.replay.workload import Workload, WorkloadRequest
    from controller.knobs import Knobs
    from controller.plan import Plan
    from controller.recorder import Recorder
    from controller.vocabulary import HostHit
    from estimator.batch import BatchEstimator

Role = Literal["unified", "prefill"]
"""`unified` prefills and decodes; `prefill` is a prefill node, which holds KV until it is handed over."""

DEFAULT_DEVICE_TOKENS: Final = 1_000_000
DEFAULT_HOST_TOKENS: Final = 4_000_000
DEFAULT_NEW_TOKEN_RATIO: Final = 0.7
PROGRESS_NS: Final = 100_000_000
"""Progress is told about every so often, in ns of wall time."""


class ReplayStuck(GlassgateError):  # noqa: N818 - it says what became of the replay, the base class that it is an error
    """Nothing runs, and the queue's head or the continuing chunk gets nothing: no event can ever change that."""


class StepTime(Protocol):
    """How long steps take, in simulated ns; `step_time.StepTimeModel` is one."""

    def prefill_ns(self, extend_tokens: int, cached_tokens: int, batch_size: int, attention_pairs: int) -> int:
        """A prefill step."""

    def decode_span_ns(self, batch_size: int, context_tokens: int, steps: int) -> int:
        """So many decode steps in a row."""

    def decode_steps_within(self, batch_size: int, context_tokens: int, ns: int) -> int:
        """The most decode steps that take no longer than `ns`."""

    def transfer_ns(self, tokens: int) -> int:
        """Moving the KV of `tokens` tokens."""


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
    context as JSON.

    Raises UsageError, InputError or KnobError for arguments that do not fit together.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        knobs: Knobs,
        step_time: StepTime,
        recorder: Recorder,
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
    ) -> None:
        setting = Setting(has_model=estimator is not None) if setting is None else setting
        if setting.lanes > 1 and role != "prefill":
            raise UsageError(
                f"{setting.lanes} owner lanes with role {role}: a page-interleaved pool does not decode; "
                "set role prefill, or one lane"
            )
        if not 0.0 <= new_token_ratio <= 1.0:
            raise UsageError(f"new_token_ratio is {new_token_ratio}; it is a number from 0 to 1")
        self.knobs = knobs
        self.cache = PrefixCache(
            page_tokens=knobs.page_size,
            block_tokens=workload.block_tokens,
            device_tokens=device_tokens,
            host_tokens=host_tokens,
            lanes=setting.lanes,
            write_policy=write_policy,
        )
        self.running = RunningBatch(knobs.page_size)
        self.summary = Summary()
        self._setting = setting
        self._limits = effective(knobs, setting)
        self._hands_over = role == "prefill"
        self._workload = workload
        self._requests: Iterator[WorkloadRequest] = iter(())
        self._next: WorkloadRequest | None = None
        self._step_time = step_time
        self._record = ReplayRecord(recorder)
        self._estimator = estimator
        self._fail_load = fail_load
        self._ratio = new_token_ratio
        self._names = (run, version, model, context)
        self._host_tokens = UNBOUNDED if host_tokens is None else host_tokens
        self._now = 0
        self._queue = WaitingQueue()
        self._chunk: InFlight | None = None
        self._members: list[InFlight] = []
        self._held: deque[tuple[int, InFlight]] = deque()  # (when it is handed over, request), earliest first
        self._due = True  # something has changed since the last pass that admitted nothing
        self._refused: tuple[int, ...] = ()  # the last decision of the last pass that admitted nothing
        self._stop = False

    # What others ask of the engine

    def run(self, progress: Callable[[Progress], None] | None = None) -> Summary:
        """Serve the workload to its end, or until `stop`. What was recorded stays readable whatever ends the run.

        `progress` is called between passes, about every PROGRESS_NS of wall time. Raises ReplayStuck where no event can
        ever admit the head of the queue, InputError for a bad line in the workload, StorageError when the journal
        cannot be written.
        """
        begun_ns = time.perf_counter_ns()
        summary, record = self.summary, self._record
        summary.largest_prompt_tokens = largest_prompt(self._limits, self.cache.pool_tokens)
        record.begin(self._names, self._setting, self._limits, self.cache.pool_tokens, self._host_tokens)
        record.knobs(0, self.knobs, self._setting)
        reason = "failed"
        try:
            reason = self._serve(progress)
        except StorageError:
            raise  # there is nowhere to record the end
        except GlassgateError:
            record.end(self._now, reason, summary.requests)
            raise
        record.end(self._now, reason, summary.requests)
        summary.simulated_ns = self._now
        summary.wall_ns = time.perf_counter_ns() - begun_ns
        return summary

    @property
    def now_ns(self) -> int:
        """Simulated ns since the run began."""
        return self._now

    def stop(self) -> None:
        """End the run at the next pass boundary. Any thread or signal handler may call it."""
        self._stop = True

    def change_knobs(self, knobs: Knobs, who: str = "operator") -> bool:
        """Put knobs in force under the next revision; call it between passes, from `progress` for instance.

        False, and recorded with the reason, when they cannot be: the page size of a pool never changes.
        """
        old, note = self.knobs, self._record.note
        before, after = old.as_dict(), knobs.as_dict()
        changes = tuple((name, before[name], after[name]) for name in before if before[name] != after[name])
        why = ""
        try:
            limits = effective(knobs, self._setting)
        except KnobError as error:
            why = str(error)
        if knobs.page_size != old.page_size:
            why = f"page_size is fixed at {old.page_size} for a run; {knobs.page_size} needs another run"
        if why:
            note(KnobChange(self._now, who, old.revision, changes, accepted=False, why=why))
            return False
        self._record.recorder.end_repeats()
        self._limits = limits
        self.knobs = old.changed({name: new for name, _, new in changes})
        self._due = True
        note(KnobChange(self._now, who, self.knobs.revision, changes, accepted=True))
        self._record.knobs(self._now, self.knobs, self._setting)
        return True

    # The engine's side of a pass

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """Bring a planned host hit to the device: the whole hit as it was matched, or nothing of it."""
        del tokens
        request: InFlight = candidate.handle
        if self._fail_load is not None and (reason := self._fail_load(request.number)) is not None:
            return LoadAnswer(0, reason)
        return self.cache.load(request)

    def commit(self, candidate: Candidate, plan: Plan) -> None:
        """Lock an admitted candidate's prefix and take the pages of what the pass computes."""
        request: InFlight = candidate.handle
        cache = self.cache
        cache.commit(request)
        cache.grow(request, request.pages, -(-(plan.prefix + plan.extend) // cache.page) - request.pages)
        self._members.append(request)

    def _continue_chunk(self, chunk: InFlight, extend: int) -> None:
        """Take the pages of what the pass computes of the continuing chunk."""
        cache = self.cache
        held = -(-chunk.done // cache.page)
        cache.grow(chunk, held, -(-(chunk.done + extend) // cache.page) - held)
        self._members.append(chunk)

    def _candidates(self, admission: AdmissionPass) -> Iterator[Candidate]:
        """The queue as a pass looks at it, matched one by one, when the members before have what they hold."""
        chunk = self._chunk
        if chunk is not None and admission.batch:
            self._continue_chunk(chunk, admission.batch[0][2])
        match = self.cache.match
        for request in self._queue:
            prompt, generated = request.prompt, request.generated
            left = 1 if self._hands_over else request.output - generated
            yield Candidate(request.number, prompt, left, match(request, prompt), request, generated)

    # The loop

    def _serve(self, progress: Callable[[Progress], None] | None) -> str:
        """Go from event to event; why it ended."""
        self._requests = iter(self._workload)
        self._next = next(self._requests, None)
        queue, running, settle, clock = self._queue, self.running, self._record.settle, time.perf_counter_ns
        told_ns = clock()
        while not self._stop:
            self._take_until(self._now)
            if self._due and (queue or self._chunk is not None) and self._pass():
                pass
            elif running.size:
                self._decode()
            elif not self._wait():
                return "finished"
            settle(self._now)
            if progress is not None and clock() - told_ns >= PROGRESS_NS:
                self._tell(progress)
                told_ns = clock()
        return "interrupted"

    def _tell(self, progress: Callable[[Progress], None]) -> None:
        summary = self.summary
        running = self.running.size + len(self._held)
        waiting, fraction = len(self._queue), self._workload.position()
        progress(Progress(summary.requests, summary.finished, summary.passes, waiting, running, self._now, fraction))

    def _take_until(self, until_ns: int) -> None:
        """Take in what happened up to a time: hand-overs, then arrivals."""
        held = self._held
        while held and held[0][0] <= until_ns:
            at_ns, request = held.popleft()
            self._finish(request, at_ns)
        found = self._next
        if found is None or found.arrival_ns > until_ns:
            return
        summary, queue, note, block = self.summary, self._queue, self._record.note, self._workload.block_tokens
        if not queue:
            self._due = True
        while found is not None and found.arrival_ns <= until_ns:
            number = summary.requests
            summary.requests = number + 1
            request = InFlight(number, found)
            self.cache.open(request, found.blocks, known_tokens(found, block))
            note(Arrival(number, found.id, found.arrival_ns, found.prompt_tokens, found.output_tokens))
            queue.add(request)
            self._next = found = next(self._requests, None)

    def _wait(self) -> bool:
        """Nothing runs: go on to the next event, if there is any."""
        if not self._held and (self._queue or self._chunk is not None):
            raise ReplayStuck(self._why_stuck())
        events = [self._held[0][0]] if self._held else []
        if self._next is not None:
            events.append(self._next.arrival_ns)
        if not events:
            return False
        self._now = min(events)
        return True

    def _why_stuck(self) -> str:
        refused = Decision.read(self._refused) if self._refused else None
        if refused is None or refused.gate is None:
            return f"{len(self._queue)} requests wait with nothing running, and no pass refused any; report this"
        return (
            f"request {refused.number} waits with nothing running: {refused.gate.word} observed {refused.observed} "
            f"{refused.unit} against a limit of {refused.limit}; raise what sets that limit, or report this"
        )

    def _pass(self) -> bool:
        """One admission pass, and its prefill step if it admitted anything; whether it did."""
        cache, running, queue, chunk = self.cache, self.running, self._queue, self._chunk
        capacity = Capacity(
            pool_tokens=cache.pool_tokens,
            free_tokens=cache.free_tokens,
            evictable_tokens=cache.evictable_tokens,
            reserved_tokens=running.reserved_tokens(self._ratio),
            running=running.size + len(self._held),
            slots=self._setting.slots,
            lanes=cache.lane_state(),
        )
        admission = AdmissionPass(self._limits, capacity, self._estimator)
        active = None
        if chunk is not None:
            left = 1 if self._hands_over else chunk.output - chunk.generated
            active = ActiveChunk(chunk.number, chunk.prompt, chunk.done, left, chunk.base, chunk)
        self._members = members = list[InFlight]()
        waiting, tokens = len(queue), queue.tokens
        begun_ns = time.perf_counter_ns()
        result = admission.run(self._candidates(admission), self, active)
        decide_ns = time.perf_counter_ns() - begun_ns
        batch = result.batch
        if chunk is not None and batch and not members:
            self._continue_chunk(chunk, batch[0][2])  # it closed the pass before the queue was looked at
        number = self._record.passed(capacity, result, self._now, decide_ns, waiting, tokens)
        self.summary.passed(result)
        self._leave_queue(result)
        if not batch:
            self._due = False
            self._refused = result.decisions[-1] if result.decisions else ()
            return False
        self._prefill(number, batch)
        return True

    def _leave_queue(self, result: PassResult) -> None:
        """Take what was admitted or refused out of the queue; it is the front of it."""
        decisions = result.decisions
        for decision in decisions[len(decisions) - result.looked_at :]:
            if decision[1] == Outcome.WAIT:
                break
            request = self._queue.pop()
            if decision[1] == Outcome.REFUSE:
                self.summary.aborts += 1
                self._record.note(Abort(request.number, self._now, _why_never(Decision.read(decision))))

    def _prefill(self, passed: int, batch: tuple[tuple[int, ...], ...]) -> None:
        """Run a batch's prefill step to its end. Only then is what it computed a prefix that others can hit."""
        start_ns = self._now
        extends = cached = pairs = loads = 0
        for _, _, extend, hit, load, done in batch:
            prefix = hit + load + done
            extends += extend
            cached += prefix
            pairs += causal_pairs(extend, prefix)
            loads += load
        step_time = self._step_time
        self._now = end_ns = start_ns + max(
            step_time.prefill_ns(extends, cached, len(batch), pairs), step_time.transfer_ns(loads)
        )
        self._take_until(end_ns)
        summary, note, insert = self.summary, self._record.note, self.cache.insert
        self._chunk = None
        complete = []
        for (number, _, extend, hit, load, done), request in zip(batch, self._members, strict=True):
            request.done = computed = done + hit + load + extend
            insert(request, computed)
            if load:
                note(LoadDone(number, end_ns, load))
            if not request.admitted:
                request.admitted = True
                summary.admitted(request.prompt, hit, load, start_ns - request.arrival_ns)
            if computed < request.prompt:
                self._chunk = request
                continue
            complete.append(request)
            request.generated += 1
            if request.generated == 1:
                summary.first_token_times.add(end_ns - request.arrival_ns)
        note(StepEnd(passed, start_ns, end_ns, tuple([request.number for request in complete])))
        for request in complete:
            if self._hands_over:
                self._hand_over(request)
            elif request.generated == request.output:
                self._finish(request, end_ns)
            else:
                self.running.join(request)
        self._due = True

    def _hand_over(self, request: InFlight) -> None:
        """Send a request's KV away over the one link there is, after those before it."""
        held = self._held
        begin_ns = max(self._now, held[-1][0]) if held else self._now
        held.append((begin_ns + self._step_time.transfer_ns(request.prompt), request))

    def _decode(self) -> None:
        """Decode up to the next event: a finish, pages running out, or an arrival that a pass would look at."""
        running, cache, step_time = self.running, self.cache, self._step_time
        most = running.steps_to_finish
        if running.pages_for(1) > cache.room_pages:
            self._retract()
            if not running.size:
                return
            most = 1  # as an engine does, before the next pass
        size, context, start_ns = running.size, running.context_tokens, self._now
        arrival = self._next
        if arrival is not None and not self._queue and self._chunk is None:
            gap_ns = arrival.arrival_ns - start_ns
            steps = step_time.decode_steps_within(size, context, gap_ns)
            if steps < most and step_time.decode_span_ns(size, context, steps) < gap_ns:
                steps += 1  # the step in which it arrives is run to its end
            most = min(most, steps)
        pages, room = running.pages_for(most), cache.room_pages
        if pages > room:
            most = running.steps_within(room)
            pages = running.pages_for(most)
        cache.take(pages)
        self._now = end_ns = start_ns + step_time.decode_span_ns(size, context, most)
        self._take_until(end_ns)
        self._record.note(StepEnd(-1, start_ns, end_ns, ()))
        for request in running.advance(most):
            self._finish(request, end_ns)

    def _retract(self) -> None:
        """Take running requests back into the queue until the next step has its pages; the last one is aborted.

        Which one goes first, and that one remains, is SGLang 0.5.23's rule (`ScheduleBatch.retract_decode`).
        """
        running, cache, note = self.running, self.cache, self._record.note
        self._due = True
        while running.pages_for(1) > (room := cache.room_pages):
            last = running.size == 1
            request = running.retract()
            cache.release(request, request.workload_prompt + request.generated - 1)
            if last:
                self.summary.aborts += 1
                why = f"out of KV: {room} pages free or evictable, 1 needed, and no other request runs"
                note(Abort(request.number, self._now, why))
                return
            self.summary.retractions += 1
            freed = (cache.room_pages - room) * cache.page
            note(Retract(request.number, self._now, request.generated, freed))
            request.prompt = request.workload_prompt + request.generated
            request.done = 0
            self._queue.put_back(request)

    def _finish(self, request: InFlight, at_ns: int) -> None:
        """Let a request go; what is known of its tokens stays as a prefix."""
        self.cache.release(request, request.workload_prompt + request.generated - 1)
        self.summary.finished += 1
        self._due = True
        self._record.note(Finish(request.number, at_ns, request.generated))


def _why_never(decision: Decision) -> str:
    gate = decision.gate.word if decision.gate is not None else ""
    return f"can_never: {gate} needs {decision.observed} {decision.unit} of {decision.limit}"
