"""The OTLP sink: at least once, bounded memory, and nobody waits for an endpoint that is down, deaf or hostile."""

import logging
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from controller.journal import Cursor, read_cursor
from estimator.errors import UsageError
from store import delivery, otlp
from store.delivery import Outlet, otlp_wanted, telemetry_off
from store.otlp import OtlpSink, open_otlp
from tests.store.receivers import Receiver, frames_from, free_port
from tests.waiting import wait_until


class Kept(SpanExporter):
    """Keeps what it is given; `answers` are given in turn, then success."""

    def __init__(self, *answers):
        self.batches, self.answers, self.attempts = [], list(answers), 0

    def export(self, spans):
        """Take a batch or not."""
        self.attempts += 1
        answer = self.answers.pop(0) if self.answers else SpanExportResult.SUCCESS
        if isinstance(answer, Exception):
            raise answer
        if answer is SpanExportResult.SUCCESS:
            self.batches.append(list(spans))
        return answer


def test_everything_arrives_and_the_cursor_stands_at_the_end(recorded, endpoint, sinks):
    """Every span of the run is delivered once, and the place is kept for the journal and for the next sink."""
    frames = frames_from(recorded)
    with Receiver() as receiver:
        endpoint(receiver.port)
        sink = sinks(recorded)
        assert sink.cursor is None
        assert read_cursor(recorded.journal, otlp.SINK) == Cursor(0, 0, 0)
        sink.take(frames)
        assert sink.settle(10)
    assert len(receiver.spans) == len(set(receiver.ids())) == 180
    assert [len(receiver.named(name)) for name in ("prefill.pass", "prefill.decision", "prefill.queue")] == [60] * 3
    assert sink.cursor == frames[-1].cursor == read_cursor(recorded.journal, otlp.SINK)
    status = sink.status()
    assert (status.sink, status.run, status.rank) == ("otlp", "r1", 0)
    assert (status.delivered, status.lost, status.left_out, status.failures) == (180, 0, 0, 0)
    assert status.last_delivery_ns > 0
    sink.close(1)
    assert sinks(recorded).cursor == frames[-1].cursor


def test_the_settings_are_those_of_opentelemetry(recorded, endpoint, sinks):
    """Path, headers and compression follow the standard variables."""
    with Receiver() as receiver:
        endpoint(receiver.port, HEADERS="authorization=secret%20word", COMPRESSION="gzip")
        sink = sinks(recorded)
        sink.take(frames_from(recorded)[:5])
        assert sink.settle(10)
        assert (receiver.paths[0], receiver.headers["authorization"]) == ("/v1/traces", "secret word")
        assert receiver.headers["content-encoding"] == "gzip"
        endpoint(free_port(), TRACES_ENDPOINT=f"http://127.0.0.1:{receiver.port}/elsewhere")
        other = sinks(recorded)
        other.take(frames_from(recorded)[5:8])
        assert other.settle(10)
        assert receiver.paths[-1] == "/elsewhere"


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "http/json"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "thrift"}, "thrift"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "collector:4318"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "zip"}, "zip"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(recorded, monkeypatch, setting, named):
    """A wrong protocol, address or compression is one line that names it, before anything is sent."""
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=named) as caught:
        OtlpSink(recorded)
    assert "\n" not in str(caught.value)


def test_grpc_without_the_extra_says_what_to_install(recorded, monkeypatch):
    """One line names the extra."""

    def missing():
        raise ImportError("No module named 'grpc'")

    monkeypatch.setattr(delivery, "_grpc_exporter", missing)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(UsageError, match=r"glassgate\[grpc\]"):
        OtlpSink(recorded)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
    ],
)
def test_spans_are_sent_only_where_the_environment_asks_for_them(recorded, monkeypatch, environ, wanted):
    """An endpoint or OTEL_TRACES_EXPORTER=otlp asks; OTEL_SDK_DISABLED and `none` forbid."""
    assert otlp_wanted(environ) is wanted
    assert telemetry_off(environ) is ("OTEL_SDK_DISABLED" in environ)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    sink = open_otlp(recorded)
    assert (sink is not None) is wanted
    if sink is not None:
        sink.close(1)


def test_what_fails_is_tried_again_until_it_is_delivered(recorded, sinks):
    """Failures and exceptions of an exporter are counted and cost nothing."""
    exporter = Kept(SpanExportResult.FAILURE, OSError("no route"), SpanExportResult.FAILURE)
    sink = sinks(recorded, exporter)
    sink.take(frames_from(recorded))
    assert sink.settle(10)
    status = sink.status()
    assert (status.delivered, status.lost, status.failures) == (180, 0, 3)
    assert sink.failures_by_reason == {"unreachable": 3}
    assert sum(len(batch) for batch in exporter.batches) == 180


def test_batches_are_bounded(recorded, sinks, monkeypatch):
    """No request holds more spans than the bound, and the queue says what it still takes."""
    monkeypatch.setattr(otlp, "BATCH_SPANS", 50)
    exporter = Kept()
    sink = sinks(recorded, exporter)
    frames = frames_from(recorded)
    before = sink.wants
    sink.take(frames)
    assert sink.wants >= before - len(frames)
    assert sink.settle(10)
    assert sink.wants == before == otlp.QUEUE_FRAMES
    assert max(len(batch) for batch in exporter.batches) <= 50


def test_an_exporter_that_hangs_in_its_shutdown_holds_nobody(recorded, sinks):
    """`close` keeps its bound whatever the exporter does."""

    class Hangs(Kept):
        def shutdown(self):
            time.sleep(5)

    sink = sinks(recorded, Hangs())
    sink.take(frames_from(recorded)[:3])
    begin = time.monotonic()
    sink.close(0.5)
    assert time.monotonic() - begin < 2
    assert sink.status().delivered > 0


def test_a_sink_killed_in_the_middle_sends_the_same_ids_again(recorded, sinks, monkeypatch):
    """What was sent behind the last kept place comes again with its ids, and together nothing is missing."""
    frames = frames_from(recorded)
    monkeypatch.setattr(otlp, "KEEP_EVERY_S", 3600.0)
    first = Kept()
    killed = sinks(recorded, first)
    killed.take(frames[:20])
    assert killed.settle(10)  # keeps the place
    kept = read_cursor(recorded.journal, otlp.SINK)
    killed.take(frames[20:40])
    wait_until(lambda: killed.cursor == frames[39].cursor, 20)
    assert read_cursor(recorded.journal, otlp.SINK) == kept
    again = Kept()
    restarted = sinks(recorded, again)
    assert restarted.cursor == kept
    restarted.take(frames_from(recorded, restarted.cursor))
    assert restarted.settle(10)
    spans = [{_ids(span): span.to_json() for batch in each.batches for span in batch} for each in (first, again)]
    both = spans[0].keys() & spans[1].keys()
    assert both
    assert all(spans[0][each] == spans[1][each] for each in both)
    assert len(spans[0] | spans[1]) == 180


def _ids(span):
    return span.context.trace_id, span.context.span_id


def test_without_its_cursor_a_sink_sends_everything_again(recorded, sinks):
    """Removing the cursor means from the start, whatever else was kept."""
    first = sinks(recorded, Kept())
    first.take(frames_from(recorded))
    assert first.settle(10)
    first.close(1)
    (recorded.journal / "cursors" / otlp.SINK).unlink()
    exporter = Kept()
    again = sinks(recorded, exporter)
    assert again.cursor is None
    again.take(frames_from(recorded))
    assert again.settle(10)
    assert sum(len(batch) for batch in exporter.batches) == 180


def test_without_its_state_a_sink_still_has_the_time(recorded, sinks):
    """Where the run's start is behind the cursor and the state is gone, a segment's header says what time it is."""
    frames = frames_from(recorded)
    exporter = Kept()
    first = sinks(recorded, exporter)
    first.take(frames)
    assert first.settle(10)
    first.close(1)
    whole = {_ids(span): span.start_time for batch in exporter.batches for span in batch}
    (recorded.path / "otlp.state").write_bytes(b"not ours")
    cursor = frames[len(frames) // 2].cursor
    (recorded.journal / "cursors" / otlp.SINK).write_text(
        f'{{"segment": {cursor.segment}, "offset": {cursor.offset}, "seq": {cursor.seq}}}'
    )
    exporter = Kept()
    again = sinks(recorded, exporter)
    assert again.cursor == cursor
    again.take(frames_from(recorded, cursor))
    assert again.settle(10)
    passes = [span for batch in exporter.batches for span in batch if span.name == "prefill.pass"]
    assert passes
    for span in passes:  # the writer's header was read at another clock than this world's, so by its offset alone
        assert span.start_time - passes[0].start_time == whole[_ids(span)] - whole[_ids(passes[0])]
        assert span.start_time > 10**18


def test_a_frame_that_cannot_be_read_is_counted_and_passed(recorded, sinks):
    """One unsound frame costs itself and nothing else."""
    frames = frames_from(recorded)
    frames[5] = frames[5]._replace(payload=b"\xc1")
    sink = sinks(recorded, Kept())
    sink.take(frames)
    assert sink.settle(10)
    assert sink.lost_by_reason == {"unreadable": 1}
    assert f"frame {frames[5].seq}" in sink.status().last_error
    assert sink.cursor == frames[-1].cursor


def test_what_is_sampled_out_moves_the_cursor(recorded, sinks):
    """A sampler that takes nothing leaves nothing behind, and everything counted."""
    exporter = Kept()
    sink = sinks(recorded, exporter, sampler=ALWAYS_OFF)
    frames = frames_from(recorded)
    sink.take(frames)
    assert sink.settle(10)
    assert (exporter.attempts, sink.status().left_out, sink.cursor) == (0, 180, frames[-1].cursor)
    assert sink.left_out_by_reason == {"sampled": 180, "repeated": 0}


def test_a_place_that_cannot_be_kept_is_said(recorded, sinks):
    """A folder in the way of the state file fails no delivery; it is counted, and the cursor of the journal stays."""
    (recorded.path / "otlp.state").mkdir()
    sink = sinks(recorded, Kept())
    sink.take(frames_from(recorded))
    assert not sink.settle(1)
    assert sink.status().delivered == 180
    assert sink.failures_by_reason["storage"] > 0
    assert "otlp.state" in sink.status().last_error
    assert read_cursor(recorded.journal, otlp.SINK) == Cursor(0, 0, 0)


def test_a_sink_with_nothing_to_do_is_settled(recorded, sinks):
    """Nothing taken, nothing to wait for, and nothing to close."""
    sink = sinks(recorded, Kept())
    begin = time.monotonic()
    assert sink.settle(5)
    sink.close(5)
    assert time.monotonic() - begin < 2


def test_what_an_exporter_logs_goes_no_further(endpoint, caplog):
    """Its words are in the answer, not on somebody's terminal; other threads' log lines are left alone."""
    endpoint(free_port(), TIMEOUT="0.2")
    outlet = Outlet()
    with caplog.at_level(logging.WARNING):
        answer = outlet.send([])
        logging.getLogger("opentelemetry").warning("from elsewhere")
    outlet.close()
    outlet.hush()
    assert answer.failure == "unreachable"
    assert answer.detail
    assert [record.getMessage() for record in caplog.records] == ["from elsewhere"]
