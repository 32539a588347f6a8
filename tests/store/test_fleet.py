"""The fleet's queries in ClickHouse answer, on the spans of the same records, what SQLite's named queries answer."""

import json
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controller.records import KnobChange, LoadDone, Smoke, decode
from store import names
from store.ingest import Ingest
from store.named import NAMED
from store.queries import run_query
from store.spans import SpanMaker, resource_of

yaml = pytest.importorskip("yaml", reason="comes with Datasette")
sessions = pytest.importorskip("chdb.session", reason="ClickHouse in this process; part of the extra dev")

MS = 1_000_000
BEGAN_NS = 1_700_000_000_000_000_000
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "fleet"
QUERIES = {path.stem: path.read_text() for path in sorted((FOLDER / "queries").glob("*.sql"))}
GUIDE = (FOLDER.parent / "fleet.md").read_text()


def text_of(value):
    """An attribute as the collector's exporter writes it into a map of texts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(list(value)) if isinstance(value, tuple | list) else str(value)


def moment(unix_ns):
    """Unix ns as ClickHouse reads it."""
    seconds, ns = divmod(unix_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09}"


def row_of(span):
    """A span as a row of otel_traces."""
    return {
        "Timestamp": moment(span.start_time),
        "TraceId": f"{span.context.trace_id:032x}",
        "SpanId": f"{span.context.span_id:016x}",
        "ParentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
        "SpanName": span.name,
        "ServiceName": span.resource.attributes["service.name"],
        "ResourceAttributes": {key: text_of(value) for key, value in span.resource.attributes.items()},
        "ScopeName": span.instrumentation_scope.name,
        "SpanAttributes": {key: text_of(value) for key, value in span.attributes.items()},
        "Duration": span.end_time - span.start_time,
        "Events.Timestamp": [moment(event.timestamp) for event in span.events],
        "Events.Name": [event.name for event in span.events],
        "Events.Attributes": [
            {key: text_of(value) for key, value in event.attributes.items()} for event in span.events
        ],
    }


def eventful(world, *, odd=False):
    """A run with most of what there is: repeats, skips, refusals for good, knob changes, alarms, overtaking."""
    engine = world(pool=50_000, max_requests=2, chunked_prefill_size=None)
    engine.recorder.note(Smoke(0, "cuda:0", 900, 1 << 20, 1 << 20, 1 << 30, passed=True))
    for number, host in enumerate((5, 1024, 0, 1536)):
        engine.arrive(f"a{number}", number, 2000 + number, host_tokens=host, resident_tokens=host)
    engine.step(10)
    engine.recorder.note(LoadDone(1, 11 * MS, 1024))
    engine.recorder.note(
        KnobChange(12 * MS, "ann", 1, (("max_requests", 2, 3), ("enforce", True, False)), accepted=True)
    )
    engine.recorder.note(KnobChange(13 * MS, "bob", 1, (("max_requests", 3, 0),), accepted=False, why="too few"))
    engine.arrive("never", 15, 60_000)
    for look in range(7):
        engine.step(20 + 10 * look, free=100)
    engine.arrive("late", 95, 100)
    engine.queue.insert(0, engine.queue.pop())
    engine.step(100, free=1_000)
    engine.abort("never", 110) if odd else engine.arrive("odd", 110, 300)
    engine.step(120, free=50_000)
    engine.recorder.note(KnobChange(125 * MS, "ann", 2, (("max_requests", 3, None),), accepted=True))
    for look in range(4):
        engine.step(130 + 10 * look, free=50_000, reserved=49_990)
    engine.step(190, free=50_000, reserved=0)
    engine.arrive("waits", 195, 900)
    engine.step(200, free=50)
    engine.end(250)
    return engine.frames()


@pytest.fixture(scope="module")
def both(tmp_path_factory, world):
    """A session of ClickHouse and a database of SQLite with the same two ranks of a run; every span came twice."""
    database = tmp_path_factory.mktemp("fleet") / "glassgate.db"
    rows = []
    for rank in (0, 1):
        frames = eventful(world, odd=rank == 1)
        with Ingest(database, "run-1", rank) as ingest:
            ingest.feed(frames)
        maker = SpanMaker("run-1", rank, resource=resource_of("run-1", rank, "test", "1"))
        rows += [row_of(span) for frame in frames for span in maker.spans_of(decode(frame.payload))]
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE passes SET peak_bytes = 1000 * number WHERE members > 0")
    for row in rows:  # the world has no model; its estimates are put in on both sides
        said = row["SpanAttributes"]
        if row["SpanName"] == names.PASS.name and said[names.BATCH_REQUESTS.key] != "0":
            said[names.ESTIMATED.key] = str(1000 * int(said[names.PASS_NUMBER.key]))
    session = sessions.Session(str(tmp_path_factory.mktemp("clickhouse")))
    session.query("CREATE DATABASE otel")
    session.query("USE otel")
    session.query((FOLDER / "otel_traces.sql").read_text())
    lines = "\n".join(json.dumps(row) for row in (*rows, *reversed(rows)))
    session.query(f"INSERT INTO otel_traces FORMAT JSONEachRow {lines}")
    yield session, database
    session.close()


def fleet(session, name, **values):
    """What ClickHouse answers to a query, as dicts; numbers beyond 32 bits are numbers too."""
    values = {"run": "run-1", "rank": "0", "limit": "100", "seconds": "1", **values}
    used = {key: value for key, value in values.items() if f"{{{key}:" in QUERIES[name]}
    sql = QUERIES[name].rstrip().rstrip(";") + "\nSETTINGS output_format_json_quote_64bit_integers = 0"
    answer = str(session.query(sql, "JSONEachRow", params=used))
    return [json.loads(line) for line in answer.splitlines() if line]


def same(both, name, *, but=(), **values):
    """Hold the columns both answers have against each other, row by row; the answers."""
    session, database = both
    ours, theirs = run_query(database, name, limit=100).as_dicts(), fleet(session, name, **values)
    assert len(ours) == len(theirs) > 0
    shared = [key for key in theirs[0] if key in ours[0] and key not in but]
    picked = [[{key: row[key] for key in shared} for row in rows] for rows in (ours, theirs)]
    assert picked[0] == picked[1]
    return ours, theirs


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("stops", 5), ("host-hit-skips", 5), ("batches", 10), ("can-never", 8), ("slowest-waits", 8),
        ("overtakes", 5), ("rank-differences", 9),
    ],
)  # fmt: skip
def test_the_same_question_has_the_same_answer(both, name, columns):
    """Row by row and column by column ClickHouse says what SQLite says, though every span was delivered twice."""
    ours, theirs = same(both, name)
    assert len(set(ours[0]) & set(theirs[0])) >= columns


def test_estimates_stand_beside_the_smoke_allocation(both):
    """Estimates, smoke allocation and share are the same; the limit is the one the members were checked against."""
    ours, _ = same(both, "estimate-vs-smoke", but=("limit_bytes",))
    assert {row["smoke_bytes"] for row in ours} == {1 << 20}


def test_stops_over_time_add_up_to_stops(both):
    """Over all stretches the passes and repeats by gate are those of `stops`."""
    session, _ = both
    for stretch in ("1", "3600"):
        totals = {}
        for row in fleet(session, "stops-over-time", seconds=stretch):
            passes, repeats = totals.get((row["gate"], row["reason"]), (0, 0))
            totals[row["gate"], row["reason"]] = passes + row["passes"], repeats + row["repeats"]
        stops = fleet(session, "stops")
        assert totals == {(row["gate"], row["reason"]): (row["passes"], row["repeats"]) for row in stops}


def test_knob_changes_and_their_effects(both):
    """Changes, and what was before and after them, are the same; times are Unix times there."""
    ours, theirs = same(both, "knob-effects", but=("change",))
    assert [row["at_unix_ns"] - BEGAN_NS for row in theirs] == [row["at_ns"] for row in ours]
    assert theirs[-1]["change"] == "max_requests 2 to 3, enforce true to false"
    ours, theirs = same(both, "knob-changes", but=("old", "new", "accepted"))
    assert [row["new"] for row in theirs] == ["3", "false", "0", None]


def test_alarms_that_were_raised(both):
    """Every alarm is there with when it was raised and about what; ranks that differ are known to the store alone."""
    session, database = both
    ours = [row for row in run_query(database, "alarms", limit=100).as_dicts() if row["alarm"] != "ranks_differ"]
    theirs = fleet(session, "alarms")
    assert {row["alarm"] for row in ours} >= {"idle_refusal"}
    key = ("alarm", "request", "gate", "reason", "threshold", "unit")
    assert sorted([[row[each] for each in key] for row in ours], key=str) == sorted(
        [[row[each] for each in key] for row in theirs], key=str
    )
    assert sorted(row["opened_ns"] for row in ours) == sorted(row["opened_unix_ns"] - BEGAN_NS for row in theirs)


def test_runs_are_listed_by_rank(both):
    """The runs whose spans arrived are listed once a rank."""
    session, _ = both
    assert [(row["run"], row["rank"], row["engine"]) for row in fleet(session, "runs")] == [
        ("run-1", 0, "test"), ("run-1", 1, "test"),
    ]  # fmt: skip


def test_the_guide_names_every_query():
    """The guide lists every query of the fleet, and says of each of SQLite's that has none why."""
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", GUIDE, re.MULTILINE))
    assert set(rows) == set(NAMED)
    assert {name for name, said in rows.items() if not said.startswith("not ")} == set(QUERIES)
    assert set(QUERIES) <= set(NAMED)


def test_queries_use_names_that_there_are():
    """Every attribute, span and event a query asks for is one of our names."""
    known = {attribute.key for attribute in names.attributes()}
    known |= {each.name for each in (*names.SPANS, *names.EVENTS)} | {"glassgate"}
    for name, sql in QUERIES.items():
        asked = set(re.findall(r"'((?:glassgate|gen_ai|prefill)[a-z_.]*)'", sql))
        assert asked <= known, name
        assert sql.startswith("-- ")
        assert "LIMIT 1 BY TraceId, SpanId" in sql


def test_the_collectors_configuration_hangs_together():
    """Every pipeline takes OTLP and ends in ClickHouse, and names only components that are configured."""
    config = yaml.safe_load((FOLDER / "collector.yaml").read_text())
    pipelines = config["service"]["pipelines"]
    assert {"traces", "metrics"} == set(pipelines)
    for pipeline in pipelines.values():
        assert pipeline["receivers"] == ["otlp"]
        assert pipeline["exporters"] == ["clickhouse"]
        for kind, used in pipeline.items():
            assert set(used) <= set(config[kind])
    assert set(config["receivers"]["otlp"]["protocols"]) == {"http", "grpc"}
    assert config["exporters"]["clickhouse"]["traces_table_name"] == "otel_traces"
    assert "docs/fleet/collector.yaml" in GUIDE
