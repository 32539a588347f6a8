"""Plans executed, steps measured, on the host and on meta."""

import random

import pytest

from estimator import PRESETS, MqaBudget, RunContext, estimate_batch, preset
from estimator.context import MlpSpec
from estimator.errors import InputError
from gpu_probe import measure
from gpu_probe.errors import ProbeError
from gpu_probe.host import HostMemory
from gpu_probe.measure import ratios, run_plan, run_step, small

MIB = 1 << 20


@pytest.mark.parametrize("name", PRESETS)
def test_a_plan_peaks_at_its_estimate(name, torch):
    """An executed plan has, to the byte, the estimate as its peak of live bytes."""
    assert torch
    rng = random.Random(name)  # noqa: S311 - reproducible batches, not secrets
    geometry = preset(name)
    for _ in range(5):
        run = RunContext.default_for(
            geometry, tp=8, cp=rng.choice([1, 4]), draft=rng.random() < 0.5, bs_gt1_l1_prefetch_enabled=True
        )
        batch = [(rng.randint(0, 50_000), rng.randint(1, 2000), 0) for _ in range(rng.randint(1, 8))]
        measured = run_plan(estimate_batch(geometry, run, batch), "meta")
        assert measured.requested == measured.estimated
        assert measured.held >= measured.requested


def test_a_plan_runs_on_the_host(torch):
    """On the host the plan's buffers are really allocated."""
    assert torch
    geometry = small(preset("deepseek-v3.2"))
    estimate = estimate_batch(geometry, RunContext.default_for(geometry), [(3000, 500)] * 3)
    measured = run_plan(estimate, "cpu")
    assert measured.requested == estimate.requested > MIB


def test_a_plan_larger_than_the_host_is_not_tried(torch, monkeypatch):
    """A plan that would not fit the host is refused before anything is allocated."""
    assert torch
    monkeypatch.setattr(measure, "host_memory", lambda: HostMemory(1 << 40, 2 << 30, None, None))
    geometry = preset("deepseek-v3.2")
    estimate = estimate_batch(geometry, RunContext.default_for(geometry), [(0, 16_384)])
    with pytest.raises(ProbeError, match=r"wanted on cpu, 1\.00 GiB may be taken"):
        run_plan(estimate, "cpu")


SETTINGS = [
    ("deepseek-v3.2", {"kv_dtype": "bf16"}, [(300, 40), (0, 90)]),
    ("deepseek-v3.2", {"kv_dtype": "fp8", "prefill_impl": "flashmla_sparse"}, [(300, 40), (0, 90)]),
    ("deepseek-v3.2", {"kv_dtype": "fp8", "prefill_impl": "flashmla_sparse"}, [(0, 100), (0, 90)]),
    ("deepseek-v3.2", {"kv_dtype": "fp8", "prefill_impl": "trtllm", "sm_major": 10}, [(3000, 40), (0, 90)]),
    ("deepseek-v3.2", {"dense_context": 0, "cp": 2}, [(300, 41), (0, 91)]),
    ("deepseek-v3.2", {"dense_context": 0}, [(0, 30), (10, 33)]),
    ("glm-5.2", {"dense_context": 0}, [(300, 40), (0, 90)]),
    ("deepseek-v3", {}, [(0, 64), (0, 30)]),
    ("deepseek-v3", {}, [(500, 64), (0, 30)]),
    ("deepseek-v3", {"chunked_prefix_threshold": 100}, [(500, 64), (0, 30)]),
    ("deepseek-v3", {"chunked_prefix_threshold": 100, "dense_capacity": 256}, [(500, 64), (90, 30)]),
    ("deepseek-v3", {"cp": 2}, [(500, 64), (0, 30)]),
    ("qwen3-32b", {"kv_dtype": "fp8"}, [(500, 64), (0, 30)]),
    ("qwen3-32b", {"cp": 2}, [(500, 64), (0, 30)]),
    ("llama-3.1-8b", {"prefill_impl": "triton", "page_size": 1, "logprob_rows": 50}, [(500, 64), (0, 30)]),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("name", "settings", "batch"), SETTINGS)
def test_host_and_meta_count_alike(name, settings, batch, whole, torch):
    """A step really computed on the host has the peak that sizes alone give on meta."""
    assert torch
    geometry = small(preset(name))
    run = RunContext.default_for(geometry, **settings)
    on_host, on_meta = (run_step(geometry, run, batch, device, whole=whole) for device in ("cpu", "meta"))
    assert on_host.requested == on_meta.requested
    assert on_host.held == on_meta.held
    assert on_host.ratio > 0.7


def test_cut_scores_count_alike(torch):
    """With a budget that cuts the scores, host and meta still count alike, and the estimate covers both."""
    assert torch
    geometry = small(preset("deepseek-v3.2"))
    run = RunContext.default_for(geometry, dense_context=0, mqa_budget=MqaBudget(fixed_bytes=8 * MIB))
    batch = [(40_000, 50), (40_000, 60)]
    on_host, on_meta = (run_step(geometry, run, batch, device) for device in ("cpu", "meta"))
    assert on_host.requested == on_meta.requested <= on_host.estimated <= 1.02 * on_host.requested
    assert estimate_batch(geometry, run, batch).score.chunks > 1


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("deepseek-v3.2", {"prefill_impl": "tilelang"}, "prefill_impl tilelang"),
        ("deepseek-v3.2", {"mlp": MlpSpec(kind="moe_deepgemm")}, "mlp.kind is moe_deepgemm"),
        ("deepseek-v3", {"draft": True}, "draft is True"),
        ("qwen3-32b", {"shard_size": 2}, "shard_size is 2"),
        ("deepseek-v3.2", {"topk_impl": "torch"}, "topk_impl is torch"),
    ],
)
def test_a_run_the_step_does_not_know(name, settings, said, torch):
    """A run that the step is not written for is an error that names the setting."""
    assert torch
    geometry = preset(name)
    with pytest.raises(ProbeError, match=said):
        run_step(geometry, RunContext.default_for(geometry, **settings), [(0, 64)], "meta")


def test_bad_requests_are_told(torch):
    """A request that cannot be one is the estimator's error."""
    assert torch
    geometry = preset("qwen3-32b")
    with pytest.raises(InputError, match="request 0"):
        run_step(geometry, RunContext.default_for(geometry), [(0, 0)], "meta")


def test_the_table_of_three_families(torch, capsys):
    """The command prints a row for each family, none of them an under-estimate of what is listed."""
    assert torch
    assert measure.main(["--device", "meta", "--batches", "3"]) == 0
    printed = capsys.readouterr().out
    for name in measure.FAMILIES:
        assert f"| {name} | listed | 3 |" in printed
        assert f"| {name} | whole | 3 |" in printed


def test_the_command_ends_with_words(torch, capsys):
    """A device that is not there, or no batch, is one line on stderr and the probe's exit code."""
    assert torch
    for arguments in (["--device", "cuda:77"], ["--batches", "0"], ["--tp", "7"]):
        code = measure.main(arguments)
        said = capsys.readouterr()
        assert code in {4, 9}
        assert not said.out
        assert len(said.err.splitlines()) == 1


def test_an_under_estimate_is_counted(torch, monkeypatch):
    """A batch whose measured peak exceeds its estimate is counted."""
    assert torch
    geometry = preset("llama-3.1-8b")
    real = measure.run_step

    def doubled(*given, **named):
        found = real(*given, **named)
        return measure.replace(found, held=found.held * 2)

    monkeypatch.setattr(measure, "run_step", doubled)
    row = ratios(geometry, RunContext.default_for(geometry), [[(0, 500)]] * 3, "meta")
    assert (row.batches, row.under) == (3, 3)
    assert row.most < 0.6
