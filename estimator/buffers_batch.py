"""Buffers made once a batch: schedule and prepare, attention metadata, sharded-KV plans (fact sheet 3 to 5)."""

from estimator.buffer import NONE, Section, Terms
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.sizes import RAGGED_IMPLS

SCHEDULE, METADATA, SHARDED = Section(3), Section(4), Section(5)

_FLASH = {"fa3", "fa4", "trtllm_mha", "trtllm_mla", "flashmla"}


def _paged_flash(g: Geometry, c: RunContext) -> bool:
    return not g.is_sparse and c.prefill_impl in _FLASH


@SCHEDULE.buffer("metadata", "8 T", "mem_cache/allocator/paged.py:241")
def out_cache_loc(_g: Geometry, _c: RunContext) -> Terms:
    """KV slots of the tokens to compute, int64."""
    return {"T": 8}


@SCHEDULE.buffer("metadata", "48 B", "managers/schedule_batch.py:2876-2882", bound="upper")
def request_vectors(_g: Geometry, _c: RunContext) -> Terms:
    """Per-request lengths and pool indices."""
    return {"B": 48}


@SCHEDULE.buffer("metadata", "8 T + 48 B", "managers/scheduler.py:1736,4554-4567", bound="upper")
def schedule_pinned(_g: Geometry, c: RunContext) -> Terms:
    """The same two again: the overlap scheduler keeps a batch alive for two iterations."""
    return {"T": 8, "B": 48} if c.overlap_schedule else NONE


@SCHEDULE.buffer("metadata", "8 T", "managers/overlap_utils.py:113-140")
def input_ids(_g: Geometry, _c: RunContext) -> Terms:
    """Token ids, int64."""
    return {"T": 8}


@SCHEDULE.buffer("metadata", "8 T", "kernels/ops/attention/position.py:13")
def positions(_g: Geometry, _c: RunContext) -> Terms:
    """Token positions, int64."""
    return {"T": 8}


@SCHEDULE.buffer("metadata", "16 Tp", "layers/cp/base.py:189-204")
def cp_local_ids(_g: Geometry, c: RunContext) -> Terms:
    """This rank's own positions and ids under context parallelism, int64 each."""
    return {"Tp": 16} if c.cp > 1 else NONE


@SCHEDULE.buffer("other", "2 h T", "layers/cp/utils.py:185-206")
def embed_full(g: Geometry, c: RunContext) -> Terms:
    """Embeddings of the whole batch before the context-parallel split, bf16."""
    return {"Tcp": 2 * g.hidden_size} if c.cp > 1 else NONE


@SCHEDULE.buffer("other", "2 h Tp", "layers/cp/utils.py:185-206")
def embed_local(g: Geometry, _c: RunContext) -> Terms:
    """Embeddings of this rank's rows, bf16."""
    return {"Tp": 2 * g.hidden_size}


@METADATA.buffer("metadata", "4 Bsel maxS", "layers/attention/dsa_backend.py:1117-1119,1282,1392")
def page_table_1(g: Geometry, c: RunContext) -> Terms:
    """A slot for each request and position up to the longest context, int32; FA3/FA4 with pages drop it again."""
    return {"BMsel": 4} if g.is_sparse or _paged_flash(g, c) else NONE


@METADATA.buffer("metadata", "4 B maxS", "layers/attention/dsa_backend.py:1282")
def page_table_1_all(g: Geometry, c: RunContext) -> Terms:
    """The table of all requests beside the table of those on this rank, while the rank selects its own."""
    return {"BM": 4} if g.is_sparse and c.cp > 1 else NONE


@METADATA.buffer("metadata", "4 Bsel ceil(maxS/ps)", "layers/attention/dsa_backend.py:1066-1074,1409")
def page_table_pages(g: Geometry, c: RunContext) -> Terms:
    """The table by pages (`real_page_table`; the strided `page_table` of FA3/FA4), int32."""
    sparse = g.is_sparse and c.page_size > 1
    return {"BPsel": 4} if sparse or (_paged_flash(g, c) and c.page_size > 1) else NONE


@METADATA.buffer("metadata", "16 Tl", "layers/attention/dsa_backend.py:1246-1260,1349-1362,1427-1502")
def row_metadata(g: Geometry, _c: RunContext) -> Terms:
    """Expanded length, key start, key end and request of each row, int32 each."""
    return {"Tl": 16} if g.is_sparse else NONE


@METADATA.buffer("metadata", "8 Tp + 4", "layers/attention/dsa_backend.py:1349-1362")
def row_lengths(g: Geometry, _c: RunContext) -> Terms:
    """Clipped lengths of the padded rows and their running sum, int32."""
    return {"Tp": 8, "one": 4} if g.is_sparse else NONE


@METADATA.buffer("metadata", "12 T", "layers/attention/dsa_backend.py:1427-1502")
def row_metadata_full(g: Geometry, c: RunContext) -> Terms:
    """Key start, key end and request of every row of the batch, built at full length on each rank first."""
    return {"T": 12} if g.is_sparse and c.cp > 1 else NONE


@METADATA.buffer("metadata", "4 Tl", "layers/attention/dsa_backend.py:1341-1345")
def topk_offsets(g: Geometry, c: RunContext) -> Terms:
    """Where each row's request starts in the flattened keys (ragged top-k), int32."""
    return {"Tl": 4} if g.is_sparse and c.kv_dtype == "fp8" and c.prefill_impl in RAGGED_IMPLS else NONE


@METADATA.buffer("metadata", "4 sumS, with a prefix", "layers/attention/dsa_backend.py:1309-1323")
def page_table_flat(g: Geometry, _c: RunContext) -> Terms:
    """The flattened slot table of ragged or one-shot fp8; a shared prefix counts once a request."""
    return {"flat": 4} if g.is_sparse else NONE


@METADATA.buffer(
    "metadata",
    "8 sumP (triton), 4 (sumS + 256) (flashinfer)",
    "triton_backend.py:1073-1080; flashinfer_backend.py:2251",
)
def kv_indices(g: Geometry, c: RunContext) -> Terms:
    """Slots a kernel reads: int64 of the prefixes for Triton, int32 of the contexts for FlashInfer."""
    if g.is_sparse or c.prefill_impl not in {"triton", "flashinfer"}:
        return NONE
    return {"P": 8} if c.prefill_impl == "triton" else {"S": 4, "one": 1024}


@METADATA.buffer("metadata", "4 ids", "model_executor/forward_batch_deepseek_mha_mixin.py:93-124")
def prefix_chunk_ids(g: Geometry, _c: RunContext) -> Terms:
    """Slots whose latent rows are read back to materialise K and V, int32."""
    return {"ids": 4} if g.is_mla else NONE


@SHARDED.buffer("transfer", "8 blk (1 + ps)", "mem_cache/page_interleave_pool.py:461-480")
def shard_send_ids(_g: Geometry, c: RunContext) -> Terms:
    """Pages and rows this rank sends into the gather, int64."""
    return {"blk": 8 * (1 + c.page_size)} if c.sharded else NONE


@SHARDED.buffer("transfer", "8 T + 16 ceil(T/N)", "mem_cache/page_interleave_pool.py:560-592")
def shard_write_plan(_g: Geometry, c: RunContext) -> Terms:
    """Scratch rows of the extend tokens, and which of them this rank keeps, int64."""
    return {"T": 8, "own": 16} if c.sharded else NONE


@SHARDED.buffer("metadata", "4 Bsel ceil(maxS/ps)", "layers/attention/dsa_backend.py:1284-1290")
def shard_logical_pages(g: Geometry, c: RunContext) -> Terms:
    """The indexer's own page table, kept in logical pages, int32."""
    return {"BPsel": 4} if c.sharded and g.is_sparse else NONE


@SHARDED.buffer("metadata", "40 B maxS", "mem_cache/page_interleave_pool.py:491-503", bound="upper")
def shard_translate(_g: Geometry, c: RunContext) -> Terms:
    """Five int64 tables alive at once while slots are translated to scratch rows."""
    return {"BM": 40} if c.sharded else NONE
