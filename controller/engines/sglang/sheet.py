"""Sheet: one pass of SGLang's loop as Glassgate records passes, made from the looks that its adder left.

What a candidate was told stands in the ladder of `controller.gates`, with the numbers that the engine compared. A soft
gate that the engine's own no left unasked is `not_evaluated`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.decision import PassResult
from controller.engines.sglang.causes import refused
from controller.engines.sglang.look import UNATTRIBUTED, Stop
from controller.engines.sglang.terms import triple
from controller.engines.sglang.verdicts import Shape
from controller.gates import EXEMPT, NOT_EVALUATED, OFF, PASS, REFUSE, STRICT_GATES
from controller.request import CLIP_OUTPUT_TOKENS
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.engines.sglang.look import Look, Try
    from controller.engines.sglang.terms import Terms

_GATES: Final = len(LADDER_GATES)
_SKIPPED: Final = (NOT_EVALUATED, 0, 0)
_ADMIT, _CHUNK, _PARK, _WAIT, _REFUSE = (int(each) for each in Outcome)
_CUT: Final = (int(Gate.CHUNK_TOKENS), int(Reason.BUDGET))
_WINDOW: Final = (int(Gate.KV_CAPACITY), int(Reason.WINDOW))
_KV: Final = 3 * Gate.KV_CAPACITY
_EXTEND: Final = 3 * Gate.EXTEND_TOKENS


class Standing(NamedTuple):
    """What a sheet is written from, beside the adder."""

    terms: Terms
    number: Callable[[Any], int]
    """A request's number in the run."""
    running: int
    """Request slots taken when the pass began."""
    slots_left: int
    """Members for which the engine had slots."""
    skips: Mapping[int, Stop]
    """Why the loop passed over a candidate, by the identity of its request."""
    out_of_slots: bool
    """The engine marked its batch full."""
    no_hit: HostHit
    """What a candidate without a host hit has: nothing resident, or no host cache at all."""
    estimates: bool
    """The batch's buffers are recorded."""


class Sheet:
    """The sums of a batch as its members join, and the rows written so far."""

    __slots__ = ("adder", "batch", "cached", "decisions", "estimate", "estimator", "extend", "standing", "terms")

    def __init__(self, adder: Any, standing: Standing) -> None:
        self.adder = adder
        self.standing = standing
        self.terms = standing.terms
        self.extend = self.cached = 0
        self.estimator = self.terms.estimator if standing.estimates else None
        self.estimate: Any = None if self.estimator is None else self.estimator.empty
        self.batch: list[tuple[int, ...]] = []
        self.decisions: list[tuple[int, ...]] = []

    def write(self, queue: Sequence[Any]) -> PassResult:
        """The pass's result. `queue` is the list that the engine's loop went through."""
        adder, looks = self.adder, self.adder.looks
        if adder.chunk is not None:
            self._chunk(adder.chunk)
        closed: Stop | None = None
        tried, plain = 0, self.terms.ordinary and adder.prefill_max_requests is None
        for place in range(adder.tops):
            request = queue[place] if place < len(queue) else None
            if tried < len(looks) and looks[tried].request is request:
                look = looks[tried]
                if plain and look.verdict is None and not look.matched and look.end >= 0 and look.tried is not None:
                    self._member(look)
                    closed = None
                else:
                    closed = self._candidate(look)
                tried += 1
            elif self.standing.out_of_slots and place == adder.tops - 1 and id(request) not in self.standing.skips:
                closed = self.told(request, self._slots_short())
            else:
                closed = None
                self.told(request, self._skipped(request))
        for look in looks[tried:]:  # the queue was changed under the loop
            closed = self._candidate(look)
        if adder.closed_at_top:
            closed = adder.chunk.stop if adder.parked else adder.spent
        budget = adder.memory_budget
        quota, room = math.floor(budget.current_seen), math.floor(budget.total_seen)
        stop = None if closed is None else (closed.gate, closed.reason)
        return PassResult(tuple(self.batch), tuple(self.decisions), stop, adder.tops, self.estimate, quota, room)

    def told(self, request: Any, stop: Stop) -> Stop:
        """Write down a candidate that the engine did not try; what it was told."""
        gate, reason, observed, limit = stop
        checks = _SKIPPED * _GATES
        if 0 < gate < _GATES:
            members = len(self.batch) + 1
            climbed = _SKIPPED * (gate - 1)
            checks = (OFF, members, 0, *climbed, REFUSE, observed, limit, *_SKIPPED * (_GATES - 1 - gate))
        prompt = len(request.origin_input_ids) + len(request.output_ids)
        self.decisions.append((
            self.standing.number(request), _WAIT, gate, reason, observed, limit, max(0, observed - limit), prompt, 0, 0,
            0, _output(request), self.standing.no_hit, 0, 0, 0, 0, *checks,
        ))  # fmt: skip
        return stop

    def _slots_short(self) -> Stop:
        standing = self.standing
        limit = standing.running + standing.slots_left
        return Stop(Gate.REQUEST_SLOTS, Reason.SLOTS, limit + 1, limit)

    def _skipped(self, request: Any) -> Stop:
        """Why the loop went on behind a candidate."""
        known = self.standing.skips.get(id(request))
        if known is not None:
            return known
        members = self.adder.can_run_list
        if members and (request.token_indices_to_pool is None) != (members[0].token_indices_to_pool is None):
            return Stop(Gate.POOLING_MODE, Reason.MODE)
        return UNATTRIBUTED

    def _member(self, look: Look) -> None:
        """Write down a member as most are: entered whole, no host hit, prefill as the engine has it, the loop goes on.

        It says what `_candidate` would; it is there because a pass has many of them.
        """
        request, adder, standing = look.request, self.adder, self.standing
        prefix, count, left = look.prefix, look.members + 1, look.chunk_left
        extend, prompt, slots = look.end - prefix, len(request.full_untruncated_fill_ids), standing.running + count
        page, (_, needed, room, _) = self.terms.page, look.tried  # type: ignore[misc] # its caller has looked
        charged = -(-extend // page) * page
        sum_extend, sum_cached = self.extend + charged, self.cached + prefix
        spent, budget = adder.input_budget - look.input_left, adder.input_budget
        if left is not None:
            chunk_said, wanted, chunk = PASS, adder.chunk_budget - left + charged, adder.chunk_budget
        else:
            chunk_said, wanted, chunk = OFF, sum_extend, 0
            if look.members:
                spent += charged
        self._estimate(look, extend)
        peak = 0 if look.estimate is None else look.estimate.peak_bytes
        if self.terms.bare:
            said: tuple[int, ...] = (OFF, count, 0, OFF, sum_extend, 0, OFF, sum_cached, 0, OFF, peak, 0)
        else:
            said = self._soft(look, count, sum_extend, sum_cached, peak)
        self.extend, self.cached = sum_extend, sum_cached
        number = standing.number(request)
        sampling = request.sampling_params
        output = sampling.max_new_tokens - len(request.output_ids)
        output = min(output, CLIP_OUTPUT_TOKENS)
        self.batch.append((number, _ADMIT, extend, prefix, 0, 0))
        self.decisions.append((
            number, _ADMIT, -1, -1, 0, 0, 0, prompt, 0, prefix, extend, output, standing.no_hit, 0, 0, 0, 0,
            OFF, count, 0, PASS, slots, max(slots, standing.running + standing.slots_left), *said[:3],
            PASS, needed, math.ceil(room), *said[3:], PASS, spent, budget, chunk_said, wanted, chunk,
        ))  # fmt: skip

    def _soft(self, look: Look, count: int, extend: int, cached: int, peak: int) -> tuple[int, ...]:
        """The checks of request count, extend tokens, cached tokens and buffer bytes."""
        limits, members, refuse = self.terms.limits, look.members, self.terms.refuse
        buffer = (OFF, 0, 0) if limits.max_buffer is None else _SKIPPED
        if look.estimate is not None:
            buffer = triple(peak, limits.max_buffer, members, refuse)
        return (
            *triple(count, limits.max_requests, members, refuse), *triple(extend, limits.max_extend, members, refuse),
            *triple(cached, limits.max_cached, members, refuse), *buffer,
        )  # fmt: skip

    def _candidate(self, look: Look) -> Stop | None:
        """Write down a candidate that was tried; what closed the pass at it, if anything did."""
        stop = None if look.admitted else refused(self.adder, look)
        request = look.request
        prompt = len(request.full_untruncated_fill_ids)
        last = look.tried
        shape = None if last is None or last[3].__class__ is not Shape else last[3]
        host = self._host(look)
        if look.admitted:
            prefix, extend = look.prefix, look.end - look.prefix
            self._estimate(look, extend)
        else:
            prefix = look.hit + (look.matched if last is None else last[0])
            extend = self._would_compute(look, prompt - prefix) if shape is None else shape.extend_len
        checks = self._ladder(look, last, stop, prompt, prefix, extend)
        before: tuple[int, ...] = ()
        if look.first is not None:
            host_hit, _, _, planned = look.first
            before = self._ladder(look, look.first, None, prompt, look.hit + host_hit, planned.extend_len)
        number = self.standing.number(request)
        verdict: tuple[int, ...]
        if stop is not None:
            short = max(0, stop.observed - stop.limit + (stop.gate in STRICT_GATES))
            verdict = (_REFUSE if look.doomed else _WAIT, *stop, short)
        else:
            verdict = self._entered(look, checks)
            self.batch.append((number, verdict[0], extend, look.prefix - look.loaded, look.loaded, 0))
            self.extend += self.terms.aligned(extend)
            self.cached += prefix
        self.decisions.append((
            number, *verdict, prompt, 0, look.hit, extend, _output(request), host, look.matched, look.matched,
            look.asked, look.evicted, *checks, *before,
        ))  # fmt: skip
        if stop is not None:
            return None if look.doomed else stop
        return None if look.verdict is None else self.adder.spent

    def _entered(self, look: Look, checks: tuple[int, ...]) -> tuple[int, int, int, int, int, int]:
        """Outcome, and what cut a member: the chunk budget, or the attention window's pool."""
        if not look.chunked:
            return _ADMIT, -1, -1, 0, 0, 0
        _, wanted, budget = checks[-3:]
        if wanted > budget:
            return _CHUNK, *_CUT, wanted, budget, wanted - budget
        return _CHUNK, *_WINDOW, 0, 0, 0

    def _estimate(self, look: Look, extend: int) -> None:
        if self.estimator is not None:
            if look.estimate is None:
                look.estimate = self.estimator.add(self.estimate, look.prefix, extend, look.loaded)
            self.estimate = look.estimate

    def _host(self, look: Look) -> HostHit:
        if look.host is not None:
            return look.host
        if not look.matched:
            return self.standing.no_hit
        return HostHit.PLANNED if look.matched >= self.terms.limits.load_back_threshold else HostHit.BELOW_THRESHOLD

    def _would_compute(self, look: Look, tokens: int) -> int:
        """What the pass would have computed of a candidate for which the engine selected no shape."""
        left = look.chunk_left
        if left is None or self.terms.aligned(tokens) <= left:
            return tokens
        return max(0, left // self.terms.page * self.terms.page)

    def _ladder(
        self, look: Look, tried: Try | None, stop: Stop | None, prompt: int, prefix: int, extend: int
    ) -> tuple[int, ...]:
        """Verdict, observed and limit of each gate of the ladder, as far as it was climbed."""
        adder, standing, terms = self.adder, self.standing, self.terms
        limits = terms.limits
        members = look.members
        count = members + 1
        slots = standing.running + count
        most = standing.running + standing.slots_left
        checks: list[int] = [OFF, count, 0, PASS, slots, max(slots, most)]
        if limits.single_request:
            checks[0], checks[2] = PASS, 1
        cap = adder.prefill_max_requests
        whole = prompt - prefix
        charged = terms.aligned(whole if limits.shared_path and members else extend)
        peak = 0 if look.estimate is None else look.estimate.peak_bytes
        said = self._soft(look, count, self.extend + charged, self.cached + prefix, peak)
        checks += said[:3]
        if cap is not None and (limits.max_requests is None or cap < limits.max_requests):
            checks[6], checks[8] = PASS, cap
        if tried is None:
            checks += _SKIPPED * (_GATES - 3)
        else:
            checks += (PASS, tried[1], math.ceil(tried[2]), *said[3:])
            spent = adder.input_budget - look.input_left
            if look.chunk_left is None:
                wanted = terms.aligned(whole)
                checks += (PASS, spent + wanted if members else spent, adder.input_budget, OFF, self.extend + wanted, 0)
            else:
                wanted = adder.chunk_budget - look.chunk_left + terms.aligned(whole)
                checks += (PASS, spent, adder.input_budget, PASS, wanted, adder.chunk_budget)
        if stop is not None and stop.gate < _GATES:
            at = 3 * stop.gate
            checks[at : at + 3] = REFUSE, stop.observed, stop.limit
            checks[at + 3 :] = _SKIPPED * (_GATES - 1 - stop.gate)
            if look.stop is None and stop.gate > Gate.BUFFER_BYTES and terms.after:
                checks[_EXTEND : _EXTEND + 9] = _SKIPPED * 3  # the engine said no before they were asked
        return tuple(checks)

    def _chunk(self, look: Look) -> None:
        """Write down the continuing chunk."""
        terms, request, adder = self.terms, look.request, self.adder
        prompt, done = len(request.full_untruncated_fill_ids), look.prefix
        extend = look.end - done if look.admitted else 0
        checks = list(_SKIPPED * _GATES)
        fit = look.said
        if fit is not None:
            checks[_KV : _KV + 3] = (PASS if extend else REFUSE), fit.observed, fit.limit
        elif look.tried is not None:
            checks[_KV : _KV + 3] = PASS, look.tried[1], math.floor(look.tried[2])
        number = self.standing.number(request)
        gate, reason, observed, limit, short = -1, -1, 0, 0, 0
        if look.admitted:
            self._estimate(look, extend)
            wanted = adder.chunk_budget - (look.chunk_left or 0) + terms.aligned(prompt - done)
            aligned = terms.aligned(extend)
            checks[_EXTEND : _EXTEND + 3] = triple(aligned, terms.limits.max_extend, 0, EXEMPT)
            peak = 0 if look.estimate is None else look.estimate.peak_bytes
            checks[_EXTEND + 6 : _EXTEND + 9] = triple(peak, terms.limits.max_buffer, 0, EXEMPT)
            checks[-6:] = (
                PASS,
                adder.input_budget - look.input_left,
                adder.input_budget,
                PASS,
                wanted,
                adder.chunk_budget,
            )
            outcome = _CHUNK if look.chunked else _ADMIT
            if look.chunked:
                gate, reason, observed, limit = fit or Stop(
                    Gate.CHUNK_TOKENS, Reason.BUDGET, wanted, adder.chunk_budget
                )
                short = max(0, observed - limit)
            self.batch.append((number, outcome, extend, 0, 0, done))
            self.extend += aligned
        else:
            outcome = _PARK
            gate, reason, observed, limit = fit or UNATTRIBUTED
            short = max(0, observed - limit + (gate in STRICT_GATES))
        self.decisions.append((
            number, outcome, gate, reason, observed, limit, short, prompt, done, 0, extend, _output(request),
            HostHit.NONE_RESIDENT, 0, 0, 0, 0, *checks,
        ))  # fmt: skip


def _output(request: Any) -> int:
    left = request.sampling_params.max_new_tokens - len(request.output_ids)
    return min(max(int(left), 0), CLIP_OUTPUT_TOKENS)
