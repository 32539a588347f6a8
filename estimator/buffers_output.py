"""Buffers of the feed-forward part, the LM head, transfers and the speculative draft (fact sheet 8 and 9)."""

from estimator.buffer import NONE, Section, Terms
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.rounding import ceil_div

OUTPUT, TRANSFER = Section(8), Section(9)

# DeepGEMM pads each local expert's rows to a multiple of 128.
_EXPERT_PAD_ROWS = 127


@OUTPUT.buffer("other", "2 h Tp", "inferred", bound="upper")
def residual(g: Geometry, _c: RunContext) -> Terms:
    """The residual stream, bf16."""
    return {"Tp": 2 * g.hidden_size}


@OUTPUT.buffer("other", "2 h Tp", "inferred", bound="upper")
def hidden_normed(g: Geometry, _c: RunContext) -> Terms:
    """The layer's normalised input, bf16."""
    return {"Tp": 2 * g.hidden_size}


def dense_mlp_row(g: Geometry, c: RunContext) -> int:
    """Return bytes a row of the dense feed-forward part: gate and up, activation, output."""
    return 6 * ceil_div(g.intermediate_size, c.tp) + 2 * g.hidden_size


def _with_scales(elements: int) -> int:
    """Return the bytes of fp8 elements with one fp32 scale for each 128."""
    return elements + 4 * ceil_div(elements, 128)


@OUTPUT.buffer(
    "mlp",
    "dense (6 inter/tp + 2 h) Tm; triton Tm (33/32 h + 2 h + max(c1 + c2, c2 + a2 + c3)); "
    "deepgemm max over steps of k Tm + 127 local experts rows",
    "moe_runner/triton_utils/fused_moe.py:610-680,872-880; moe_runner/deep_gemm.py:448-640; deepseek_v2.py:392",
    bound="upper",
)
def mlp_work(g: Geometry, c: RunContext) -> Terms:
    """Work of one feed-forward layer: dense, or the routed experts (balanced routing)."""
    kind, spec = c.mlp.kind, c.mlp
    if kind == "none":
        return NONE
    if kind == "dense":
        return {"Tm": dense_mlp_row(g, c)}
    k, h = g.experts_per_token, g.hidden_size
    mi = ceil_div(g.moe_intermediate_size, spec.moe_tp or c.tp)
    if kind == "moe_triton":
        c1, c2, c3, a2 = 4 * k * mi, 2 * k * mi, 2 * k * h, k * _with_scales(mi)
        return {"Tm": _with_scales(h) + 2 * h + max(c1 + c2, c2 + a2 + c3)}
    row = max(_with_scales(h) + 4 * mi, 6 * mi, _with_scales(mi) + 2 * h)
    return {"Tm": k * row, "one": ceil_div(g.routed_experts, spec.ep) * _EXPERT_PAD_ROWS * row}


@OUTPUT.buffer("mlp", "2 h Tm", "models/deepseek_v2.py:1328-1337", bound="upper")
def mlp_shared_out(g: Geometry, c: RunContext) -> Terms:
    """Output of the shared experts, bf16, alive while the routed ones run; fused with them it is one expert more."""
    return {"Tm": 2 * g.hidden_size} if g.shared_experts and c.mlp.kind.startswith("moe") else NONE


@OUTPUT.buffer("mlp", "(4 E + 12 k) Tm + 252 E", "models/deepseek_v2.py:1347-1367; fused_moe.py:485-490", bound="upper")
def mlp_routing(g: Geometry, c: RunContext) -> Terms:
    """Router logits, fp32, weights and ids of the chosen experts, and rows sorted by expert in tiles of 64."""
    if not c.mlp.kind.startswith("moe"):
        return NONE
    return {"Tm": 4 * g.routed_experts + 12 * g.experts_per_token, "one": 4 * 63 * g.routed_experts}


@OUTPUT.buffer("mlp", "2 h Tm", "layers/dp_attention.py:291-300")
def mlp_gathered(g: Geometry, c: RunContext) -> Terms:
    """Rows of all ranks gathered for the feed-forward part (data-parallel attention, or full rows under CP), bf16."""
    if c.mlp.dp_tokens:
        return {"one": 2 * g.hidden_size * c.mlp.dp_tokens}
    return {"T": 2 * g.hidden_size} if c.mlp.full_rows and c.cp > 1 else NONE


@OUTPUT.buffer("other", "2 h cp Tp", "layers/cp/utils.py:239-259; layers/cp/interleave.py:313-338")
def cp_hidden_gathered(g: Geometry, c: RunContext) -> Terms:
    """Last hidden states of all ranks as they arrive, bf16."""
    return {"Tp": 2 * g.hidden_size * c.cp} if c.cp > 1 else NONE


@OUTPUT.buffer("other", "2 h T", "layers/cp/utils.py:239-259")
def final_hidden(g: Geometry, _c: RunContext) -> Terms:
    """Last hidden states of the whole batch, bf16."""
    return {"T": 2 * g.hidden_size}


@OUTPUT.buffer("logits", "B V (2/tp + 4)", "layers/logits_processor.py:1199,1244-1258", bound="upper")
def lm_head_local(g: Geometry, c: RunContext) -> Terms:
    """Last rows' logits in bf16: this rank's, gathered, reordered. With prompt logprobs the chunks give them."""
    if c.logprob_rows:
        return NONE
    return {"B": 2 * ceil_div(g.vocab_size, c.tp) + (4 * g.vocab_size if c.tp > 1 else 0)}


@OUTPUT.buffer("logits", "4 B V", "layers/logits_processor.py:1368")
def next_token_logits(g: Geometry, _c: RunContext) -> Terms:
    """Logits of the last rows, fp32."""
    return {"B": 4 * g.vocab_size}


@OUTPUT.buffer("logits", "4 B V", "layers/sampler.py", bound="upper")
def sampler_probs(g: Geometry, _c: RunContext) -> Terms:
    """Probabilities of the sampler, fp32."""
    return {"B": 4 * g.vocab_size}


@OUTPUT.buffer("logits", "2 h R", "layers/logprob_processor.py:504-524")
def logprob_pruned_hidden(g: Geometry, c: RunContext) -> Terms:
    """Hidden states of the rows asked for prompt logprobs, bf16."""
    return {"R": 2 * g.hidden_size} if c.logprob_rows else NONE


@OUTPUT.buffer("logits", "8 c V", "layers/logprob_processor.py:586-700; environ.py:1512-1513")
def logprob_logits(g: Geometry, c: RunContext) -> Terms:
    """One chunk's logits and their row-selected copy, fp32 each."""
    return {"c": 8 * g.vocab_size} if c.logprob_rows else NONE


@TRANSFER.buffer("transfer", "16 L, 24 L when operations merge", "managers/cache_controller.py:928-951,1028-1068")
def loadback_ids(_g: Geometry, c: RunContext) -> Terms:
    """Host and device slots of the tokens being loaded back, int64 on the device (kernel io)."""
    return {"Lb": 1} if c.loadback_io == "kernel" else NONE


@TRANSFER.buffer("transfer", "4 ceil(t/ps)", "disaggregation/prefill.py:1732-1763")
def pd_send_ids(_g: Geometry, c: RunContext) -> Terms:
    """Page ids of the segments a prefill node sends, int32."""
    return {"G": 4} if c.pd_transfer else NONE


@TRANSFER.buffer("other", "2 h T", "speculative/eagle_worker_v2.py:961-1014,1552-1600")
def draft_target_hidden(g: Geometry, c: RunContext) -> Terms:
    """The target's hidden states, kept through the draft pass, bf16."""
    return {"T": 2 * g.hidden_size} if c.draft else NONE


@TRANSFER.buffer("other", "8 T + 8 h T", "speculative/eagle_worker_v2.py:984-1003; models/deepseek_nextn.py:193-222")
def draft_input(g: Geometry, c: RunContext) -> Terms:
    """Rotated ids, embeddings, their concatenation with the hidden states, and its projection."""
    return {"T": 8 + 8 * g.hidden_size} if c.draft else NONE


@TRANSFER.buffer("topk", "4 K B", "speculative/eagle_worker_v2.py:1098-1108")
def draft_seed_topk(g: Geometry, c: RunContext) -> Terms:
    """Top-k seed of the next draft decode, int32; persistent and grow-only."""
    return {"B": 4 * g.index_topk} if c.draft and g.is_sparse else NONE
