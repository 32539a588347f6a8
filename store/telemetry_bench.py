"""What telemetry costs: a span in a scheduler's thread, and the spans that one core of a collector can send."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from controller.records import AnyRecord, Arrival, Pass, RunStart
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason, Verdict
from store.otlp import BATCH_SPANS
from store.spans import SpanMaker, resource_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

_DECISIONS: Final = 10
"""Decisions of a pass, as the hot path is measured too."""


class SendingCost(NamedTuple):
    """What one span costs the collector, and how many a second that is on one core."""

    make_ns: float
    encode_ns: float
    spans_per_second: float
    bytes_per_span: float


class _Nowhere(SpanExporter):
    """Takes everything at once."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - that is what nowhere means
        return SpanExportResult.SUCCESS


@contextmanager
def scheduler_spans() -> Iterator[Callable[[int], None]]:
    """What creates, fills and queues an OpenTelemetry span with 12 attributes for each of so many decisions.

    Through the SDK's tracer and BatchSpanProcessor to an exporter that does nothing; the processor's own thread shares
    the interpreter, as it would in an engine.
    """
    provider = TracerProvider(sampler=ALWAYS_ON, resource=Resource.get_empty(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("glassgate.bench")

    def decide(decisions: int) -> None:
        for number in range(decisions):
            with tracer.start_as_current_span(
                "prefill.decision",
                attributes={
                    "glassgate.request.number": number, "glassgate.outcome": "wait", "glassgate.gate": "kv_capacity",
                    "glassgate.reason": "pool", "glassgate.observed": 9728, "glassgate.limit": 6808,
                    "glassgate.short_by": 2921, "glassgate.unit": "tokens", "glassgate.request.prompt_tokens": 17344,
                    "glassgate.request.device_hit_tokens": 8192, "glassgate.request.extend_tokens": 5056,
                    "glassgate.host_hit.status": "planned",
                },
            ):  # fmt: skip
                pass

    try:
        yield decide
    finally:
        provider.shutdown()


def sending_cost(passes: int = 400, rounds: int = 3) -> SendingCost:
    """What the sink spends on a span: made from records, and encoded as OTLP in its batches. The best of some rounds.

    The mix is that of passes with ten decisions, nine of them admitted: an arrival and a wait for each.
    """
    best: SendingCost | None = None
    for _ in range(rounds):
        maker = SpanMaker("bench", 0, resource=resource_of("bench", 0, "bench", "0"), sampler=ALWAYS_ON)
        frames = [_frame(number) for number in range(passes)]
        begin = time.perf_counter_ns()
        spans = [span for frame in frames for span in maker.spans_of(frame)]
        made = time.perf_counter_ns()
        size = 0
        for first in range(0, len(spans), BATCH_SPANS):
            size += len(encode_spans(spans[first : first + BATCH_SPANS]).SerializeToString())
        encoded = time.perf_counter_ns()
        count = len(spans)
        cost = SendingCost(
            (made - begin) / count, (encoded - made) / count, count / ((encoded - begin) / 1e9), size / count
        )
        best = cost if best is None or cost.spans_per_second > best.spans_per_second else best
    if best is None:
        raise ValueError(f"rounds is {rounds}; it must be at least 1")
    return best


def _frame(number: int) -> list[AnyRecord]:
    """One pass with its arrivals, as an engine would record it."""
    start_ns = number * 20_000_000
    first = number * _DECISIONS
    arrivals: list[AnyRecord] = [
        Arrival(first + place, f"request-{first + place:08d}", start_ns - 5_000_000, 17_344, 512)
        for place in range(_DECISIONS)
    ]
    last = first + _DECISIONS - 1
    decisions = tuple(_decision(who, Outcome.WAIT if who == last else Outcome.ADMIT) for who in range(first, last + 1))
    one_pass = Pass(
        number + 1, start_ns, 150_000, 0, _DECISIONS, 173_440, 0,
        tuple((who, int(Outcome.ADMIT), 5056, 8192, 4096, 0) for who in range(first, last)),
        Gate.KV_CAPACITY, Reason.POOL, 1 << 30, (1 << 29, 1 << 28, 1 << 28), (200_000, 50_000, 20_000, 40),
        (230_000, 210_000), decisions,
    )  # fmt: skip
    start = RunStart("bench", "bench", "0", 0, "", "deepseek-v3.2", 0, 1_700_000_000_000_000_000, False, 1, 0, 1, 1, {})
    return [*([] if number else [start]), *arrivals, one_pass]


def _decision(who: int, outcome: Outcome) -> tuple[int, ...]:
    waits = outcome is Outcome.WAIT
    checks = [int(Verdict.PASS), 9728, 65_536] * len(LADDER_GATES)
    gate, reason = -1, -1
    if waits:
        gate, reason = int(Gate.KV_CAPACITY), int(Reason.POOL)
        checks[3 * gate] = Verdict.REFUSE
        checks[3 * gate + 3 :] = [int(Verdict.NOT_EVALUATED), 0, 0] * (len(LADDER_GATES) - gate - 1)
    return (
        who, int(outcome), gate, reason, 9728, 6808, 2921, 17_344, 0, 8192, 5056, 512, int(HostHit.LOADED), 4096, 4096,
        4096, 0, *checks,
    )  # fmt: skip
