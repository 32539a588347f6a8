"""Buffers of the per-layer attention phase: absorbed, sparse, dense and grouped-query (fact sheet 7)."""

from estimator.buffer import NONE, Section, Terms
from estimator.buffers_index import local_heads
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.sizes import RAGGED_IMPLS

ATTENTION = Section(7)

# flashmla and tilelang want one [rows, heads, nope + rope] tensor; plain MLA's FA3, FA4 and FlashInfer take two.
_CONCATENATES = RAGGED_IMPLS | {"flashmla_kv", "tilelang", "triton", "trtllm_mla", "flashmla"}
# A packed fp8 row: 512 latent bytes, 4 scales of 4 bytes, 64 rope elements in bf16.
PACKED_ROW_BYTES = 656


def local_kv_heads(g: Geometry, c: RunContext) -> int:
    """Return the KV heads of one tensor-parallel rank; fewer heads than ranks are replicated."""
    return max(1, g.kv_heads // c.tp)


def kernel_heads(g: Geometry, c: RunContext) -> int:
    """Return the head count the sparse kernel runs with: FlashMLA wants multiples of 64 (Hopper) or 128."""
    heads = local_heads(g, c)
    if c.prefill_impl in {"flashmla_sparse", "flashmla_sparse_q8"}:
        unit = 128 if c.sm_major >= 10 else 64
        return -(-heads // unit) * unit
    if c.prefill_impl == "flashmla_kv":
        return 64 if heads <= 64 else max(128, heads)
    return heads


@ATTENTION.buffer("attention", "2 Hl kl Tp", "deepseek_common/attention_forward_methods/forward_mla.py:586-588")
def q_absorbed(g: Geometry, c: RunContext) -> Terms:
    """Queries folded into the latent space, bf16."""
    return {"Ta": 2 * local_heads(g, c) * g.kv_lora_rank} if g.is_mla else NONE


@ATTENTION.buffer("attention", "2 Hl w Tp", "layers/attention/dsa_backend.py:2453-2454")
def q_concat(g: Geometry, c: RunContext) -> Terms:
    """Absorbed and rope parts of the queries in one tensor, bf16."""
    wanted = c.prefill_impl in _CONCATENATES or (c.prefill_impl == "trtllm" and c.kv_dtype == "bf16")
    return {"Ta": 2 * local_heads(g, c) * g.latent_dim} if g.is_mla and wanted else NONE


@ATTENTION.buffer("attention", "Hl w Tp", "layers/attention/dsa_backend.py:3846-3862")
def q_merged_fp8(g: Geometry, c: RunContext) -> Terms:
    """The same merged and quantised to fp8 for trtllm."""
    wanted = g.is_sparse and c.prefill_impl == "trtllm" and c.kv_dtype == "fp8"
    return {"Ta": local_heads(g, c) * g.latent_dim} if wanted else NONE


@ATTENTION.buffer("attention", "2 pad w Tp", "layers/attention/dsa_backend.py:2819-2837")
def q_head_padded(g: Geometry, c: RunContext) -> Terms:
    """Queries padded to the head count the kernel knows, bf16."""
    heads = kernel_heads(g, c)
    return {"Ta": 2 * heads * g.latent_dim} if g.is_sparse and heads != local_heads(g, c) else NONE


@ATTENTION.buffer(
    "attention",
    "2 pad kl Tp; 2 Hl v T (dense); 2 Hq dv/tp Tp (GQA)",
    "layers/attention/dsa_backend.py:2865-2877,3964-4010",
)
def attn_out(g: Geometry, c: RunContext) -> Terms:
    """Attention output, bf16, with the padded heads where there are any."""
    if not g.is_mla:
        return {"Tp": 2 * local_heads(g, c) * g.v_head_dim}
    heads = kernel_heads(g, c) if g.is_sparse else local_heads(g, c)
    return {"Ta": 2 * heads * g.kv_lora_rank, "Td": 2 * local_heads(g, c) * g.v_head_dim}


@ATTENTION.buffer(
    "attention", "8 pad Tp (flashmla_sparse), 4 heads Tp (others)", "layers/attention/dsa_backend.py:2865-2877"
)
def attn_lse(g: Geometry, c: RunContext) -> Terms:
    """Largest logit and log-sum-exp of each row and head, fp32."""
    if not g.is_mla:
        return NONE
    dense = {"Td": 4 * local_heads(g, c)}
    if c.prefill_impl in {"trtllm", "tilelang"}:
        return dense
    each = 8 if c.prefill_impl.startswith("flashmla_sparse") else 4
    heads = kernel_heads(g, c) if g.is_sparse else local_heads(g, c)
    return {"Ta": each * heads} | dense


@ATTENTION.buffer("attention", "2 w sumS, with a prefix", "dsa_backend.py:2442-2449; dequant_k_cache.py:163-171")
def kv_dequant_bf16(g: Geometry, c: RunContext) -> Terms:
    """fp8 pool under a bf16 kernel: the whole context of the whole batch in bf16, shared prefixes repeated."""
    wanted = c.kv_dtype == "fp8" and c.prefill_impl in {"flashmla_sparse", "triton_sparse_mla"}
    return {"Sd": 2 * g.latent_dim} if g.is_sparse and wanted else NONE


@ATTENTION.buffer("attention", "2 w T, without a prefix", "layers/attention/dsa_backend.py:2450-2451")
def kv_concat(g: Geometry, c: RunContext) -> Terms:
    """The chunk's own latent and rope keys in one tensor, bf16."""
    return {"Tc": 2 * g.latent_dim} if g.is_sparse and c.kv_dtype == "fp8" and c.prefill_impl in RAGGED_IMPLS else NONE


@ATTENTION.buffer("attention", "w (sumS + K)", "layers/attention/dsa_backend.py:3132-3192")
def kv_q8(g: Geometry, c: RunContext) -> Terms:
    """The grow-only fp8 copy of flashmla_sparse_q8; charged for this batch, though it never shrinks."""
    return {"Kq": g.latent_dim} if g.is_sparse and c.prefill_impl == "flashmla_sparse_q8" else NONE


@ATTENTION.buffer("attention", "656 pool", "layers/attention/dsa_backend.py:3342-3344")
def kv_pool_quantised(g: Geometry, c: RunContext) -> Terms:
    """flashmla_kv over a bf16 pool quantises the whole pool in every layer."""
    wanted = g.is_sparse and c.prefill_impl == "flashmla_kv" and c.kv_dtype == "bf16"
    return {"one": PACKED_ROW_BYTES * c.pool_tokens} if wanted and c.pool_tokens else NONE


@ATTENTION.buffer("attention", "2 w n", "deepseek_common/attention_forward_methods/forward_mha.py:283-294,481-588")
def mla_latent(g: Geometry, _c: RunContext) -> Terms:
    """Latent rows read back for materialising, bf16."""
    return {"n": 2 * g.latent_dim} if g.is_mla else NONE


@ATTENTION.buffer("attention", "2 Hl (nope + v) n", "deepseek_common/attention_forward_methods/forward_mha.py:283-294")
def mla_kv_b(g: Geometry, c: RunContext) -> Terms:
    """Keys (without rope) and values of every head, bf16."""
    return {"n": 2 * local_heads(g, c) * (g.qk_nope_head_dim + g.v_head_dim)} if g.is_mla else NONE


@ATTENTION.buffer("attention", "2 Hl (nope + r) n", "deepseek_common/attention_forward_methods/forward_mha.py:283-294")
def mla_k(g: Geometry, c: RunContext) -> Terms:
    """Whole keys of every head, bf16."""
    return {"n": 2 * local_heads(g, c) * (g.qk_nope_head_dim + g.qk_rope_head_dim)} if g.is_mla else NONE


@ATTENTION.buffer(
    "attention", "2 Hl (2 nope + v + r) T", "deepseek_common/attention_forward_methods/forward_mha.py:481-588"
)
def mla_extend_kv(g: Geometry, c: RunContext) -> Terms:
    """The same two for the tokens being computed; their caller keeps them through the prefix chunks."""
    width = 2 * g.qk_nope_head_dim + g.v_head_dim + g.qk_rope_head_dim
    return {"Te": 2 * local_heads(g, c) * width} if g.is_mla and not g.is_sparse else NONE


def _accumulator_row(g: Geometry, c: RunContext) -> int:
    return local_heads(g, c) * (2 * g.v_head_dim + 4) if g.is_mla and not g.is_sparse else 0


@ATTENTION.buffer("attention", "(2 Hl v + 4 Hl) T", "deepseek_common/attention_forward_methods/forward_mha.py:566-588")
def mla_accumulated(g: Geometry, c: RunContext) -> Terms:
    """Running output and log-sum-exp over the prefix chunks so far."""
    return {"To": row} if (row := _accumulator_row(g, c)) else NONE


@ATTENTION.buffer(
    "attention", "2 (2 Hl v + 4 Hl) T", "deepseek_common/attention_forward_methods/forward_mha.py:566-588"
)
def mla_chunk_out(g: Geometry, c: RunContext) -> Terms:
    """Output and log-sum-exp of one prefix chunk, and their merge with those so far."""
    return {"To": 2 * row} if (row := _accumulator_row(g, c)) else NONE


@ATTENTION.buffer(
    "attention", "2 Hl (2 nope + v + r) n", "deepseek_common/attention_forward_methods/forward_mha.py:296-325"
)
def mla_kv_kept(g: Geometry, c: RunContext) -> Terms:
    """Keys and values made all at once, which the caller still holds while the output is projected."""
    width = 2 * g.qk_nope_head_dim + g.v_head_dim + g.qk_rope_head_dim
    return {"nk": 2 * local_heads(g, c) * width} if g.is_mla else NONE


@ATTENTION.buffer("attention", "2 Hl v Tp", "deepseek_common/attention_forward_methods/forward_mla.py:911-923")
def attn_values(g: Geometry, c: RunContext) -> Terms:
    """Attention output unfolded from the latent space, bf16."""
    return {"Ta": 2 * local_heads(g, c) * g.v_head_dim} if g.is_mla else NONE


@ATTENTION.buffer(
    "attention", "2 h Tp", "deepseek_common/attention_forward_methods/forward_mla.py:946; models/llama.py"
)
def attn_projected(g: Geometry, _c: RunContext) -> Terms:
    """Output of the attention part, bf16, made while the kernel's operands and output still stand."""
    return {"Tp": 2 * g.hidden_size}


@ATTENTION.buffer(
    "attention", "2 (Hq d + Hkv (d + dv))/tp Tp", "models/qwen3.py, models/llama.py: fused qkv projection"
)
def qkv(g: Geometry, c: RunContext) -> Terms:
    """Fused queries, keys and values of grouped-query attention, bf16."""
    if g.is_mla:
        return NONE
    return {"Tp": 2 * (local_heads(g, c) * g.head_dim + local_kv_heads(g, c) * (g.head_dim + g.v_head_dim))}


@ATTENTION.buffer("attention", "Hkv (d + dv)/tp T", "mem_cache/memory_pool.py:2926-2932")
def kv_fp8_cast(g: Geometry, c: RunContext) -> Terms:
    """Keys and values cast to fp8 on their way into the pool."""
    wanted = not g.is_mla and c.kv_dtype == "fp8"
    return {"T": local_kv_heads(g, c) * (g.head_dim + g.v_head_dim)} if wanted else NONE


def _cp_kv_row(g: Geometry, c: RunContext) -> int:
    return 2 * local_kv_heads(g, c) * (g.head_dim + g.v_head_dim) if not g.is_mla and c.cp > 1 else 0


@ATTENTION.buffer("attention", "2 Hkv (d + dv)/tp max Tl", "layers/cp/zigzag.py:326-335")
def cp_kv_local(g: Geometry, c: RunContext) -> Terms:
    """This rank's keys and values made contiguous for the zigzag gather, bf16."""
    return {"Tlmax": row} if (row := _cp_kv_row(g, c)) else NONE


@ATTENTION.buffer("attention", "2 Hkv (d + dv)/tp cp max Tl", "layers/cp/zigzag.py:415-445,460-497")
def cp_kv_full_a(g: Geometry, c: RunContext) -> Terms:
    """Keys and values of the whole chunk as they arrive, bf16."""
    return {"Tlmax": row * c.cp} if (row := _cp_kv_row(g, c)) else NONE


@ATTENTION.buffer("attention", "2 Hkv (d + dv)/tp T", "layers/cp/zigzag.py:415-445,460-497")
def cp_kv_full_b(g: Geometry, c: RunContext) -> Terms:
    """The same in batch order, bf16."""
    return {"Tcp": row} if (row := _cp_kv_row(g, c)) else NONE


def materialised_kv_bytes(geometry: Geometry, tokens: int, *, tp: int = 1) -> int:
    """Return the bytes of MLA's K and V of `tokens` tokens in bf16: 2 Hl ((nope + r) + v) a token.

    DeepSeek-V3 with 128 heads a rank: 81,920 B a token, 10 GiB for 131,072 tokens.
    """
    width = geometry.qk_nope_head_dim + geometry.qk_rope_head_dim + geometry.v_head_dim
    return 2 * (geometry.heads // tp) * width * tokens
