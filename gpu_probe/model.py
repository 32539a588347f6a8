"""Weights of one layer and the pools an engine holds before a batch comes: static memory, not measured."""

import torch
from torch import Tensor

from estimator.context import RunContext
from estimator.geometry import Geometry
from gpu_probe.kernels import FP8
from gpu_probe.layout import check_known, family

BF16 = torch.bfloat16


class Model:
    """One layer's weights on one rank, used for every layer, and pools of `slots` tokens. Values are random.

    Raises ProbeError for a run the measured step does not know.
    """

    def __init__(self, geometry: Geometry, run: RunContext, device: str, *, slots: int = 4096) -> None:
        check_known(geometry, run)
        self.geometry, self.run = geometry, run
        self.device = torch.device(device)
        self.family = family(geometry)
        self.slots = slots
        self.heads = geometry.heads // run.tp
        self.fp8 = run.kv_dtype == "fp8"
        self.latent_width = geometry.kv_lora_rank + geometry.qk_rope_head_dim
        self.tensors: list[Tensor] = []
        g, hidden = geometry, geometry.hidden_size
        if self.family == "grouped":
            self.pairs = max(1, g.kv_heads // run.tp)
            self.qkv = self._made(hidden, self.heads * g.head_dim + self.pairs * (g.head_dim + g.v_head_dim))
            self.k_pool = self._pool(self.pairs, g.head_dim)
            self.v_pool = self._pool(self.pairs, g.v_head_dim)
        else:
            self.down = self._made(hidden, g.q_lora_rank + self.latent_width)
            self.q_up = self._made(g.q_lora_rank, self.heads * (g.qk_nope_head_dim + g.qk_rope_head_dim))
            self.kv_up = self._made(g.kv_lora_rank, self.heads * (g.qk_nope_head_dim + g.v_head_dim))
            self.absorb = self._made(self.heads, g.qk_nope_head_dim, g.kv_lora_rank)
            self.expand = self._made(self.heads, g.kv_lora_rank, g.v_head_dim)
            self.latent_pool = self._pool(self.latent_width)
        if self.family == "sparse":
            self.index_q = self._made(g.q_lora_rank, g.index_heads * g.index_head_dim)
            self.index_k = self._made(hidden, g.index_head_dim)
            self.index_gate = self._made(hidden, g.index_heads)
            self.index_pool = self._made(slots, g.index_head_dim, dtype=FP8)
            self.index_scales = self._made(slots, 1, dtype=torch.float32)
        self.out = self._made(self.heads * g.v_head_dim, hidden)
        self._feed_forward(hidden)
        self.embedding = self._made(g.vocab_size, hidden)
        self.head = self._made(hidden, -(-g.vocab_size // run.tp))

    def _feed_forward(self, hidden: int) -> None:
        g, run = self.geometry, self.run
        if run.mlp.kind == "moe_triton":
            inner = -(-g.moe_intermediate_size // (run.mlp.moe_tp or run.tp))
            self.router = self._made(hidden, g.routed_experts)
            self.experts = [
                (self._made(hidden, 2 * inner), self._made(inner, hidden)) for _ in range(g.experts_per_token)
            ]
            self.shared = self._made(hidden, 2 * inner), self._made(inner, hidden)
        else:
            inner = -(-g.intermediate_size // run.tp)
            self.gate_up, self.down_proj = self._made(hidden, 2 * inner), self._made(inner, hidden)

    def _made(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        made = torch.empty(shape, dtype=dtype, device=self.device)
        if not made.is_meta:
            scale = shape[-2] ** -0.5 if len(shape) > 1 else 1.0
            for part in torch.split(made, max(1, (1 << 26) // max(1, made[0].numel()))):
                part.copy_(torch.randn(part.shape, device=self.device).mul_(scale))
        self.tensors.append(made)
        return made

    def _pool(self, *shape: int) -> Tensor:
        return self._made(self.slots, *shape, dtype=FP8 if self.fp8 else BF16)
