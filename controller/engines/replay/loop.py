"""The serving loop: one engine in simulated time, from event to event."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import Decision
from controller.engines.replay.decode import RunningBatch
from controller.engines.replay.inflight import InFlight, known_tokens
from controller.engines.replay.leavers import NEVER, Leavers
from controller.engines.replay.step_time import causal_pairs
from controller.engines.replay.stuck import ReplayStuck
from controller.engines.replay.waiting import WaitingQueue
from controller.records import Abort, Finish, LoadDone, Retract, StepEnd
from controller.request import ActiveChunk, Candidate, Capacity
from controller.vocabulary import Outcome
from estimator.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.decision import PassResult
    from controller.engines.replay.cache import PrefixCache
    from controller.engines.replay.durations import StepTime
    from controller.engines.replay.pace import Pace
    from controller.engines.replay.record import ReplayRecord
    from controller.engines.replay.summary import Summary
    from controller.engines.replay.workload import WorkloadRequest
    from controller.limits import Limits
    from controller.plan import Plan
    from controller.vocabulary import HostHit
    from estimator.batch import BatchEstimator

LATEST_NS: Final = 1 << 62
"""The last moment of simulated time; records hold times of 63 bits."""


class ServingLoop:
    """One engine's state between two steps, and what each event does to it. Times are simulated ns.

    With `hands_over` it is a prefill node: output is charged as one token, nothing decodes, and KV is held until it has
    been handed over. `slots` are request slots; `new_token_ratio` is the part of its remaining output that a running
    request reserves; `fail_load` answers a reason to fail the load of a request's number with, or None. With a `pace`
    nothing happens before wall time has come to it. `stretch_ns` bounds the decode steps taken in one piece.
    """

    def __init__(
        self,
        *,
        cache: PrefixCache,
        limits: Limits,
        slots: int,
        block_tokens: int,
        step_time: StepTime,
        record: ReplayRecord,
        summary: Summary,
        hands_over: bool,
        new_token_ratio: float,
        estimator: BatchEstimator | None,
        fail_load: Callable[[int], HostHit | None] | None,
        pace: Pace | None = None,
        stretch_ns: int | None = None,
    ) -> None:
        self.cache = cache
        self.limits = limits
        self.now_ns = 0
        self.queue = WaitingQueue()
        self.running = RunningBatch(cache.page)
        self.held: deque[tuple[int, InFlight]] = deque()
        """Requests of a prefill node with the time when each is handed over, earliest first."""
        self.due = True
        """Something has changed since the last pass that admitted nothing."""
        self.stopped = False
        self._slots = slots
        self._block_tokens = block_tokens
        self._step_time = step_time
        self._record = record
        self._summary = summary
        self._hands_over = hands_over
        self._ratio = new_token_ratio
        self.estimator = estimator
        self._fail_load = fail_load
        self._pace = pace
        self._stretch_ns = stretch_ns
        self._leavers = Leavers()
        self._after_event: Callable[[], None] = _nothing
        self._requests: Iterator[WorkloadRequest] = iter(())
        self._next: WorkloadRequest | None = None
        self._chunk: InFlight | None = None
        self._members: list[InFlight] = []
        self._refused: tuple[int, ...] = ()  # the last decision of the last pass that admitted nothing

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
        for request in self.queue:
            prompt, generated = request.prompt, request.generated
            left = 1 if self._hands_over else request.allowed - generated
            yield Candidate(request.number, prompt, left, match(request, prompt), request, generated)

    # From event to event

    def serve(self, requests: Iterator[WorkloadRequest], after_event: Callable[[], None] | None = None) -> str:
        """Serve requests in order of arrival; why it ended: `finished`, or `interrupted` where `stopped` was set.

        `after_event` is called between steps, and again and again while a paced replay waits: whatever it changes holds
        from the next pass on. Raises ReplayStuck where no event can ever admit the head of the queue.
        """
        if after_event is not None:
            self._after_event = after_event
        tell = self._after_event
        self._requests = requests
        self._next = next(requests, None)
        queue, running, settle = self.queue, self.running, self._record.settle
        while not self.stopped:
            self._take_until(self.now_ns)
            if self._leavers.next_ns <= self.now_ns:
                self._let_leave()
            if self.due and (queue or self._chunk is not None) and self._pass():
                pass  # it ran its prefill step
            elif running.size:
                self._decode()
            elif not self._wait():
                return "finished"
            settle(self.now_ns)
            tell()
        return "interrupted"

    def _go_to(self, end_ns: int) -> None:
        """Let time go on to the end of a step. Raises InputError for one that no record can tell."""
        if end_ns > LATEST_NS:
            years = LATEST_NS // 31_557_600_000_000_000
            raise InputError(f"the workload takes more than {years} years of simulated time; its outputs are too long")
        self._hold(end_ns)
        self.now_ns = end_ns
        self._take_until(end_ns)

    def _hold(self, until_ns: int) -> None:
        """Where the replay is paced, let wall time come so far, or the replay be stopped.

        Meanwhile time goes on, what happens in it is taken in, and what there is to record is appended.
        """
        pace, record = self._pace, self._record
        while pace is not None and not self.stopped and (now_ns := pace.now_ns()) < until_ns:
            if now_ns > self.now_ns:
                self.now_ns = now_ns
                self._take_until(now_ns)
            record.append_noted()
            self._after_event()
            pace.rest(until_ns)

    def _take_until(self, until_ns: int) -> None:
        """Take in what happened up to a time: hand-overs, then arrivals."""
        held = self.held
        while held and held[0][0] <= until_ns:
            at_ns, request = held.popleft()
            self._finish(request, at_ns)
        found = self._next
        if found is None or found.arrival_ns > until_ns:
            return
        summary, queue, arrived, block = self._summary, self.queue, self._record.arrived, self._block_tokens
        if not queue:
            self.due = True
        while found is not None and found.arrival_ns <= until_ns:
            number = summary.requests
            summary.requests = number + 1
            request = InFlight(number, found)
            known = known_tokens(found, block)
            self.cache.open(request, found.blocks, known)
            arrived(number, found, known)
            queue.add(request)
            if found.leaves_ns is not None:
                self._leavers.add(request, found.leaves_ns)
            self._next = found = next(self._requests, None)

    def _wait(self) -> bool:
        """Nothing runs: go on to the next event, if there is any."""
        waits = bool(self.queue) or self._chunk is not None
        leaves_ns = self._leavers.next_ns if waits else NEVER
        if not self.held and waits and leaves_ns == NEVER:
            raise ReplayStuck.over(len(self.queue), self._refused)
        events = [self.held[0][0]] if self.held else []
        if leaves_ns != NEVER:
            events.append(leaves_ns)
        if self._next is not None:
            events.append(self._next.arrival_ns)
        if not events:
            return False
        event_ns = min(events)
        self._hold(event_ns)
        if not self.stopped:
            self.now_ns = event_ns
        return True

    def _pass(self) -> bool:
        """One admission pass, and its prefill step if it admitted anything; whether it did."""
        cache, running, queue, chunk = self.cache, self.running, self.queue, self._chunk
        capacity = Capacity(
            pool_tokens=cache.pool_tokens,
            free_tokens=cache.free_tokens,
            evictable_tokens=cache.evictable_tokens,
            reserved_tokens=running.reserved_tokens(self._ratio),
            running=running.size + len(self.held),
            slots=self._slots,
            lanes=cache.lane_state(),
        )
        admission = AdmissionPass(self.limits, capacity, self.estimator)
        active = None
        if chunk is not None:
            left = 1 if self._hands_over else chunk.allowed - chunk.generated
            active = ActiveChunk(chunk.number, chunk.prompt, chunk.done, left, chunk.base, chunk)
        self._members = members = list[InFlight]()
        waiting, tokens = len(queue), queue.tokens
        begun_ns = time.perf_counter_ns()
        result = admission.run(self._candidates(admission), self, active)
        decide_ns = time.perf_counter_ns() - begun_ns
        batch = result.batch
        if chunk is not None and batch and not members:
            self._continue_chunk(chunk, batch[0][2])  # it closed the pass before the queue was looked at
        number = self._record.passed(capacity, result, self.now_ns, decide_ns, waiting, tokens)
        self._summary.passed(result)
        self._leave_queue(result)
        if not batch:
            self.due = False
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
            request = self.queue.pop()
            if decision[1] == Outcome.REFUSE:
                self._summary.aborts += 1
                self._record.note(Abort(request.number, self.now_ns, _why_never(Decision.read(decision))))

    def _prefill(self, passed: int, batch: tuple[tuple[int, ...], ...]) -> None:
        """Run a batch's prefill step to its end. Only then is what it computed a prefix that others can hit."""
        start_ns = self.now_ns
        extends = cached = pairs = loads = 0
        for _, _, extend, hit, load, done in batch:
            prefix = hit + load + done
            extends += extend
            cached += prefix
            pairs += causal_pairs(extend, prefix)
            loads += load
        step_time = self._step_time
        end_ns = start_ns + max(step_time.prefill_ns(extends, cached, len(batch), pairs), step_time.transfer_ns(loads))
        self._go_to(end_ns)
        summary, note, insert = self._summary, self._record.note, self.cache.insert
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
        self.due = True

    def _hand_over(self, request: InFlight) -> None:
        """Send a request's KV away over the one link there is, after those before it."""
        held = self.held
        begin_ns = max(self.now_ns, held[-1][0]) if held else self.now_ns
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
        size, context, start_ns = running.size, running.context_tokens, self.now_ns
        arrival, soonest_ns = self._next, self._leavers.next_ns
        if arrival is not None and not self.queue and self._chunk is None:
            soonest_ns = min(soonest_ns, arrival.arrival_ns)
        if soonest_ns != NEVER:
            most = min(most, self._steps_until(soonest_ns))
        if self._stretch_ns is not None:
            most = min(most, max(1, step_time.decode_steps_within(size, context, self._stretch_ns)))
        pages, room = running.pages_for(most), cache.room_pages
        if pages > room:
            most = running.steps_within(room)
            pages = running.pages_for(most)
        cache.take(pages)
        end_ns = start_ns + step_time.decode_span_ns(size, context, most)
        self._go_to(end_ns)
        self._record.note(StepEnd(-1, start_ns, end_ns, ()))
        for request in running.advance(most):
            self._finish(request, end_ns)

    def _steps_until(self, at_ns: int) -> int:
        """Decode steps up to a time; the step in which it comes is run to its end."""
        size, context, step_time = self.running.size, self.running.context_tokens, self._step_time
        gap_ns = at_ns - self.now_ns
        steps = step_time.decode_steps_within(size, context, gap_ns)
        if not steps or step_time.decode_span_ns(size, context, steps) < gap_ns:
            steps += 1
        return steps

    def _retract(self) -> None:
        """Take running requests back into the queue until the next step has its pages; the last one is aborted.

        Which one goes first, and that one remains, is SGLang 0.5.23's rule (`ScheduleBatch.retract_decode`).
        """
        running, cache, note = self.running, self.cache, self._record.note
        self.due = True
        while running.pages_for(1) > (room := cache.room_pages):
            last = running.size == 1
            request = running.retract()
            cache.release(request, request.workload_prompt + request.generated - 1)
            if last:
                self._summary.aborts += 1
                why = f"out of KV: {room} pages free or evictable, 1 needed, and no other request runs"
                note(Abort(request.number, self.now_ns, why))
                return
            self._summary.retractions += 1
            freed = (cache.room_pages - room) * cache.page
            note(Retract(request.number, self.now_ns, request.generated, freed))
            request.prompt = request.workload_prompt + request.generated
            request.done = 0
            self.queue.put_back(request)

    def _let_leave(self) -> None:
        """Let go of those whose clients have given up; what is known of their tokens stays as a prefix."""
        for request in self._leavers.until(self.now_ns):
            if request.joined >= 0:
                self.running.remove(request)
                self.cache.release(request, request.workload_prompt + request.generated - 1)
            elif request is self._chunk:
                self.cache.release(request, request.done)
                self._chunk = None
            elif not self.queue.remove(request):
                continue  # it is done
            self._summary.aborts += 1
            self.due = True
            self._record.note(Abort(request.number, self.now_ns, "its client gave up"))

    def _finish(self, request: InFlight, at_ns: int) -> None:
        """Let a request go; what is known of its tokens stays as a prefix."""
        self.cache.release(request, request.workload_prompt + request.generated - 1)
        self._summary.finished += 1
        self.due = True
        self._record.note(Finish(request.number, at_ns, request.generated))


def _nothing() -> None:
    """What is done between steps where nobody wants to know of them."""


def _why_never(decision: Decision) -> str:
    gate = decision.gate.word if decision.gate is not None else ""
    return f"can_never: {gate} needs {decision.observed} {decision.unit} of {decision.limit}"
