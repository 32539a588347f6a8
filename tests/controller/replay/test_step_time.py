"""The step-time model: its formulas, its spans of decode steps, its presets and their documentation."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engines.replay.step_time import (
    DEEPSEEK_V32,
    DEFAULT_PRESET,
    H100,
    LLAMA_8B,
    PLAIN_DECODE_NS,
    PRESETS,
    StepTimeModel,
    causal_pairs,
    step_time_model,
)
from estimator.errors import UsageError

DOCS = Path(__file__).resolve().parents[3] / "docs" / "workloads.md"

models = st.one_of(
    st.sampled_from([*PRESETS.values(), step_time_model(prefill_tokens_per_second=10_000)]),
    st.builds(
        StepTimeModel,
        name=st.just("drawn"),
        basis=st.just("drawn"),
        decode_overhead_ns=st.integers(1, 100),
        token_fs=st.integers(0, 10**7),
        decode_token_fs=st.integers(0, 10**7),
        resident_fs=st.integers(0, 10**8),
        expert_fs=st.integers(0, 10**9),
        experts=st.just(16),
        experts_per_token=st.just(2),
        selected_keys=st.integers(0, 50),
        scan_fs=st.integers(0, 10**7),
        selected_fs=st.integers(0, 10**7),
    ),
)
batches = st.integers(1, 300)
contexts = st.integers(0, 3_000_000) | st.integers(0, 2_000)
steps = st.integers(0, 60)


@given(models, batches, contexts, steps)
def test_a_span_is_the_exact_sum_of_its_steps(model: StepTimeModel, batch: int, context: int, count: int) -> None:
    """A span's fs are the sum of its steps, the context growing by the batch; its ns round that down once."""
    single = [model.decode_span_fs(batch, context + step * batch, 1) for step in range(count)]
    assert model.decode_span_fs(batch, context, count) == sum(single)
    span = model.decode_span_ns(batch, context, count)
    assert span == sum(single) // 1_000_000
    rounded = sum(model.decode_ns(batch, context + step * batch) for step in range(count))
    assert 0 <= span - rounded <= count


@given(models, batches, contexts, st.integers(-5, 10**10))
def test_steps_within_is_the_inverse_of_the_span(model: StepTimeModel, batch: int, context: int, ns: int) -> None:
    """The steps said to fit do fit, and one more does not."""
    count = model.decode_steps_within(batch, context, ns)
    assert count >= 0
    assert model.decode_span_ns(batch, context, count) <= max(ns, 0)
    assert model.decode_span_ns(batch, context, count + 1) > ns


@given(models, batches, contexts, st.integers(1, 10**6))
def test_a_span_fits_into_its_own_time(model: StepTimeModel, batch: int, context: int, count: int) -> None:
    """As many steps as a span has fit into the time it takes, exactly."""
    assert model.decode_steps_within(batch, context, model.decode_span_ns(batch, context, count)) == count


@given(models, st.integers(1, 20_000), st.integers(0, 200_000), st.integers(1, 20_000), st.integers(0, 200_000))
def test_prefill_takes_longer_the_more_there_is_to_do(
    model: StepTimeModel, extend: int, cached: int, more: int, more_cached: int
) -> None:
    """Prefill time is a positive whole number of ns that grows with tokens, context and members."""
    pairs = causal_pairs(extend, cached)
    one = model.prefill_ns(extend, cached, 1, pairs)
    two = model.prefill_ns(extend + more, cached + more_cached, 2, pairs + causal_pairs(more, more_cached))
    assert type(one) is int
    assert 1 <= one <= two


@given(st.integers(1, 500), st.integers(0, 500))
def test_causal_pairs_count_keys_up_to_each_token_itself(extend: int, cached: int) -> None:
    """Each computed token sees the cached ones, those before it and itself."""
    assert causal_pairs(extend, cached) == sum(cached + position + 1 for position in range(extend))


def test_splitting_a_prompt_into_chunks_keeps_its_pairs() -> None:
    """Chunks of a prompt together have the pairs of the whole prompt."""
    assert causal_pairs(300, 50) + causal_pairs(700, 350) == causal_pairs(1000, 50)


def test_attention_makes_long_prompts_slower_per_token() -> None:
    """Every preset computes tokens slower at 100,000 of context than at none, as attention is quadratic."""
    for model in PRESETS.values():
        assert model.prefill_ns(4096, 100_000, 1, causal_pairs(4096, 100_000)) > model.prefill_ns(
            4096, 0, 1, causal_pairs(4096, 0)
        )


def test_models_have_the_published_sizes() -> None:
    """Parameters and cache bytes computed from the shapes are those the models are known by."""
    embedding = 4096 * 128_256
    assert LLAMA_8B.resident_params + embedding == pytest.approx(8.03e9, rel=0.001)
    assert LLAMA_8B.kv_bytes == 131_072
    embedding = 7168 * 129_280
    assert DEEPSEEK_V32.resident_params + DEEPSEEK_V32.expert_params + embedding == pytest.approx(671.9e9, rel=0.001)
    assert DEEPSEEK_V32.active_params + DEEPSEEK_V32.head_params == pytest.approx(37.5e9, rel=0.001)
    assert DEEPSEEK_V32.kv_bytes == 61 * 788


def test_llama_preset_is_the_roofline_worked_by_hand() -> None:
    """The H100 preset's prefill is FLOP over half of peak, its decode bytes over 70 % of bandwidth, plus overhead."""
    model = PRESETS["h100-llama-8b"]
    params = 32 * (2 * 4096 * 128 * 40 + 3 * 4096 * 14_336)
    head = 4096 * 128_256
    pairs = causal_pairs(8192, 0)
    flops = 8192 * 2 * params + 2 * head + pairs * 32 * 4 * 32 * 128
    expected = 2_000_000 + flops / (H100.bf16_flops_per_s * 0.5) * 1e9
    assert model.prefill_ns(8192, 0, 1, pairs) == pytest.approx(expected, rel=1e-6)
    moved = 2 * (params + head) + 10_000 * 131_072
    expected = 1_000_000 + moved / (H100.memory_bytes_per_s * 0.7) * 1e9
    assert model.decode_ns(1, 10_000) == pytest.approx(expected, rel=1e-6)
    assert model.transfer_ns(0) == 0
    assert model.transfer_ns(1000) == pytest.approx(100_000 + 1000 * 131_072 / (64e9 * 0.7) * 1e9, rel=1e-6)


def test_few_tokens_read_few_experts() -> None:
    """One token reads its own experts only; the expected part grows with tokens and reaches the whole."""
    model = PRESETS["h200-dsv3.2-cp8"]
    one, two = (model._weights_fs(tokens) - model.resident_fs for tokens in (1, 2))
    assert one == model.expert_fs * 8 // 256
    assert two == model.expert_fs * (1 - Fraction(248, 256) ** 2) // 1
    reads = [model._weights_fs(tokens) for tokens in range(1, 400)]
    assert reads == sorted(reads)
    assert reads[-1] == model.resident_fs + model.expert_fs


def test_selected_keys_bound_sparse_attention() -> None:
    """Beyond its selected keys, a sparse model's decode step grows by the indexer's scan only."""
    model = PRESETS["h200-dsv3.2-cp8"]
    near = model.decode_span_fs(1, 2048, 1)
    assert model.decode_span_fs(1, 102_048, 1) - near == 100_000 * model.scan_fs
    assert near - model.decode_span_fs(1, 2047, 1) == model.scan_fs + model.selected_fs


def test_plain_model_prefills_at_the_rate_given() -> None:
    """The plain model takes tokens over rate, whatever the context, and loads from the host at no time."""
    model = step_time_model(prefill_tokens_per_second=10_000)
    assert model.prefill_ns(5_000, 90_000, 3, 10**9) == 500_000_000
    assert model.decode_ns(64, 10**6) == PLAIN_DECODE_NS
    assert model.transfer_ns(10**6) == 0


def test_presets_are_found_by_name() -> None:
    """A preset carries its name and says that it is modelled; the default is one of them."""
    for name, model in PRESETS.items():
        assert step_time_model(name) is model
        assert model.name == name
        assert "not measured" in model.basis
    assert step_time_model() is PRESETS[DEFAULT_PRESET]


@pytest.mark.parametrize("rate", [0, -1, 10**9 + 1])
def test_a_senseless_rate_is_a_usage_error(rate: int) -> None:
    """A rate out of range is an error that names it."""
    with pytest.raises(UsageError, match=f"prefill tokens per second: {rate} is not a whole number from 1 to"):
        step_time_model(prefill_tokens_per_second=rate)


def test_unknown_presets_and_impossible_costs_are_usage_errors() -> None:
    """An unknown preset is answered with those there are; a cost below 0 or a free decode step is refused."""
    with pytest.raises(UsageError, match=r"'b300' is not one of h200-dsv3.2-cp8, h100-llama-8b, l4-llama-8b"):
        step_time_model("b300")
    with pytest.raises(UsageError, match="decode_overhead_ns is 0"):
        replace(step_time_model(), decode_overhead_ns=0)
    with pytest.raises(UsageError, match="pair_fs is -1"):
        replace(step_time_model(), pair_fs=-1)


def preset_row(model: StepTimeModel) -> str:
    """Return a preset's line of the table in docs/workloads.md."""

    def rate(tokens: int, ns: int) -> str:
        return f"{round(tokens * 1_000_000_000 / ns, -2):,.0f}"

    short = rate(8_192, model.prefill_ns(8_192, 0, 1, causal_pairs(8_192, 0)))
    long = rate(8_192, model.prefill_ns(8_192, 100_000, 1, causal_pairs(8_192, 100_000)))
    one = model.decode_ns(1, 8_192) / 1e6
    many = model.decode_ns(32, 32 * 8_192) / 1e6
    load = rate(100_000, model.transfer_ns(100_000))
    return f"| `{model.name}` | {short} | {long} | {one:.1f} | {many:.1f} | {load} |"


def test_documented_preset_figures_are_those_of_the_code() -> None:
    """The table of presets in docs/workloads.md is what the model computes."""
    text = DOCS.read_text(encoding="utf-8")
    for model in PRESETS.values():
        assert preset_row(model) in text
        assert model.basis in text
