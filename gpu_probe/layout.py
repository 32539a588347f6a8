"""A batch as an engine lays it out: which rows stand on which rank, where each request's keys lie.

Written from SGLang 0.5.23 (layers/cp/interleave.py, layers/cp/zigzag.py, layers/cp/padding.py) without looking at the
estimator, which it is compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from estimator.context import RunContext
from estimator.geometry import Geometry
from gpu_probe.errors import ProbeError

# What the measured step knows how to run, by family.
KERNELS = {
    "sparse": ("flashmla_sparse", "flashmla_kv", "trtllm"),
    "latent": ("fa3",),
    "grouped": ("fa3", "triton"),
}


@dataclass(frozen=True)
class Layout:
    """A batch on one rank. Lengths in tokens; `here` are the requests with a row on this rank."""

    prefixes: tuple[int, ...]
    extends: tuple[int, ...]
    rows: int
    padded: int
    longest: int
    here: tuple[int, ...]
    split: bool

    @property
    def contexts(self) -> tuple[int, ...]:
        """Prefix and extend of each request together."""
        return tuple(prefix + extend for prefix, extend in zip(self.prefixes, self.extends, strict=True))

    @property
    def contexts_here(self) -> tuple[int, ...]:
        """The same for the requests on this rank."""
        contexts = self.contexts
        return tuple(contexts[index] for index in self.here)

    @property
    def tokens(self) -> int:
        """Tokens to compute on all ranks together."""
        return sum(self.extends)


def family(geometry: Geometry) -> str:
    """Name the kind of attention: sparse (DSA), latent (MLA) or grouped (GQA)."""
    if geometry.index_topk:
        return "sparse"
    return "latent" if geometry.kv_lora_rank else "grouped"


def check_known(geometry: Geometry, run: RunContext) -> None:
    """Raise ProbeError for a run that the measured step does not know, naming the setting."""
    known = KERNELS[family(geometry)]
    if run.prefill_impl not in known:
        raise ProbeError(
            f"measure: prefill_impl {run.prefill_impl} is not one the step is written for; use {', '.join(known)}"
        )
    experts = "moe_triton" if geometry.moe_intermediate_size else "dense"
    wanted = {
        "mlp.kind": (run.mlp.kind, (experts, "dense")),
        "mlp.tokens": (run.mlp.tokens, (0,)),
        "mlp.dp_tokens": (run.mlp.dp_tokens, (0,)),
        "mlp.full_rows": (run.mlp.full_rows, (False,)),
        "topk_impl": (run.topk_impl, ("sgl",)),
        "shard_size": (run.shard_size, (1,)),
        "draft": (run.draft, (False,)),
        "bs_gt1_l1_prefetch_enabled": (run.bs_gt1_l1_prefetch_enabled, (False,)),
    }
    for name, (value, allowed) in wanted.items():
        if value not in allowed:
            raise ProbeError(f"measure: {name} is {value}, but the step is written for {allowed[0]}; leave it out")


def lay_out(geometry: Geometry, run: RunContext, requests: Sequence[Sequence[int]], rank: int) -> Layout:
    """Place a batch of (prefix, extend) on one rank of the context-parallel group."""
    prefixes, extends = tuple(each[0] for each in requests), tuple(each[1] for each in requests)
    tokens, everyone = sum(extends), tuple(range(len(extends)))
    if run.cp == 1:
        return Layout(prefixes, extends, tokens, tokens, tokens, everyone, split=False)
    if family(geometry) == "sparse":
        here, start = [], 0
        for index, extend in enumerate(extends):
            if any((start + offset) % run.cp == rank for offset in range(min(extend, run.cp))):
                here.append(index)
            start += extend
        longest = len(range(0, tokens, run.cp))
        rows = len(range(rank, tokens, run.cp))
        return Layout(prefixes, extends, rows, _up(longest, run.cp), longest, tuple(here), split=True)
    blocks = 2 * run.cp
    if min(extends) < blocks:
        return Layout(prefixes, extends, tokens, tokens, tokens, everyone, split=False)
    owned = [0] * run.cp
    for extend in extends:
        for block in range(blocks):
            owned[min(block, blocks - 1 - block)] += extend // blocks + (block < extend % blocks)
    longest = max(owned)
    return Layout(prefixes, extends, owned[rank], _up(longest, blocks), longest, everyone, split=True)


def _up(value: int, unit: int) -> int:
    return (value + unit - 1) // unit * unit
