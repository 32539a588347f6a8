"""One module of names: nothing else names telemetry, and the documented table is made from it."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from store import names
from store.names import METRICS, RESOURCE, SPANS, attributes
from store.spans_reference import telemetry_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "telemetry.md"
GUIDE = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")


def test_no_key_is_both_a_leaf_and_a_prefix():
    """A backend that nests keys by their dots can hold every attribute, and every metric, beside the others."""
    for keys in ([each.key for each in attributes()], [each.name for each in METRICS]):
        assert len(set(keys)) == len(keys)
        ordered = sorted(f"{key}." for key in keys)
        assert not [pair for pair in pairwise(ordered) if pair[1].startswith(pair[0])]


def test_every_key_is_ours_or_the_convention_s():
    """Keys are under glassgate., but for the resource's and those the GenAI convention defines."""
    defined = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    for each in attributes():
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", each.key)
        if not each.key.startswith("glassgate."):
            assert each in RESOURCE or each.key in defined
    assert all(each.name.startswith("glassgate.") for each in METRICS)


def test_every_name_in_the_module_is_in_use():
    """An attribute that stands in the module belongs to the resource, a span, an event or a metric."""
    defined = {value.key for value in vars(names).values() if isinstance(value, names.Attribute)}
    assert defined == {each.key for each in attributes()}
    metrics = {value.name for value in vars(names).values() if isinstance(value, names.Metric)}
    assert metrics == {each.name for each in METRICS}


def test_histograms_alone_have_boundaries_and_they_rise():
    """The SDK's default boundaries are milliseconds, so each histogram brings its own."""
    for each in METRICS:
        assert bool(each.boundaries) == (each.instrument == "histogram")
        assert all(low < high for low, high in pairwise(each.boundaries))
        assert each.unit
        assert each.meaning.endswith(".")


def test_the_issue_s_spans_are_there():
    """The names that queries are written with do not change unnoticed."""
    assert [each.name for each in SPANS] == [
        "prefill.pass",
        "prefill.decision",
        "prefill.repeat",
        "prefill.queue",
        "glassgate.smoke_allocation",
        "glassgate.knob_change",
    ]


def test_names_of_telemetry_stand_in_one_module():
    """No other module of the store spells an attribute key, a span or a metric."""
    spelled = {each.key for each in attributes()} | {each.name for each in (*SPANS, *names.EVENTS, *METRICS)}
    for path in sorted((ROOT / "store").glob("*.py")):
        if path.name not in ("names.py", "telemetry_bench.py"):
            texts = set(re.findall(r'"((?:glassgate|prefill|gen_ai)\.[a-z_.]+)"', path.read_text(encoding="utf-8")))
            assert not texts & spelled, path.name


def test_the_page_has_not_drifted():
    """docs/reference/telemetry.md holds exactly what is made from the names."""
    assert PAGE.read_text(encoding="utf-8") == telemetry_page(), "run `make docs`"


@pytest.mark.parametrize("name", [each.name for each in (*SPANS, *names.EVENTS)])
def test_the_guide_tells_every_span_and_event(name):
    """Each is explained in the guide by its name."""
    assert f"`{name}`" in GUIDE


def test_the_guide_names_only_what_there_is():
    """Every key and metric the guide spells is in the module."""
    known = {each.key for each in attributes()} | {each.name for each in (*SPANS, *names.EVENTS, *METRICS)}
    assert set(re.findall(r"`((?:glassgate|gen_ai|prefill)\.[a-z_.]+)`", GUIDE)) <= known
