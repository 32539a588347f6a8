"""The Prometheus endpoint: a registry and an HTTP server of our own, on 127.0.0.1 unless told otherwise."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, start_http_server

from estimator.errors import UsageError
from store.metric_export import port_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

LOCAL: Final = "127.0.0.1"


class _OneAtATime(CollectorRegistry):
    """The OpenTelemetry reader hands a scrape's points to whoever asks first, so scrapes take turns."""

    def __init__(self) -> None:
        super().__init__(auto_describe=False)
        self._turn = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """The points of one scrape."""
        with self._turn:
            return list(super().collect())


class PrometheusEndpoint:
    """Serves what its `reader` collects at http://HOST:PORT/metrics, once opened; port 0 takes a free one."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._registry = _OneAtATime()
        self.reader = PrometheusMetricReader(registry=self._registry)
        self.address = ""

    def open(self) -> None:
        """Listen. Raises UsageError where that cannot be."""
        try:
            self._server, self._thread = start_http_server(self._port, self._host, self._registry)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UsageError(
                f"the Prometheus endpoint {self._host}:{self._port} cannot be opened: {why}; name another with "
                "--prometheus HOST:PORT"
            ) from None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop listening."""
        if self.address:
            self._server.shutdown()
            self._server.server_close()
            self.address = ""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `:PORT` or `PORT`; the host is 127.0.0.1 unless told. Raises UsageError."""
    host, _, digits = text.rpartition(":")
    port = port_of(digits)
    if port is None:
        raise UsageError(f"--prometheus is {text!r}, which is no HOST:PORT; write for instance 9464 or 0.0.0.0:9464")
    return host.strip("[]") or LOCAL, port
