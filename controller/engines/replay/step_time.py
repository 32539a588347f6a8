"""How long a forward pass takes in simulated time: a roofline model from public figures, not a measurement."""

from dataclasses import dataclass, fields
from functools import cache
from math import isqrt
from typing import Final

from estimator.errors import UsageError

FS_PER_NS: Final = 1_000_000
_FS_PER_S: Final = 1_000_000_000_000_000

LOAD_LATENCY_NS: Final = 100_000
"""Taken for starting one host load, in ns; an assumption."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one device can do at its peak, by NVIDIA's data sheet for it.

    Dense FLOP/s (half of what the sheet states with sparsity) and bytes/s; `host_bytes_per_s` is PCIe in one direction
    (half of what the sheet states for both).
    """

    name: str
    bf16_flops_per_s: int
    fp8_flops_per_s: int
    memory_bytes_per_s: int
    host_bytes_per_s: int


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """What one token costs a model, summed over its layers.

    A parameter costs 2 FLOP a token. `active_params` are those of the layers that one token passes through, without
    embedding and output head; `expert_params` are those of all routed experts, `resident_params` all others but the
    embedding. `head_params` belong to the output head, which runs for the last token of each member. An attention pair
    is one query with one key it may see: each costs `pair_flops`, and `selected_pair_flops` if it is among the
    `selected_keys` a query attends to (0: no pair is singled out). `kv_bytes` is the cache of one token, of which
    decoding reads `scan_bytes` for each token of context and the rest for selected keys only.
    """

    name: str
    weight_bytes: int
    active_params: int
    resident_params: int
    expert_params: int
    experts: int
    experts_per_token: int
    head_params: int
    pair_flops: int
    selected_pair_flops: int
    selected_keys: int
    kv_bytes: int
    scan_bytes: int


def dense_costs(
    name: str, *, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int, vocabulary: int
) -> ModelCosts:
    """Return the costs of a grouped-query-attention transformer in bf16 with a gated feed-forward layer.

    Per layer: q and o projections 2 * hidden * heads * head_dim, k and v 2 * hidden * kv_heads * head_dim, feed-forward
    3 * hidden * ffn parameters. A pair costs 4 * heads * head_dim FLOP (scores and weighted values); a token's cache
    is 2 * kv_heads * head_dim * 2 bytes.
    """
    params = layers * (2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * ffn)
    kv_bytes = layers * 2 * kv_heads * head_dim * 2
    return ModelCosts(
        name=name,
        weight_bytes=2,
        active_params=params,
        resident_params=params + hidden * vocabulary,
        expert_params=0,
        experts=0,
        experts_per_token=0,
        head_params=hidden * vocabulary,
        pair_flops=layers * 4 * heads * head_dim,
        selected_pair_flops=0,
        selected_keys=0,
        kv_bytes=kv_bytes,
        scan_bytes=kv_bytes,
    )


def deepseek_v32_costs() -> ModelCosts:
    """Return the costs of DeepSeek-V3.2 with fp8 weights and fp8 cache.

    Shapes are those of its public config.json; they add up to the 671 G parameters, 37 G active, it is
    known by. A token's cache per layer is 656 bytes (512 fp8, four fp32 scales, 64 bf16 rotary values; FlashMLA's
    documented layout) and 132 bytes of indexer key (128 fp8 and one fp32 scale). The
    indexer scores every pair with 64 heads of 128; attention itself, in its absorbed form with 576 dimensions of key
    and 512 of value for each of 128 heads, runs on the 2,048 keys the indexer selects.
    """
    layers, dense_layers, hidden, heads, vocabulary = 61, 3, 7168, 128, 129_280
    q_rank, kv_rank, rope, nope, value = 1536, 512, 64, 128, 128
    index_heads, index_dim, selected = 64, 128, 2048
    experts, experts_per_token, expert_ffn, dense_ffn = 256, 8, 2048, 18_432
    attention = (
        hidden * q_rank
        + q_rank * heads * (nope + rope)
        + hidden * (kv_rank + rope)
        + kv_rank * heads * (nope + value)
        + heads * value * hidden
    )
    indexer = q_rank * index_heads * index_dim + hidden * (index_dim + index_heads)
    expert = 3 * hidden * expert_ffn
    moe_layers = layers - dense_layers
    shared = layers * (attention + indexer)
    shared += moe_layers * (expert + hidden * experts) + dense_layers * 3 * hidden * dense_ffn
    return ModelCosts(
        name="DeepSeek-V3.2",
        weight_bytes=1,
        active_params=shared + moe_layers * experts_per_token * expert,
        resident_params=shared + hidden * vocabulary,
        expert_params=moe_layers * experts * expert,
        experts=experts,
        experts_per_token=experts_per_token,
        head_params=hidden * vocabulary,
        pair_flops=layers * 2 * index_heads * index_dim,
        selected_pair_flops=layers * 2 * heads * (2 * kv_rank + rope),
        selected_keys=selected,
        kv_bytes=layers * (656 + 132),
        scan_bytes=layers * 132,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeModel:
    """Simulated durations in whole ns, from integer costs in fs (10^-15 s); a pure function of its arguments.

    prefill = `prefill_overhead_ns` + max(weights read, extend * `token_fs`) + members * `head_fs` + cached *
    `prefix_fs` + max(pairs * `pair_fs` + min(pairs, extend * `selected_keys`) * `selected_pair_fs`, cached *
    `scan_fs`).
    decode = `decode_overhead_ns` + max(weights read, members * `decode_token_fs`) + context * `scan_fs` + min(context,
    members * `selected_keys`) * `selected_fs`.
    Weights read = `resident_fs` + `expert_fs` * the expected part of the experts that the step's tokens route to, if
    each token picks `experts_per_token` of `experts` at random.
    A host load takes `load_latency_ns` + tokens * `load_token_fs`. Each minimum is taken over the batch as a whole, so
    where short and long members share a step it is an upper bound. A cost below 0, or a decode step that takes no time,
    is a `UsageError`.
    """

    name: str
    basis: str
    prefill_overhead_ns: int = 0
    decode_overhead_ns: int
    token_fs: int
    decode_token_fs: int = 0
    head_fs: int = 0
    prefix_fs: int = 0
    pair_fs: int = 0
    selected_pair_fs: int = 0
    selected_keys: int = 0
    resident_fs: int = 0
    expert_fs: int = 0
    experts: int = 0
    experts_per_token: int = 0
    scan_fs: int = 0
    selected_fs: int = 0
    load_latency_ns: int = 0
    load_token_fs: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and value < (1 if field.name == "decode_overhead_ns" else 0):
                raise UsageError(
                    f"step-time model {self.name}: {field.name} is {value}; give a cost that is not below 0"
                )

    def prefill_ns(self, extend_tokens: int, cached_tokens: int, batch_size: int, attention_pairs: int) -> int:
        """Return the ns of a prefill step that computes `extend_tokens` for `batch_size` members, at least 1.

        `attention_pairs` is the sum over members of `causal_pairs(extend, cached)`; it makes the step quadratic in
        length. `cached_tokens` is the sum of the prefixes reused, whose cache is read once.
        """
        products = extend_tokens * self.token_fs
        weights = self._weights_fs(extend_tokens)
        attention = attention_pairs * self.pair_fs
        if self.selected_keys:
            attention += min(attention_pairs, extend_tokens * self.selected_keys) * self.selected_pair_fs
        reading = cached_tokens * self.scan_fs
        each = batch_size * self.head_fs + cached_tokens * self.prefix_fs
        total = max(products, weights) + each + max(attention, reading)
        return (self.prefill_overhead_ns + total // FS_PER_NS) or 1

    def decode_ns(self, batch_size: int, context_tokens: int) -> int:
        """Return the ns of one decode step: each of `batch_size` members gets a token.

        `context_tokens` is the sum over members of the tokens their next token attends to.
        """
        return self.decode_span_ns(batch_size, context_tokens, 1)

    def decode_span_ns(self, batch_size: int, context_tokens: int, steps: int) -> int:
        """Return the ns of `steps` decode steps in a row, the context growing by `batch_size` after each.

        The sum is exact in fs and rounded down to ns once, so it is less than `steps` ns above the sum of the single
        steps, each rounded down; cutting a span in two loses less than 1 ns.
        """
        return self.decode_span_fs(batch_size, context_tokens, steps) // FS_PER_NS

    def decode_span_fs(self, batch_size: int, context_tokens: int, steps: int) -> int:
        """Return the exact fs of `steps` decode steps; spans that follow one another add up exactly."""
        growing, first_fs, growth_fs, later_fs, later_growth_fs = self._decode_phases(batch_size, context_tokens)
        if steps <= growing:
            return steps * first_fs + growth_fs * (steps * (steps - 1) // 2)
        rest = steps - growing
        return (
            growing * first_fs
            + growth_fs * (growing * (growing - 1) // 2)
            + rest * later_fs
            + later_growth_fs * (rest * (rest - 1) // 2)
        )

    def decode_steps_within(self, batch_size: int, context_tokens: int, ns: int) -> int:
        """Return how many whole decode steps fit into `ns`: the largest n with `decode_span_ns(..., n)` <= `ns`."""
        if ns < 0:
            return 0
        growing, first_fs, growth_fs, later_fs, later_growth_fs = self._decode_phases(batch_size, context_tokens)
        budget = ns * FS_PER_NS + FS_PER_NS - 1
        if growing:
            whole = growing * first_fs + growth_fs * (growing * (growing - 1) // 2)
            if whole > budget:
                return _steps_for(budget, first_fs, growth_fs)
            budget -= whole
        return growing + _steps_for(budget, later_fs, later_growth_fs)

    def transfer_ns(self, tokens: int) -> int:
        """Return the ns to load `tokens` tokens of cache from the host, 0 for none."""
        return self.load_latency_ns + tokens * self.load_token_fs // FS_PER_NS if tokens else 0

    def _decode_phases(self, batch_size: int, context_tokens: int) -> tuple[int, int, int, int, int]:
        """Return the steps in which selected keys still grow, then first cost and growth in fs of both phases."""
        products = max(batch_size * self.decode_token_fs, self._weights_fs(batch_size))
        fixed = self.decode_overhead_ns * FS_PER_NS + products
        scan_growth = batch_size * self.scan_fs
        ceiling = batch_size * self.selected_keys
        first = fixed + context_tokens * self.scan_fs
        if context_tokens >= ceiling:
            return 0, 0, 0, first + ceiling * self.selected_fs, scan_growth
        growing = -(-(ceiling - context_tokens) // batch_size)
        return (
            growing,
            first + context_tokens * self.selected_fs,
            scan_growth + batch_size * self.selected_fs,
            first + growing * scan_growth + ceiling * self.selected_fs,
            scan_growth,
        )

    def _weights_fs(self, tokens: int) -> int:
        experts = self.experts
        if tokens * self.experts_per_token >= 8 * experts:
            # Here at most one expert in 3,000 is left unread, or there are none.
            return self.resident_fs + self.expert_fs
        return self.resident_fs + _routed_fs(self.expert_fs, experts, self.experts_per_token, tokens)


@cache
def _routed_fs(expert_fs: int, experts: int, experts_per_token: int, tokens: int) -> int:
    """Return the fs to read the experts that some of so few tokens route to, exact: powers that grow with them."""
    every: int = experts**tokens
    read: int = every - (experts - experts_per_token) ** tokens
    return expert_fs * read // every


def _steps_for(budget: int, first: int, growth: int) -> int:
    """Return the largest n with n * first + growth * n * (n - 1) / 2 <= budget; `first` is above 0."""
    if not growth:
        return budget // first
    linear = 2 * first - growth
    return (isqrt(linear * linear + 8 * growth * budget) - linear) // (2 * growth)


def causal_pairs(extend_tokens: int, cached_tokens: int) -> int:
    """Return the causal query-key pairs of one member: extend * cached + extend * (extend + 1) / 2."""
    return extend_tokens * cached_tokens + extend_tokens * (extend_tokens + 1) // 2


def roofline(
    name: str,
    hardware: Hardware,
    costs: ModelCosts,
    *,
    devices: int,
    compute_percent: int,
    memory_percent: int,
    prefill_overhead_ns: int,
    decode_overhead_ns: int,
) -> StepTimeModel:
    """Derive a model from peaks and costs; `devices` share all work, weights and cache evenly.

    Matrix products run at the weights' precision, attention at bf16, an indexer at fp8, each at `compute_percent` of
    peak; weights, cache and host link move at `memory_percent`. Communication between devices is not modelled, other
    than by a lower percentage.
    """

    def compute_fs(flops: int, peak: int) -> int:
        return -(-flops * _FS_PER_S * 100 // (peak * devices * compute_percent))

    def move_fs(amount: int, peak: int) -> int:
        return -(-amount * _FS_PER_S * 100 // (peak * devices * memory_percent))

    bf16, fp8 = hardware.bf16_flops_per_s, hardware.fp8_flops_per_s
    product_peak = fp8 if costs.weight_bytes == 1 else bf16
    pair_fs = compute_fs(costs.pair_flops, fp8 if costs.selected_keys else bf16)
    selected_pair_fs = compute_fs(costs.selected_pair_flops, bf16)
    scan_read = move_fs(costs.scan_bytes, hardware.memory_bytes_per_s)
    selected_read = move_fs(costs.kv_bytes - costs.scan_bytes, hardware.memory_bytes_per_s)
    return StepTimeModel(
        name=name,
        basis=(
            f"{costs.name} on {devices} x {hardware.name}, modelled at {compute_percent} % of peak compute and"
            f" {memory_percent} % of peak bandwidth; not measured"
        ),
        prefill_overhead_ns=prefill_overhead_ns,
        decode_overhead_ns=decode_overhead_ns,
        token_fs=compute_fs(2 * costs.active_params, product_peak),
        decode_token_fs=compute_fs(2 * (costs.active_params + costs.head_params), product_peak),
        head_fs=compute_fs(2 * costs.head_params, product_peak),
        pair_fs=pair_fs,
        selected_pair_fs=selected_pair_fs,
        selected_keys=costs.selected_keys,
        resident_fs=move_fs(costs.resident_params * costs.weight_bytes, hardware.memory_bytes_per_s),
        expert_fs=move_fs(costs.expert_params * costs.weight_bytes, hardware.memory_bytes_per_s),
        experts=costs.experts,
        experts_per_token=costs.experts_per_token,
        scan_fs=max(pair_fs, scan_read),
        selected_fs=max(selected_pair_fs, selected_read),
        load_latency_ns=LOAD_LATENCY_NS,
        load_token_fs=move_fs(costs.kv_bytes, hardware.host_bytes_per_s),
    )


_TERA: Final = 10**12
_GIGA: Final = 10**9

H200: Final = Hardware("H200 SXM", 989 * _TERA, 1979 * _TERA, 4800 * _GIGA, 64 * _GIGA)
H100: Final = Hardware("H100 SXM", 989 * _TERA, 1979 * _TERA, 3350 * _GIGA, 64 * _GIGA)
L4: Final = Hardware("L4", 121 * _TERA, 242 * _TERA, 300 * _GIGA, 32 * _GIGA)

LLAMA_8B: Final = dense_costs(
    "Llama-3.1-8B", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14_336, vocabulary=128_256
)
DEEPSEEK_V32: Final = deepseek_v32_costs()

PRESETS: Final[dict[str, StepTimeModel]] = {
    "h200-dsv3.2-cp8": roofline(
        "h200-dsv3.2-cp8",
        H200,
        DEEPSEEK_V32,
        devices=8,
        compute_percent=40,
        memory_percent=70,
        prefill_overhead_ns=5_000_000,
        decode_overhead_ns=5_000_000,
    ),
    "h100-llama-8b": roofline(
        "h100-llama-8b",
        H100,
        LLAMA_8B,
        devices=1,
        compute_percent=50,
        memory_percent=70,
        prefill_overhead_ns=2_000_000,
        decode_overhead_ns=1_000_000,
    ),
    "l4-llama-8b": roofline(
        "l4-llama-8b",
        L4,
        LLAMA_8B,
        devices=1,
        compute_percent=50,
        memory_percent=70,
        prefill_overhead_ns=2_000_000,
        decode_overhead_ns=1_000_000,
    ),
}
"""The step-time presets by name; overheads stand for kernel launches and scheduling, and are assumptions."""

DEFAULT_PRESET: Final = "h200-dsv3.2-cp8"

PLAIN_DECODE_NS: Final = 20_000_000
"""One decode step of the plain model, whatever the batch, in ns."""


def step_time_model(preset: str = DEFAULT_PRESET, *, prefill_tokens_per_second: int | None = None) -> StepTimeModel:
    """Return a preset by name or, where a rate is given, the plain model of that rate.

    The plain model prefills at one rate, whatever the context; a decode step takes `PLAIN_DECODE_NS`, whatever the
    batch; a host load takes no time. Raises `UsageError` for an unknown name or a rate outside 1 to 10^9.
    """
    if prefill_tokens_per_second is None:
        if preset not in PRESETS:
            raise UsageError(f"step-time model: {preset!a} is not one of {', '.join(PRESETS)}; name one of them")
        return PRESETS[preset]
    rate = prefill_tokens_per_second
    if not 1 <= rate <= 10**9:
        raise UsageError(f"prefill tokens per second: {rate} is not a whole number from 1 to {10**9}; give one that is")
    return StepTimeModel(
        name="plain",
        basis=f"{rate} prefill tokens per second and {PLAIN_DECODE_NS} ns a decode step, as given",
        decode_overhead_ns=PLAIN_DECODE_NS,
        token_fs=_FS_PER_S // rate,
    )
