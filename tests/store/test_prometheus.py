"""The Prometheus endpoint, scraped for real, and the alert rules and dashboard that stand on it."""

import json
import re
import socket
import threading
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.journal.frames import DATA, Cursor, Frame
from controller.records import Arrival, KnobChange, Pass, Retract, Smoke, StepEnd, encode
from controller.vocabulary import Gate, HostHit, Outcome, Reason, Verdict
from estimator.errors import UsageError
from store import names
from store.alarms import ALARMS
from store.collect import collect_run
from store.follow import Follower, Plan
from store.lag import Behind
from store.metrics import Metrics
from store.names import METRICS
from store.pipe import Reasons
from store.queries import run_query
from store.scrape import parse_address
from store.sinks import SinkStatus
from store.standing import Standing
from tests.store.engines import recorded

DOCS = Path(__file__).resolve().parents[2] / "docs"
_KEYWORDS = {"and", "or", "unless", "by", "on", "without", "ignoring", "bool", "inf", "nan"}
_OF_PROMETHEUS = {"le"}


def scrape(metrics):
    """Every sample at the endpoint: name and labels (those of the scope left out) to value."""
    with urllib.request.urlopen(metrics.endpoint.address, timeout=60) as answer:  # noqa: S310 - our own address
        text = answer.read().decode()
    return {
        (sample.name, frozenset((key, value) for key, value in sample.labels.items() if "otel_scope" not in key)):
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }  # fmt: skip


@pytest.fixture
def metrics():
    """Metrics with an endpoint on a free port."""
    made = Metrics.wanted(prometheus=("127.0.0.1", 0), environ={})
    yield made
    made.shutdown(2)


def labels_of(run, **more):
    """The labels every sample of a run has, and more."""
    return frozenset({"glassgate_run_id": run, "glassgate_run_rank": "0", **more}.items())


def test_a_scrape_equals_the_database(tmp_path, metrics):
    """Decisions and batches at the endpoint are those in SQLite, for each of two runs."""
    folder = tmp_path / "runs"
    runs = [recorded(folder, "one", sessions=30), recorded(folder, "two", sessions=20)]
    plan = Plan(folder, lambda run: run.path / "glassgate.db", {"metrics": metrics.sink}, once=True)
    Follower(plan, lambda _: None, metrics).follow()
    found = scrape(metrics)
    for run in runs:
        name, database = run.info.run_id, run.path / "glassgate.db"
        expected = Counter()
        for sql in (
            "SELECT outcome, gate, reason, count(*) FROM v_decisions GROUP BY 1, 2, 3",
            "SELECT 'wait', gate, reason, sum(count) FROM v_repeats GROUP BY 1, 2, 3",
        ):
            for outcome, gate, reason, count in run_query(database, sql).rows:
                key = labels_of(
                    name, glassgate_outcome=outcome, glassgate_gate=gate or "", glassgate_reason=reason or ""
                )
                expected["glassgate_decisions_total", key] += count
        assert expected == {
            key: value for key, value in found.items()
            if key[0] == "glassgate_decisions_total" and ("glassgate_run_id", name) in key[1]
        }  # fmt: skip
        ((batches, extend, large),) = run_query(
            database,
            "SELECT count(*), sum(extend_tokens), count(*) FILTER (WHERE extend_tokens > 4096) FROM passes "
            "WHERE members",
        ).rows
        assert found["glassgate_batch_extend_tokens_count", labels_of(name)] == batches
        assert found["glassgate_batch_extend_tokens_sum", labels_of(name)] == extend
        assert found["glassgate_batch_extend_tokens_bucket", labels_of(name, le="4096.0")] == batches - large
        ((frames,),) = [[standing.status.delivered] for standing in metrics._standings
                        if standing.status[:2] == ("sqlite", name)]  # fmt: skip
        assert found["glassgate_sink_delivered_total", labels_of(name, glassgate_sink_name="sqlite")] == frames > 0
        assert found["glassgate_journal_lag_seconds", labels_of(name, glassgate_sink_name="sqlite")] == 0
        assert found["glassgate_run_engine_live", labels_of(name)] == 0
        assert found["glassgate_alarm_raised_total", labels_of(name, glassgate_alarm_name="idle_refusal")] == sum(
            count for (count,) in run_query(database, "SELECT count(*) FROM alarms WHERE alarm = 'idle_refusal'").rows
        )


def test_scrapes_at_once_do_not_mix(tmp_path, metrics):
    """Several scrapes at the same time each give every sample once."""
    run = recorded(tmp_path / "runs", sessions=5)
    sink = metrics.sink(run)
    collect_run(run, tmp_path / "glassgate.db")
    texts = []

    def fetch():
        with urllib.request.urlopen(metrics.endpoint.address, timeout=60) as answer:  # noqa: S310 - our own address
            texts.append(answer.read().decode())

    sink.take([Frame(0, DATA, encode([Arrival(0, "a", 0, 1, 1), Retract(0, 1, 1, 1)]), 1, 0)])
    threads = [threading.Thread(target=fetch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 8
    for text in texts:
        lines = [line.rsplit(" ", 1)[0] for line in text.splitlines()]
        assert len(lines) == len(set(lines))
        assert "glassgate_gave_back_total" in text


def test_it_listens_on_this_machine_alone():
    """A port without a host is on 127.0.0.1; what is no address, or is taken, is a UsageError that says so."""
    assert parse_address("9464") == parse_address(":9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:9464") == ("0.0.0.0", 9464)  # noqa: S104 - what an operator may ask for
    assert parse_address("[::1]:9464") == ("::1", 9464)
    for wrong in ("", "host", "host:port", "h:70000", "9464:"):
        with pytest.raises(UsageError, match="which is no HOST:PORT"):
            parse_address(wrong)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be opened: Address already in use"):
            Metrics.wanted(prometheus=taken.getsockname(), environ={})


def everything():
    """Frames in which each figure that metrics have occurs."""
    checks = [value for gate in Gate for value in (Verdict.PASS, 1, 5 + gate)]
    checks[3 * Gate.KV_CAPACITY : 3 * Gate.KV_CAPACITY + 3] = [Verdict.REFUSE, 9, 4]
    admit = (0, Outcome.ADMIT, -1, -1, 0, 0, 0, 900, 0, 0, 900, 1, HostHit.QUOTA, 512, 512, 0, 0)
    loaded = (1, Outcome.ADMIT, -1, -1, 0, 0, 0, 900, 0, 0, 388, 1, HostHit.LOADED, 512, 512, 512, 0)
    lane = (
        2,
        Outcome.WAIT,
        Gate.KV_CAPACITY,
        Reason.LANE,
        9,
        4,
        6,
        900,
        0,
        0,
        900,
        1,
        HostHit.NONE_RESIDENT,
        0,
        0,
        0,
        0,
    )
    whole = [value for gate in Gate for value in (Verdict.PASS, 1, 5 + gate)]
    one = Pass(
        1, 5, 1000, 0, 3, 2700, 0, ((0, 0, 900, 0, 0, 0), (1, 0, 388, 0, 512, 0)), Gate.KV_CAPACITY, Reason.LANE,
        1 << 30, (), (100, 50, 10, 1), (40, 30), ((*admit, *whole), (*loaded, *whole), (*lane, *checks)), ((4, 0),),
    )  # fmt: skip
    after = {field: getattr(one, field) for field in one.__struct_fields__}
    after |= {"number": 2, "start_ns": 50, "decisions": ((2, *admit[1:], *whole),), "lanes": ()}
    two = Pass(**after)
    three = Pass(**after | {"number": 3, "start_ns": 60, "decisions": one.decisions})
    records = [
        *(Arrival(number, f"r{number}", 1, 900, 1) for number in range(3)),
        Smoke(0, "cuda:0", 1, 1, 1, 1, passed=True),
        KnobChange(2, "me", 1, (("max_requests", None, 2),), accepted=True),
        one,
        StepEnd(1, 10, 20, (1,)),
        Retract(1, 30, 1, 1),
        two,
        three,
    ]
    return [Frame(0, DATA, encode(records), 1, 0)]


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Everything an endpoint shows when each figure has occurred: sample name to the label names seen with it."""
    run = recorded(tmp_path_factory.mktemp("runs"), sessions=2)
    made = Metrics.wanted(prometheus=("127.0.0.1", 0), environ={})
    made.sink(run).take(everything())
    made.seen(
        tuple(
            Standing(SinkStatus(sink, "r1", 0, Cursor(1, 0, 0), 1, 1, 1, 1), Behind(1, 2, 3.0), "live",
                     Reasons({}, {}, {}))
            for sink in ("sqlite", "otlp", "metrics")
        )
    )  # fmt: skip
    made.alarmed({("r1", 0): {alarm.name: (1, 0) for alarm in ALARMS}})
    found = {}
    for name, labels in scrape(made):
        found.setdefault(name, set()).update(key for key, _ in labels)
    made.shutdown(2)
    return found


def test_every_metric_is_served(samples):
    """No metric of the module of names is missing at the endpoint, and none is there that it does not name."""
    served = {name for name in samples if name != "target_info"}
    wanted = set()
    for metric in METRICS:
        name = metric.name.replace(".", "_")
        unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
        name += "" if name.endswith(unit) else unit
        ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}[metric.instrument]
        wanted |= {name + end for end in ends}
    assert served == wanted


def queries():
    """Every query of the alert rules and of the dashboard, with where it stands."""
    rules = yaml.safe_load((DOCS / "prometheus" / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    dashboard = json.loads((DOCS / "grafana" / "glassgate.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def parsed(query):
    """The metrics and the labels that a PromQL query names."""
    bare = re.sub(r'"[^"]*"', '""', query)
    labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"\"", bare))
    for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", bare):
        labels |= {label.strip() for label in group.split(",")}
    bare = re.sub(r"\b(?:by|on|without|ignoring)\s*\([^)]*\)|\{[^}]*\}|\[[^\]]*\]", " ", bare)
    if bare.startswith("label_values"):
        labels.add(bare.rstrip(") ").rsplit(",", 1)[1].strip())
        bare = bare.rsplit(",", 1)[0]
    words = re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\w*\s*\()", re.sub(r"\b\d[\w.]*", " ", bare))
    return {word for word in words if word not in _KEYWORDS}, labels


@pytest.mark.parametrize(("where", "query"), list(queries()), ids=[where for where, _ in queries()])
def test_queries_name_what_is_served(where, query, samples):
    """Each metric of a shipped query is at a scraped endpoint, and has the labels the query names."""
    metrics, labels = parsed(query)
    assert metrics, where
    assert metrics <= samples.keys(), where
    for label in labels - _OF_PROMETHEUS:
        assert any(label in samples[metric] for metric in metrics), (where, label)


def test_queries_are_read_as_they_should_be():
    """The reader of queries tells metrics from functions, labels, strings and numbers."""
    query = 'sum by (le, a) (rate(m_bucket{x=~"$y",z="n(o)"}[5m])) / 1.5e9 and on (b) absent(other) > 0'
    assert parsed(query) == ({"m_bucket", "other"}, {"le", "a", "x", "z", "b"})


def test_every_standing_alarm_has_a_rule():
    """Each alarm of the store is named by an alert rule, by the name the metric carries."""
    text = (DOCS / "prometheus" / "alerts.yml").read_text()
    assert set(re.findall(r'glassgate_alarm_name="(\w+)"', text)) == {alarm.name for alarm in ALARMS}
    assert names.ALARM.key == "glassgate.alarm.name"


def test_rules_and_dashboard_are_complete():
    """Rules have a summary and a severity; panels have their own id, a place, and a data source to choose."""
    rules = yaml.safe_load((DOCS / "prometheus" / "alerts.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
    panels = json.loads((DOCS / "grafana" / "glassgate.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
