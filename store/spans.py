"""Spans: records of one run on one rank in, OpenTelemetry spans out, with explicit times and ids from the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from controller import records
from controller.vocabulary import Outcome
from store import attributes, names
from store.alarms import AlarmWatch
from store.identity import Identity
from store.span_ids import caller_of
from store.span_state import RequestState, SpanState
from store.waiting import stop_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.sampling import Sampler

    from store.attributes import Attributes
    from store.identity import Ids
    from store.waiting import Waited

SPANS_PER_SECOND: Final = 5_000
"""Above this many spans in one second of the run's clock, repeated verdicts are left out.

One core was measured to make, encode and send 8,300 a second; the rest is for the collector's other sinks.
"""

SAMPLED_OUT: Final = "sampled"
REPEATED: Final = "repeated"

_SECOND_NS: Final = 1_000_000_000
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_propagator: Final = TraceContextTextMapPropagator()


class SpanMaker:
    """Makes the spans of one run's records, in order. `state` is what an earlier maker left behind.

    `left_out` counts, by reason, the spans that were not made on purpose.
    """

    def __init__(
        self,
        run: str,
        rank: int,
        *,
        resource: Resource | None = None,
        sampler: Sampler | None = None,
        state: SpanState | None = None,
        spans_per_second: int = SPANS_PER_SECOND,
    ) -> None:
        self._state = SpanState(run, rank) if state is None else state
        self._watch = AlarmWatch.restore(self._state.watch) if self._state.watch else AlarmWatch()
        self.left_out = {SAMPLED_OUT: 0, REPEATED: 0}
        self._identity = Identity(run, rank)
        self._resource = Resource.get_empty() if resource is None else resource
        self._sampler = sampler_in_force() if sampler is None else sampler
        self._bound = spans_per_second
        version = self._resource.attributes.get(names.SERVICE_VERSION.key)
        self._scope = InstrumentationScope(names.SCOPE, str(version) if version else None)
        self._spans: list[ReadableSpan] = []
        self._takers: dict[type, Callable[..., None]] = {
            records.RunStart: self._run_start, records.Arrival: self._arrival, records.Pass: self._pass,
            records.Repeat: self._repeat, records.Finish: self._finish, records.Abort: self._abort,
            records.Retract: self._retract, records.Preempt: self._preempt, records.KnobChange: self._knob_change,
            records.Smoke: self._smoke, records.RunEnd: self._run_end,
        }  # fmt: skip

    @property
    def state(self) -> SpanState:
        """What another maker needs to go on from here."""
        self._state.watch = self._watch.saved()
        return self._state

    def anchor(self, at_ns: int, wall_ns: int) -> None:
        """Tie the run's clock to Unix time, where no record of the run's start has done it."""
        if self._state.origin_ns is None:
            self._state.origin_ns = wall_ns - at_ns

    def spans_of(self, gathered: Iterable[records.AnyRecord]) -> list[ReadableSpan]:
        """The spans that these records complete. Raises ValueError, IndexError, KeyError or TypeError for unsound ones.

        What comes before the unsound one is not lost: it is with the next call's.
        """
        takers, watch, state = self._takers, self._watch, self._state
        for record in gathered:
            known = watch.state.alarms
            watch.add((record,))
            if watch.state.alarms > known:
                state.raised += [alarm for number, alarm in watch.changed.items() if number > known]
            watch.changed.clear()
            taker = takers.get(type(record))
            if taker is not None:
                taker(record)
        made, self._spans = self._spans, []
        return made

    def _run_start(self, r: records.RunStart) -> None:
        self._state.origin_ns = r.wall_ns - r.at_ns
        self._state.model = r.model

    def _arrival(self, r: records.Arrival) -> None:
        request = self._request(r.number)
        request.id, request.prompt, request.output = r.id, r.prompt_tokens, r.output_tokens
        request.traceparent = r.traceparent
        self._state.waiting.join(r.number, r.at_ns, "arrival")

    def _retract(self, r: records.Retract) -> None:
        self._state.waiting.join(r.number, r.at_ns, "retract")

    def _preempt(self, r: records.Preempt) -> None:
        self._state.waiting.join(r.number, r.at_ns, "preempt")

    def _finish(self, r: records.Finish) -> None:
        self._left(r.number, r.at_ns, "finish", "")

    def _abort(self, r: records.Abort) -> None:
        self._left(r.number, r.at_ns, "abort", r.why)

    def _run_end(self, r: records.RunEnd) -> None:
        for number in list(self._state.waiting.waiters):
            self._left(number, r.at_ns, "run_end", r.reason)

    def _left(self, number: int, at_ns: int, ended: str, why: str) -> None:
        wait = self._state.waiting.leave(number, at_ns, ended)
        if wait is not None:
            self._queue(wait, why)
        state = self._state
        if any(number == told for told, _ in state.told):
            state.leaving.append(number)
        else:
            state.requests.pop(number, None)

    def _pass(self, r: records.Pass) -> None:
        state, waiting = self._state, self._state.waiting
        waiting.begin(r)
        ids = self._identity.of_pass(r.number)
        sampled = self._sampled(None, ids.trace, names.PASS.name)
        if sampled:
            context = _context(ids.trace, ids.span)
            said = attributes.of_pass(r, state.smoke_bytes)
            end_ns = r.start_ns + r.decide_ns
            self._add(names.PASS.name, context, None, said, r.start_ns, end_ns, events=self._alarms())
        else:
            self.left_out[SAMPLED_OUT] += 1
            context = None
            state.raised.clear()
        told_before = set(state.told)
        for number in state.leaving:
            state.requests.pop(number, None)
        state.told, state.leaving = [], []
        count = len(r.decisions)
        for position, flat in enumerate(r.decisions):
            number, outcome = flat[0], flat[1]
            stop = stop_code(flat[2], flat[3])
            request = self._request(number)
            if request.verdict != (outcome, stop):
                request.verdict, request.since_ns = (outcome, stop), r.start_ns
            repeated = False
            if outcome == Outcome.WAIT:
                told = (number, stop)
                state.told.append(told)
                repeated = told in told_before and self._too_many(r.start_ns)
            if context is None:
                self.left_out[SAMPLED_OUT] += 1
            elif repeated:
                self.left_out[REPEATED] += 1
            else:
                begin_ns = r.start_ns + r.decide_ns * position // count
                end_ns = r.start_ns + r.decide_ns * (position + 1) // count
                self._decision(r.number, position, flat, request, context, begin_ns, end_ns)
            wait = None if flat[8] else waiting.look(number, outcome, stop)
            if wait is not None:
                self._queue(wait, "")
            if outcome == Outcome.REFUSE:
                state.requests.pop(number, None)

    def _decision(
        self,
        number: int,
        position: int,
        flat: tuple[int, ...],
        request: RequestState,
        parent: SpanContext,
        begin_ns: int,
        end_ns: int,
    ) -> None:
        held_ns = max(0, self._state.waiting.start_ns - request.since_ns)
        said = attributes.of_decision(number, position, flat, request.id, held_ns, self._state.smoke_bytes)
        context = _context(parent.trace_id, self._identity.of_decision(number, position))
        caller = _caller(request.traceparent)
        links = (Link(caller),) if caller is not None else ()
        self._add(names.DECISION.name, context, parent, said, begin_ns, end_ns, links=links)

    def _repeat(self, r: records.Repeat) -> None:
        self._state.waiting.repeat(r)
        if not r.ended:
            return
        trace = self._identity.of_pass(r.first_pass).trace
        if not self._sampled(None, trace, names.PASS.name):
            self.left_out[SAMPLED_OUT] += 1
            self._state.raised.clear()
            return
        said = attributes.of_repeat(r, self._id(r.number))
        context = _context(trace, self._identity.of_repeat(r.first_pass))
        # A refusal that is repeated was the only decision of its pass.
        parent = _context(trace, self._identity.of_decision(r.first_pass, 0))
        self._add(names.REPEAT.name, context, parent, said, r.first_ns, r.last_ns, events=self._alarms())

    def _queue(self, wait: Waited, why: str) -> None:
        request = self._state.requests.get(wait.number)
        if request is None or not request.id:
            return  # its arrival is not in the record, so nobody can say since when it waited
        parent = _caller(request.traceparent)
        trace = parent.trace_id if parent is not None else self._identity.request_trace(request.id)
        around = None if parent is None else set_span_in_context(NonRecordingSpan(parent))
        if not self._sampled(around, trace, names.QUEUE.name):
            self.left_out[SAMPLED_OUT] += 1
            return
        events = [
            self._event(names.WAITED.name, part.until_ns, attributes.of_spent(part)) for part in wait.spent if part.ns
        ]
        if wait.first_look_ns is not None:
            said: Attributes = {names.PASS_NUMBER.key: wait.first_pass}
            events.append(self._event(names.FIRST_LOOK.name, wait.first_look_ns, said))
        events.sort(key=lambda event: event.timestamp)
        self._add(
            names.QUEUE.name,
            _context(trace, self._identity.of_queue(wait.number, wait.start_ns)),
            parent,
            attributes.of_wait(wait, request.id, request.prompt, request.output, why),
            wait.start_ns,
            wait.end_ns,
            events=events,
        )

    def _smoke(self, r: records.Smoke) -> None:
        if r.passed:
            self._state.smoke_bytes = r.reserved
        status = _UNSET if r.passed else Status(StatusCode.ERROR, r.why or "the allocation did not fit")
        self._alone(
            names.SMOKE.name, self._identity.of_smoke(r.device, r.at_ns), attributes.of_smoke(r), r.at_ns, status
        )

    def _knob_change(self, r: records.KnobChange) -> None:
        state = self._state
        state.change_place = state.change_place + 1 if r.at_ns == state.change_ns else 0
        state.change_ns = r.at_ns
        ids = self._identity.of_knob_change(r.at_ns, state.change_place)
        self._alone(names.KNOB_CHANGE.name, ids, attributes.of_knob_change(r), r.at_ns, _UNSET)

    def _alone(self, name: str, ids: Ids, said: Attributes, at_ns: int, status: Status) -> None:
        """A span of its own trace that has a moment and no length."""
        if self._sampled(None, ids.trace, name):
            self._add(name, _context(ids.trace, ids.span), None, said, at_ns, at_ns, status=status)
        else:
            self.left_out[SAMPLED_OUT] += 1

    def _request(self, number: int) -> RequestState:
        request = self._state.requests.get(number)
        if request is None:
            request = self._state.requests[number] = RequestState()
        return request

    def _sampled(self, around: Context | None, trace: int, name: str) -> bool:
        result = self._sampler.should_sample(around, trace, name, SpanKind.INTERNAL)
        return result.decision is Decision.RECORD_AND_SAMPLE

    def _too_many(self, at_ns: int) -> bool:
        """Whether this second of the run's clock has had its spans. It is the run's clock, so that it is repeatable."""
        return at_ns // _SECOND_NS == self._state.second and self._state.made >= self._bound

    def _alarms(self) -> list[Event]:
        """An event for each alarm raised since the last span of a pass."""
        raised, self._state.raised = self._state.raised, []
        return [
            self._event(names.ALARM_RAISED.name, alarm.opened_ns, attributes.of_alarm(alarm, self._id(alarm.request)))
            for alarm in raised
        ]

    def _id(self, number: int | None) -> str:
        request = None if number is None else self._state.requests.get(number)
        return request.id if request is not None else ""

    def _event(self, name: str, at_ns: int, said: Attributes) -> Event:
        return Event(name, said, (self._state.origin_ns or 0) + at_ns)

    def _add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        said: Attributes,
        begin_ns: int,
        end_ns: int,
        *,
        events: Iterable[Event] = (),
        links: tuple[Link, ...] = (),
        status: Status = _UNSET,
    ) -> None:
        state = self._state
        second = begin_ns // _SECOND_NS
        if second != state.second:
            state.second, state.made = second, 0
        state.made += 1
        if state.model and name not in (names.SMOKE.name, names.KNOB_CHANGE.name, names.REPEAT.name):
            said[names.MODEL.key] = state.model
        origin_ns = state.origin_ns or 0
        self._spans.append(
            ReadableSpan(
                name,
                context,
                parent,
                self._resource,
                said,
                list(events),
                links,
                SpanKind.INTERNAL,
                status=status,
                start_time=max(0, origin_ns + begin_ns),
                end_time=max(0, origin_ns + end_ns),
                instrumentation_scope=self._scope,
            )
        )


def sampler_in_force() -> Sampler:
    """The sampler that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG name, by default parentbased_always_on."""
    return TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False).sampler


def resource_of(run: str, rank: int, engine: str, version: str) -> Resource:
    """The resource of one run's spans and metrics on one rank.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES are heeded; the instance is always run and rank.
    """
    resource = Resource.create({
        names.SERVICE_VERSION.key: version,
        names.SERVICE_INSTANCE.key: f"{run}/{rank}",
        names.RUN_ID.key: run,
        names.RUN_RANK.key: rank,
        names.RUN_ENGINE.key: engine,
    })  # fmt: skip
    if str(resource.attributes.get(names.SERVICE_NAME.key, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({names.SERVICE_NAME.key: names.SCOPE}))
    return resource


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=_SAMPLED)


def _caller(traceparent: str) -> SpanContext | None:
    """The span a request came from, None if it names none that is valid."""
    if caller_of(traceparent) is None:  # the propagator would write a warning for each that is too long
        return None
    context = get_current_span(_propagator.extract({"traceparent": traceparent})).get_span_context()
    return context if context.is_valid else None
