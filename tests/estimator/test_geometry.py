"""Reading a model's shape."""

import json

import pytest

from estimator.errors import InputError
from estimator.geometry import Geometry
from estimator.presets import PRESETS, model, preset

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_scaling": None,
}
LATENT = LLAMA | {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def test_head_dim_defaults_to_hidden_over_heads():
    """Where a config gives no head_dim it is hidden_size over heads, for keys and values alike."""
    geometry = Geometry.from_config(LLAMA, name="llama-3.1-8b")
    assert (geometry.head_dim, geometry.v_head_dim) == (128, 128)
    assert geometry == preset("llama-3.1-8b")


def test_latent_model_without_query_lora():
    """A null q_lora_rank means that the model has none; it is not a missing key."""
    geometry = Geometry.from_config(LATENT)
    assert geometry.is_mla
    assert not geometry.is_sparse
    assert (geometry.q_lora_rank, geometry.latent_dim) == (0, 576)


@pytest.mark.parametrize("key", [key for key in LLAMA if key not in {"architectures", "rope_scaling"}])
def test_missing_key_is_named(key):
    """Leaving out a key that a size depends on is an error that names it."""
    config = {name: value for name, value in LLAMA.items() if name != key}
    with pytest.raises(InputError, match=rf"key {key} is missing"):
        Geometry.from_config(config)


@pytest.mark.parametrize("key", ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"])
def test_missing_latent_key_is_named(key):
    """A sparse model without one of MLA's dimensions is an error that names it."""
    sparse = LATENT | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}
    with pytest.raises(InputError, match=rf"key {key} is missing"):
        Geometry.from_config({name: value for name, value in sparse.items() if name != key})


def test_unknown_keys_are_named_together():
    """Keys this release does not know are all named, and may be passed over on request."""
    config = LLAMA | {"mamba_state": 4, "another": 1, "_comment": "kept out of it"}
    with pytest.raises(InputError, match=r"unknown key another, mamba_state"):
        Geometry.from_config(config)
    assert Geometry.from_config(config, ignore={"another", "mamba_state"}).heads == 32


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_attention_heads": "many"}, "heads"),
        ({"num_key_value_heads": True}, "kv_heads"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"moe_intermediate_size": 2048}, "num_experts_per_tok"),
        ({"moe_intermediate_size": 2048, "num_experts_per_tok": 8}, "n_routed_experts"),
        ({"num_key_value_heads": 0}, "kv_heads"),
    ],
)
def test_impossible_value_is_named(change, word):
    """A dimension that cannot be one is an error that names it, never a traceback."""
    with pytest.raises(InputError, match=word):
        Geometry.from_config(LLAMA | change)


def test_config_file_and_folder(tmp_path):
    """A path to a config.json, or to the folder that holds it, gives the same geometry."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert model(str(tmp_path / "config.json")) == model(f"{tmp_path}/")
    assert model(str(tmp_path / "config.json")).name == tmp_path.name


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "\x00"])
def test_file_that_is_no_config(tmp_path, text):
    """A file that is not a JSON object is an error that names the file."""
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json"):
        model(str(file))


def test_bytes_that_are_no_text(tmp_path):
    """A file that is not text is an error, not a traceback."""
    file = tmp_path / "config.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not JSON"):
        model(str(file))


def test_unknown_preset_lists_the_known():
    """A name that is no preset is an error that lists the presets."""
    with pytest.raises(InputError, match=r"not built in; use one of deepseek-v3, .*llama-3\.1-8b"):
        model("gpt-2")
    with pytest.raises(InputError, match="No such file"):
        model("./nowhere/config.json")


def test_every_preset_says_where_its_numbers_come_from():
    """Each built-in model has a source and is found under its own name."""
    for name, entry in PRESETS.items():
        assert entry.source
        assert entry.geometry.name == name
        assert preset(name.upper()) is entry.geometry
