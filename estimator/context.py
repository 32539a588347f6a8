"""What depends on the run and not on the batch: card, kernels, parallel sizes, score budget."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Self

from estimator.errors import InputError, shown
from estimator.geometry import Geometry

KV_DTYPES = ("bf16", "fp8")
LAYOUTS = ("none", "interleave", "zigzag")
MLP_KINDS = ("dense", "moe_triton", "moe_deepgemm", "none")
TOPK_IMPLS = ("sgl", "flashinfer", "torch")
LOADBACK_IO = ("kernel", "direct")
SPARSE_IMPLS = (
    "flashmla_sparse",
    "flashmla_sparse_q8",
    "flashmla_kv",
    "triton_sparse_mla",
    "trtllm",
    "tilelang",
    "fa3",
)
MLA_IMPLS = ("fa3", "fa4", "flashinfer", "flashmla", "trtllm_mla", "triton")
GQA_IMPLS = ("fa3", "fa4", "flashinfer", "trtllm_mha", "triton")

# Largest run of rows for which SGLang projects prompt logprobs at once (environ.py:1512).
LOGPROB_CHUNK_ROWS = 2048
MOST_RANKS = 4096
MOST_SAFETY = 100
MOST = 1 << 50
"""Of every other whole number of a run, in its unit: what is above is a mistake."""
_MOST_DIGITS = 20


@dataclass(frozen=True, slots=True)
class MqaBudget:
    """The byte budget of the score matrix: one fixed figure, or the card's memory by SGLang's rule.

    The rule (mqa_logits_utils.py:44-68) is min(0.3 total, 0.2 total (1 - mem_fraction_static), 0.2 free), where
    `free` is what cudaMemGetInfo said at the first large prefill; the engine then keeps the figure for the life of
    the process.
    """

    fixed_bytes: int | None = 2 * 1024**3
    total_bytes: int | None = None
    free_bytes: int | None = None
    mem_fraction_static: float | None = None
    free_fraction: float = 0.2

    @property
    def bytes(self) -> int:
        """The budget in bytes, at least 1. The float steps are the engine's own, so that the integer is too."""
        if self.fixed_bytes is not None:
            return max(1, self.fixed_bytes)
        total = self.total_bytes or 0
        budget = int(total * 0.3)
        if self.mem_fraction_static is not None:
            slack = int(total * max(0.0, 1.0 - self.mem_fraction_static))
            budget = min(int(slack * self.free_fraction), budget)
        if self.free_bytes is not None:
            budget = min(int(self.free_bytes * self.free_fraction), budget)
        return max(1, budget)


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """How the feed-forward part runs.

    `moe_tp` ranks split each expert's width (0: as `tp`), `ep` ranks split the experts. `tokens` is the least number
    of rows the layer sees, whatever this rank's own rows are (data-parallel attention gathers the rows of all ranks);
    with `full_rows` it sees the whole batch under context parallelism. `dp_tokens` sizes the data-parallel gather.
    """

    kind: str = "dense"
    moe_tp: int = 0
    ep: int = 1
    tokens: int = 0
    full_rows: bool = False
    dp_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run's settings. Sizes in tokens, pages or bytes as named; every rank of a group has the same context.

    `safety_factor` multiplies the peak that the admission gate sees (exact rational arithmetic, rounded up). It stands
    for what no formula here covers: library workspaces, collectives' buffers, fragmentation.
    """

    tp: int = 1
    cp: int = 1
    cp_strategy: str = "none"
    page_size: int = 64
    kv_dtype: str = "bf16"
    prefill_impl: str = "fa3"
    sm_major: int = 9
    mqa_budget: MqaBudget = field(default_factory=MqaBudget)
    mlp: MlpSpec = field(default_factory=MlpSpec)
    topk_impl: str = "sgl"
    overlap_schedule: bool = True
    logprob_rows: int = 0
    logprob_chunk: int | None = LOGPROB_CHUNK_ROWS
    shard_size: int = 1
    chunked_prefill_size: int = 8192
    pool_tokens: int = 0
    context_len: int = 0
    draft: bool = False
    pd_transfer: bool = False
    loadback_io: str = "kernel"
    dense_capacity: int = 131072
    dense_context: int = 2048
    chunked_prefix_threshold: int = 8192
    bs_gt1_l1_prefetch_enabled: bool = False
    safety_factor: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range, or two that do not fit together."""
        for name in ("tp", "cp", "shard_size"):
            _between(name, getattr(self, name), 1, MOST_RANKS)
        for name in ("page_size", "sm_major", "chunked_prefill_size", "dense_capacity"):
            _at_least(name, getattr(self, name), 1)
        for name in ("logprob_rows", "pool_tokens", "context_len", "dense_context", "chunked_prefix_threshold"):
            _at_least(name, getattr(self, name), 0)
        if self.logprob_chunk is not None:
            _at_least("logprob_chunk", self.logprob_chunk, 1)
        _one_of("kv_dtype", self.kv_dtype, KV_DTYPES)
        _one_of("cp_strategy", self.cp_strategy, LAYOUTS)
        _one_of("topk_impl", self.topk_impl, TOPK_IMPLS)
        _one_of("loadback_io", self.loadback_io, LOADBACK_IO)
        _one_of("mlp.kind", self.mlp.kind, MLP_KINDS)
        _at_least("mlp.ep", self.mlp.ep, 1)
        for name in ("moe_tp", "tokens", "dp_tokens"):
            _at_least(f"mlp.{name}", getattr(self.mlp, name), 0)
        if (self.cp > 1) != (self.cp_strategy != "none"):
            raise InputError(
                f"run: cp is {self.cp} with cp_strategy {self.cp_strategy}; give interleave or zigzag if cp > 1"
            )
        if not 1 <= self.safety_factor <= MOST_SAFETY:
            raise InputError(
                f"run: safety_factor is {float(self.safety_factor):g}, but must be at least 1 and at most "
                f"{MOST_SAFETY}; the estimate is never to be below the buffers it lists"
            )

    @property
    def kv_bytes(self) -> int:
        """Bytes of one KV element: 2 for bf16, 1 for fp8."""
        return 1 if self.kv_dtype == "fp8" else 2

    @property
    def sharded(self) -> bool:
        """Whether the KV pool is page-interleaved across ranks."""
        return self.shard_size > 1

    @classmethod
    def default_for(cls, geometry: Geometry, **overrides: Any) -> Self:
        """Return the engine's defaults for a model: its prefill kernel by KV dtype and card, its kind of MLP."""
        base = cls(
            mlp=MlpSpec(kind="moe_triton" if geometry.moe_intermediate_size else "dense"),
            prefill_impl="",
        )
        cp, strategy = overrides.get("cp", 1), overrides.get("cp_strategy", "none")
        if cp > 1 and strategy == "none":
            overrides = {**overrides, "cp_strategy": "interleave" if geometry.is_sparse else "zigzag"}
        merged = replace(base, **overrides)
        if not merged.prefill_impl:
            merged = replace(merged, prefill_impl=default_prefill_impl(geometry, merged.kv_dtype, merged.sm_major))
        merged.check_against(geometry)
        return merged

    def check_against(self, geometry: Geometry) -> None:
        """Raise InputError where this run cannot serve that model, naming the setting and what it may be."""
        impls = SPARSE_IMPLS if geometry.is_sparse else MLA_IMPLS if geometry.is_mla else GQA_IMPLS
        if self.prefill_impl not in impls:
            raise InputError(
                f"run: prefill_impl is {self.prefill_impl!r}, but {geometry.name} takes one of {', '.join(impls)}"
            )
        if geometry.heads % self.tp:
            raise InputError(f"run: tp is {self.tp}, but must divide the {geometry.heads} heads of {geometry.name}")
        if geometry.is_sparse and self.cp_strategy == "zigzag":
            raise InputError(f"run: cp_strategy is zigzag, but {geometry.name} has a sparse indexer; use interleave")
        if not geometry.is_sparse and self.cp_strategy == "interleave":
            raise InputError(f"run: cp_strategy is interleave, but {geometry.name} has no sparse indexer; use zigzag")
        if self.mlp.kind.startswith("moe") and not geometry.moe_intermediate_size:
            raise InputError(f"run: mlp.kind is {self.mlp.kind}, but {geometry.name} has no experts; use dense")

    @classmethod
    def check_keys(cls, run: Mapping[str, Any]) -> None:
        """Raise InputError that names every key of a `run` object that is not known."""
        _reject_unknown("run", run, {item.name for item in fields(cls)})

    @classmethod
    def from_run(cls, run: Mapping[str, Any], geometry: Geometry) -> Self:
        """Read the `run` object of a case. What is left out has the engine's default for that model.

        Raises InputError that names every key it does not know, or the key whose value has the wrong kind.
        """
        cls.check_keys(run)
        values: dict[str, Any] = {}
        for key, value in run.items():
            if key == "mqa_budget":
                values[key] = _read_budget(value)
            elif key == "mlp":
                values[key] = _read_mlp(value)
            elif key == "safety_factor":
                values[key] = read_factor(value)
            elif key == "logprob_chunk" and value is None:
                values[key] = None
            else:
                values[key] = _typed(f"run: {key}", value, _KINDS[key])
        return cls.default_for(geometry, **values)

    def as_run(self) -> dict[str, Any]:
        """Return the context as a `run` object that `from_run` reads back; it is recorded with an estimate."""
        run: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        run["mqa_budget"] = {
            item.name: value
            for item in fields(self.mqa_budget)
            if (value := getattr(self.mqa_budget, item.name)) is not None
        }
        run["mlp"] = {item.name: getattr(self.mlp, item.name) for item in fields(self.mlp)}
        run["safety_factor"] = str(self.safety_factor)
        return run


_READ_AS: dict[Any, type] = {int: int, int | None: int, bool: bool, str: str}
_KINDS: dict[str, type] = {
    item.name: kind for item in fields(RunContext) if (kind := _READ_AS.get(item.type)) is not None
}


def default_prefill_impl(geometry: Geometry, kv_dtype: str, sm_major: int) -> str:
    """Name the prefill kernel SGLang 0.5.23 picks by itself (arg_groups/overrides.py:532-536,714-726)."""
    blackwell = sm_major >= 10
    if geometry.is_sparse:
        if kv_dtype == "bf16":
            return "flashmla_sparse"
        return "trtllm" if blackwell else "flashmla_kv"
    if geometry.is_mla:
        return "trtllm_mla" if blackwell else "fa3"
    return "trtllm_mha" if blackwell else "fa3"


def read_factor(value: Any) -> Fraction:
    """Read a factor such as 1.1, "1.1" or "11/10" exactly. Raises InputError when it is not one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction)):
        raise InputError(f"run: safety_factor is {shown(value)}, but must be a number such as 1.1")
    text = str(value)
    # An exponent may stand for more digits than memory holds.
    if len(text) > _MOST_DIGITS or "e" in text.lower():
        raise InputError(f"run: safety_factor is {text[:_MOST_DIGITS]!r}, but must be a number such as 1.1")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"run: safety_factor is {shown(value)}, but must be a number such as 1.1") from error


def _reject_unknown(where: str, given: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise InputError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")


def _typed(where: str, value: Any, kind: type) -> Any:
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is not int and isinstance(value, kind):
        return value
    word = {int: "a whole number", bool: "true or false", str: "a word"}[kind]
    raise InputError(f"{where} is {shown(value)}, but must be {word}")


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where} is {shown(value)}, but must be an object")
    return value


def _read_budget(value: Any) -> MqaBudget:
    given = _object("run: mqa_budget", value)
    _reject_unknown("run: mqa_budget", given, {item.name for item in fields(MqaBudget)})
    for key in given:
        if key.endswith("_bytes"):
            _at_least(f"mqa_budget.{key}", _typed(f"run: mqa_budget.{key}", given[key], int), 0)
    if "fixed_bytes" in given:
        return MqaBudget(fixed_bytes=given["fixed_bytes"])
    if "total_bytes" not in given:
        raise InputError("run: mqa_budget needs fixed_bytes, or total_bytes with mem_fraction_static and free_bytes")
    values: dict[str, Any] = {"fixed_bytes": None}
    for key, item in given.items():
        if key.endswith("_bytes"):
            values[key] = item
        elif isinstance(item, bool) or not isinstance(item, (int, float)) or not 0 <= item <= 1:
            raise InputError(f"run: mqa_budget.{key} is {shown(item)}, but must be between 0 and 1")
        else:
            values[key] = float(item)
    return MqaBudget(**values)


def _read_mlp(value: Any) -> MlpSpec:
    given = _object("run: mlp", value)
    _reject_unknown("run: mlp", given, {item.name for item in fields(MlpSpec)})
    kinds = {"kind": str, "full_rows": bool}
    return MlpSpec(**{key: _typed(f"run: mlp.{key}", item, kinds.get(key, int)) for key, item in given.items()})


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InputError(f"run: {name} is {shown(value)}, but must be at least {least}")
    if value > MOST:
        raise InputError(f"run: {name} is {shown(value)}, but must be at most {MOST}")


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(f"run: {name} is {shown(value)}, but must be at least {least} and at most {most}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"run: {name} is {shown(value)}, but must be one of {', '.join(allowed)}")
