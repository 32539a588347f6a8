"""Latent attention of the measured step: sparse with an indexer, absorbed, or materialised.

Sources: SGLang 0.5.23 models/deepseek_common/attention_forward_methods/forward_mla.py and forward_mha.py,
attention_backend_handler.py, layers/attention/dsa_backend.py.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gpu_probe import kernels
from gpu_probe.step_index import index

if TYPE_CHECKING:
    from gpu_probe.step import Step

F32 = torch.float32


class _Projected(NamedTuple):
    """What lives through a layer's attention: latent rows, query heads, the gathered latent, the top-k."""

    latent: Tensor
    normed: Tensor
    queries: Tensor
    full: Tensor | None
    chosen: Tensor | None


def latent_attention(step: "Step", rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the attention part's output for normalised rows, and the top-k where there is an indexer."""
    held = _projections(step, rows)
    if step.short or (step.model.family == "latent" and _materialises(step)):
        out, behind = _dense(step, held)
    else:
        out, behind = _absorbed(step, held)
    projected = out @ step.model.out
    # The caller of the kernel still holds its operands while the output is projected.
    del behind
    return projected, held.chosen


def _projections(step: "Step", rows: Tensor) -> _Projected:
    model, g = step.model, step.model.geometry
    latent = rows @ model.down
    low, rest = torch.split(latent, [g.q_lora_rank, model.latent_width], dim=-1)
    normed = rest[:, : g.kv_lora_rank]
    low = _normed(step, low)
    if step.whole:
        normed = _normed(step, normed)
    else:
        with step.watch.kernel():
            kernels.normalise(normed, normed)
    full = None
    if step.layout.split:
        with step.watch.stream("gather"):
            full = _gathered(step, normed, rest[:, g.kv_lora_rank :])
    queries = torch.unflatten(low @ model.q_up, 1, (model.heads, -1))
    chosen = index(step, rows, low) if model.family == "sparse" else None
    _store(step, full, normed, rest)
    return _Projected(latent, normed, queries, full, chosen)


def _normed(step: "Step", rows: Tensor) -> Tensor:
    out = step.new(*rows.shape)
    with step.watch.kernel():
        kernels.normalise(out, rows)
    return out


def _gathered(step: "Step", normed: Tensor, rope: Tensor) -> Tensor:
    """Gather the latent rows of all ranks: made contiguous, as they arrive, in batch order."""
    layout, cp = step.layout, step.model.run.cp
    count = layout.padded if step.model.family == "sparse" else layout.longest
    if step.model.fp8 and step.model.run.prefill_impl == "trtllm":
        local = step.new(count, step.model.latent_width, dtype=kernels.FP8)
        if not local.is_meta:
            with step.watch.kernel():
                kernels.quantise(local, None, torch.cat([normed[:count], rope[:count]], dim=-1))
    else:
        local = torch.cat([normed[:count], rope[:count]], dim=-1)
    # Collectives and copies by index do not all know fp8; bytes are moved.
    local = local.view(torch.uint8)
    arrived = step.new(cp * count, local.shape[1], dtype=torch.uint8)
    if not arrived.is_meta:
        arrived.view(cp, *local.shape).copy_(local)
    return arrived[: layout.tokens].clone()


def _store(step: "Step", full: Tensor | None, normed: Tensor, rest: Tensor) -> None:
    if normed.is_meta or full is not None:
        return
    with step.watch.kernel():
        pool = step.model.latent_pool
        count = min(rest.shape[0], pool.shape[0])
        width = normed.shape[1]
        pool[:count, :width] = normed[:count].to(pool.dtype)
        pool[:count, width:] = rest[:count, width:].to(pool.dtype)


def _absorbed(step: "Step", held: _Projected) -> tuple[Tensor, list[Tensor]]:
    """Attend in the latent space; the queries are folded into it first, and the outputs unfolded after."""
    model, g = step.model, step.model.geometry
    queries = held.queries
    rows = queries.shape[0]
    folded = torch.bmm(queries[..., : g.qk_nope_head_dim].transpose(0, 1), model.absorb).transpose(0, 1)
    kernel = _sparse_kernel if model.family == "sparse" else _absorbed_kernel
    out = kernel(step, held, folded)
    values = step.new(rows, model.heads * g.v_head_dim)
    if not values.is_meta:
        with step.watch.kernel():
            values.copy_(torch.bmm(out.transpose(0, 1), model.expand).transpose(0, 1).flatten(1))
    return values, [folded, out]


def _sparse_kernel(step: "Step", held: _Projected, folded: Tensor) -> Tensor:
    """Run the sparse kernel of the run's choice; returns the output of the model's own heads."""
    model, run = step.model, step.model.run
    rows, rank = folded.shape[0], model.geometry.kv_lora_rank
    context = _context_rows(step, held)
    if run.prefill_impl == "trtllm" and model.fp8:
        merged = step.new(rows, model.heads, model.latent_width, dtype=kernels.FP8)
        if not merged.is_meta:
            with step.watch.kernel():
                kernels.quantise(merged, None, torch.cat([folded, _rope(step, held)], dim=-1))
        out = step.new(rows, model.heads, rank)
        _attend_chosen(step, held, out, merged, context)
        return out
    joined = step.new(rows, model.heads, model.latent_width)
    if not joined.is_meta:
        joined[..., :rank], joined[..., rank:] = folded, _rope(step, held)
    # FlashMLA knows 64 heads on Hopper and 128 on Blackwell; a rank with fewer is padded.
    unit = 128 if run.sm_major >= 10 and run.prefill_impl == "flashmla_sparse" else 64
    heads = -(-model.heads // unit) * unit
    asked = joined
    if heads != model.heads:
        asked = joined.new_zeros((rows, heads, model.latent_width))
        asked[:, : model.heads] = joined
    out = step.new(rows, heads, rank)
    extras = [step.new(rows, heads, dtype=F32) for _ in range(2 if run.prefill_impl == "flashmla_sparse" else 1)]
    _attend_chosen(step, held, out, asked, context)
    del extras
    return out[:, : model.heads]


def _rope(step: "Step", held: _Projected) -> Tensor:
    return held.queries[..., step.model.geometry.qk_nope_head_dim :]


def _context_rows(step: "Step", held: _Projected) -> Tensor | None:
    """The rows a ragged kernel reads: the whole context in bf16, or the chunk's own without a prefix."""
    if not step.ragged:
        return None
    if any(step.layout.prefixes):
        context = step.new(sum(step.layout.contexts_here), step.model.latent_width)
        if not context.is_meta:
            with step.watch.kernel():
                context.copy_(step.model.latent_pool[_slots(step)].to(context.dtype))
        return context
    width = step.model.latent_width
    if step.layout.split:
        return step.new(step.layout.tokens, width).zero_()
    return torch.cat([held.normed, held.latent[:, -(width - held.normed.shape[1]) :]], dim=-1)


def _slots(step: "Step") -> Tensor:
    """Return the pool rows of every key on this rank, request after request."""
    lengths = step.layout.contexts_here
    pairs = zip(step.layout.here, lengths, strict=True)
    return torch.cat([step.slots_of[index, :length] for index, length in pairs]).long()


def _attend_chosen(step: "Step", held: _Projected, out: Tensor, queries: Tensor, context: Tensor | None) -> None:
    if out.is_meta or held.chosen is None or step.starts is None:
        return
    with step.watch.kernel():
        keys = context if context is not None else step.model.latent_pool[_slots(step)]
        starts = torch.zeros(out.shape[0], dtype=torch.int32, device=out.device)
        starts[: step.layout.rows] = step.starts
        places = torch.where(held.chosen < 0, -1, (held.chosen + starts.unsqueeze(1)).clamp_max(keys.shape[0] - 1))
        kernels.attend_chosen(out, queries, keys, places)


def _absorbed_kernel(step: "Step", held: _Projected, folded: Tensor) -> Tensor:
    """FA3 with queries in two parts over the latent pool, one key head for all."""
    model, layout = step.model, step.layout
    out = step.new(*folded.shape)
    lse = step.new(*folded.shape[:2], dtype=F32)
    if out.is_meta:
        return out
    with step.watch.kernel():
        queries = torch.cat([folded, _rope(step, held)], dim=-1)
        row = 0
        for place, (prefix, extend) in enumerate(zip(layout.prefixes, layout.extends, strict=True)):
            part = slice(min(row, out.shape[0]), min(row + extend, out.shape[0]))
            keys = model.latent_pool[step.slots_of[place, : prefix + extend].long()].to(torch.bfloat16).unsqueeze(1)
            reach = prefix + 1 + torch.arange(part.stop - part.start, device=out.device)
            kernels.attend(out[part], lse[part], queries[part], keys, keys[..., : out.shape[-1]], reach)
            row += extend
    return out


def _materialises(step: "Step") -> bool:
    """Whether keys and values are made for every head (attention_backend_handler.py:93-165, FA3)."""
    prefix = sum(step.layout.prefixes)
    return not step.layout.split and not 0 < prefix < step.model.run.chunked_prefix_threshold


def _dense(step: "Step", held: _Projected) -> tuple[Tensor, list[Tensor]]:
    run, contexts = step.model.run, step.layout.contexts
    if step.short or sum(contexts) <= run.dense_capacity:
        return _one_shot(step, held)
    return _chunked(step, held)


def _one_shot(step: "Step", held: _Projected) -> tuple[Tensor, list[Tensor]]:
    """Materialise the whole contexts at once, the prefix read back from the pool."""
    layout, geometry = step.layout, step.model.geometry
    if any(layout.prefixes):
        latent, rope = _read_back(step, sum(layout.contexts))
    else:
        # The normalised latent is a tensor of its own here.
        latent, rope = held.normed.clone(), held.latent[:, -geometry.qk_rope_head_dim :]
    keys, values = _materialise(step, latent, rope)
    del latent, rope
    out = step.new(layout.tokens, step.model.heads, geometry.v_head_dim)
    lse = step.new(layout.tokens, step.model.heads, dtype=F32)
    _attend_dense(step, (out, lse), held.queries, keys, values, layout.prefixes, layout.contexts)
    return out.flatten(1), [keys, values]


def _read_back(step: "Step", count: int) -> tuple[Tensor, Tensor]:
    geometry = step.model.geometry
    latent, rope = step.new(count, geometry.kv_lora_rank), step.new(count, geometry.qk_rope_head_dim)
    if not latent.is_meta:
        with step.watch.kernel():
            found = step.model.latent_pool[torch.arange(count, device=latent.device) % step.model.slots]
            found = found.to(latent.dtype)
            latent.copy_(found[:, : geometry.kv_lora_rank])
            rope.copy_(found[:, geometry.kv_lora_rank :])
    return latent, rope


def _materialise(step: "Step", latent: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
    model, nope = step.model, step.model.geometry.qk_nope_head_dim
    both = torch.unflatten(latent @ model.kv_up, 1, (model.heads, -1))
    keys = step.new(both.shape[0], model.heads, nope + rope.shape[-1])
    if not keys.is_meta:
        keys[..., :nope] = both[..., :nope]
        keys[..., nope:] = rope.unsqueeze(1)
    return keys, both[..., nope:]


def _attend_dense(
    step: "Step",
    into: tuple[Tensor, Tensor],
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: tuple[int, ...],
    lengths: tuple[int, ...],
) -> None:
    """Attend request by request; a row sees `seen` keys of its request and those of the chunk up to itself."""
    if queries.is_meta:
        return
    with step.watch.kernel():
        row = key = 0
        for prefix, length, extend in zip(seen, lengths, step.layout.extends, strict=True):
            part, span = slice(row, row + extend), slice(key, key + length)
            reach = (prefix + 1 + torch.arange(extend, device=queries.device)).clamp_max(length)
            kernels.attend(into[0][part], into[1][part], queries[part], keys[span], values[span], reach)
            row, key = row + extend, key + length


def _chunked(step: "Step", held: _Projected) -> tuple[Tensor, list[Tensor]]:
    """Attend the chunk to itself, then slice by slice to the prefixes, merging by log-sum-exp."""
    layout, geometry = step.layout, step.model.geometry
    tokens, heads = layout.tokens, step.model.heads
    rope = held.latent[:, -geometry.qk_rope_head_dim :]
    keys, values = _materialise(step, held.normed, rope)
    out, lse = step.new(tokens, heads, geometry.v_head_dim), step.new(tokens, heads, dtype=F32)
    _attend_dense(step, (out, lse), held.queries, keys, values, (0,) * len(layout.extends), layout.extends)
    longest = max(layout.prefixes)
    if longest:
        width = max(1, step.model.run.dense_capacity // len(layout.prefixes))
        bounds = [*range(0, longest, width), longest]
        for first, last in pairwise(bounds):
            out, lse = _one_slice(step, held, (out, lse), first, last)
    return out.flatten(1), [keys, values]


def _one_slice(
    step: "Step", held: _Projected, so_far: tuple[Tensor, Tensor], first: int, last: int
) -> tuple[Tensor, Tensor]:
    lengths = tuple(max(0, min(prefix, last) - first) for prefix in step.layout.prefixes)
    latent, rope = _read_back(step, sum(lengths))
    keys, values = _materialise(step, latent, rope)
    del latent, rope
    out, lse = torch.empty_like(so_far[0]), torch.empty_like(so_far[1])
    if not lse.is_meta:
        out.zero_()
        lse.fill_(-torch.inf)
    _attend_dense(step, (out, lse), held.queries, keys, values, lengths, lengths)
    merged, merged_lse = torch.empty_like(out), torch.empty_like(lse)
    with step.watch.kernel():
        kernels.merge(merged, merged_lse, so_far, (out, lse))
    return merged, merged_lse
