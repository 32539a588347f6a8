"""Receivers for OTLP on this machine that answer as a test wants, and a journal to send from."""

import contextlib
import gzip
import http.client
import http.server
import socket
import threading
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from controller.journal import JournalReader, JournalWriter


def free_port():
    """A port nobody listens on at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class _Quiet(http.server.ThreadingHTTPServer):
    """A server whose clients may go in the middle of an answer, and whose connections end with it."""

    daemon_threads = True

    def __init__(self, *arguments):
        self._connections = []
        super().__init__(*arguments)

    def get_request(self):
        """Take a connection, and remember it."""
        connection, address = super().get_request()
        self._connections.append(connection)
        return connection, address

    def server_close(self):
        """Let go of the port, and of whoever keeps a connection alive."""
        super().server_close()
        for each in self._connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        """Say nothing."""


class Receiver:
    """Takes OTLP over HTTP. `status` is what it answers; it keeps the spans only of what it takes."""

    def __init__(self, status=200, *, port=0, rejects=0, pause_s=0.0, most_bytes=1 << 30):
        self.status, self.rejects, self.pause_s, self.most_bytes = status, rejects, pause_s, most_bytes
        self.requests, self.headers, self.spans, self.resources, self.paths = 0, {}, [], [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Answers one connection."""

            protocol_version = "HTTP/1.1"

            def do_POST(self):
                """Take a batch, or not."""
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests += 1
                receiver.paths.append(self.path)
                receiver.headers = {name.lower(): value for name, value in self.headers.items()}
                time.sleep(receiver.pause_s)
                answer = ExportTraceServiceResponse()
                if receiver.rejects:
                    answer.partial_success.rejected_spans = receiver.rejects
                    answer.partial_success.error_message = "not these"
                status = receiver.status if len(body) <= receiver.most_bytes else 413
                if 200 <= status < 300:
                    receiver.keep(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                said = answer.SerializeToString()
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                """Say nothing."""

        self._server = _Quiet(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def keep(self, body):
        """Decode what was taken."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(values(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def named(self, name):
        """The spans of one name."""
        return [span for span in self.spans if span.name == name]

    def ids(self, name=None):
        """Trace and span id of every span, or of those of one name, as often as it came."""
        spans = self.spans if name is None else self.named(name)
        return [(span.trace_id.hex(), span.span_id.hex()) for span in spans]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Deaf:
    """A socket that accepts connections and then says nothing, or only `says`."""

    def __init__(self, says=b"", *, port=0):
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.accepted, self._says = [], says
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted.append(connection)
            if self._says:
                with contextlib.suppress(OSError):  # whoever came may have gone
                    self.answer(connection)
                connection.close()

    def answer(self, connection):
        """Say it."""
        connection.sendall(self._says)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for connection in self.accepted:
            connection.close()


class Rude(Deaf):
    """Takes an HTTP request to its end, and answers with a status line as told and then noise."""

    def __init__(self, status, noise, *, port=0):
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(noise)}\r\nLocation: /elsewhere\r\n\r\n"
        super().__init__(head.encode() + noise, port=port)

    def answer(self, connection):
        """Read the request, then say it."""
        connection.settimeout(1)
        with connection.makefile("rb") as request:
            request.readline()
            request.read(int(http.client.parse_headers(request)["content-length"] or 0))
        super().answer(connection)


def values(attributes):
    """OTLP attributes as plain values."""
    return {each.key: _value(each.value) for each in attributes}


def _value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in any_value.array_value.values]
    return getattr(any_value, kind)


def write_journal(run, payloads, **options):
    """Write payloads into a run's journal."""
    with JournalWriter(run.journal, run_id=run.info.run_id, **options) as writer:
        for payload in payloads:
            writer.append(payload)


def frames_from(run, cursor=None):
    """Every frame of a run's journal from a place on."""
    with JournalReader(run.journal, start=cursor) as reader:
        return list(reader)
