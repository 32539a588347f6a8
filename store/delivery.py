"""Delivery: one batch of spans through a standard exporter, and what the answer means.

The exporters say SUCCESS or FAILURE and no more, take a redirect for success and ignore a partial one. The HTTP answer
is seen through the session, a gRPC status through what the exporter logs; its log lines go no further.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from estimator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from requests import Response, Session

UNREACHABLE: Final = "unreachable"
"""Nobody answered, or what answered does not speak the protocol."""
BUSY: Final = "busy"
"""The endpoint answered that it cannot take spans at this moment: 5xx, 408, 429, or their like in gRPC."""
DENIED: Final = "denied"
"""The endpoint, its address or the credentials are wrong: 401, 403, 404, 405, 407, a redirect, or their like."""
TOO_LARGE: Final = "too_large"
"""The batch is larger than the endpoint takes."""
REFUSED: Final = "refused"
"""The endpoint will never take these spans: any other 4xx, or INVALID_ARGUMENT."""
UNENCODABLE: Final = "unencodable"
"""These spans cannot be written as OTLP."""
FINAL: Final = frozenset({REFUSED, TOO_LARGE, UNENCODABLE})
"""What trying again will not mend; all else waits until the endpoint is well again."""

_WAITS: Final = frozenset({408, 429})
_WRONG_ADDRESS: Final = frozenset({401, 403, 404, 405, 407})
_GRPC: Final = {
    "INVALID_ARGUMENT": REFUSED, "FAILED_PRECONDITION": REFUSED, "ALREADY_EXISTS": REFUSED,
    "UNAUTHENTICATED": DENIED, "PERMISSION_DENIED": DENIED, "UNIMPLEMENTED": DENIED, "NOT_FOUND": DENIED,
    "UNAVAILABLE": UNREACHABLE, "DEADLINE_EXCEEDED": UNREACHABLE,
}  # fmt: skip
_GRPC_SIZE: Final = frozenset({"OUT_OF_RANGE", "RESOURCE_EXHAUSTED"})
_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.common._internal",
)
_PROVIDERS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
_SAID: Final = 500
"""Characters kept of what an exporter says."""
_PROTOCOLS: Final = ("http/protobuf", "grpc")


class Answer(NamedTuple):
    """What became of one attempt: delivered if `failure` is empty."""

    failure: str = ""
    detail: str = ""
    rejected: int = 0
    """Spans of a delivered batch that the endpoint says it threw away."""


class _Ear(logging.Filter):
    """Keeps what the exporter logs in one thread to itself, and remembers the last of it."""

    def __init__(self) -> None:
        super().__init__()
        self.thread: int | None = None
        self.said = ""
        self.grpc_status = ""

    def listen(self) -> None:
        """From here on, in this thread."""
        self.thread, self.said, self.grpc_status = threading.get_ident(), "", ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a log record goes further."""
        if record.thread != self.thread:
            return True
        self.said = _one_line(record.getMessage())
        for each in record.args if isinstance(record.args, tuple) else ():
            if type(each).__name__ == "StatusCode":
                self.grpc_status = getattr(each, "name", "")
        return False


class Outlet:
    """A span exporter that says why it failed. One thread sends; `close` may come from another."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._ear = _Ear()
        self._responses: list[Response] = []
        self._error = ""
        self._sending = False
        self._exporter = standard_exporter(self._seen) if exporter is None else exporter
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._ear)

    def send(self, spans: Sequence[ReadableSpan]) -> Answer:
        """Try once; what the exporter itself tries again lies within its own timeout."""
        self._ear.listen()
        self._responses.clear()
        self._error = ""
        self._sending = True
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - an exporter that raises has failed, whatever it raised
            return Answer(UNREACHABLE, f"{type(error).__name__}: {error}")
        finally:
            self._sending = False
        taken = result is SpanExportResult.SUCCESS
        response = self._responses[-1] if self._responses else None
        if response is not None and (taken or response.status_code >= 300):
            answer = _of_response(response)
        elif taken:
            answer = Answer()
        elif self._ear.grpc_status:
            answer = Answer(_of_grpc(self._ear.grpc_status, self._ear.said), self._ear.said)
        else:
            answer = Answer(UNREACHABLE, self._error or self._ear.said or "the exporter failed and said nothing")
        if answer.failure == UNREACHABLE and (why := _unencodable(spans)):
            return Answer(UNENCODABLE, why)
        return answer

    @property
    def trying(self) -> str:
        """What the exporter last said of an attempt that it is trying again at this moment; empty if it is not."""
        return (self._error or self._ear.said) if self._sending else ""

    def close(self) -> None:
        """Let go of the exporter; what is being sent is cut short where the exporter can do that."""
        self._exporter.shutdown()

    def hush(self) -> None:
        """Listen no more to what the exporter logs; called last, by who sends."""
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self._ear)

    def _seen(self, answer: Response | Exception) -> None:
        if isinstance(answer, Exception):
            self._error = _one_line(_why_unanswered(answer))
        else:
            self._responses.append(answer)


def telemetry_off(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether OTEL_SDK_DISABLED is true, so that nothing goes out."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def otlp_wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks for spans by OTLP.

    It does by naming an endpoint, or `otlp` in OTEL_TRACES_EXPORTER; `none` there, or OTEL_SDK_DISABLED, says no.
    """
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if telemetry_off(environ) or (exporters and "otlp" not in exporters.split(",")):
        return False
    named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return bool(exporters) or any(environ.get(name) for name in named)


def standard_exporter(seen: Callable[[Response | Exception], None] | None = None) -> SpanExporter:
    """The exporter that OTEL_EXPORTER_OTLP_* name; `seen` is called with each HTTP response, or why there is none.

    Raises UsageError for a protocol there is not, gRPC without the extra, or a setting the exporter cannot read.
    """
    protocol = _setting("PROTOCOL") or _PROTOCOLS[0]
    if protocol not in _PROTOCOLS:
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; name one that is spoken here: {' or '.join(_PROTOCOLS)}"
        )
    try:
        return _grpc_exporter() if protocol == "grpc" else _http_exporter(seen)
    except ImportError:
        raise UsageError(
            "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, which is an extra: install 'glassgate[grpc]', or name http/protobuf"
        ) from None
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - each exporter has its own errors for a setting it cannot read
        raise UsageError(
            f"the OTLP exporter cannot be set up from OTEL_EXPORTER_OTLP_*: {type(error).__name__}: {error}"
        ) from None


def _setting(name: str) -> str:
    """A setting for traces, or the one for all signals."""
    return os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _grpc_exporter() -> SpanExporter:
    # Imported where it is asked for: it is an extra.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter()


def _http_exporter(seen: Callable[[Response | Exception], None] | None) -> SpanExporter:
    # Imported where it is asked for: requests takes a tenth of a second.
    import requests  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    endpoint = _setting("ENDPOINT")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"OTLP endpoint {endpoint!r} is no http:// or https:// address; name one, or protocol grpc")
    session: Session | None = None
    # A credential provider brings a session of its own; then the answer is known from the exporter's log alone.
    if seen is not None and not any(os.environ.get(name) for name in _PROVIDERS):
        session = _watched(requests.Session, seen)
    return OTLPSpanExporter(session=session)


def _watched(plain: type[Session], seen: Callable[[Response | Exception], None]) -> Session:
    """A session that tells what it answers."""

    class Watched(plain):  # type: ignore[misc, valid-type]
        def request(self, *arguments: Any, **options: Any) -> Response:
            try:
                response: Response = super().request(*arguments, **options)
            except Exception as error:
                seen(error)
                raise
            seen(response)
            return response

    return Watched()


def _why_unanswered(error: Exception) -> str:
    """Whom a request was for and what the system said, without the layers of libraries between."""
    url = getattr(getattr(error, "request", None), "url", None)
    inner: BaseException | None = error
    while inner is not None and not (isinstance(inner, OSError) and inner.strerror):
        inner = inner.__cause__ or inner.__context__
    if inner is None or not url:
        return f"{type(error).__name__}: {error}"
    parts = urlsplit(url)
    return f"{parts._replace(netloc=parts.netloc.rpartition('@')[2], query='').geturl()}: {inner.strerror}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SAID]


def _of_response(response: Response) -> Answer:
    status = int(response.status_code)
    said = f"HTTP {status} {response.reason or ''}".strip()
    if 200 <= status < 300:
        return _partly(response)
    if status < 400 or status in _WRONG_ADDRESS:
        return Answer(DENIED, said)
    if status == 413:
        return Answer(TOO_LARGE, said)
    return Answer(BUSY if status in _WAITS or status >= 500 else REFUSED, said)


def _partly(response: Response) -> Answer:
    """A batch that was taken; the endpoint may say that it threw some spans away."""
    # Imported with the exporter, not before.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse  # noqa: PLC0415

    if "protobuf" not in response.headers.get("content-type", ""):
        return Answer()
    try:
        partly = ExportTraceServiceResponse.FromString(response.content).partial_success
    except Exception:  # noqa: BLE001 - protobuf's DecodeError has no types; the batch was taken all the same
        return Answer()
    return Answer("", partly.error_message, max(0, partly.rejected_spans))


def _of_grpc(status: str, said: str) -> str:
    if status in _GRPC_SIZE and "larg" in said.lower():
        return TOO_LARGE
    return _GRPC.get(status, BUSY)


def _unencodable(spans: Sequence[ReadableSpan]) -> str:
    """Why the spans cannot be written as OTLP; empty if they can."""
    try:
        encode_spans(spans)
    except Exception as error:  # noqa: BLE001 - whatever the encoder raises, it will raise again
        return f"{type(error).__name__}: {error}"
    return ""
