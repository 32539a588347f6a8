"""The OTEL_ variables, looked at before the SDK sees them: one that cannot be is told, not ignored."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from estimator.errors import UsageError

_SAMPLERS: Final = (
    "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
    "parentbased_traceidratio",
)  # fmt: skip
_SIGNALS: Final = ("", "TRACES_", "METRICS_")


def check_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError, naming the variable, its value and what it may be, for the first one that cannot be."""
    for name, check in _CHECKS.items():
        value = environ.get(name, "").strip()
        if value and (expected := check(value)):
            raise UsageError(f"{name} is {value!r}, but must be {expected}; correct it or unset it")


def _one_of(*words: str) -> Callable[[str], str]:
    return lambda value: "" if value.lower() in words else f"one of {', '.join(words)}"


def _all_of(*words: str) -> Callable[[str], str]:
    known = f"one or more of {', '.join(words)}"
    return lambda value: "" if all(each.strip().lower() in words for each in value.split(",")) else known


def _whole(value: str) -> str:
    return "" if value.isdecimal() else "a whole number"


def _positive(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    return "" if number > 0 and math.isfinite(number) else "a number above 0"


def _url(value: str) -> str:
    try:
        parts = urlsplit(value if "//" in value else f"//{value}")
        sound = bool(parts.hostname) and parts.port != 0  # reading the port checks its range
    except ValueError:
        sound = False
    return "" if sound else "an address such as http://127.0.0.1:4318"


def _headers(value: str) -> str:
    sound = all("=" in each for each in value.split(",") if each.strip())
    return "" if sound else "key=value pairs with commas between them"


def _file(value: str) -> str:
    return "" if os.path.isfile(value) else "a file"  # noqa: PTH113 - the value is a path as the SDK reads it


_LIMITS: Final = (
    "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
)  # fmt: skip
_CHECKS: Final[dict[str, Callable[[str], str]]] = {
    "OTEL_SDK_DISABLED": _one_of("true", "false"),
    "OTEL_TRACES_EXPORTER": _all_of("otlp", "none"),
    "OTEL_TRACES_SAMPLER": _one_of(*_SAMPLERS),
    "OTEL_METRIC_EXPORT_INTERVAL": _positive,
    "OTEL_METRIC_EXPORT_TIMEOUT": _positive,
    **dict.fromkeys(_LIMITS, _whole),
    **{f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT": _url for signal in _SIGNALS},
    **{f"OTEL_EXPORTER_OTLP_{signal}TIMEOUT": _positive for signal in _SIGNALS},
    **{f"OTEL_EXPORTER_OTLP_{signal}HEADERS": _headers for signal in _SIGNALS},
    **{f"OTEL_EXPORTER_OTLP_{signal}COMPRESSION": _one_of("gzip", "deflate", "none") for signal in _SIGNALS},
    **{f"OTEL_EXPORTER_OTLP_{signal}CERTIFICATE": _file for signal in _SIGNALS},
}
