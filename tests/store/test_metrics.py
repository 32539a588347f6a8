"""Metrics: the figures of a run, kept up from its records, and how they leave by OTLP."""

import asyncio
import socket
import time
from collections import Counter, defaultdict

import pytest
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

from controller.admission import LoadAnswer
from controller.journal import Frame, JournalReader
from controller.journal.frames import LOSS
from controller.journal.losses import Loss
from controller.records import Smoke
from controller.vocabulary import HostHit
from estimator.errors import UsageError
from store import names
from store.collect import collect_run
from store.follow import Follower, Plan
from store.metrics import Metrics, MetricsSink
from store.names import METRICS
from store.queries import run_query
from store.tally import Tally
from store.why import why
from tests.store.engines import recorded

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has ended, with its database."""
    run = recorded(tmp_path_factory.mktemp("metrics"))
    collect_run(run, run.path / "glassgate.db")
    return run


@pytest.fixture(scope="module")
def figures(run):
    """The figures of that run, and what went into histograms."""
    observed = defaultdict(list)
    tally = Tally(lambda metric, value, key: observed[metric, key].append(value))
    with JournalReader(run.journal) as reader:
        for frame in reader:
            tally.feed(frame)
    return tally, observed


def rows(run, sql):
    """What a query finds in the run's database."""
    return run_query(run.path / "glassgate.db", sql).rows


def fed(frames, tally=None):
    """A tally that took frames."""
    tally = tally or Tally(lambda *_: None)
    for frame in frames:
        tally.feed(frame)
    tally.settle()
    return tally


def test_decisions_equal_the_database(run, figures):
    """Decisions by outcome, gate and reason, with repeats, are those the database holds."""
    tally, _ = figures
    expected = Counter({
        tuple(key): count
        for *key, count in rows(run, "SELECT outcome, gate, reason, count(*) FROM v_decisions GROUP BY 1, 2, 3")
    })  # fmt: skip
    for gate, reason, count in rows(run, "SELECT gate, reason, sum(count) FROM v_repeats GROUP BY 1, 2"):
        expected["wait", gate, reason] += count
    assert tally.counts[names.M_DECISIONS] == expected
    assert expected["wait", "kv_capacity", "pool"] > 600


def test_passes_equal_the_database(run, figures):
    """Passes by what closed them are those of the database, repeats counted."""
    tally, observed = figures
    expected = Counter({
        tuple(key): count
        for *key, count in rows(run, "SELECT closed_gate, closed_reason, count(*) FROM v_passes GROUP BY 1, 2")
    })  # fmt: skip
    for gate, reason, count in rows(run, "SELECT gate, reason, sum(count) FROM v_repeats GROUP BY 1, 2"):
        expected[gate, reason] += count
    assert tally.counts[names.M_PASSES] == expected
    assert sum(expected.values()) == len(observed[names.M_DECIDING, ()]) + sum(
        count for (count,) in rows(run, "SELECT count FROM repeats")
    )


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        (names.M_BATCH_REQUESTS, "members"),
        (names.M_BATCH_EXTEND, "extend_tokens"),
        (names.M_BATCH_CACHED, "device_hit_tokens + host_loaded_tokens"),
        (names.M_BATCH_LOADED, "host_loaded_tokens"),
    ],
)
def test_batches_equal_the_database(run, figures, metric, column):
    """Each batch is observed once, with what the database says of it."""
    _, observed = figures
    expected = [value for (value,) in rows(run, f"SELECT {column} FROM passes WHERE members ORDER BY number")]
    assert observed[metric, ()] == expected
    assert sum(expected)


def test_the_funnel_equals_the_database(run, figures):
    """Resident, matched, asked, loaded and used tokens are those of the requests that entered."""
    tally, _ = figures
    entered = "FROM decisions WHERE outcome <= 1 AND done_tokens = 0"
    ((resident, matched, asked, loaded),) = rows(
        run,
        "SELECT sum(resident_tokens), sum(matched_tokens), sum(asked_tokens), "
        f"sum(asked_tokens) FILTER (WHERE host_hit = {int(HostHit.LOADED)}) {entered}",
    )
    used = rows(
        run,
        "SELECT sum(host_loaded_tokens) FROM passes p WHERE EXISTS "
        "(SELECT 1 FROM steps s WHERE s.run = p.run AND s.pass = p.number)",
    )[0][0]
    found = [
        tally.counts[metric][()]
        for metric in (names.M_RESIDENT, names.M_MATCHED, names.M_ASKED, names.M_LOADED, names.M_USED)
    ]
    assert found == [resident, matched, asked, loaded, used]
    assert resident >= matched >= asked >= loaded > 0
    by_hit = dict(rows(run, f"SELECT host_hit, count(*) {entered} GROUP BY 1"))
    hits = tally.counts[names.M_HITS]
    assert {(HostHit(hit).status, None if HostHit(hit).status != "skipped" else HostHit(hit).word): count
            for hit, count in by_hit.items()} == dict(hits)  # fmt: skip
    assert sum(tally.counts[names.M_RECOMPUTED].values()) == matched - loaded


def test_what_a_failed_load_costs_is_counted(world):
    """Host tokens that were matched and not loaded are counted as computed again, by the reason."""
    engine = world()
    engine.load_answer = LoadAnswer(0, HostHit.ALLOCATOR)
    engine.arrive("a", 1, 4_000, host_tokens=2_048)
    engine.step(2)
    tally = fed(engine.frames())
    assert tally.counts[names.M_RECOMPUTED] == {("allocator",): 2_048}
    assert tally.counts[names.M_HITS] == {("skipped", "allocator"): 1}
    assert tally.counts[names.M_LOADED] == {(): 0}


def test_time_waited_equals_what_why_tells(run, figures):
    """The time spent on each gate and reason is, over all requests, what `why` tells of each."""
    tally, observed = figures
    expected = defaultdict(int)
    ended = Counter()
    for (name,) in rows(run, "SELECT id FROM requests"):
        for wait in why(run.path / "glassgate.db", name).waits:
            ended[wait.ended_by] += 1
            for part in wait.parts:
                expected[part.kind, part.gate, part.reason] += part.ns
    found = tally.counts[names.M_WAITED]
    assert found.keys() == expected.keys()
    assert found == pytest.approx({key: ns / 1e9 for key, ns in expected.items()})
    waits = {key[0]: values for (metric, key), values in observed.items() if metric is names.M_QUEUE_TIME}
    assert {ended_by: len(values) for ended_by, values in waits.items()} == ended
    assert sum(map(sum, waits.values())) == pytest.approx(sum(found.values()))


def test_headroom_is_that_of_the_last_pass(world):
    """Each gate's headroom is its limit less what the last pass observed, in the gate's own unit."""
    engine = world(max_requests=2, max_extend_tokens=10_000, chunked_prefill_size=None)
    engine.arrive("a", 1, 4_000)
    engine.arrive("b", 1, 7_000)
    engine.step(2)
    tally = fed(engine.frames())
    assert tally.gauges[names.M_HEADROOM_REQUESTS][("request_count",)] == 0, "with b there would be two"
    assert tally.gauges[names.M_HEADROOM_TOKENS][("extend_tokens",)] == 10_000 - 4_032 - 7_040
    assert ("buffer_bytes",) not in tally.gauges[names.M_HEADROOM_BYTES]
    assert tally.counts[names.M_DECISIONS] == {("admit", None, None): 1, ("wait", "extend_tokens", "limit"): 1}
    assert tally.gauges[names.M_WAITING][()] == 2
    assert tally.gauges[names.M_NOT_REACHED][()] == 0


def test_repeats_are_counted_as_they_grow(world):
    """A refusal that goes on counts each pass once, however often its cumulative record comes."""
    engine = world(pool=10_000)
    engine.arrive("a", 1, 8_000)
    for at in range(10, 5_000, 100):
        engine.step(at, free=1_000)
    frames = engine.frames()
    tally = fed(frames)
    counted = tally.counts[names.M_DECISIONS]["wait", "kv_capacity", "pool"]
    assert 30 < counted < 50
    engine.end(5_000)
    fed(engine.frames()[len(frames) :], tally)
    assert tally.counts[names.M_DECISIONS] == {("wait", "kv_capacity", "pool"): 50}
    assert tally.counts[names.M_PASSES] == {("kv_capacity", "pool"): 50}
    assert tally.gauges[names.M_HEADROOM_TOKENS][("kv_capacity",)] < 0
    assert sum(tally.counts[names.M_WAITED].values()) == pytest.approx(4.999)


def test_losses_are_counted_by_reason(world):
    """Frames the writer gave up count under its reason, those nobody explained as missing, bound losses not twice."""
    engine = world()
    for each in range(20):
        engine.arrive(f"r{each}", each, 100)
        engine.step(each + 0.5)
    frames = engine.frames()

    def stated(reason, frames_lost, at):
        loss = Loss(reason, frames_lost, 100, at - frames_lost, at - 1, 0, 0, {})
        return Frame(at, LOSS, loss.encode(), 1, 0)

    kept = [*frames[:5], stated("full", 3, 8), *frames[8:12], *frames[14:16], stated("bound", 9, 16), *frames[16:]]
    tally = fed(kept)
    assert tally.counts[names.M_JOURNAL_LOST] == {("full",): 3, ("missing",): 2}


def test_a_smoke_allocation_and_knob_revision_are_gauges(world):
    """What the smoke allocation reserved is shown beside the estimate."""
    engine = world()
    engine.recorder.note(Smoke(0, "cuda:0", 1 << 30, 1 << 30, 1 << 30, 2 << 30, passed=True))
    tally = fed(engine.frames())
    assert tally.gauges[names.M_SMOKE] == {(): 1 << 30}
    assert tally.gauges[names.M_REVISION] == {(): 0}


def test_a_restart_counts_each_record_once(run):
    """A second collector begins where the first one stopped, and together they count what the whole run holds."""
    with JournalReader(run.journal) as reader:
        frames = list(reader)
    whole = fed(frames)
    for cut in (1, 700, 1_001, len(frames) - 1):
        first = MetricsSink(run, Tally(lambda *_: None), None)
        first.take(frames[:cut])
        assert first.settle(0)
        second = MetricsSink(run, Tally(lambda *_: None), None)
        assert second.cursor == frames[cut - 1].cursor
        second.take(frames[cut:])
        for metric in whole.counts:
            parts = Counter(first.tally.counts[metric])
            parts.update(second.tally.counts[metric])
            assert parts == pytest.approx(whole.counts[metric]), (metric.name, cut)
        (run.journal / "cursors" / "metrics").unlink()


def test_a_frame_that_is_unsound_is_counted_and_passed_over(run):
    """A payload that is no record costs itself alone."""
    with JournalReader(run.journal) as reader:
        frames = list(reader)[:20]
    sink = MetricsSink(run, Tally(lambda *_: None), None)
    sink.take([*frames[:10], frames[10]._replace(payload=b"\x00nonsense"), *frames[11:]])
    assert (sink.status().delivered, sink.status().lost) == (20, 1)
    (run.journal / "cursors" / "metrics").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("environ", "prometheus", "expected"),
    [
        ({}, False, (False, False)),
        ({}, True, (False, True)),
        ({ENDPOINT: "http://127.0.0.1:9"}, False, (True, False)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:9/v1/metrics"}, False, (True, False)),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}, False, (False, False)),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "none"}, True, (False, True)),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}, False, (False, False)),
        ({"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}, False, (False, True)),
        ({ENDPOINT: "http://127.0.0.1:9", "OTEL_METRICS_EXPORTER": "otlp,prometheus",
          "OTEL_EXPORTER_PROMETHEUS_PORT": "0"}, False, (True, True)),
    ],
)  # fmt: skip
def test_the_environment_is_heard(environ, prometheus, expected, monkeypatch):
    """OTLP needs an endpoint; OTEL_METRICS_EXPORTER and OTEL_SDK_DISABLED do what OpenTelemetry users expect."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    metrics = Metrics.wanted(prometheus=("127.0.0.1", 0) if prometheus else None, environ=environ)
    found = (False, False) if metrics is None else (metrics._exporter is not None, metrics.endpoint is not None)
    assert found == expected
    if metrics is not None:
        metrics.shutdown(0.2)


@pytest.mark.parametrize(
    ("environ", "prometheus", "words"),
    [
        ({"OTEL_METRICS_EXPORTER": "zipkin"}, None, "OTEL_METRICS_EXPORTER names 'zipkin'"),
        ({"OTEL_SDK_DISABLED": "true"}, ("127.0.0.1", 0), "OTEL_SDK_DISABLED is true"),
        ({ENDPOINT: "http://h", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, None, "'smoke'; it can be http/protobuf"),
        ({"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "x"}, None, "which is no port"),
    ],
)
def test_settings_that_cannot_be_are_told(environ, prometheus, words):
    """A setting that cannot be used is a UsageError that names it."""
    with pytest.raises(UsageError, match=words):
        Metrics.wanted(prometheus=prometheus, environ=environ)


def test_metrics_reach_a_receiver(run, tmp_path, monkeypatch):
    """By OTLP over HTTP a real receiver gets the decisions of the database, with run and rank on every point."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")

    def collect():
        metrics = Metrics.wanted()
        plan = Plan(run, lambda _: tmp_path / "other.db", {"metrics": metrics.sink}, once=True)
        Follower(plan, lambda _: None, metrics).follow()
        metrics.shutdown(5)
        assert metrics._exporter.failures == 0

    received = {}

    async def listen(receiver):
        async for metric in receiver.stream_metrics():
            received[metric.name] = metric

    async def receive():
        async with OtelTapHttpProtobufReceiver(OtelTapHttpProtobufReceiverSettings(http_port=port)) as receiver:
            listening = asyncio.create_task(listen(receiver))
            await asyncio.to_thread(collect)
            await asyncio.sleep(0.5)
            listening.cancel()

    asyncio.run(asyncio.wait_for(receive(), 20))
    assert received.keys() <= {metric.name for metric in METRICS}
    points = received["glassgate.decisions"].sum.data_points
    found = Counter()
    for point in points:
        values = {each.key: each.value for each in point.attributes}
        assert (values["glassgate.run.id"].string_value, values["glassgate.run.rank"].int_value) == ("r1", 0)
        found[values["glassgate.outcome"].string_value] += int(point.as_double or point.as_int)
    ((admitted, repeats),) = rows(
        run, "SELECT count(*) FILTER (WHERE outcome = 0), (SELECT sum(count) FROM repeats) FROM decisions"
    )
    assert found["admit"] == admitted
    assert sum(found.values()) == rows(run, "SELECT count(*) FROM decisions")[0][0] + repeats
    extend = received["glassgate.batch.extend_tokens"].histogram.data_points[0]
    assert tuple(extend.explicit_bounds) == names.M_BATCH_EXTEND.boundaries
    (run.journal / "cursors" / "metrics").unlink()


def test_an_endpoint_that_hangs_is_left_behind(run, tmp_path, monkeypatch):
    """Shutting down takes no longer than it is given, and the failure or the silence is nobody else's."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{listener.getsockname()[1]}")
        metrics = Metrics.wanted()
        Follower(
            Plan(run, lambda _: tmp_path / "other.db", {"metrics": metrics.sink}, once=True), lambda _: None, metrics
        ).follow()
        begun = time.monotonic()
        metrics.shutdown(0.3)
        assert time.monotonic() - begun < 2
    (run.journal / "cursors" / "metrics").unlink()


def test_failures_to_export_are_counted(run, monkeypatch):
    """An endpoint where nobody listens counts as failures of the sink, with the reason in its status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{probe.getsockname()[1]}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    metrics = Metrics.wanted()
    sink = metrics.sink(run)
    with JournalReader(run.journal) as reader:
        sink.take(reader.poll(10))
    deadline = time.monotonic() + 10
    while not sink.status().failures:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "did not take" in sink.status().last_error
    metrics.shutdown(0.5)
    (run.journal / "cursors" / "metrics").unlink()
