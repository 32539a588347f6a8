"""A collector process and its OTLP endpoint: dead, hanging, or back again."""

import signal
import socket
import time

import pytest

from controller.journal import JournalReader
from store.standing import read_standings
from tests.store.engines import recorded
from tests.store.following import collector, in_database, in_journal, seq
from tests.store.receivers import Receiver, free_port
from tests.waiting import wait_until

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def dead_endpoint():
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def hanging_endpoint():
    """An address where somebody listens and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["dead_endpoint", "hanging_endpoint"])
def test_an_endpoint_that_does_not_answer_holds_nothing_up(tmp_path, kind, request):
    """SQLite is complete and SIGTERM ends the collector within its bound, whatever the endpoint does."""
    run = recorded(tmp_path)
    endpoint = request.getfixturevalue(kind)
    last = max(frame.cursor.seq for frame in JournalReader(run.journal))
    # Not the default ten seconds, so that an attempt may be under way when the end comes.
    with collector(run.path, "--shutdown-seconds", "1", **{ENDPOINT: endpoint}) as process:
        wait_until(lambda: seq(run) == last)
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert process.wait(timeout=120) == 0
        took = time.monotonic() - begun
        told = process.stderr.read()
    assert in_database(run) == in_journal(run)
    assert took < 8.0  # an attempt alone may take ten
    assert "otlp of run r1 has" in told
    assert "Traceback" not in told
    standings = {each.sink: each for each in read_standings(run, run.path / "glassgate.db")}
    assert standings["sqlite"].frames_behind == 0
    assert standings["otlp"].frames_behind > 0


def test_what_was_not_delivered_is_delivered_later(tmp_path):
    """With the endpoint down, then up, then the collector killed, every decision arrives, under an id of its own."""
    run = recorded(tmp_path, sessions=30)
    port = free_port()
    environment = {ENDPOINT: f"http://127.0.0.1:{port}", "OTEL_METRICS_EXPORTER": "none"}
    with collector(run.path, "--once", "--shutdown-seconds", "0.5", **environment) as process:
        assert process.wait(timeout=120) == 1
        assert "collect again" in process.stderr.read()
    assert in_database(run) == in_journal(run)
    with Receiver(port=port, pause_s=0.05) as receiver:
        with collector(run.path, **environment) as process:
            wait_until(lambda: receiver.spans)
            process.send_signal(signal.SIGKILL)
        before = len(set(receiver.ids()))
        with collector(run.path, **environment) as process:
            assert process.wait(timeout=120) == 0
    decisions = sum(map(len, in_database(run)[0].values()))
    assert before < len(set(receiver.ids()))
    assert len(set(receiver.ids("prefill.decision"))) == decisions > 500
    standings = {each.sink: each for each in read_standings(run, run.path / "glassgate.db")}
    assert {sink: each.frames_behind for sink, each in standings.items()} == {"sqlite": 0, "otlp": 0}
    assert standings["sqlite"].delivered == 0, "the last collector had nothing left to do for SQLite"
