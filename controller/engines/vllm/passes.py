"""Passes: one step of vLLM's loop put into the words of a pass, once the step is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.decision import PassResult
from controller.engines.vllm.look import JOINED, LOADING, NO_ROOM, VETOED
from controller.engines.vllm.stops import Held, closing, cut_of, held_of, parked_by
from controller.gates import NOT_EVALUATED, OFF, PASS, REFUSE
from controller.vocabulary import Gate, HostHit, Outcome, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.engines.vllm.look import Look
    from controller.engines.vllm.soft import Judgement
    from controller.engines.vllm.watch import SchedulerWatch

_ADMIT: Final = int(Outcome.ADMIT)
_ADMIT_CHUNK: Final = int(Outcome.ADMIT_CHUNK)
_PARK: Final = int(Outcome.PARK)
_WAIT: Final = int(Outcome.WAIT)
_NOTHING: Final = (NOT_EVALUATED, 0, 0)
_UNASKED: Final = _NOTHING * 9
_NO_STOP: Final = (-1, -1, 0, 0, 0)

_Hit = tuple[int, int, int]
"""Answer, host tokens matched, host tokens asked for."""
_NO_HIT: Final[_Hit] = (int(HostHit.NONE_RESIDENT), 0, 0)


class Passed(NamedTuple):
    """A pass, and the numbers of the requests whose prompt is complete with it."""

    result: PassResult
    complete: tuple[int, ...]


class Unlooked(NamedTuple):
    """The last pass that came to no waiting request, by which the next is known as the same."""

    head: Any
    held: Held
    passed: Passed


def describe(watch: SchedulerWatch, output: Any) -> Passed:
    """The pass that a step was, from what the watch saw of the loop and from the step's output."""
    if not watch.looks and not watch.chunks and not watch.scheduler._inflight_prefills:  # noqa: SLF001 - the stock loop's
        return _unlooked(watch, output)
    telling = _Telling(watch, output)
    for request, done, _ in watch.chunks:
        telling.chunk(request, done)
    for request, held in parked_by(watch, output):
        telling.park(request, held)
    for look in watch.looks:
        if look.state == JOINED:
            telling.join(look)
        else:
            telling.wait(look, held_of(watch, look, telling.spent))
    return telling.passed(closing(watch, output, telling.spent, watch.queue - len(watch.looks)))


def _unlooked(watch: SchedulerWatch, output: Any) -> Passed:
    """A pass whose loop ended before it took up the head of the queue. An unmoved head makes the same pass again."""
    closed = closing(watch, output, output.total_num_scheduled_tokens, watch.queue)
    last = watch.unlooked
    if last is not None and last.head is watch.head and last.held == closed:
        return last.passed
    passed = _Telling(watch, output).passed(closed)
    watch.unlooked = None if closed is None else Unlooked(watch.head, closed, passed)
    return passed


class _Telling:
    """One pass as it is put into words. Tokens unless said."""

    __slots__ = ("batch", "budget", "chunked", "complete", "decisions", "input_budget", "scheduled", "spent", "watch")

    def __init__(self, watch: SchedulerWatch, output: Any) -> None:
        scheduler, scheduled = watch.scheduler, output.num_scheduled_tokens
        self.watch = watch
        self.scheduled = scheduled
        self.batch: list[tuple[int, ...]] = []
        self.decisions: list[tuple[int, ...]] = []
        self.complete: list[int] = []
        self.budget: int = scheduler.max_num_scheduled_tokens
        self.input_budget: int = scheduler.scheduler_config.max_num_batched_tokens
        self.chunked = watch.gates.limits.chunk_budget is not None
        spent = output.total_num_scheduled_tokens
        for look in watch.looks:
            if look.state == JOINED:
                spent -= scheduled[look.request.request_id]
        self.spent: int = spent
        """Of the step's budget, by all before the next candidate."""

    def chunk(self, request: Any, done: int) -> None:
        """A prompt that runs was computed further."""
        tokens, spent = self.scheduled[request.request_id], self.spent
        prompt, number = request.num_tokens, self.watch.requests.kept(request).number
        whole = done + tokens >= prompt
        outcome = _ADMIT if whole else _ADMIT_CHUNK
        stop = _NO_STOP if whole else _stop(cut_of(self.watch, spent - tokens, prompt - done, tokens, spent))
        self.batch.append((number, outcome, tokens, 0, 0, done))
        checks: tuple[int, ...] = (
            *_NOTHING, *_NOTHING, *_NOTHING, PASS, tokens, self.watch.before_tokens, *_NOTHING, *_NOTHING, *_NOTHING,
            PASS, spent, self.input_budget, *self._chunk_check(spent),
        )  # fmt: skip
        self._decide(request, number, outcome, stop, (done, 0, tokens), _NO_HIT, checks)
        if whole:
            self.complete.append(number)

    def park(self, request: Any, held: Held) -> None:
        """A prompt that runs got nothing in this step."""
        number = self.watch.requests.kept(request).number
        self._decide(request, number, _PARK, _stop(held), (request.num_computed_tokens, 0, 0), _NO_HIT, _UNASKED)

    def join(self, look: Look) -> None:
        """A waiting request joined the batch."""
        request, kept, watch, spent = look.request, look.kept, self.watch, self.spent
        tokens = self.scheduled[request.request_id]
        prompt, prefix = request.num_tokens, look.computed + look.local + look.external
        whole = prefix + tokens >= prompt
        outcome = _ADMIT if whole else _ADMIT_CHUNK
        stop = _NO_STOP if whole else _stop(cut_of(watch, spent, prompt - prefix, tokens, spent + tokens))
        if kept.loading or look.external or look.matched > 0 or request.skip_reading_prefix_cache:
            hit, load, host = _came(look)
        else:
            hit, load, host = look.local, 0, _NO_HIT
        done = look.computed if look.computed and not kept.loading else 0
        number = kept.number
        self.batch.append((number, outcome, tokens, hit, load, done))
        room = (PASS, max(0, look.free_before - look.free_after), look.free_before)
        checks = self._checks(look, look.judgement, room, prompt - prefix, tokens)
        self._decide(request, number, outcome, stop, (done, hit, tokens), host, checks)
        self.spent = spent + tokens
        if whole:
            self.complete.append(number)
        kept.loading = 0
        watch.requests.leaves_queue(kept)

    def wait(self, look: Look, held: Held) -> None:
        """A waiting request was looked at and goes on waiting."""
        request, kept, tokens = look.request, look.kept, look.tokens
        checks: tuple[int, ...] = _UNASKED
        if look.judgement is not None:
            room: tuple[int, ...] = _NOTHING
            if look.state == NO_ROOM and look.shortage is not None:
                room = (REFUSE, held.observed, held.limit)
            elif look.state == LOADING:
                room = (PASS, max(0, look.free_before - look.free_after), look.free_before)
            checks = self._checks(look, look.judgement, room, tokens, tokens)
        hit = kept.device_hit if kept.loading else look.local
        extend = tokens if look.state in (VETOED, NO_ROOM) else 0
        done = look.computed if look.computed and not kept.loading else 0
        self._decide(request, kept.number, _WAIT, _stop(held), (done, hit, extend), _left(look), checks)

    def turn_away(self, request: Any, held: Held) -> None:
        """The loop ended before it took up the head of the queue."""
        checks: tuple[int, ...] = _UNASKED
        if held.gate <= Gate.CHUNK_TOKENS:
            at = 3 * held.gate
            checks = (*_UNASKED[:at], REFUSE, held.observed, held.limit, *_UNASKED[at + 3 :])
        kept = self.watch.requests.kept(request)
        done = 0 if kept.loading else request.num_computed_tokens
        self._decide(request, kept.number, _WAIT, _stop(held), (done, 0, 0), _NO_HIT, checks)

    def passed(self, closed: Held | None) -> Passed:
        """The pass, closed by that; with nobody looked at, the head is told what closed it."""
        watch = self.watch
        looked, gates, pool = len(watch.looks), watch.gates, watch.pool
        if closed is not None and not looked and watch.head is not None:
            self.turn_away(watch.head, closed)
            looked = 1
        free = pool.free_tokens
        result = PassResult(
            tuple(self.batch),
            tuple(self.decisions),
            None if closed is None else (closed.gate, closed.reason),
            looked,
            None if gates.estimator is None else gates.estimate,
            free,
            free - pool.reserved_tokens if watch.scheduler.running else free,
        )
        return Passed(result, tuple(self.complete))

    def _checks(
        self, look: Look, judged: Judgement | None, room: Iterable[int], wanted: int, tokens: int
    ) -> tuple[int, ...]:
        """The ladder of a candidate for which the engine was about to allocate."""
        if judged is None:
            return _UNASKED
        watch = self.watch
        page, spent = watch.pool.page, self.spent
        last: tuple[int, ...] = (*_NOTHING, *_NOTHING)
        if look.state != LOADING:
            last = (PASS, spent + tokens, self.input_budget, *self._chunk_check(spent + -(-wanted // page) * page))
        return (
            OFF, watch.gates.members, 0, PASS, look.running + 1, watch.scheduler.max_num_active_reqs,
            *judged.requests, *room, *judged.extend, *judged.cached, *judged.buffer, *last,
        )  # fmt: skip

    def _chunk_check(self, wanted: int) -> tuple[int, int, int]:
        return (PASS, wanted, self.budget) if self.chunked else (OFF, wanted, 0)

    def _decide(
        self,
        request: Any,
        number: int,
        outcome: int,
        stop: tuple[int, int, int, int, int],
        lengths: tuple[int, int, int],
        host: _Hit,
        checks: tuple[int, ...],
    ) -> None:
        done, hit, extend = lengths
        answer, matched, asked = host
        output = max(0, request.max_tokens - request.num_output_tokens)
        self.decisions.append((
            number, outcome, *stop, request.num_tokens, done, hit, extend, output, answer, matched, matched, asked, 0,
            *checks,
        ))  # fmt: skip


def _came(look: Look) -> tuple[int, int, _Hit]:
    """Of a request that joined: device hit, tokens loaded, and its host hit."""
    kept, external = look.kept, look.external
    if kept.loading and look.computed:
        load = max(0, look.computed - kept.device_hit)
        if load:
            return kept.device_hit, load, (int(HostHit.LOADED), kept.loading, load)
        return look.computed, 0, (int(kept.host), kept.loading, kept.loading)
    if external:
        return look.local, external, (int(HostHit.LOADED), max(external, look.matched), external)
    if kept.loading:  # the load failed and left nothing
        return look.local, 0, (int(HostHit.CONTROLLER), kept.loading, kept.loading)
    return look.local, 0, _unloaded(look)


def _left(look: Look) -> _Hit:
    """The host hit of a request that goes on waiting."""
    kept = look.kept
    if kept.loading:
        return int(kept.host), kept.loading, kept.loading
    if look.skip is not None and look.skip[1] is Reason.LOOKUP:
        return int(HostHit.IN_FLIGHT), 0, 0
    if look.external:
        return int(HostHit.ALLOCATOR if look.state == NO_ROOM else HostHit.PLANNED), look.external, 0
    return _unloaded(look)


def _unloaded(look: Look) -> _Hit:
    """Why nothing is loaded of what the host holds."""
    if look.request.skip_reading_prefix_cache:
        return int(HostHit.DISABLED), max(0, look.matched), 0
    if look.matched > 0:  # too short to be worth it, by our threshold or beside the engine's own hit
        return int(HostHit.BELOW_THRESHOLD), look.matched, 0
    return _NO_HIT


def _stop(held: Held) -> tuple[int, int, int, int, int]:
    """Gate, reason, observed, limit, short by."""
    return int(held.gate), int(held.reason), held.observed, held.limit, max(0, held.observed - held.limit)
