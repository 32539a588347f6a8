"""The worked cases, byte for byte."""

import json
from pathlib import Path

import pytest

from estimator.batch import BatchEstimator
from estimator.case import answer, read_case

CASES = json.loads((Path(__file__).parent / "buffer_cases.json").read_text(encoding="utf-8"))


def _at(tree, path):
    for key in path.split("/"):
        tree = tree[key]
    return tree


def _expected(case):
    return [pytest.param(case, key, value, id=f"{case['name'][:2]} {key}") for key, value in case["expected"].items()]


@pytest.mark.parametrize(("case", "key", "value"), [each for case in CASES for each in _expected(case)])
def test_case_figure(case, key, value):
    """Every figure of every worked case is met to the byte."""
    assert _at(answer(read_case(case)), key) == value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:2])
def test_case_hand_arithmetic(case):
    """The expected figures are the products written beside them, so a case cannot drift from its own arithmetic."""
    for key, product in case["hand"].items():
        # Only digits and the four operations stand in the file; whole division is what the chunk rule means by /.
        assert set(product) <= set("0123456789+-*/() "), product
        assert eval(product.replace("/", "//")) == case["expected"][key]  # noqa: S307 - checked on the line above


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:2])
def test_case_answer_is_plain_json_and_adds_up(case):
    """An answer survives JSON, its parts add up to the gate's figure, and its recorded run gives it again."""
    given = read_case(case)
    said = answer(given)
    assert json.loads(json.dumps(said)) == said
    assert sum(said["peak"]["parts"].values()) == said["peak"]["with_safety_bytes"]
    again = answer(read_case({**case, "run": said["run"]}))
    assert again == said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"][:2])
def test_case_through_the_controllers_seam(case):
    """Members added one by one end at the same peak, phase, parts and explanation as the case at once."""
    given = read_case(case)
    estimator = BatchEstimator(given.geometry, given.context)
    state = estimator.empty
    for request in given.requests:
        state = estimator.add(state, *request)
    whole = given.estimate()
    assert state.peak_bytes == whole.peak_bytes
    assert estimator.PHASES[state.phase] == whole.peak_phase
    assert estimator.parts(state) == whole.parts
    assert estimator.explain(state) == whole
