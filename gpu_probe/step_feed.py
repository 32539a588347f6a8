"""The feed-forward part of the measured step: dense, or routed experts (SGLang 0.5.23 fused_moe.py:560-930)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpu_probe import kernels

if TYPE_CHECKING:
    from gpu_probe.step import Step


def feed_forward(step: "Step", rows: Tensor) -> Tensor:
    """Return the layer's output for its normalised rows."""
    if step.model.run.mlp.kind == "moe_triton":
        return _routed(step, rows)
    return _dense(step, rows, step.model.gate_up, step.model.down_proj)


def _dense(step: "Step", rows: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    both = rows @ gate_up
    acted = step.new(rows.shape[0], down.shape[0])
    with step.watch.kernel():
        kernels.gated(acted, both)
    return acted @ down


def _routed(step: "Step", rows: Tensor) -> Tensor:
    """Routed experts, with a shared expert's output and the routing beside them.

    As an estimate lists them the quantised input and an output of its own live throughout. The engine was read to
    drop the former after the first product and to write over its input, which is what the whole fidelity does.
    """
    model = step.model
    shared = _dense(step, rows, *model.shared) if model.geometry.shared_experts else None
    routing = _route(step, rows)
    quantised = _quantise(step, rows)
    out = rows if step.whole else torch.empty_like(rows)
    first = _first(step, rows)
    if step.whole:
        del quantised
    acted = _act(step, first)
    del first
    _combine(step, out, acted)
    del acted, routing
    return out if shared is None else out.add_(shared)


def _route(step: "Step", rows: Tensor) -> tuple[Tensor, ...]:
    """Router logits, weights and ids of the chosen experts, and rows sorted by expert, each expert's in tiles of 64."""
    geometry, count = step.model.geometry, rows.shape[0]
    chosen, experts = geometry.experts_per_token, geometry.routed_experts
    logits = step.new(count, experts, dtype=torch.float32)
    if not logits.is_meta:
        with step.watch.kernel():
            logits.copy_(rows @ step.model.router)
    weights = step.new(count, chosen, dtype=torch.float32)
    ids = step.new(count, chosen, dtype=torch.int32)
    order = step.new(count * chosen + experts * 63, dtype=torch.int32)
    return logits, weights, ids, order


def _first(step: "Step", rows: Tensor) -> Tensor:
    experts = step.model.experts
    first = step.new(rows.shape[0], len(experts), experts[0][0].shape[1])
    if not first.is_meta:
        with step.watch.kernel():
            for place, (up, _) in enumerate(experts):
                first[:, place] = rows @ up
    return first


def _act(step: "Step", first: Tensor) -> Tensor:
    acted = step.new(*first.shape[:2], first.shape[2] // 2)
    with step.watch.kernel():
        kernels.gated(acted.view(-1, acted.shape[-1]), first.view(-1, first.shape[-1]))
    return acted


def _combine(step: "Step", out: Tensor, acted: Tensor) -> None:
    experts = step.model.experts
    each = step.new(*acted.shape[:2], out.shape[1])
    quantised = _quantise(step, acted)
    if not each.is_meta:
        with step.watch.kernel():
            for place, (_, down) in enumerate(experts):
                each[:, place] = acted[:, place] @ down
            torch.sum(each, 1, out=out)
    del quantised


def _quantise(step: "Step", rows: Tensor) -> tuple[Tensor, Tensor]:
    groups = -(-rows.shape[-1] // kernels.GROUP)
    values = step.new(*rows.shape, dtype=kernels.FP8)
    scales = step.new(*rows.shape[:-1], groups, dtype=torch.float32)
    with step.watch.kernel():
        kernels.quantise(values, scales, rows)
    return values, scales
