"""Built-in model geometries, each with the source of its numbers.

Hugging Face was not at hand when these were written down: the values come from stored third-party copies, and
`Preset.source` says how well each is confirmed. A config.json of your own always takes precedence.
"""

from dataclasses import dataclass, replace

from estimator.errors import InputError
from estimator.geometry import Geometry


@dataclass(frozen=True, slots=True)
class Preset:
    """A geometry and, in words, where its numbers come from and which of them are unconfirmed."""

    geometry: Geometry
    source: str


_V3 = Geometry(
    name="deepseek-v3",
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    experts_per_token=8,
    routed_experts=256,
    shared_experts=1,
    heads=128,
    kv_heads=128,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    vocab_size=129280,
    layers=61,
    context_len=163840,
)
_V32 = replace(_V3, name="deepseek-v3.2", index_heads=64, index_head_dim=128, index_topk=2048)
_GLM5 = Geometry(
    name="glm-5",
    hidden_size=6144,
    intermediate_size=12288,
    moe_intermediate_size=2048,
    experts_per_token=8,
    routed_experts=256,
    shared_experts=1,
    heads=64,
    kv_heads=64,
    kv_lora_rank=512,
    q_lora_rank=2048,
    qk_nope_head_dim=192,
    qk_rope_head_dim=64,
    v_head_dim=256,
    index_heads=32,
    index_head_dim=128,
    index_topk=2048,
    vocab_size=154880,
    layers=78,
    context_len=202752,
)
_GLM52 = replace(_GLM5, name="glm-5.2", context_len=1048576, index_topk_freq=4)
_QWEN3 = Geometry(
    name="qwen3-32b",
    hidden_size=5120,
    intermediate_size=25600,
    heads=64,
    kv_heads=8,
    head_dim=128,
    v_head_dim=128,
    vocab_size=151936,
    layers=64,
    context_len=40960,
)
_LLAMA = Geometry(
    name="llama-3.1-8b",
    hidden_size=4096,
    intermediate_size=14336,
    heads=32,
    kv_heads=8,
    head_dim=128,
    v_head_dim=128,
    vocab_size=128256,
    layers=32,
    context_len=131072,
)

PRESETS: dict[str, Preset] = {
    "deepseek-v3": Preset(
        _V3,
        "defaults of transformers configuration_deepseek_v3.py, agreeing with SGLang 0.5.23 forward_mha.py:123-128; "
        "the context length is DeepSeek-V3.2's (unconfirmed: config.json not read)",
    ),
    "deepseek-v3.2": Preset(
        _V32,
        "a stored copy of config.json in a tutorial and a config parser test; head dims agree with SGLang 0.5.23 "
        "forward_mha.py:123-128; routed and shared experts as in DeepSeek-V3",
    ),
    "glm-5": Preset(
        _GLM5,
        "defaults of transformers configuration_glm_moe_dsa.py (checkpoint zai-org/GLM-5), agreeing with a page that "
        "quotes the technical report; routed experts from the same defaults",
    ),
    "glm-5.2": Preset(
        _GLM52,
        "GLM-5 with context 1,048,576 and index_topk_freq 4 (21 of 78 layers score) from two independent test "
        "fixtures; config.json not read (unconfirmed)",
    ),
    "qwen3-32b": Preset(_QWEN3, "stored copies of config.json"),
    "llama-3.1-8b": Preset(
        _LLAMA, "a config print-out in an issue; the vocabulary from another issue (unconfirmed for the vocabulary)"
    ),
}


def preset(name: str) -> Geometry:
    """Return the geometry of a built-in model. Raises InputError that lists the names there are."""
    found = PRESETS.get(name.lower())
    if found is None:
        raise InputError(f"model {name}: not built in; use one of {', '.join(PRESETS)}, or a path to a config.json")
    return found.geometry


def model(name: str) -> Geometry:
    """Return a preset by its name, or else read `name` as a path to a config.json. Raises InputError."""
    if name.lower() in PRESETS:
        return PRESETS[name.lower()].geometry
    if "/" in name or name.endswith(".json") or name.startswith("."):
        return Geometry.from_config_file(name)
    return preset(name)
