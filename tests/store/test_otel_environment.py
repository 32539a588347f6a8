"""The OTEL_ variables: what cannot be is told before anything is sent."""

import pytest

from estimator.errors import UsageError
from store.otel_environment import check_environment

PREFIX = "OTEL_EXPORTER_OTLP_"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "abc"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1"),
        ("OTEL_TRACES_SAMPLER", "foo"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_SDK_DISABLED", "maybe"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        (PREFIX + "ENDPOINT", "http://127.0.0.1:999999"),
        (PREFIX + "TRACES_ENDPOINT", "http://"),
        (PREFIX + "TIMEOUT", "nan"),
        (PREFIX + "TIMEOUT", "-3"),
        (PREFIX + "COMPRESSION", "brotli"),
        (PREFIX + "HEADERS", "garbage"),
        (PREFIX + "CERTIFICATE", "/nowhere/at/all.pem"),
    ],
)
def test_a_variable_that_cannot_be_is_named(name: str, value: str):
    """A value that the SDK would ignore or stumble over is one line that names variable, value and what it may be."""
    with pytest.raises(UsageError) as caught:
        check_environment({name: value})
    assert f"{name} is {value!r}, but must be" in str(caught.value)


def test_what_opentelemetry_users_set_is_accepted():
    """Every value of the specification that is spoken here passes, and so does an empty one."""
    check_environment(
        {
            PREFIX + "ENDPOINT": "http://127.0.0.1:4318",
            PREFIX + "METRICS_ENDPOINT": "localhost:4317",
            PREFIX + "HEADERS": "api-key=secret,other=x%20y",
            PREFIX + "TIMEOUT": "10",
            PREFIX + "COMPRESSION": "gzip",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_SDK_DISABLED": "",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
    )
