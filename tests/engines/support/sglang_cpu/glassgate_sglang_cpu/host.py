"""The host cache on plain memory, for --hicache-io-backend direct and --hicache-mem-layout layer_first."""

from typing import Any

import torch


def _memory(dims: Any, dtype: torch.dtype, device: str, *_: Any, **__: Any) -> torch.Tensor:
    """Host memory that no driver has to know of."""
    return torch.zeros(dims, dtype=dtype, device=device)


def _copy_rows(
    *,
    src_layers: list[Any],
    dst_layers: list[Any],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Copy the rows of tokens from one pool to the other, layer by layer."""
    del page_size
    rows, places = src_indices.cpu(), dst_indices.cpu()
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[places] = source[rows].reshape(-1, *target.shape[1:])


def register() -> None:
    """Give SGLang's host pools what they have for a GPU alone."""
    from sglang.srt.mem_cache.pool_host import common, mha  # noqa: PLC0415 - after the engine has chosen its platform

    common.ALLOC_MEMORY_FUNCS["cpu"] = _memory
    mha.transfer_kv_direct = _copy_rows
