"""Grouped-query attention of the measured step (SGLang 0.5.23 models/llama.py, models/qwen3.py, cp/zigzag.py)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpu_probe import kernels

if TYPE_CHECKING:
    from gpu_probe.step import Step


def grouped_attention(step: "Step", rows: Tensor) -> Tensor:
    """Return the attention part's output for normalised rows."""
    model, layout = step.model, step.layout
    both = rows @ model.qkv
    width, value_width = model.geometry.head_dim, model.geometry.v_head_dim
    queries, keys, values = torch.split(
        both, [model.heads * width, model.pairs * width, model.pairs * value_width], dim=-1
    )
    keys, values = (torch.unflatten(each, 1, (model.pairs, -1)) for each in (keys, values))
    _store(step, *(_gathered(step, keys, values) if layout.split else (keys, values)))
    out = step.new(rows.shape[0], model.heads, value_width)
    if not out.is_meta:
        with step.watch.kernel():
            _attend(step, out, torch.unflatten(queries, 1, (model.heads, -1)))
    return out.flatten(1) @ model.out


def _gathered(step: "Step", keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Gather keys and values of the chunk on every rank, first as they arrive and then in batch order."""
    layout, cp = step.layout, step.model.run.cp
    local = torch.cat([keys[: layout.longest], values[: layout.longest]], dim=-1)
    arrived = step.new(cp * layout.longest, *local.shape[1:])
    if not arrived.is_meta:
        arrived.view(cp, *local.shape).copy_(local)
    ordered = arrived[: layout.tokens].clone()
    del arrived
    left, right = torch.split(ordered, [keys.shape[-1], values.shape[-1]], dim=-1)
    return left, right


def _store(step: "Step", keys: Tensor, values: Tensor) -> None:
    """Write keys and values into the pool, cast to fp8 first where the pool holds fp8 (memory_pool.py:2926-2932)."""
    model = step.model
    if model.fp8:
        cast = step.new(*keys.shape, dtype=kernels.FP8), step.new(*values.shape, dtype=kernels.FP8)
        with step.watch.kernel():
            kernels.quantise(cast[0], None, keys)
            kernels.quantise(cast[1], None, values)
        keys, values = cast
    if not keys.is_meta:
        with step.watch.kernel():
            count = min(keys.shape[0], model.slots)
            model.k_pool[:count], model.v_pool[:count] = keys[:count], values[:count]


def _attend(step: "Step", out: Tensor, queries: Tensor) -> None:
    """Attend request by request over the pool's rows; the rows of this rank are shared out in batch order."""
    row = 0
    for index, (prefix, extend) in enumerate(zip(step.layout.prefixes, step.layout.extends, strict=True)):
        part = slice(min(row, out.shape[0]), min(row + extend, out.shape[0]))
        slots = step.slots_of[index, : prefix + extend].long()
        reach = prefix + 1 + torch.arange(part.stop - part.start, device=out.device)
        keys, values = (pool[slots].to(torch.bfloat16) for pool in (step.model.k_pool, step.model.v_pool))
        kernels.attend(out[part], None, queries[part], keys, values, reach)
        row += extend
