"""What a run takes from the device once, outside every batch: shown beside an estimate, never part of its peak."""

from dataclasses import dataclass

from estimator.buffers_attention import PACKED_ROW_BYTES, local_kv_heads
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.rounding import ceil_div

# Full-context prefixes that the sharded-KV scratch is made for (page_interleave.py:58).
SCRATCH_CONTEXTS = 8
SCRATCH_SLOTS = 2
_MIB = 1 << 20
# Kernel workspaces allocated with the attention backend (environ.py:1221, trtllm_mla_backend.py:91).
_WORKSPACE = {"flashinfer": 384 * _MIB, "trtllm": 384 * _MIB, "trtllm_mha": 384 * _MIB, "trtllm_mla": 150 * _MIB}


@dataclass(frozen=True, slots=True)
class Static:
    """Per-process memory in bytes, `rows` in tokens.

    `bytes` is the sharded-KV scratch, which the engine charges against the KV budget; `page_map_bytes` its map from
    logical pages; `workspace_bytes` the attention backend's own.
    """

    rows: int
    row_bytes: int
    bytes: int
    page_map_bytes: int
    workspace_bytes: int


def scratch_row_bytes(geometry: Geometry, context: RunContext) -> int:
    """Return the bytes of one row of one layer in the sharded-KV scratch (page_interleave.py:179-205)."""
    if not geometry.is_mla:
        width = geometry.head_dim + geometry.v_head_dim
        return local_kv_heads(geometry, context) * width * context.kv_bytes
    if not geometry.is_sparse:
        return geometry.latent_dim * context.kv_bytes
    packed = context.kv_dtype == "fp8" and context.prefill_impl not in {"trtllm", "tilelang"}
    latent = PACKED_ROW_BYTES if packed else geometry.latent_dim * context.kv_bytes
    return latent + geometry.index_head_dim + 4 * (geometry.index_head_dim // 128)


def static_memory(geometry: Geometry, context: RunContext) -> Static:
    """Return what the run allocates once, by the rules of SGLang 0.5.23 (page_interleave.py:58-73,208-272)."""
    workspace = _WORKSPACE.get(context.prefill_impl, 0)
    if not context.sharded:
        return Static(0, 0, 0, 0, workspace)
    page = context.page_size
    granule = context.shard_size * page
    length = context.context_len or geometry.context_len
    prefix = SCRATCH_CONTEXTS * ceil_div(length, granule) * granule
    rows = prefix + ceil_div(context.chunked_prefill_size, page) * page + page
    row_bytes = scratch_row_bytes(geometry, context)
    copies = SCRATCH_SLOTS * (2 if context.draft else 1)
    page_map = 4 * context.shard_size * (context.pool_tokens // page + 2)
    return Static(rows, row_bytes, copies * rows * row_bytes, page_map, workspace)
