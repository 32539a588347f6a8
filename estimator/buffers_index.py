"""Buffers of the per-layer index phase: projections, index keys, scores, top-k (fact sheet 6)."""

from estimator.buffer import NONE, Section, Terms
from estimator.context import RunContext
from estimator.geometry import Geometry

INDEX = Section(6)


def local_heads(g: Geometry, c: RunContext) -> int:
    """Return the query heads of one tensor-parallel rank."""
    return g.heads // c.tp


@INDEX.buffer("attention", "2 (ql + w) Tp", "models/deepseek_v2.py:2525-2550")
def qkv_latent(g: Geometry, _c: RunContext) -> Terms:
    """Down-projected queries and keys, bf16, the same on every tensor-parallel rank."""
    # Without a query LoRA the query is projected straight to its heads, which q_heads counts.
    return {"Tp": 2 * (g.q_lora_rank + g.latent_dim)} if g.is_mla else NONE


@INDEX.buffer("attention", "2 ql Tp", "deepseek_common/attention_forward_methods/forward_mla.py:363-371")
def q_low_normed(g: Geometry, _c: RunContext) -> Terms:
    """Normalised low-rank queries, bf16; the indexer reads them, so they stand until it is done."""
    return {"Tp": 2 * g.q_lora_rank} if g.is_mla else NONE


@INDEX.buffer("attention", "2 Hl (nope + r) Tp", "deepseek_common/attention_forward_methods/forward_mla.py:400-405")
def q_heads(g: Geometry, c: RunContext) -> Terms:
    """Query heads, bf16; made before the indexer runs."""
    return {"Tp": 2 * local_heads(g, c) * (g.qk_nope_head_dim + g.qk_rope_head_dim)} if g.is_mla else NONE


@INDEX.buffer("index_gather", "Hi D Tp", "layers/attention/dsa/dsa_indexer.py:322-347,2097-2125")
def index_q(g: Geometry, _c: RunContext) -> Terms:
    """Index queries, fp8, replicated over tensor-parallel ranks."""
    return {"Ri": g.index_heads * g.index_head_dim} if g.is_sparse else NONE


@INDEX.buffer("index_gather", "2 Hi D Tp + 4 Hi Tp", "layers/attention/dsa/dsa_indexer.py:1103-1153,2097-2125")
def index_q_bf16(g: Geometry, _c: RunContext) -> Terms:
    """The bf16 original and its fp32 scales: while quantising, and through scoring under context parallelism."""
    return {"Ri": (2 * g.index_head_dim + 4) * g.index_heads} if g.is_sparse else NONE


@INDEX.buffer("index_gather", "4 Hi Tp", "layers/attention/dsa/dsa_indexer.py:585-603")
def index_gates(g: Geometry, _c: RunContext) -> Terms:
    """Head gates, fp32."""
    return {"Ri": 4 * g.index_heads} if g.is_sparse else NONE


@INDEX.buffer("index_gather", "2 D T", "layers/cp/interleave.py:278-346")
def index_k_chunk(g: Geometry, c: RunContext) -> Terms:
    """Index keys of the whole chunk gathered on every context-parallel rank, bf16."""
    return {"T": 2 * g.index_head_dim} if g.is_sparse and c.cp > 1 else NONE


@INDEX.buffer("index_gather", "2 D cp Tp", "layers/cp/interleave.py:278-346")
def index_k_chunk_gathered(g: Geometry, c: RunContext) -> Terms:
    """The same before it is reordered; both are alive for a moment."""
    return {"Tp": 2 * g.index_head_dim * c.cp} if g.is_sparse and c.cp > 1 else NONE


@INDEX.buffer("index_gather", "D sumS", "kernels/ops/kvcache/dsa_index_k_cache.py:297-301")
def index_k_gather(g: Geometry, _c: RunContext) -> Terms:
    """Index keys of every context, one byte an element."""
    return {"Ki": g.index_head_dim} if g.is_sparse else NONE


@INDEX.buffer("index_gather", "4 (D/128) sumS", "layers/attention/dsa/dsa_indexer.py:1545-1561")
def index_k_scale_gather(g: Geometry, _c: RunContext) -> Terms:
    """Their fp32 scales, one for 128 elements."""
    return {"Ki": 4 * -(-g.index_head_dim // 128)} if g.is_sparse else NONE


@INDEX.buffer(
    "scores", "align(rows, 128/Hi) x align(cols + 256, 256) x 4", "layers/attention/dsa/dsa_indexer.py:1563-1707"
)
def mqa_logits(g: Geometry, _c: RunContext) -> Terms:
    """Scores of one chunk of rows against every key of the batch, fp32."""
    return {"score": 1} if g.is_sparse else NONE


@INDEX.buffer("scores", "as mqa_logits, for the chunk after it", "layers/attention/dsa/dsa_indexer.py:1641-1707")
def mqa_logits_next(g: Geometry, _c: RunContext) -> Terms:
    """The next chunk of scores, allocated while the last one is still referenced."""
    return {"score_next": 1} if g.is_sparse else NONE


@INDEX.buffer("topk", "4 K Tp", "layers/attention/dsa/dsa_indexer.py:1536-1539")
def topk_indices(g: Geometry, _c: RunContext) -> Terms:
    """The chosen keys of each row, int32."""
    return {"Rk": 4 * g.index_topk} if g.is_sparse else NONE


@INDEX.buffer(
    "topk", "4 K Tp, where layers share a top-k", "models/deepseek_v2.py:3185-3200; index_topk_share.py:14-60"
)
def topk_indices_last(g: Geometry, _c: RunContext) -> Terms:
    """The top-k the layers before used; the model's loop holds it until a layer that scores anew returns."""
    return {"Rk": 4 * g.index_topk} if g.is_sparse and g.index_topk_freq > 1 else NONE


@INDEX.buffer("topk", "4 K chunk", "layers/attention/dsa/dsa_indexer.py:1697-1706")
def topk_chunk_out(g: Geometry, _c: RunContext) -> Terms:
    """The top-k kernel's output for one chunk of rows, int32."""
    return {"chunk": 4 * g.index_topk} if g.is_sparse else NONE


@INDEX.buffer("topk", "4 K chunk, when cut", "layers/attention/dsa/dsa_indexer.py:1641-1707")
def topk_chunk_prev(g: Geometry, _c: RunContext) -> Terms:
    """A chunk's output, still referenced while the next chunk is scored, int32."""
    return {"chunk_prev": 4 * g.index_topk} if g.is_sparse else NONE


@INDEX.buffer("topk", "4 K next chunk, when cut", "layers/attention/dsa/dsa_indexer.py:1641-1707")
def topk_chunk_next(g: Geometry, _c: RunContext) -> Terms:
    """The next chunk's output, made before it replaces this one's, int32."""
    return {"chunk_next": 4 * g.index_topk} if g.is_sparse else NONE


@INDEX.buffer("topk", "4 chunk maxS", "layers/attention/dsa_topk_backend.py:192-211; dsa_indexer.py:1692-1705")
def topk_page_table_rows(g: Geometry, c: RunContext) -> Terms:
    """The page-table row of each row of a chunk (chunked, paged, sgl-kernel), int32."""
    return {"chunk_table": 4} if g.is_sparse and c.topk_impl == "sgl" else NONE


@INDEX.buffer("topk", "4 chunk sumS (flashinfer), 7 chunk sumS (torch)", "layers/attention/dsa_topk_backend.py:239-309")
def topk_score_copy(g: Geometry, c: RunContext) -> Terms:
    """A second copy of the scores that the FlashInfer and torch top-k make."""
    if not g.is_sparse or c.topk_impl == "sgl":
        return NONE
    return {"chunk_scores": 4 if c.topk_impl == "flashinfer" else 7}


def _latent_bytes(c: RunContext) -> int:
    return 1 if c.kv_dtype == "fp8" and c.prefill_impl == "trtllm" else 2


def _gathers_latent(g: Geometry, c: RunContext) -> bool:
    return g.is_mla and c.cp > 1


@INDEX.buffer("attention", "e w Tp (zigzag: e w max Tl)", "layers/cp/interleave.py:278-338,541-585")
def cp_latent_local(g: Geometry, c: RunContext) -> Terms:
    """This rank's latent rows, made contiguous for the gather."""
    rows = "Tp" if g.is_sparse else "Tlmax"
    return {rows: _latent_bytes(c) * g.latent_dim} if _gathers_latent(g, c) else NONE


@INDEX.buffer("attention", "e w cp Tp (zigzag: e w cp max Tl)", "layers/cp/interleave.py:278-338,541-585")
def cp_latent_gathered(g: Geometry, c: RunContext) -> Terms:
    """Latent rows of all ranks as they arrive."""
    rows = "Tp" if g.is_sparse else "Tlmax"
    return {rows: _latent_bytes(c) * g.latent_dim * c.cp} if _gathers_latent(g, c) else NONE


@INDEX.buffer("attention", "e w T", "layers/cp/interleave.py:278-338,541-585")
def cp_latent_full(g: Geometry, c: RunContext) -> Terms:
    """Latent rows of the whole batch in batch order."""
    return {"Tcp": _latent_bytes(c) * g.latent_dim} if _gathers_latent(g, c) else NONE
