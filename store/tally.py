"""Tally: the figures of one run, kept up as its records come in. It knows no OpenTelemetry.

A figure's key is the values of its metric's attributes, in their order; None is an attribute that is absent.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from controller import records
from controller.journal.frames import DATA, LOSS
from controller.journal.losses import Loss
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason, Verdict, unit_of
from store import names
from store.waiting import Waited, Waiting, stop_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.journal import Frame

Value = str | bool | int | None
Key = tuple[Value, ...]
Observe = "Callable[[names.Metric, float, Key], None]"

_FIELDS: Final = 17
_GATES: Final = len(Gate)
_TAKEN: Final = frozenset({int(Outcome.ADMIT), int(Outcome.ADMIT_CHUNK)})
_EVALUATED: Final = frozenset(map(int, (Verdict.PASS, Verdict.REFUSE, Verdict.EXEMPT, Verdict.WOULD_REFUSE)))
_LOADED: Final = int(HostHit.LOADED)
_NS: Final = 1e9
_STEPS_AWAITED: Final = 1024
_HEADROOM: Final = {
    "tokens": names.M_HEADROOM_TOKENS,
    "requests": names.M_HEADROOM_REQUESTS,
    "slots": names.M_HEADROOM_SLOTS,
    "pages": names.M_HEADROOM_PAGES,
    "bytes": names.M_HEADROOM_BYTES,
}
_STOPS: Final = {
    (gate, reason): (Gate(gate).word, Reason(reason).word) for gate in range(_GATES) for reason in range(len(Reason))
}
_OUTCOMES: Final = tuple(outcome.word for outcome in Outcome)
_HITS: Final = tuple((hit.status, hit.word if hit.status == "skipped" else None) for hit in HostHit)
_STOPS[-1, -1] = (None, None)  # type: ignore[assignment] # nothing closed the pass, and no gate is named


class Tally:
    """Counts and gauges of one run on one rank; what belongs in a histogram goes to `observe` as it comes.

    One thread feeds it; any may ask for `figures`.
    """

    def __init__(self, observe: Callable[[names.Metric, float, Key], None]) -> None:
        self.counts: dict[names.Metric, dict[Key, float]] = {
            metric: defaultdict(float) for metric in names.METRICS if metric.instrument == "counter"
        }
        self.gauges: dict[names.Metric, dict[Key, float]] = {
            metric: {} for metric in names.METRICS if metric.instrument == "gauge"
        }
        self.observe = observe
        self._waiting = Waiting()
        self._expected = 0
        self._unexplained = 0
        # The refusal that may be repeated: the pass that was written whole, its outcome, and the repeats counted.
        self._held = (0, Outcome.WAIT.word, 0)
        self._loaded: dict[int, int] = {}
        self._last: records.Pass | None = None
        self._takers: dict[type, Callable[..., None]] = {
            records.KnobsInForce: self._knobs, records.Arrival: self._arrival, records.Pass: self._pass,
            records.Repeat: self._repeat, records.StepEnd: self._step, records.Finish: self._finish,
            records.Abort: self._abort, records.Retract: self._retract, records.Preempt: self._preempt,
            records.KnobChange: self._knob_change, records.Smoke: self._smoke, records.RunEnd: self._run_end,
        }  # fmt: skip

    def feed(self, frame: Frame) -> None:
        """Take one frame. Raises what decoding raises for one that is unsound; it is passed over then."""
        self._unexplained += max(0, frame.seq - self._expected)
        self._expected = frame.cursor.seq
        if frame.kind == LOSS:
            loss = Loss.decode(frame.payload)
            if loss.reason != "bound":  # what left at the bound is missing only for who had not read it
                self._unexplained -= loss.frames
                self._add(names.M_JOURNAL_LOST, loss.frames, loss.reason)
        elif frame.kind == DATA:
            if self._unexplained > 0:
                self._add(names.M_JOURNAL_LOST, self._unexplained, "missing")
            self._unexplained = 0
            takers = self._takers
            for record in records.decode(frame.payload):
                take = takers.get(type(record))
                if take is not None:
                    take(record)

    def learn(self, frame: Frame, unsound: tuple[type[Exception], ...]) -> None:
        """Feed one frame of before the counting; one that is unsound tells nothing."""
        with suppress(*unsound):
            self.feed(frame)

    def figures(self, metric: names.Metric) -> dict[Key, float]:
        """A counter's or gauge's figures as they are at this moment. Any thread may ask."""
        return dict(self.counts.get(metric) or self.gauges.get(metric) or {})

    def settle(self) -> None:
        """Bring the gauges that show the last pass up to it; call it after feeding."""
        r = self._last
        if r is None:
            return
        self._last = None
        self._standing(r.queue, r.not_reached)
        self._set(names.M_WAITING_TOKENS, r.queued_tokens)
        free, evictable, _, running = r.before
        self._set(names.M_FREE, free)
        self._set(names.M_EVICTABLE, evictable)
        self._set(names.M_RUNNING, running)
        for d in r.decisions[-2:]:  # the last one tells up to the gate that stopped it, the one before it the rest
            self._headrooms(d)

    def begin_counting(self, seq: int) -> None:
        """Count from the frame numbered `seq` on: what was fed before is known, but counted elsewhere."""
        for figures in self.counts.values():
            figures.clear()
        self._expected, self._unexplained = seq, 0

    def _add(self, metric: names.Metric, number: float, *key: Value) -> None:
        self.counts[metric][key] += number

    def _set(self, metric: names.Metric, value: float, *key: Value) -> None:
        self.gauges[metric][key] = value

    def _pass(self, r: records.Pass) -> None:
        self.counts[names.M_PASSES][_STOPS[r.closed_gate, r.closed_reason]] += 1
        self.observe(names.M_DECIDING, r.decide_ns / _NS, ())
        self._last = r
        if r.batch:
            self._batch(r)
        waiting = self._waiting
        waiting.begin(r)
        counts, look = self.counts[names.M_DECISIONS], waiting.look
        entered = []
        outcome = Outcome.WAIT.word
        for d in r.decisions:
            outcome = _OUTCOMES[d[1]]
            counts[(outcome, *_STOPS[d[2], d[3]])] += 1
            if d[8] == 0:
                if d[1] in _TAKEN:
                    entered.append(d)
                waited = look(d[0], d[1], stop_code(d[2], d[3]))
                if waited is not None:
                    self._waited(waited)
        if entered:
            self._funnel(entered)
        self._held = (r.number, outcome, 0)

    def _batch(self, r: records.Pass) -> None:
        extend = hits = loaded = 0
        for _, _, extend_tokens, hit, load, _ in r.batch:
            extend += extend_tokens
            hits += hit
            loaded += load
        self.observe(names.M_BATCH_REQUESTS, len(r.batch), ())
        self.observe(names.M_BATCH_EXTEND, extend, ())
        self.observe(names.M_BATCH_CACHED, hits + loaded, ())
        self.observe(names.M_BATCH_LOADED, loaded, ())
        if r.peak_bytes >= 0:
            self.observe(names.M_ESTIMATED, r.peak_bytes, ())
        if loaded:
            self._loaded[r.number] = loaded
            if len(self._loaded) > _STEPS_AWAITED:  # the record of their steps is lost
                del self._loaded[next(iter(self._loaded))]

    def _funnel(self, entered: list[records.Flat]) -> None:
        """Host hits of requests that entered: how far each token of them came."""
        resident = matched = asked = loaded = 0
        for d in entered:
            host = d[12]
            resident += d[13]
            matched += d[14]
            asked += d[15]
            self.counts[names.M_HITS][_HITS[host]] += 1
            if host == _LOADED:
                loaded += d[15]
            elif d[14]:
                self._add(names.M_RECOMPUTED, d[14], _HITS[host][1])
        self._add(names.M_RESIDENT, resident)
        self._add(names.M_MATCHED, matched)
        self._add(names.M_ASKED, asked)
        self._add(names.M_LOADED, loaded)

    def _headrooms(self, d: records.Flat) -> None:
        for gate in LADDER_GATES:
            verdict, observed, limit = d[_FIELDS + 3 * gate : _FIELDS + 3 * gate + 3]
            reason = Reason(d[3]) if d[2] == gate else None
            metric = _HEADROOM[unit_of(gate, reason)]
            if verdict in _EVALUATED:
                self._set(metric, limit - observed, gate.word)
            elif verdict == Verdict.OFF:
                self.gauges[metric].pop((gate.word,), None)

    def _repeat(self, r: records.Repeat) -> None:
        self.settle()
        first_pass, outcome, counted = self._held
        if first_pass != r.first_pass:
            outcome, counted = Outcome.WAIT.word, 0
        again = r.count - counted
        if again > 0:
            gate, reason = _STOPS[r.gate, r.reason]
            self._add(names.M_PASSES, again, gate, reason)
            self._add(names.M_DECISIONS, again, outcome, gate, reason)
        self._held = (r.first_pass, outcome, max(counted, r.count))
        self._standing(r.queue, r.not_reached)
        metric = _HEADROOM[unit_of(Gate(r.gate), Reason(r.reason))]
        self._set(metric, r.limit[1] - r.observed[1], Gate(r.gate).word)
        self._waiting.repeat(r)

    def _standing(self, queue: int, not_reached: int) -> None:
        self._set(names.M_WAITING, queue)
        self._set(names.M_NOT_REACHED, not_reached)

    def _waited(self, waited: Waited | None) -> None:
        """A wait is over: its whole length, and what it was spent on."""
        if waited is None:
            return
        self.observe(names.M_QUEUE_TIME, (waited.end_ns - waited.start_ns) / _NS, (waited.ended,))
        for spent in waited.spent:
            self._add(names.M_WAITED, spent.ns / _NS, spent.kind, *_STOPS[spent.stop or (-1, -1)])

    def _step(self, r: records.StepEnd) -> None:
        kind = "prefill" if r.passed >= 0 else "decode"
        self.observe(names.M_STEP, (r.end_ns - r.start_ns) / _NS, (kind,))
        used = self._loaded.pop(r.passed, 0)
        if used:
            self._add(names.M_USED, used)

    def _arrival(self, r: records.Arrival) -> None:
        self._waiting.join(r.number, r.at_ns, "arrival")

    def _finish(self, r: records.Finish) -> None:
        self._waited(self._waiting.leave(r.number, r.at_ns, "finish"))

    def _abort(self, r: records.Abort) -> None:
        self._waited(self._waiting.leave(r.number, r.at_ns, "abort"))

    def _retract(self, r: records.Retract) -> None:
        self._add(names.M_GAVE_BACK, 1, "retract")
        self._waiting.join(r.number, r.at_ns, "retract")

    def _preempt(self, r: records.Preempt) -> None:
        self._add(names.M_GAVE_BACK, 1, "preempt")
        self._waiting.join(r.number, r.at_ns, "preempt")

    def _knobs(self, r: records.KnobsInForce) -> None:
        self._set(names.M_REVISION, r.revision)

    def _knob_change(self, r: records.KnobChange) -> None:
        self._add(names.M_KNOB_CHANGES, 1, r.accepted)
        self._set(names.M_REVISION, r.revision)

    def _smoke(self, r: records.Smoke) -> None:
        self._set(names.M_SMOKE, r.reserved)

    def _run_end(self, r: records.RunEnd) -> None:
        for number in list(self._waiting.waiters):
            self._waited(self._waiting.leave(number, r.at_ns, "run_end"))
        self.settle()
        self._standing(0, 0)
