"""How metrics leave by OTLP: the exporter the environment names, with its failures counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from estimator.errors import UsageError, shown
from store import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.metrics.export import MetricsData


class CountedExporter(MetricExporter):
    """An exporter whose failures are counted: the SDK only logs them."""

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(
            preferred_temporality=exporter._preferred_temporality,  # noqa: SLF001 - the SDK has no public name for it
            preferred_aggregation=exporter._preferred_aggregation,  # noqa: SLF001 - nor for this
        )
        self._inner = exporter
        self.failures = 0
        self.last_error = ""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export, and count it if that fails."""
        result, why = MetricExportResult.FAILURE, "the endpoint did not take the metrics"
        try:
            result = self._inner.export(metrics_data, timeout_millis, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever an exporter raises is a failed attempt
            why = f"the metrics exporter failed: {error}"
        if result is not MetricExportResult.SUCCESS:
            self.failures += 1
        self.last_error = "" if result is MetricExportResult.SUCCESS else why
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Nothing is kept."""
        return self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the connection."""
        self._inner.shutdown(timeout_millis, **kwargs)


def otlp_exporter(environ: Mapping[str, str]) -> MetricExporter:
    """The exporter of the protocol that the environment names. Raises UsageError."""
    protocol = environ.get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    try:
        if protocol in (None, "", "http/protobuf"):
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - costs 0.3 s
                OTLPMetricExporter as HttpExporter,
            )

            return HttpExporter()
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415 - an extra
                OTLPMetricExporter as GrpcExporter,
            )

            return GrpcExporter()
    except ImportError:
        raise UsageError("OTLP over gRPC needs an extra: install glassgate[grpc], or use http/protobuf") from None
    except ValueError as error:
        raise UsageError(f"OTLP metrics cannot be exported as the environment says: {error}") from None
    raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; it can be http/protobuf or grpc")


def service_of(environ: Mapping[str, str]) -> str:
    """OTEL_SERVICE_NAME, else `service.name` of OTEL_RESOURCE_ATTRIBUTES, else `glassgate`."""
    if environ.get("OTEL_SERVICE_NAME"):
        return environ["OTEL_SERVICE_NAME"]
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, _, value = pair.partition("=")
        if key.strip() == "service.name" and value.strip():
            return value.strip()
    return names.SCOPE


def prometheus_address(environ: Mapping[str, str]) -> tuple[str, int]:
    """Where OTEL_EXPORTER_PROMETHEUS_HOST and _PORT want the endpoint. Raises UsageError."""
    text = environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or "9464"
    port = port_of(text)
    if port is None:
        raise UsageError(f"OTEL_EXPORTER_PROMETHEUS_PORT is {shown(text)}, which is no port; give one up to 65535")
    return environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1", port


def port_of(text: str) -> int | None:
    """The port that a text names in decimal digits; None where it names none."""
    return int(text) if text.isdecimal() and len(text) <= 5 and int(text) <= 65_535 else None
