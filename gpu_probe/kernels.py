"""What an engine's fused kernels compute, in plain torch over tiles. Their tiles are workspace and are not counted.

Correct, not fast. On the `meta` device there is nothing to compute and they return at once.
"""

import torch
from torch import Tensor

# Elements of fp32 that one tile may hold on the host and on a card.
_TILE = {"cpu": 1 << 20, "cuda": 1 << 26}
FP8 = torch.float8_e4m3fn
GROUP = 128


def _rows(total: int, each: int, device: torch.device) -> list[slice]:
    """Cut `total` rows of `each` elements into tiles."""
    step = max(1, _TILE[device.type] // max(1, each))
    return [slice(start, min(total, start + step)) for start in range(0, total, step)]


def normalise(out: Tensor, rows: Tensor, residual: Tensor | None = None) -> None:
    """RMS norm of rows into `out`, after adding them to the residual; `out` may be `rows`."""
    if out.is_meta:
        return
    for part in _rows(out.shape[0], out.shape[-1], out.device):
        value = rows[part].float()
        if residual is not None:
            value = value + residual[part].float()
            residual[part] = value.to(residual.dtype)
        out[part] = (value * torch.rsqrt(value.square().mean(-1, keepdim=True) + 1e-6)).to(out.dtype)


def quantise(out: Tensor, scales: Tensor | None, rows: Tensor) -> None:
    """Groups of 128 elements to fp8 with one scale each; without scales a plain cast."""
    if out.is_meta:
        return
    for part in _rows(out.shape[0], rows[0].numel(), out.device):
        value = rows[part].float()
        if scales is not None:
            groups = value.shape[-1] // scales.shape[-1] if value.shape[-1] % scales.shape[-1] == 0 else 0
            size = value.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448
            if groups:
                size = torch.unflatten(value, -1, (-1, groups)).abs().amax(-1).clamp_min(1e-6) / 448
                value = (torch.unflatten(value, -1, (-1, groups)) / size.unsqueeze(-1)).flatten(-2)
            else:
                value = value / size
            scales[part] = size.expand_as(scales[part])
        out[part] = value.to(FP8)


def gated(out: Tensor, gate_up: Tensor) -> None:
    """SiLU of the first half times the second half."""
    if out.is_meta:
        return
    width = out.shape[-1]
    for part in _rows(out.shape[0], 2 * width, out.device):
        out[part] = torch.nn.functional.silu(gate_up[part, :width]) * gate_up[part, width:]


def score(logits: Tensor, queries: Tensor, gates: Tensor, keys: Tensor, scales: Tensor) -> None:
    """Index scores: for each row the gated sum over heads of relu(query . key), times the key's scale."""
    if logits.is_meta:
        return
    rows, heads, width = queries.shape
    # Hosts multiply fp32 faster than bf16, cards the other way round.
    wide = torch.float32 if logits.device.type == "cpu" else torch.bfloat16
    keys_step = min(keys.shape[0], 1 << 14)
    for part in _rows(rows, heads * keys_step, logits.device):
        tile = queries[part].to(wide).reshape(-1, width)
        for start in range(0, keys.shape[0], keys_step):
            block = slice(start, start + keys_step)
            dots = (tile @ keys[block].to(wide).T).float().relu_().view(-1, heads, keys[block].shape[0])
            logits[part, block] = torch.einsum("rh,rhk->rk", gates[part], dots) * scales[block].T


def choose(out: Tensor, logits: Tensor, starts: Tensor, ends: Tensor) -> None:
    """The best keys of each row between its first and last, counted from its first; -1 where there are fewer."""
    if out.is_meta:
        return
    wanted = out.shape[-1]
    columns = torch.arange(logits.shape[1], device=logits.device)
    for part in _rows(out.shape[0], 3 * logits.shape[1], out.device):
        outside = (columns < starts[part, None]) | (columns >= ends[part, None])
        values, found = logits[part].masked_fill(outside, -torch.inf).topk(min(wanted, logits.shape[1]))
        found = torch.where(values == -torch.inf, -1, found - starts[part, None])
        out[part] = -1
        out[part, : found.shape[1]] = found.to(out.dtype)


def attend_chosen(out: Tensor, queries: Tensor, keys: Tensor, chosen: Tensor) -> None:
    """Latent attention of each row over its chosen rows of `keys`, whose first part are the values."""
    if out.is_meta:
        return
    width = out.shape[-1]
    for part in _rows(out.shape[0], chosen.shape[1] * (keys.shape[1] + queries.shape[1]), out.device):
        picked = keys[chosen[part].clamp_min(0).long()].to(torch.bfloat16).float()
        dots = queries[part].float() @ picked.transpose(1, 2) * keys.shape[1] ** -0.5
        dots.masked_fill_((chosen[part] < 0).unsqueeze(1), -torch.inf)
        shares = torch.nan_to_num(torch.softmax(dots, -1))
        out[part] = (shares @ picked[..., :width]).to(out.dtype)


def attend(out: Tensor, lse: Tensor | None, queries: Tensor, keys: Tensor, values: Tensor, reach: Tensor) -> None:
    """Dense attention of rows [rows, heads, width]; row i sees the first reach[i] of [keys, kv heads, width]."""
    if out.is_meta or not keys.shape[0]:
        return
    share = queries.shape[1] // keys.shape[1]
    count = keys.shape[0]
    places = torch.arange(count, device=out.device)
    for part in _rows(out.shape[0], queries.shape[1] * (count + queries.shape[2]), out.device):
        tile = torch.unflatten(queries[part].float(), 1, (-1, share))
        dots = torch.einsum("rgsd,kgd->rgsk", tile, keys.float()) * queries.shape[2] ** -0.5
        dots.masked_fill_((places >= reach[part, None]).view(-1, 1, 1, count), -torch.inf)
        if lse is not None:
            lse[part] = torch.logsumexp(dots, -1).flatten(1)
        shares = torch.nan_to_num(torch.softmax(dots, -1))
        out[part] = torch.einsum("rgsk,kgd->rgsd", shares, values.float()).flatten(1, 2).to(out.dtype)


def merge(out: Tensor, out_lse: Tensor, one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> None:
    """Merge two partial attentions of the same rows by their log-sum-exp."""
    if out.is_meta:
        return
    total = torch.logaddexp(one[1], two[1])
    out_lse.copy_(total)
    parts = (each * torch.exp(lse - total).nan_to_num().unsqueeze(-1) for each, lse in (one, two))
    out.copy_(sum(parts, start=torch.zeros((), device=out.device)))
