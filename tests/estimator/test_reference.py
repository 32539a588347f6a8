"""The estimate against an engine's step written down a second time."""

import random

import pytest
from estimator_reference import reference_peak

from estimator.context import MqaBudget, RunContext
from estimator.estimate import estimate_batch
from estimator.geometry import Geometry
from estimator.presets import preset

_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "moe_intermediate_size": 2048, "num_experts_per_tok": 8}
_LATENT |= {"n_routed_experts": 256, "n_shared_experts": 1}
_V3 = _LATENT | {
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_hidden_layers": 61,
    "max_position_embeddings": 163840,
}
_GLM = _LATENT | {
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "vocab_size": 154880,
    "num_hidden_layers": 78,
    "max_position_embeddings": 202752,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
}
CONFIGS = {
    "deepseek-v3": _V3,
    "deepseek-v3.2": _V3 | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
    "glm-5": _GLM,
    "glm-5.2": _GLM | {"max_position_embeddings": 1048576, "index_topk_freq": 4},
    "qwen3-32b": {
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "num_hidden_layers": 64,
        "max_position_embeddings": 40960,
    },
    "llama-3.1-8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
    },
}
SPARSE = [
    ("bf16", "flashmla_sparse", 9),
    ("fp8", "flashmla_sparse", 9),
    ("fp8", "trtllm", 10),
    ("fp8", "flashmla_kv", 9),
]
KERNELS = {
    "deepseek-v3": [("bf16", "fa3", 9)],
    "deepseek-v3.2": SPARSE,
    "glm-5": SPARSE,
    "glm-5.2": SPARSE,
    "qwen3-32b": [("bf16", "fa3", 9), ("fp8", "fa3", 9)],
    "llama-3.1-8b": [("bf16", "fa3", 9), ("bf16", "triton", 9)],
}
BATCHES_EACH = 200


def _batch(rng):
    """One to sixteen requests, from short chats to long agents' turns, within a chunk of 16,384 tokens or so."""
    longest = rng.choice([512, 2_000, 40_000, 200_000])
    count = rng.randint(1, 16)
    extend = rng.choice([16, 500, 16_384 // count])
    return [(rng.choice([0, rng.randint(0, longest)]), rng.randint(max(1, extend // 2), extend)) for _ in range(count)]


@pytest.mark.parametrize("name", CONFIGS)
def test_config_gives_the_preset(name):
    """The built-in geometry is what the family's config.json gives."""
    read = Geometry.from_config(CONFIGS[name], name=name)
    built_in = preset(name)
    for field in ("hidden_size", "heads", "kv_lora_rank", "index_topk", "index_heads", "vocab_size", "context_len"):
        assert getattr(read, field) == getattr(built_in, field)
    assert read == built_in


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("cp", [1, 4])
def test_estimate_covers_the_reference_within_two_per_cent(name, cp):
    """Over random batches the estimate is never below the tensors an engine makes, and at most 2 % above."""
    rng = random.Random(f"{name} {cp}")  # noqa: S311 - reproducible batches, not secrets
    geometry = preset(name)
    for _ in range(BATCHES_EACH if cp == 1 else BATCHES_EACH // 8):
        dtype, impl, sm_major = rng.choice(KERNELS[name])
        run = {
            "tp": rng.choice([1, 8]),
            "cp": cp,
            "page_size": rng.choice([1, 64]),
            "kv_dtype": dtype,
            "prefill_impl": impl,
            "sm_major": sm_major,
            "budget": rng.choice([1 << 28, 1 << 31]),
            "logprob_rows": rng.choice([0, 0, 3000]),
        }
        requests = _batch(rng)
        if sum(extend for _, extend in requests) < 100 * len(requests):
            # The sampler's rows are charged beside a logprob chunk: an upper bound that shows in tiny batches only.
            run["logprob_rows"] = 0
        asked = {key: value for key, value in run.items() if key != "budget"}
        context = RunContext.default_for(geometry, **asked, mqa_budget=MqaBudget(fixed_bytes=run["budget"]))
        estimated = estimate_batch(geometry, context, requests).requested
        reference = reference_peak(CONFIGS[name], run, requests)
        assert reference <= estimated <= reference * 1.02, (run, requests)
