"""Metrics: figures of the runs a collector follows, through the OpenTelemetry SDK to OTLP and to a Prometheus endpoint.

Every point carries the run and the rank. Counters begin at 0 with the collector's process; a record is counted once
in it. The provider belongs to the process that made it: make it after a fork or spawn.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from controller.journal import Cursor, JournalReader, read_cursor, write_cursor
from controller.run_directory import LIVE
from estimator.errors import RecordError, StorageError, UsageError
from store import names
from store.collect import SINK as SQLITE
from store.delivery import BUSY, DENIED, FINAL, UNREACHABLE, telemetry_off
from store.metric_export import CountedExporter, otlp_exporter, prometheus_address, service_of
from store.otlp import REJECTED, UNREADABLE
from store.otlp import SINK as OTLP
from store.scrape import PrometheusEndpoint
from store.sinks import SinkStatus
from store.spans import REPEATED, SAMPLED_OUT
from store.tally import Key, Tally, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.metrics import CallbackOptions, Histogram
    from opentelemetry.sdk.metrics.export import MetricReader

    from controller.journal import Frame
    from controller.run_directory import RunDirectory
    from store.standing import Standing

SINK: Final = "metrics"
"""The name under which the journal knows how far its records have been counted."""

_TAKE_FRAMES: Final = 1_000
_LEARN_SEGMENTS: Final = 2
_KEEP_SECONDS: Final = 1.0
_RUNS_KEPT: Final = 100
_EXPORTERS: Final = ("otlp", "prometheus", "none")
_UNSOUND: Final = (RecordError, msgspec.DecodeError, ValueError, TypeError, LookupError)


class MetricsSink:
    """The metrics of one run, as the sink of its journal. It begins where the last collector's counting ended.

    What waits and what repeats at that place is learnt from up to two segments before it, without being counted.
    """

    name = SINK

    def __init__(self, run: RunDirectory, tally: Tally, exporter: CountedExporter | None) -> None:
        info = run.info
        self.run, self.rank = info.run_id, info.rank
        self.tally = tally
        self.done = False
        self._journal = run.journal
        self._exporter = exporter
        kept = read_cursor(run.journal, SINK)
        self._cursor = None if kept == (0, 0, 0) else kept
        self._learnt = self._cursor is None
        self._delivered = self._lost = self._last_delivery_ns = 0
        self._kept: Cursor | None = None
        self._kept_at = 0.0
        self._keep()

    @property
    def cursor(self) -> Cursor | None:
        """The place behind the last record counted."""
        return self._cursor

    @property
    def wants(self) -> int:
        """Frames it can take."""
        return _TAKE_FRAMES

    def take(self, frames: Sequence[Frame]) -> None:
        """Count frames; one that is unsound is counted as lost."""
        if not self._learnt:
            self._learn()
        for frame in frames:
            try:
                self.tally.feed(frame)
            except _UNSOUND:
                self._lost += 1
        self.tally.settle()
        self._cursor = frames[-1].cursor
        self._delivered += len(frames)
        self._last_delivery_ns = time.time_ns()
        if time.monotonic() - self._kept_at >= _KEEP_SECONDS:
            self._keep()

    def settle(self, seconds: float) -> bool:
        """Only the place is kept back: exporting has a clock of its own."""
        del seconds
        self._keep()
        return True

    def status(self) -> SinkStatus:
        """Where it stands; it counts frames, and failures of the OTLP exporter, which all runs share."""
        failures, error = (0, "") if self._exporter is None else (self._exporter.failures, self._exporter.last_error)
        return SinkStatus(
            SINK, self.run, self.rank, self._cursor, self._delivered, 0, self._lost, failures, error,
            self._last_delivery_ns,
        )  # fmt: skip

    def close(self, seconds: float) -> None:
        """The figures stay; they may be dropped when there are too many runs."""
        del seconds
        self.done = True

    def _keep(self) -> None:
        """Keep the place in the journal's folder."""
        place = self._cursor or Cursor(0, 0, 0)
        self._kept_at = time.monotonic()
        if place != self._kept:
            with suppress(StorageError):  # a journal on a read-only disk frees nothing
                write_cursor(self._journal, SINK, place)
                self._kept = place

    def _learn(self) -> None:
        """Feed what stands before the place, so that waits and repeats that go on are known."""
        self._learnt = True
        place = self._cursor
        if place is None:
            return
        observe, self.tally.observe = self.tally.observe, lambda *_: None
        try:
            with JournalReader(self._journal, start=Cursor(max(0, place.segment - _LEARN_SEGMENTS), 0, 0)) as reader:
                for frame in reader:
                    if frame.cursor[:2] > place[:2]:
                        break
                    self.tally.learn(frame, _UNSOUND)
        except RecordError:  # then what waits is not known, and its waits are not counted
            pass
        finally:
            self.tally.observe = observe
            self.tally.begin_counting(place.seq)


class Metrics:
    """The SDK's instruments over the figures of all runs, with OTLP and Prometheus as they were asked for.

    `prometheus` is the host and port to listen on. Raises UsageError for a setting that cannot be.
    """

    def __init__(self, *, otlp: bool, prometheus: tuple[str, int] | None, environ: Mapping[str, str]) -> None:
        self._sinks: dict[tuple[str, int], MetricsSink] = {}
        self._standings: tuple[Standing, ...] = ()
        self._alarms: Mapping[tuple[str, int], Mapping[str, tuple[int, int]]] = {}
        self._exporter = CountedExporter(otlp_exporter(environ)) if otlp else None
        self.endpoint: PrometheusEndpoint | None = None
        readers: list[MetricReader] = []
        if prometheus is not None:
            self.endpoint = PrometheusEndpoint(*prometheus)
            readers.append(self.endpoint.reader)
        if self._exporter is not None:
            try:
                readers.append(PeriodicExportingMetricReader(self._exporter))
            except ValueError as error:
                raise UsageError(f"OTEL_METRIC_EXPORT_INTERVAL cannot be used: {error}") from None
        resource = Resource.create({"service.name": service_of(environ)})
        self._provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._histograms: dict[names.Metric, Histogram] = {}
        self._make_instruments()
        if self.endpoint is not None:
            self.endpoint.open()

    @classmethod
    def wanted(
        cls, *, otlp: bool = True, prometheus: tuple[str, int] | None = None, environ: Mapping[str, str] = os.environ
    ) -> Metrics | None:
        """What the environment and the arguments ask for, None if that is nothing.

        OTLP takes an endpoint in the environment, or its name in OTEL_METRICS_EXPORTER, which may also name
        `prometheus` (at OTEL_EXPORTER_PROMETHEUS_HOST and _PORT), or `none`, which turns OTLP off. OTEL_SDK_DISABLED
        turns all off.
        """
        named = [name.strip() for name in environ.get("OTEL_METRICS_EXPORTER", "").split(",") if name.strip()]
        for name in named:
            if name not in _EXPORTERS:
                raise UsageError(f"OTEL_METRICS_EXPORTER names {name!r}; it can be {', '.join(_EXPORTERS)}")
        if telemetry_off(environ):
            if prometheus is not None:
                raise UsageError("OTEL_SDK_DISABLED is true, so there are no metrics to serve; unset it")
            return None
        if "prometheus" in named and prometheus is None:
            prometheus = prometheus_address(environ)
        endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
        configured = "otlp" in named or (not named and any(environ.get(name) for name in endpoints))
        otlp = otlp and configured
        if not otlp and prometheus is None:
            return None
        return cls(otlp=otlp, prometheus=prometheus, environ=environ)

    def sink(self, run: RunDirectory) -> MetricsSink:
        """The metrics of one more run, as a sink of its journal."""
        info = run.info
        key = info.run_id, info.rank
        base: dict[str, Value] = {names.RUN_ID.key: info.run_id, names.RUN_RANK.key: info.rank}
        known = self._sinks.pop(key, None)
        tally = Tally(self._observer(base)) if known is None else known.tally
        sink = self._sinks[key] = MetricsSink(run, tally, self._exporter)
        over = [each for each, one in self._sinks.items() if one.done]
        for each in over[: max(0, len(self._sinks) - _RUNS_KEPT)]:
            del self._sinks[each]
        return sink

    def seen(self, standings: tuple[Standing, ...]) -> None:
        """Where every sink stands at this moment."""
        self._standings = standings

    def alarmed(self, alarms: Mapping[tuple[str, int], Mapping[str, tuple[int, int]]]) -> None:
        """The standing alarms of each run and rank at this moment: by name, how many were raised and are open."""
        self._alarms = alarms

    def shutdown(self, seconds: float) -> None:
        """Export once more and close, for at most so many seconds.

        What does not answer is left behind in a thread that ends with the process.
        """
        closing = threading.Thread(target=self._shut, args=(seconds,), name="glassgate-metrics-end", daemon=True)
        closing.start()
        closing.join(seconds)

    def _shut(self, seconds: float) -> None:
        if self.endpoint is not None:
            self.endpoint.close()
        self._provider.shutdown(timeout_millis=max(1.0, seconds * 1000))

    def _observer(self, base: dict[str, Value]) -> Callable[[names.Metric, float, Key], None]:
        histograms = self._histograms
        known: dict[tuple[names.Metric, Key], dict[str, Any]] = {}

        def observe(metric: names.Metric, value: float, key: Key) -> None:
            attributes = known.get((metric, key))
            if attributes is None:
                attributes = known[metric, key] = _attributes(metric, key, base)
            histograms[metric].record(value, attributes)

        return observe

    def _make_instruments(self) -> None:
        meter = self._provider.get_meter(names.SCOPE)
        for metric in names.METRICS:
            about = {"unit": metric.unit, "description": metric.meaning}
            if metric.instrument == "histogram":
                self._histograms[metric] = meter.create_histogram(
                    metric.name, **about, explicit_bucket_boundaries_advisory=list(metric.boundaries)
                )
            elif metric.instrument == "counter":
                meter.create_observable_counter(metric.name, [self._callback(metric)], **about)
            else:
                meter.create_observable_gauge(metric.name, [self._callback(metric)], **about)

    def _callback(self, metric: names.Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            del options
            return [
                Observation(value, _attributes(metric, key, {names.RUN_ID.key: run, names.RUN_RANK.key: rank}))
                for run, rank, key, value in self._figures(metric)
            ]

        return observe

    def _figures(self, metric: names.Metric) -> list[tuple[str, int, Key, float]]:
        """The points of a metric: run, rank, values of its attributes, value."""
        if metric in _OF_STANDINGS:
            found = [(each.status.run, each.status.rank, _of_standing(metric, each)) for each in self._standings]
            return [(run, rank, *point) for run, rank, points in found for point in points]
        zeros: dict[Key, float] = {(reason,): 0 for reason in _LOSS_REASONS} if metric is names.M_JOURNAL_LOST else {}
        if metric in (names.M_ALARMS, names.M_ALARMS_OPEN):
            at = 0 if metric is names.M_ALARMS else 1
            return [
                (run, rank, (name,), counts[at])
                for (run, rank), alarms in list(self._alarms.items())
                for name, counts in alarms.items()
            ]
        return [
            (run, rank, key, value)
            for (run, rank), sink in list(self._sinks.items())
            for key, value in {**zeros, **sink.tally.figures(metric)}.items()
        ]


# From 0 on, so that a rate sees the first one too.
_OTLP_REASONS: Final = {
    names.M_LEFT_OUT: (SAMPLED_OUT, REPEATED),
    names.M_LOST: (UNREADABLE, REJECTED, *sorted(FINAL)),
    names.M_FAILURES: (UNREACHABLE, BUSY, DENIED, *sorted(FINAL)),
}
_LOSS_REASONS: Final = ("full", "error", "stall", "too_large", "missing")
_OF_STANDINGS: Final = frozenset({
    names.M_LAG, names.M_BEHIND, names.M_FRAMES, names.M_DELIVERED, names.M_LEFT_OUT, names.M_LOST, names.M_FAILURES,
    names.M_ENGINE,
})  # fmt: skip


def _of_standing(metric: names.Metric, standing: Standing) -> list[tuple[Key, float]]:
    """What a sink's standing says of one metric."""
    status, behind, state, reasons = standing
    sink = status.sink
    if metric is names.M_ENGINE:
        return [((), float(state in LIVE))] if sink == SQLITE else []
    plain = {
        names.M_LAG: behind.seconds, names.M_BEHIND: behind.bytes, names.M_FRAMES: behind.frames,
        names.M_DELIVERED: status.delivered,
    }  # fmt: skip
    if metric in plain:
        return [((sink,), plain[metric])]
    total, by_reason = {
        names.M_LEFT_OUT: (status.left_out, reasons.left_out),
        names.M_LOST: (status.lost, reasons.lost),
        names.M_FAILURES: (status.failures, reasons.failures),
    }[metric]
    if sink != OTLP:  # it does not count by reason
        return [((sink, None), total)]
    return [
        ((sink, reason), by_reason.get(reason, 0)) for reason in {**dict.fromkeys(_OTLP_REASONS[metric]), **by_reason}
    ]


def _attributes(metric: names.Metric, key: Key, base: Mapping[str, Value]) -> dict[str, Any]:
    named = {attribute.key: value for attribute, value in zip(metric.attributes, key, strict=True) if value is not None}
    return {**base, **named}
