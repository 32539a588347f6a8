"""Step times fitted to a run's own passes."""

import random
import sys

import pytest

from controller.engines.replay import agent_sessions
from controller.engines.replay.step_time import FS_PER_NS, causal_pairs, step_time_model
from controller.knobs import Knobs
from estimator.errors import NotFoundError, UsageError
from tests.ui.whatif.records import record
from ui.whatif.comparison import compare
from ui.whatif.fit import fit_step_time
from ui.whatif.measured import Decode, Measured, Prefill, _Load, _Served, _Stretches, read_measured
from ui.whatif.recorded import read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of

SESSIONS = {"seed": 3, "sessions": 12, "sessions_per_second": 0.3, "max_context_tokens": 30_000}
COSTS = (2_000_000, 300_000, 20_000, 700, 3)
"""ns a step, a member, a computed and a cached token, and a pair."""


def prefills(count, noise=0.0):
    """Steps that cost what COSTS say, off by a share of it at most."""
    draw = random.Random(5)  # noqa: S311 - the same steps each time
    found = []
    for _ in range(count):
        members, extend, cached = draw.randint(1, 9), draw.randint(1, 8_000), draw.randint(0, 60_000)
        pairs = causal_pairs(extend, cached)
        exact = sum(cost * value for cost, value in zip(COSTS, (1, members, extend, cached, pairs), strict=True))
        found.append(Prefill(round(exact * (1 + draw.uniform(-noise, noise))), members, extend, cached, pairs))
    return tuple(found)


def costs(fit):
    """A fitted model's prefill costs, in the order of COSTS."""
    model = fit.model
    return model.prefill_overhead_ns, *(
        fs / FS_PER_NS for fs in (model.head_fs, model.token_fs, model.prefix_fs, model.pair_fs)
    )


def test_costs_are_found_and_the_error_is_that_of_the_noise():
    """Steps that cost what the model can say give its costs back; with noise the error told is about the noise."""
    exact = fit_step_time(Measured(prefills(100), (), None), "r")
    assert costs(exact) == pytest.approx(COSTS, rel=1e-3)
    assert exact.prefill.median < 1e-6
    noisy = fit_step_time(Measured(prefills(400, 0.2), (), None), "r")
    assert 0.05 < noisy.prefill.median < 0.15
    assert 0.15 < noisy.prefill.p90 < 0.25
    assert noisy.words().startswith("fitted to 400 prefill steps: off by ")


def test_steps_that_something_held_up_are_left_out():
    """A few steps that took ten times as long do not move the costs."""
    steps = prefills(100, 0.01)
    held_up = tuple(each._replace(ns=each.ns * 10) if place % 20 == 7 else each for place, each in enumerate(steps))
    assert costs(fit_step_time(Measured(held_up, (), None), "r")) == pytest.approx(COSTS, rel=0.2)


def test_no_cost_is_below_nothing():
    """Durations that fall with every token are fitted without a cost that would give time back."""
    steps = tuple(Prefill(10_000_000 - 1_000 * extend, 1, extend, 0, extend) for extend in range(1, 2_000, 100))
    model = fit_step_time(Measured(steps, (), None), "r").model
    assert min(model.prefill_overhead_ns, model.token_fs, model.pair_fs, model.head_fs) >= 0
    assert model.prefill_ns(500, 0, 1, 500) > 0


def test_decode_costs_are_found():
    """A constant, a cost a member and one a token of context; without decoding a step lasts as long as it says."""
    decodes = tuple(
        Decode(5e6 + 1e5 * batch + 20.0 * context, 10, batch, context)
        for batch in range(1, 20) for context in (1_000 * batch, 3_000 * batch, 9_000 * batch)
    )  # fmt: skip
    fit = fit_step_time(Measured(prefills(20), decodes, None), "r")
    assert fit.model.decode_overhead_ns == pytest.approx(5e6, rel=1e-3)
    assert fit.model.decode_token_fs / FS_PER_NS == pytest.approx(1e5, rel=1e-3)
    assert fit.model.scan_fs / FS_PER_NS == pytest.approx(20, rel=1e-3)
    assert fit.decode.median < 1e-6
    assert fit_step_time(Measured(prefills(20), (), None), "r").decode is None


def test_too_few_steps_make_no_fit():
    """The error says how many there are, how many are wanted, and what to do."""
    with pytest.raises(NotFoundError, match=r"run r: .* 7 prefill steps .* wants 8; use --model preset"):
        fit_step_time(Measured(prefills(7), (), None), "r")


def test_without_scipy_the_remedy_is_named(monkeypatch):
    """Where SciPy is not installed the error names the extra and the way without it."""
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UsageError, match=r"install glassgate\[tune\], or use --model preset"):
        fit_step_time(Measured(prefills(20), (), None), "r")


def test_stretches_add_up():
    """Any part of a row of stretches is added up, cut ones by their part."""
    stretches = _Stretches([(20, 30), (0, 10), (40, 50)])
    assert [stretches.within(*each) for each in [(0, 50), (5, 25), (10, 20), (45, 99), (50, 60), (22, 24)]] == [
        30, 10, 0, 5, 0, 2,
    ]  # fmt: skip


def test_the_load_beside_a_request_is_a_mean_over_its_time():
    """How many decoded and with how much context, by how long."""
    load = _Load([_Served(0, 100, 10, 4, 4, 0), _Served(50, 100, 20, 8, 8, 0)])
    assert load.mean(0, 100) == pytest.approx((1.5, 12 + 24 / 2))
    assert load.mean(0, 50) == pytest.approx((1, 12))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose steps take what a roofline says, which no fit can say exactly."""
    return record(
        tmp_path_factory.mktemp("runs"), agent_sessions(**SESSIONS), knobs=Knobs(page_size=64),
        step_time=step_time_model("l4-llama-8b"), device_tokens=60_000, host_tokens=200_000,
    )  # fmt: skip


def test_a_fit_reproduces_a_run_it_does_not_know_the_model_of(run):
    """Fitted to the record alone, the replay forms nearly all batches as they were; the share held back is found."""
    recorded = read_recorded(run.path / "glassgate.db")
    measured = read_measured(recorded)
    assert len(measured.prefills) > 50
    assert measured.reserve_ratio == pytest.approx(0.7, abs=0.1)
    steps = steps_of(recorded, "fitted")
    assert steps.fit.prefill.median < 0.1
    found = compare(recorded, read_span(recorded), {}, steps)
    assert not found.fidelity.exact
    assert found.fidelity.score > 0.9


def test_a_preset_is_said_not_to_be_measured(run):
    """A preset stands in where it is asked for; an unknown name is refused with those there are."""
    recorded = read_recorded(run.path / "glassgate.db")
    assert steps_of(recorded).model == step_time_model("l4-llama-8b")
    preset = steps_of(recorded, "preset")
    assert (preset.fit, preset.model) == (None, step_time_model())
    assert "not measured on this run" in preset.words
    with pytest.raises(UsageError, match="--model is 'h300'; it is one of recorded, fitted, preset, h100-llama-8b"):
        steps_of(recorded, "h300")
