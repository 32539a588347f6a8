"""A recorded run, and sinks that send it to an endpoint."""

import pytest

from controller.run_directory import RunDirectory
from store.otlp import OtlpSink
from tests.store.receivers import write_journal

SETTINGS = (
    "ENDPOINT", "PROTOCOL", "HEADERS", "TIMEOUT", "COMPRESSION", "TRACES_ENDPOINT", "TRACES_PROTOCOL", "TRACES_HEADERS",
    "TRACES_TIMEOUT", "TRACES_COMPRESSION",
)  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """An environment that says nothing of OpenTelemetry."""
    for name in SETTINGS:
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def run(tmp_path):
    """The folder of a run that lives in this process."""
    directory = RunDirectory.create(tmp_path / "runs", engine="test", version="1", run_id="r1")
    yield directory
    directory.release()


@pytest.fixture
def recorded(run, world):
    """A run whose journal holds 60 passes over several segments: 60 passes, 60 decisions, 60 waits."""
    engine = world("r1")
    for each in range(60):
        engine.arrive(f"request-{each}", each, 1000)
        engine.step(each + 0.5)
    write_journal(run, [frame.payload for frame in engine.frames()], segment_bytes=16_384)
    return run


@pytest.fixture
def endpoint(monkeypatch):
    """Says where to send."""

    def say(port, **settings):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        for name, value in settings.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)

    return say


@pytest.fixture
def sinks():
    """Opens sinks, and closes those a test leaves open."""
    opened = []

    def sink(run, *arguments, **options):
        opened.append(OtlpSink(run, *arguments, **{"first_wait_s": 0.05, **options}))
        return opened[-1]

    yield sink
    for each in opened:
        each.close(0.5)
