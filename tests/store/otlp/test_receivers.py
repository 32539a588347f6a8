"""A replay's decisions in real receivers, counted and compared with SQLite field by field; killed in the middle."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import rotel
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from controller.engines.replay.engine import ReplayEngine
from controller.engines.replay.workload import Workload, WorkloadRequest
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.run_directory import RunDirectory
from store import names
from store.collect import collect_run
from store.identity import Identity
from store.otlp import OtlpSink
from tests.controller.replay.small_engine import PlainTime
from tests.store.receivers import Receiver, frames_from, free_port, values
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = 150


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """An environment that says nothing of OpenTelemetry, and no proxy."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """A small replay with waits, chunks, host hits and repeats: its run and its database."""
    base = tmp_path_factory.mktemp("replayed")
    run = RunDirectory.create(base, engine="replay", version="1", run_id="replayed")
    requests = [
        WorkloadRequest(
            f"chat-{number}",
            1_700_000_000_000 + number * 9_000,
            96 + 8 * (number % 7),
            4 + number % 5,
            tuple(range(1000 * (number % 9), 1000 * (number % 9) + 40)),
        )
        for number in range(REQUESTS)
    ]
    workload = Workload(name="small", block_tokens=4, requests=iter(requests))
    with JournalWriter(run.journal, run_id="replayed", segment_bytes=65_536) as writer:
        ReplayEngine(
            workload,
            knobs=Knobs(page_size=4, chunked_prefill_size=64, max_extend_tokens=256, max_requests=3),
            step_time=PlainTime(),
            recorder=Recorder(writer),
            device_tokens=600,
            host_tokens=4000,
            run="replayed",
            model="small-model",
        ).run()
    run.end()
    database = base / "glassgate.db"
    collect_run(run, database)
    return run, database


@pytest.fixture
def again(replayed):
    """The same run without what earlier sinks left behind."""
    run, _ = replayed
    for leaving in (run.path / "otlp.state", run.journal / "cursors" / "otlp"):
        leaving.unlink(missing_ok=True)
    return run


def send_all(run, seconds=20.0):
    """Everything in a run's journal through a sink, as a collector would; the sink's last status."""
    sink = OtlpSink(run, first_wait_s=0.05)
    frames = frames_from(run, sink.cursor)
    while frames:
        taken, frames = frames[: sink.wants], frames[sink.wants :]
        sink.take(taken)
        assert sink.settle(seconds)
    sink.close(2)
    return sink.status()


def rows(database, sql):
    """The rows of a question, as dictionaries."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        connection.row_factory = sqlite3.Row
        answer = [dict(row) for row in connection.execute(sql)]
    connection.close()
    return answer


DECISION_FIELDS = {
    "pass": names.PASS_NUMBER,
    "position": names.PASS_POSITION,
    "request": names.REQUEST_NUMBER,
    "request_id": names.REQUEST_ID,
    "outcome": names.OUTCOME,
    "gate": names.GATE,
    "reason": names.REASON,
    "observed": names.OBSERVED,
    "limit_value": names.LIMIT,
    "short_by": names.SHORT_BY,
    "unit": names.UNIT,
    "prompt_tokens": names.PROMPT,
    "done_tokens": names.DONE,
    "device_hit_tokens": names.DEVICE_HIT,
    "extend_tokens": names.EXTEND,
    "output_tokens": names.OUTPUT,
    "host_status": names.HIT_STATUS,
    "resident_tokens": names.HIT_RESIDENT,
    "matched_tokens": names.HIT_MATCHED,
    "asked_tokens": names.HIT_ASKED,
    "host_loaded_tokens": names.HIT_LOADED,
    "evicted_tokens": names.HIT_EVICTED,
}
PASS_FIELDS = {
    "number": names.PASS_NUMBER,
    "revision": names.REVISION,
    "queue": names.WAITING,
    "queued_tokens": names.WAITING_TOKENS,
    "not_reached": names.NOT_REACHED,
    "members": names.BATCH_REQUESTS,
    "extend_tokens": names.BATCH_EXTEND,
    "cached_tokens": names.BATCH_CACHED,
    "host_loaded_tokens": names.BATCH_LOADED,
    "closed_gate": names.GATE,
    "closed_reason": names.REASON,
    "free_tokens": names.FREE,
    "evictable_tokens": names.EVICTABLE,
    "reserved_tokens": names.RESERVED,
    "running": names.RUNNING,
    "quota_after": names.QUOTA_AFTER,
    "room_after": names.ROOM_AFTER,
}


def compare_with_sqlite(spans, database):
    """Every pass, decision, check, repeat and wait received is the one in the database, and none is missing."""
    of = {name.name: [span for span in spans if span.name == name.name] for name in names.SPANS}
    ids = Identity("replayed", 0)
    (start,) = rows(database, "SELECT start_ns, wall_ns FROM runs")
    zero_ns = start["wall_ns"] - start["start_ns"]

    passes = rows(database, "SELECT * FROM v_passes ORDER BY number")
    received = {values(span.attributes)[names.PASS_NUMBER.key]: span for span in of[names.PASS.name]}
    assert len(of[names.PASS.name]) == len(received) == len(passes) > 100
    for row in passes:
        span = received[row["number"]]
        said = values(span.attributes)
        assert {column: said.get(each.key) for column, each in PASS_FIELDS.items()} == {
            column: row[column] for column in PASS_FIELDS
        }
        assert span.start_time_unix_nano == zero_ns + row["start_ns"]
        assert span.end_time_unix_nano - span.start_time_unix_nano == row["decide_ns"]
        assert (span.trace_id.hex(), span.span_id.hex()) == (
            ids.of_pass(row["number"]).trace_hex,
            ids.of_pass(row["number"]).span_hex,
        )

    checks = {}
    for row in rows(
        database, "SELECT * FROM checks WHERE verdict != 'not_evaluated' ORDER BY pass, position, gate_number"
    ):
        checks.setdefault((row["pass"], row["position"]), []).append(row)
    decisions = rows(database, "SELECT * FROM v_decisions ORDER BY pass, position")
    assert len(of[names.DECISION.name]) == len(decisions) > REQUESTS
    key = (names.PASS_NUMBER.key, names.PASS_POSITION.key)
    by_place = {tuple(values(span.attributes)[each] for each in key): span for span in of[names.DECISION.name]}
    for row in decisions:
        place = (row["pass"], row["position"])
        said = values(by_place[place].attributes)
        assert {column: said.get(each.key) for column, each in DECISION_FIELDS.items()} == {
            column: row[column] for column in DECISION_FIELDS
        }
        skipped = row["host_hit"] if row["host_status"] == "skipped" else None
        assert said.get(names.HIT_REASON.key) == skipped
        assert said[names.MODEL.key] == "small-model"
        assert list(
            zip(
                said[names.CHECK_GATES.key],
                said[names.CHECK_VERDICTS.key],
                said[names.CHECK_OBSERVED.key],
                said[names.CHECK_LIMITS.key],
                strict=True,
            )
        ) == [(each["gate"], each["verdict"], each["observed"], each["limit_value"] or 0) for each in checks[place]]
        parent = received[row["pass"]]
        assert by_place[place].parent_span_id == parent.span_id
        assert parent.start_time_unix_nano <= by_place[place].start_time_unix_nano
        assert by_place[place].end_time_unix_nano <= parent.end_time_unix_nano

    repeats = rows(database, "SELECT * FROM v_repeats")
    told = [values(span.attributes) for span in of[names.REPEAT.name]]
    assert sorted(
        (each[names.PASS_NUMBER.key], each[names.REPEAT_COUNT.key], *each[names.REPEAT_OBSERVED.key]) for each in told
    ) == sorted(
        (row["first_pass"], row["count"], row["observed_first"], row["observed_last"], row["observed_least"],
         row["observed_greatest"])
        for row in repeats
    )  # fmt: skip

    waits = [
        span for span in of[names.QUEUE.name] if values(span.attributes)[names.QUEUE_AFTER.key] == "arrival"
    ]  # fmt: skip
    requests = rows(database, "SELECT * FROM v_requests")
    assert len(waits) == len(requests) == REQUESTS
    by_number = {values(span.attributes)[names.REQUEST_NUMBER.key]: span for span in waits}
    for row in requests:
        span = by_number[row["number"]]
        said = values(span.attributes)
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (
            zero_ns + row["arrival_ns"],
            zero_ns + row["admit_ns"],
        )
        assert said[names.BEFORE_LOOK_NS.key] == row["first_look_ns"] - row["arrival_ns"]
        assert said[names.AFTER_LOOK_NS.key] == row["admit_ns"] - row["first_look_ns"]
        spent = [
            values(event.attributes)[names.WAIT_NS.key] for event in span.events if event.name == names.WAITED.name
        ]
        assert sum(spent) == row["wait_ns"]


def test_a_replay_arrives_over_http_as_it_is_in_sqlite(replayed, again, monkeypatch):
    """Sent to oteltap, every decision arrives once and says field by field what the database says."""
    port = free_port()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")

    async def receive():
        settings = OtelTapHttpProtobufReceiverSettings(http_port=port, listen_on_all_interfaces=False)
        spans = []

        async def listen(tap):
            async for span in tap.stream_traces():
                spans.append(span)  # noqa: PERF401 - what has come so far must be seen while it listens

        async with OtelTapHttpProtobufReceiver(settings) as tap:
            listening = asyncio.create_task(listen(tap))
            await asyncio.sleep(0)
            status = await asyncio.to_thread(send_all, again)
            for _ in range(1000):
                if len(spans) >= status.delivered:
                    break
                await asyncio.sleep(0.01)
            listening.cancel()
        return status, spans

    status, spans = asyncio.run(receive())
    assert (status.delivered, status.lost, status.failures) == (len(spans), 0, 0)
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    compare_with_sqlite(spans, replayed[1])


@pytest.fixture
def collector(tmp_path):
    """Rotel, taking gRPC and passing it on to a receiver; its port and that receiver."""
    grpc, http = free_port(), free_port()
    with Receiver() as receiver:
        command = [
            str(Path(rotel.__file__).with_name("rotel-agent")), "start",
            "--pid-file", str(tmp_path / "rotel.pid"), "--log-file", str(tmp_path / "rotel.log"),
            "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--otlp-http-endpoint", f"127.0.0.1:{http}",
            "--exporter", "otlp", "--otlp-exporter-endpoint", f"http://127.0.0.1:{receiver.port}",
            "--otlp-exporter-protocol", "http", "--batch-timeout", "50ms",
        ]  # fmt: skip
        with (
            (tmp_path / "rotel.out").open("w") as out,
            subprocess.Popen(command, stdout=out, stderr=out, env={"HOME": str(tmp_path)}, cwd=tmp_path) as process,
        ):
            try:
                wait_until(lambda: _listens(grpc), 10)
                yield grpc, receiver
            finally:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


def test_a_replay_arrives_over_grpc_as_it_is_in_sqlite(replayed, again, collector, monkeypatch):
    """Through a real collector by gRPC, every decision arrives once and says what the database says."""
    grpc, receiver = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{grpc}")
    status = send_all(again)
    assert (status.lost, status.failures) == (0, 0)
    wait_until(lambda: len(receiver.spans) >= status.delivered, 20)
    assert len(set(receiver.ids())) == len(receiver.spans) == status.delivered
    compare_with_sqlite(receiver.spans, replayed[1])
    resource = receiver.resources[0]
    assert resource["service.instance.id"] == "replayed/0"
    assert resource["service.name"] == "glassgate"


def test_a_grpc_endpoint_that_is_down_loses_nothing(again, monkeypatch):
    """Nobody listens: the failure is told, close keeps its bound, and the place has not moved."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    sink = OtlpSink(again, first_wait_s=0.05)
    sink.take(frames_from(again)[:50])
    wait_until(lambda: sink.status().failures > 0, 20)
    assert sink.failures_by_reason.keys() == {"unreachable"}
    sink.close(1)
    assert (sink.cursor, sink.status().lost) == (None, 0)


KILLED = """
import sys
from controller.journal import JournalReader
from controller.run_directory import RunDirectory
from store import otlp

otlp.KEEP_EVERY_S, otlp.BATCH_SPANS = 0.0, 50
sink = otlp.OtlpSink(RunDirectory(sys.argv[1]))
with JournalReader(RunDirectory(sys.argv[1]).journal, start=sink.cursor) as reader:
    while frames := reader.poll(100):
        sink.take(frames)
        sink.settle(60)
"""


def test_a_collector_killed_in_the_middle_goes_on(replayed, again, monkeypatch):
    """After kill -9 the next one sends what is missing, and what it sends twice has the same ids."""
    with Receiver(pause_s=0.02) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
        with subprocess.Popen([sys.executable, "-c", KILLED, str(again.path)], cwd=ROOT) as process:
            wait_until(lambda: receiver.requests >= 3, 20)
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = len(receiver.spans)
        first = set(receiver.ids())
        status = send_all(again)
    everything = receiver.spans
    once = {(span.trace_id, span.span_id): span.SerializeToString() for span in everything}
    assert 0 < before < len(once)
    assert status.delivered < len(once), "it began again from the start"
    assert all(once[span.trace_id, span.span_id] == span.SerializeToString() for span in everything)
    assert first <= set(receiver.ids())
    unique = {(span.trace_id, span.span_id): span for span in everything}
    compare_with_sqlite(unique.values(), replayed[1])


def test_a_second_delivery_can_be_told(replayed, again, monkeypatch):
    """Sent a second time from the start, every id comes twice, and once each is left after taking one of each id."""
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
        first = send_all(again).delivered
        (again.journal / "cursors" / "otlp").unlink()
        assert send_all(again).delivered == first
    ids = receiver.ids()
    assert len(ids) == 2 * first
    assert all(ids.count(each) == 2 for each in ids[:20])
    assert len(set(ids)) == first
    compare_with_sqlite(dict(zip(ids, receiver.spans, strict=True)).values(), replayed[1])
