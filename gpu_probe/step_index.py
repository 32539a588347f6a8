"""The sparse-attention indexer of the measured step (SGLang 0.5.23 layers/attention/dsa/dsa_indexer.py)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpu_probe import kernels

if TYPE_CHECKING:
    from gpu_probe.step import Step

# Fewer elements are scored in one go without asking for a budget (mqa_logits_utils.py:21,33,86).
SMALL = 8_000_000


def index(step: "Step", rows: Tensor, low: Tensor) -> Tensor | None:
    """Return the chosen keys of each row [rows, top-k], or None where a short batch needs none."""
    model, layout = step.model, step.layout
    count = rows.shape[0]
    _store_keys(step, rows)
    if step.short:
        return None
    if model.run.cp == 1 and max(layout.contexts) <= model.geometry.index_topk:
        return _first_keys(step, count)
    queries, gates, _originals = _queries(step, rows, low)
    chosen = torch.full((count, model.geometry.index_topk), -1, dtype=torch.int32, device=model.device)
    keys, scales = _gather_keys(step)
    _score_and_choose(step, chosen, queries, gates, (keys, scales))
    return chosen


def _store_keys(step: "Step", rows: Tensor) -> None:
    """Project and keep the chunk's index keys; under context parallelism the ranks exchange them first."""
    model, layout = step.model, step.layout
    keys = rows @ model.index_k
    if layout.split:
        arrived = step.new(model.run.cp * keys.shape[0], keys.shape[1])
        if not arrived.is_meta:
            arrived.view(model.run.cp, *keys.shape).copy_(keys)
        keys = arrived[: layout.tokens].clone()
        del arrived
    if not keys.is_meta:
        with step.watch.kernel():
            size = min(keys.shape[0], model.slots)
            kernels.quantise(model.index_pool[:size], model.index_scales[:size], keys[:size])


def _first_keys(step: "Step", count: int) -> Tensor:
    """Every key is chosen where no context is longer than the top-k."""
    chosen = step.new(count, step.model.geometry.index_topk, dtype=torch.int32)
    if not chosen.is_meta and step.starts is not None and step.ends is not None:
        with step.watch.kernel():
            places = torch.arange(chosen.shape[1], device=chosen.device)
            lengths = (step.ends - step.starts).unsqueeze(1)
            chosen[: step.layout.rows] = torch.where(places < lengths, places, -1).int()
    return chosen


def _queries(step: "Step", rows: Tensor, low: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """Index queries in fp8 and head gates in fp32. Context parallelism keeps the bf16 originals and their scales."""
    model, heads = step.model, step.model.geometry.index_heads
    original = torch.unflatten(low @ model.index_q, 1, (heads, -1))
    queries = step.new(*original.shape, dtype=kernels.FP8)
    scales = step.new(rows.shape[0], heads, 1, dtype=torch.float32)
    gates = step.new(rows.shape[0], heads, dtype=torch.float32)
    if not gates.is_meta:
        with step.watch.kernel():
            kernels.quantise(queries, scales, original)
            gates.copy_((rows @ model.index_gate).float() * scales.squeeze(-1))
    return queries, gates, (original, scales) if step.model.run.cp > 1 else None


def _gather_keys(step: "Step") -> tuple[Tensor, Tensor]:
    """Index keys and scales of every context on this rank, request after request."""
    model, total = step.model, sum(step.layout.contexts_here)
    keys = step.new(total, model.geometry.index_head_dim, dtype=kernels.FP8)
    scales = step.new(total, 1, dtype=torch.float32)
    if not keys.is_meta:
        with step.watch.kernel():
            pairs = zip(step.layout.here, step.layout.contexts_here, strict=True)
            slots = torch.cat([step.slots_of[place, :length] for place, length in pairs]).long()
            keys.copy_(model.index_pool.view(torch.uint8)[slots].view(kernels.FP8))
            scales.copy_(model.index_scales[slots])
    return keys, scales


def _score_and_choose(
    step: "Step", chosen: Tensor, queries: Tensor, gates: Tensor, keys: tuple[Tensor, Tensor]
) -> None:
    """Score rows against every key of the batch, as many rows at a time as the budget allows, and choose.

    The loop's names hold a chunk's scores and choice until the next chunk's have been made, as in the engine.
    """
    rows, columns = step.layout.rows, keys[0].shape[0]
    budget = step.model.run.mqa_budget.bytes
    size = rows
    if rows * columns >= SMALL and rows * columns * 4 > budget:
        size = min(rows, max(1, budget // (columns * 4)))
    cut = size < rows
    if not columns:
        return
    for start in range(0, rows, size):
        part = slice(start, min(rows, start + size))
        scores = _scores(step, queries[part], gates[part], keys)
        picked = _choose(step, scores, part, cut=cut)
        chosen[part] = picked


def _scores(step: "Step", queries: Tensor, gates: Tensor, keys: tuple[Tensor, Tensor]) -> Tensor:
    """One chunk in the shape DeepGEMM allocates: rows to a multiple of 128 / heads, columns + 256 to one of 256."""
    count, unit = queries.shape[0], max(1, 128 // queries.shape[1])
    columns = keys[0].shape[0]
    made = step.new(-(-count // unit) * unit, (columns + 256 + 255) // 256 * 256, dtype=torch.float32)
    scores = made[:count, :columns]
    with step.watch.kernel():
        kernels.score(scores, queries, gates, *keys)
    return scores


def _choose(step: "Step", scores: Tensor, part: slice, *, cut: bool) -> Tensor:
    """The top-k of a chunk. A paged kernel on a cut chunk first copies the page-table row of each of its rows."""
    if cut and not step.ragged and step.table is not None:
        table = step.new(scores.shape[0], step.table.shape[1], dtype=torch.int32)
        table.zero_()
    picked = step.new(scores.shape[0], step.model.geometry.index_topk, dtype=torch.int32)
    if not picked.is_meta and step.starts is not None and step.ends is not None:
        with step.watch.kernel():
            kernels.choose(picked, scores, step.starts[part], step.ends[part])
    return picked
