"""The shape of a model, as far as temporary buffers depend on it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from estimator.errors import InputError, shown
from estimator.given_file import read_given_json

# config.json key -> Geometry field. A key with several spellings has several rows.
_KEYS: dict[str, str] = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "moe_intermediate_size": "moe_intermediate_size",
    "num_experts_per_tok": "experts_per_token",
    "n_routed_experts": "routed_experts",
    "num_experts": "routed_experts",
    "num_local_experts": "routed_experts",
    "n_shared_experts": "shared_experts",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "kv_lora_rank": "kv_lora_rank",
    "q_lora_rank": "q_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
    "index_n_heads": "index_heads",
    "index_head_dim": "index_head_dim",
    "index_topk": "index_topk",
    "index_topk_freq": "index_topk_freq",
    "vocab_size": "vocab_size",
    "num_hidden_layers": "layers",
    "max_position_embeddings": "context_len",
}

MOST_DIMENSION = 1 << 31
"""No model has more of anything; a sum of such is a number that can be told."""

_COMMON = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
_COMMON_LATE = ("num_hidden_layers", "max_position_embeddings")
_GQA = ("num_key_value_heads",)
_MLA = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_INDEXER = ("index_n_heads", "index_head_dim", "index_topk")

# Keys of the supported families' config.json files that change no temporary buffer listed here.
# fmt: off
_NO_EFFECT = frozenset((
    "architectures", "attention_bias", "attention_dropout", "attention_type", "auto_map", "aux_loss_alpha",
    "bos_token_id", "decoder_sparse_step", "dtype", "eos_token_id", "ep_size", "first_k_dense_replace",
    "hidden_act", "index_skip_topk_offset", "index_topk_pattern", "indexer_rope_interleave", "indexer_types",
    "initializer_range", "layer_types", "max_window_layers", "mlp_bias", "mlp_layer_types", "mlp_only_layers",
    "model_type", "moe_layer_freq", "n_group", "norm_topk_prob", "num_mtp_layers",
    "num_nextn_predict_layers",
    "output_router_logits", "pad_token_id", "partial_rotary_factor", "pretraining_tp", "qk_head_dim",
    "quantization_config", "rms_norm_eps", "rope_interleave", "rope_parameters", "rope_scaling", "rope_theta",
    "routed_scaling_factor", "router_aux_loss_coef", "scoring_func", "seq_aux", "sliding_window",
    "tie_word_embeddings", "topk_group", "topk_method", "torch_dtype", "transformers_version", "use_cache",
    "use_qk_norm", "use_sliding_window",
))
# fmt: on

KNOWN_KEYS = frozenset(_KEYS) | _NO_EFFECT
"""Every key of a config.json that is read, or known to change no buffer."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Dimensions of a model: counts and widths in elements, `context_len` in tokens.

    A zero means that the model has no such part: `kv_lora_rank` 0 is plain grouped-query attention,
    `index_topk` 0 has no sparse-attention indexer, `moe_intermediate_size` 0 has no experts.
    """

    name: str
    hidden_size: int
    intermediate_size: int
    heads: int
    vocab_size: int
    layers: int
    context_len: int
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    index_topk_freq: int = 1
    moe_intermediate_size: int = 0
    experts_per_token: int = 0
    routed_experts: int = 0
    shared_experts: int = 0

    def __post_init__(self) -> None:
        """Raise InputError for a dimension that cannot be one."""
        needed = {"hidden_size", "intermediate_size", "heads", "vocab_size", "layers", "context_len", "index_topk_freq"}
        if self.kv_lora_rank:
            needed |= {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}
        else:
            needed |= {"kv_heads", "head_dim", "v_head_dim"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "name":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"model {self.name}: {field.name} is {shown(value)}, but must be a whole number")
            least = 1 if field.name in needed else 0
            if not least <= value <= MOST_DIMENSION:
                raise InputError(
                    f"model {self.name}: {field.name} is {shown(value)}, but must be from {least} to {MOST_DIMENSION}"
                )
        if self.is_sparse and not self.is_mla:
            raise InputError(
                f"model {self.name}: index_topk {self.index_topk} needs kv_lora_rank; give both or neither"
            )
        if self.is_sparse and self.index_heads not in {8, 16, 32, 64, 128}:
            raise InputError(f"model {self.name}: index_heads is {self.index_heads}, but must be 8, 16, 32, 64 or 128")

    @property
    def is_mla(self) -> bool:
        """Whether keys and values are kept as one latent row a token."""
        return self.kv_lora_rank > 0

    @property
    def is_sparse(self) -> bool:
        """Whether an indexer picks the top-k keys for each row (DeepSeek sparse attention)."""
        return self.index_topk > 0

    @property
    def latent_dim(self) -> int:
        """Width of a latent KV row in elements: kv_lora_rank + qk_rope_head_dim."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, name: str = "model", ignore: Collection[str] = ()) -> Self:
        """Read a Hugging Face config. Keys in `ignore` are passed over.

        Raises InputError that names the first missing key, or every key it does not know.
        """
        unknown = sorted(
            key
            for key in config
            if key not in _KEYS and key not in _NO_EFFECT and key not in ignore and not key.startswith("_")
        )
        if unknown:
            raise InputError(
                f"model {name}: unknown key {', '.join(unknown)}; "
                "remove it if it changes no buffer, or use a family this release knows"
            )
        mla = config.get("kv_lora_rank") is not None
        sparse = any(config.get(key) is not None for key in _INDEXER)
        required = (*_COMMON, *(_MLA if mla or sparse else _GQA), *(_INDEXER if sparse else ()), *_COMMON_LATE)
        for key in required:
            # DeepSeek-V2-Lite style models have no query LoRA and say so with null.
            if key not in config or (config[key] is None and key != "q_lora_rank"):
                raise InputError(f"model {name}: key {key} is missing; add it from the model's config.json")
        if config.get("moe_intermediate_size"):
            if not config.get("num_experts_per_tok"):
                raise InputError(f"model {name}: key num_experts_per_tok is missing beside moe_intermediate_size")
            if not any(config.get(key) for key, field in _KEYS.items() if field == "routed_experts"):
                raise InputError(f"model {name}: key n_routed_experts is missing beside moe_intermediate_size")
        values = {
            field: config[key] for key, field in _KEYS.items() if config.get(key) is not None and key not in ignore
        }
        if not (mla or sparse):
            heads, hidden = config["num_attention_heads"], config["hidden_size"]
            if "head_dim" not in values and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
                values["head_dim"] = hidden // heads
            values.setdefault("v_head_dim", values.get("head_dim", 0))
        return cls(name=name, **values)

    @classmethod
    def from_config_file(cls, path: str | Path) -> Self:
        """Read `config.json`, or a folder that holds one. Raises InputError when it cannot be read as such."""
        file = Path(path)
        try:
            if file.is_dir():
                file = file / "config.json"
            config = read_given_json(file)
        except (OSError, ValueError, InputError) as error:
            raise InputError(f"model {path}: {error}; give a preset's name or a Hugging Face config.json") from None
        if not isinstance(config, dict):
            raise InputError(f"model {path}: holds {type(config).__name__}, but must be a JSON object")
        return cls.from_config(config, name=file.parent.name or file.stem)
