"""A prefill step in plain torch: real tensors in the order an engine makes them, freed as their references end.

Not built from the estimator's plan and sharing none of its formulas. Sources: SGLang 0.5.23, `models/deepseek_v2.py`,
`models/llama.py`, `layers/attention/dsa_backend.py`, `layers/attention/flashattention_backend.py`,
`layers/logits_processor.py`, `layers/logprob_processor.py`.

Two fidelities. `whole=False` makes the buffers an estimate lists. `whole=True` does what the engine was read to do
where that differs: a copy of the normalised latent rows, the layer's input that the model's loop still holds while
the layer runs, experts that write over their input.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_probe import kernels
from gpu_probe.layout import Layout, lay_out
from gpu_probe.model import BF16, Model
from gpu_probe.step_feed import feed_forward
from gpu_probe.step_grouped import grouped_attention
from gpu_probe.step_latent import latent_attention
from gpu_probe.watch import CudaWatch, StorageWatch

I32, I64, F32 = torch.int32, torch.int64, torch.float32
MOST_ONE_SHOT = 131072
LEAST_CHUNKED_PREFIX = 8192
LOGPROB_ROWS = 2048


@dataclass
class Step:
    """One batch on one rank as it runs: the model, where its rows are, and who counts."""

    model: Model
    layout: Layout
    watch: StorageWatch | CudaWatch
    slots_of: Tensor
    whole: bool
    out_slots: Tensor | None = None
    table: Tensor | None = None
    starts: Tensor | None = None
    ends: Tensor | None = None
    flat: Tensor | None = None
    prefix_slots: Tensor | None = None
    ragged: bool = False

    def new(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        """Return a tensor of this shape, not filled."""
        return torch.empty(shape, dtype=dtype, device=self.model.device)

    @property
    def short(self) -> bool:
        """Whether a sparse model attends densely: short contexts, no context parallelism (dsa_backend.py:4064-4078)."""
        contexts, run = self.layout.contexts, self.model.run
        return (
            self.model.family == "sparse"
            and run.cp == 1
            and run.sm_major in {9, 10}
            and max(contexts) <= run.dense_context
            and sum(contexts) <= run.dense_capacity
        )


def run_step(
    model: Model,
    requests: Sequence[Sequence[int]],
    watch: StorageWatch | CudaWatch,
    *,
    rank: int = 0,
    layers: int = 2,
    whole: bool = False,
) -> None:
    """Run the prefill of a batch of (prefix, extend) on one rank while `watch` counts, then end it and free all."""
    layout = lay_out(model.geometry, model.run, requests, rank)
    slots_of = torch.empty((len(requests), max(layout.contexts)), dtype=I32, device=model.device)
    if not slots_of.is_meta:
        slots_of.copy_(torch.arange(slots_of.numel(), device=model.device).view(slots_of.shape) % model.slots)
    step = Step(model, layout, watch, slots_of, whole)
    if isinstance(watch, StorageWatch):
        watch.know(slots_of, *model.tensors)
    with watch, torch.no_grad():
        _prefill(step, layers)


def _prefill(step: Step, layers: int) -> None:
    kept = _prepare(step)
    kept += _metadata(step)
    hidden = _embed(step, kept[0])
    residual: Tensor | None = None
    shared: Tensor | None = None
    entering = [hidden]
    del hidden
    for _ in range(layers):
        hidden, residual, shared = _layer(step, entering, residual, shared)
        entering = [hidden]
        del hidden
    hidden = entering.pop()
    del shared
    if residual is not None:
        with step.watch.kernel():
            kernels.normalise(hidden, hidden, residual)
    residual = None
    hidden = _gather_rows(step, hidden)
    _logits(step, hidden)


def _prepare(step: Step) -> list[Tensor]:
    """Ids, positions, slots and per-request vectors; the overlap scheduler holds the slots of the batch before too."""
    layout, model = step.layout, step.model
    tokens, count = layout.tokens, len(layout.extends)
    ids = torch.zeros(tokens, dtype=I64, device=model.device)
    kept = [ids, torch.zeros(tokens, dtype=I64, device=model.device)]
    for _ in range(2 if model.run.overlap_schedule else 1):
        step.out_slots = torch.zeros(tokens, dtype=I64, device=model.device)
        kept.append(step.out_slots)
        # Lengths, prefix lengths, extend lengths, starts, pool rows, original lengths.
        kept += [torch.zeros(count, dtype=I64, device=model.device) for _ in range(6)]
    if model.run.cp > 1:
        kept += [step.new(layout.padded, dtype=I64) for _ in range(2)]
    return kept


def _metadata(step: Step) -> list[Tensor]:
    """Page tables and row metadata, alive until the batch ends."""
    layout, run = step.layout, step.model.run
    if step.model.family == "sparse":
        return _sparse_metadata(step)
    kept: list[Tensor] = []
    if run.prefill_impl == "triton":
        step.prefix_slots = step.new(sum(layout.prefixes), dtype=I64)
        return [step.prefix_slots.zero_()]
    table = step.slots_of.clone()
    if run.page_size > 1:
        with step.watch.kernel():
            pages = step.slots_of[:, :: run.page_size] // run.page_size
        kept.append(pages.clone())
    else:
        kept.append(table)
    step.table = kept[0]
    prefix, total = sum(layout.prefixes), sum(layout.contexts)
    if step.model.family == "latent" and not layout.split and prefix >= run.chunked_prefix_threshold:
        step.prefix_slots = step.new(total if total <= run.dense_capacity else prefix, dtype=I32).zero_()
        kept.append(step.prefix_slots)
    return kept


def _sparse_metadata(step: Step) -> list[Tensor]:
    layout, run = step.layout, step.model.run
    fp8 = run.kv_dtype == "fp8"
    step.ragged = fp8 and run.prefill_impl == "flashmla_sparse"
    widest = max(layout.contexts_here, default=0)
    device = step.model.device
    table = step.slots_of.clone()
    lengths = torch.zeros(layout.tokens, dtype=I32, device=device)
    if run.cp > 1:
        lengths = lengths[: layout.rows].clone()
        # The rank picks its own requests; the whole table lives until the copy is made.
        table = step.slots_of[: len(layout.here), :widest].clone()
    flat = None
    if any(layout.prefixes) and (step.ragged or (fp8 and step.short)):
        flat = step.new(sum(layout.contexts_here), dtype=I32).zero_()
    offsets = step.new(layout.rows, dtype=I32) if step.ragged else None
    # First key, one past the last, and the request of each row; under context parallelism at full length first.
    ends, starts, owner = (torch.zeros(layout.tokens, dtype=I32, device=device) for _ in range(3))
    if not starts.is_meta:
        with step.watch.kernel():
            _fill_ranges(layout, starts, ends)
    if run.cp > 1:
        ends, starts, owner = (each[: layout.rows].clone() for each in (ends, starts, owner))
    step.table, step.starts, step.ends, step.flat = table, starts, ends, flat
    clipped = torch.zeros(layout.padded, dtype=I32, device=device)
    running = torch.zeros(layout.padded + 1, dtype=I32, device=device)
    kept = [table, lengths, starts, ends, owner, clipped, running]
    if run.page_size > 1:
        kept.append(step.new(len(layout.here), -(-widest // run.page_size), dtype=I32))
    if flat is None and step.short and any(layout.prefixes):
        step.prefix_slots = step.new(sum(layout.contexts), dtype=I32).zero_()
        kept.append(step.prefix_slots)
    return kept + [each for each in (flat, offsets) if each is not None]


def _fill_ranges(layout: Layout, starts: Tensor, ends: Tensor) -> None:
    row = key = 0
    for prefix, extend in zip(layout.prefixes, layout.extends, strict=True):
        part = slice(row, row + extend)
        starts[part] = key
        ends[part] = key + prefix + 1 + torch.arange(extend, dtype=I32, device=ends.device)
        row, key = row + extend, key + prefix + extend


def _embed(step: Step, ids: Tensor) -> Tensor:
    rows = step.model.embedding.index_select(0, ids)
    if not step.layout.split:
        return rows
    local = rows.new_zeros((step.layout.padded, rows.shape[1]))
    local[: step.layout.rows] = rows[: step.layout.rows]
    return local


def _layer(
    step: Step, entering: list[Tensor], residual: Tensor | None, shared: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run one layer: its output, the residual stream, and the top-k it hands on where layers share one.

    The loop of an engine's model holds the layer's input until the layer has returned; `entering` is emptied where
    that is not followed.
    """
    rows = entering[0] if step.whole else entering.pop()
    if residual is None:
        residual, rows = rows, torch.empty_like(rows)
        with step.watch.kernel():
            kernels.normalise(rows, residual)
    else:
        with step.watch.kernel():
            kernels.normalise(rows, rows, residual)
    if step.model.family == "grouped":
        rows = grouped_attention(step, rows)
        chosen = None
    else:
        rows, chosen = latent_attention(step, rows)
    if step.model.geometry.index_topk_freq == 1:
        # Only a layer whose top-k another one uses hands it out of the attention part.
        chosen = None
    with step.watch.kernel():
        kernels.normalise(rows, rows, residual)
    # The loop in the model's forward assigns the new top-k only after the layer has returned.
    return feed_forward(step, rows), residual, shared if chosen is None else chosen


def _gather_rows(step: Step, hidden: Tensor) -> Tensor:
    """Gather the last hidden states of all ranks, and put them in batch order (cp/utils.py:239-259)."""
    layout = step.layout
    if not layout.split:
        return hidden
    arrived = step.new(step.model.run.cp * layout.padded, hidden.shape[1])
    if not arrived.is_meta:
        arrived.view(step.model.run.cp, *hidden.shape).copy_(hidden)
    return arrived[: layout.tokens].clone()


def _logits(step: Step, hidden: Tensor) -> None:
    layout, run = step.layout, step.model.run
    asked = min(run.logprob_rows, layout.tokens)
    count = len(layout.extends)
    if asked:
        pruned = hidden[:asked].clone()
        last = step.new(count, step.model.geometry.vocab_size, dtype=F32)
        size = asked if run.logprob_chunk is None else min(asked, run.logprob_chunk)
        for start in range(0, asked, size):
            _prompt_logprobs(step, pruned[start : start + size])
    else:
        last = _project(step, hidden[:count])
    # The sampler turns them into probabilities beside the logits.
    torch.softmax(last, dim=-1)


def _prompt_logprobs(step: Step, rows: Tensor) -> None:
    logits = _project(step, rows)
    chosen = logits.clone()
    del logits
    chosen[:, :1].clone()


def _project(step: Step, rows: Tensor) -> Tensor:
    """Project rows on the vocabulary: local bf16, gathered over ranks, in order, then fp32."""
    return _full_vocabulary(step, rows @ step.model.head).float()


def _full_vocabulary(step: Step, local: Tensor) -> Tensor:
    tp = step.model.run.tp
    if tp == 1:
        return local
    gathered = step.new(tp, *local.shape)
    if not gathered.is_meta:
        gathered.copy_(local)
    ordered = gathered.permute(1, 0, 2).reshape(local.shape[0], -1)
    return ordered[:, : step.model.geometry.vocab_size]
