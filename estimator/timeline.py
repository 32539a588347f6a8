"""When each temporary buffer is alive: windows of phases, on the stream that holds them.

The compute stream runs its phases one after another. A window on another stream lies beside the compute phases it
spans, so its bytes add to them. The peak is the largest sum over the windows that overlap a phase.
"""

from collections.abc import Callable
from dataclasses import dataclass

from estimator.context import RunContext
from estimator.geometry import Geometry

# In the order they run. The draft phases repeat a layer for the speculative draft.
PHASES: tuple[str, ...] = (
    "prepare",
    "attn_build",
    "embed",
    "index_build",
    "index_score",
    "index_topk",
    "attn_kv",
    "attn",
    "attn_project",
    "mlp",
    "final_gather",
    "lm_head",
    "logits",
    "draft_build",
    "draft_score",
    "draft_topk",
    "draft_kv",
    "draft_attn",
    "draft_project",
    "draft_mlp",
)
_DRAFT_OF = {
    "index_build": "draft_build",
    "index_score": "draft_score",
    "index_topk": "draft_topk",
    "attn_kv": "draft_kv",
    "attn": "draft_attn",
    "attn_project": "draft_project",
    "mlp": "draft_mlp",
}
COMPUTE, TRANSFER, GATHER, PREFETCH = "compute", "transfer", "gather", "prefetch"

Condition = Callable[[Geometry, RunContext], bool]


def always(_geometry: Geometry, _context: RunContext) -> bool:
    """Hold in every run."""
    return True


def _cp(_g: Geometry, c: RunContext) -> bool:
    return c.cp > 1


def _wide_table_stays(g: Geometry, c: RunContext) -> bool:
    return g.is_sparse or c.page_size == 1


def _wide_table_replaced(g: Geometry, c: RunContext) -> bool:
    return not _wide_table_stays(g, c)


def _topk_reused(g: Geometry, _c: RunContext) -> bool:
    return g.index_topk_freq > 1


def _prefetches(_g: Geometry, c: RunContext) -> bool:
    return c.bs_gt1_l1_prefetch_enabled


@dataclass(frozen=True, slots=True)
class Window:
    """Buffers alive from the start of phase `first` to the end of phase `last`, on one stream.

    `several` marks a window that is open only in a batch of more than one request.
    """

    name: str
    stream: str
    first: str
    last: str
    buffers: tuple[str, ...]
    when: Condition = always
    several: bool = False

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases this window overlaps: those between its ends, and the draft's copy of a layer's phases."""
        span = PHASES[PHASES.index(self.first) : PHASES.index(self.last) + 1]
        if self.last in _DRAFT_OF and self.first in _DRAFT_OF:
            return (*span, *(_DRAFT_OF[phase] for phase in span))
        return span


# fmt: off
TIMELINE: tuple[Window, ...] = (
    # the whole batch
    Window("schedule", COMPUTE, "prepare", "draft_mlp",
           ("out_cache_loc", "request_vectors", "schedule_pinned", "input_ids", "positions", "cp_local_ids")),
    Window("load-back", TRANSFER, "prepare", "draft_mlp", ("loadback_ids",)),
    Window("send", TRANSFER, "prepare", "draft_mlp", ("pd_send_ids",)),
    Window("shard plan", GATHER, "prepare", "draft_mlp", ("shard_send_ids", "shard_write_plan")),
    Window("grow-only", COMPUTE, "prepare", "draft_mlp", ("kv_q8", "draft_seed_topk")),
    # before the layers
    Window("attention build", COMPUTE, "attn_build", "attn_build",
           ("page_table_1_all", "row_metadata_full", "shard_translate")),
    Window("wide table", COMPUTE, "attn_build", "attn_build", ("page_table_1",), _wide_table_replaced),
    Window("table", COMPUTE, "attn_build", "draft_mlp", ("page_table_1",), _wide_table_stays),
    Window("metadata", COMPUTE, "attn_build", "draft_mlp",
           ("page_table_pages", "row_metadata", "row_lengths", "topk_offsets", "page_table_flat", "kv_indices",
            "prefix_chunk_ids", "shard_logical_pages")),
    Window("embed", COMPUTE, "embed", "embed", ("embed_full", "embed_local")),
    # one layer
    Window("layer", COMPUTE, "index_build", "mlp", ("residual", "hidden_normed")),
    Window("projections", COMPUTE, "index_build", "attn_project", ("qkv_latent", "q_heads")),
    Window("low-rank queries", COMPUTE, "index_build", "index_topk", ("q_low_normed",)),
    Window("latent gather", GATHER, "index_build", "attn_project",
           ("cp_latent_local", "cp_latent_gathered", "cp_latent_full")),
    Window("index key gather", COMPUTE, "index_build", "index_build", ("index_k_chunk_gathered",)),
    Window("quantise", COMPUTE, "index_build", "index_build", ("index_q_bf16",)),
    Window("originals", COMPUTE, "index_score", "index_topk", ("index_q_bf16",), _cp),
    Window("index", COMPUTE, "index_build", "index_topk", ("index_q", "index_gates", "index_k_chunk")),
    Window("keys", COMPUTE, "index_score", "index_topk", ("index_k_gather", "index_k_scale_gather")),
    Window("scores", COMPUTE, "index_score", "index_topk", ("mqa_logits",)),
    Window("next scores", COMPUTE, "index_score", "index_score", ("mqa_logits_next",)),
    Window("top-k of the chunk before", COMPUTE, "index_score", "index_score", ("topk_chunk_prev",)),
    Window("top-k", COMPUTE, "index_topk", "index_topk",
           ("topk_chunk_out", "topk_chunk_next", "topk_page_table_rows", "topk_score_copy")),
    Window("top-k result", COMPUTE, "index_score", "attn_project", ("topk_indices",)),
    Window("top-k kept", COMPUTE, "mlp", "mlp", ("topk_indices",), _topk_reused),
    Window("top-k of the layer before", COMPUTE, "index_build", "mlp", ("topk_indices_last",)),
    Window("attention", COMPUTE, "attn", "attn",
           ("q_concat", "q_merged_fp8", "q_head_padded", "attn_lse", "kv_dequant_bf16", "kv_concat",
            "kv_pool_quantised", "mla_chunk_out", "kv_fp8_cast", "cp_kv_local", "cp_kv_full_a", "cp_kv_full_b")),
    Window("latent rows", COMPUTE, "attn_kv", "attn_kv", ("mla_latent",)),
    Window("keys and values", COMPUTE, "attn_kv", "attn", ("mla_kv_b", "mla_k")),
    Window("chunked prefix", COMPUTE, "attn_kv", "attn_project", ("mla_extend_kv", "mla_accumulated")),
    Window("operands", COMPUTE, "attn", "attn_project", ("q_absorbed", "attn_out", "qkv")),
    Window("projection", COMPUTE, "attn_project", "attn_project",
           ("mla_kv_kept", "attn_values", "attn_projected")),
    Window("feed-forward", COMPUTE, "mlp", "mlp", ("mlp_work", "mlp_gathered", "mlp_shared_out", "mlp_routing")),
    # the next layer's dense buffers, made while this layer runs
    Window("next layer", PREFETCH, "index_build", "mlp",
           ("index_k_gather", "index_k_scale_gather", "kv_dequant_bf16", "mla_latent", "mla_kv_b", "mla_k",
            "cp_kv_full_b"), _prefetches, several=True),
    # after the layers
    Window("final gather", COMPUTE, "final_gather", "final_gather", ("cp_hidden_gathered", "hidden_normed"), _cp),
    Window("output", COMPUTE, "final_gather", "logits", ("final_hidden",)),
    Window("lm head", COMPUTE, "lm_head", "lm_head", ("lm_head_local",)),
    Window("logits", COMPUTE, "logits", "logits",
           ("next_token_logits", "sampler_probs", "logprob_pruned_hidden", "logprob_logits")),
    Window("draft", COMPUTE, "draft_build", "draft_mlp", ("draft_target_hidden", "draft_input")),
)
# fmt: on


def phases_of(context: RunContext) -> tuple[str, ...]:
    """Return the phases this run goes through; the draft's only with a draft."""
    return PHASES if context.draft else tuple(phase for phase in PHASES if phase not in _DRAFT_OF.values())


def windows_of(geometry: Geometry, context: RunContext, *, several: bool) -> tuple[Window, ...]:
    """Return the windows that are open in this run, for a batch of one request or of several."""
    return tuple(window for window in TIMELINE if window.when(geometry, context) and (several or not window.several))


def live_buffers(geometry: Geometry, context: RunContext, *, several: bool) -> dict[str, tuple[str, ...]]:
    """Return, for each phase, the buffers alive in it. A buffer twice in two windows counts twice."""
    windows = windows_of(geometry, context, several=several)
    return {
        phase: tuple(name for window in windows if phase in window.phases for name in window.buffers)
        for phase in phases_of(context)
    }
