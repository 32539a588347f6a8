"""The table of lifetimes."""

from estimator.batch import BatchEstimator
from estimator.buffers import BUFFERS, PARTS
from estimator.case import read_case
from estimator.context import RunContext
from estimator.estimate import estimate_batch
from estimator.presets import preset
from estimator.sizes import Sizes
from estimator.timeline import PHASES, TIMELINE

V32 = preset("deepseek-v3.2")


def test_table_and_buffers_name_each_other():
    """Every buffer stands in a window, every window's buffers and phases exist, and windows run forward."""
    named = {name for window in TIMELINE for name in window.buffers}
    assert named == set(BUFFERS)
    for window in TIMELINE:
        assert PHASES.index(window.first) <= PHASES.index(window.last)
        assert len(set(window.buffers)) == len(window.buffers)
    assert len({window.name for window in TIMELINE}) == len(TIMELINE)


def test_every_buffer_is_documented():
    """Each buffer says what it is, its formula, its source and how far it is to be trusted."""
    for buffer in BUFFERS.values():
        assert buffer.says.endswith(".")
        assert buffer.formula
        assert buffer.source
        assert buffer.bound in {"exact", "upper"}
        assert buffer.part in PARTS
        assert 3 <= buffer.section <= 9


def test_formulas_use_symbols_that_exist():
    """Every symbol a formula multiplies is one that a batch has, with a coefficient that is not negative."""
    for name in ("deepseek-v3.2", "deepseek-v3", "qwen3-32b"):
        geometry = preset(name)
        for cp in (1, 2):
            run = RunContext.default_for(geometry, cp=cp, shard_size=2, draft=True, kv_dtype="fp8", logprob_rows=1)
            for buffer in BUFFERS.values():
                for symbol, coefficient in buffer.terms(geometry, run).items():
                    assert symbol in Sizes._fields
                    assert coefficient >= 0


def test_two_score_chunks_are_alive_at_once():
    """While a chunk is scored the one before is still there; while its top-k is taken it is not."""
    run = RunContext.from_run({"mqa_budget": {"fixed_bytes": 1 << 28}}, V32)
    estimate = estimate_batch(V32, run, [(60_000, 8192)])
    scoring, choosing = estimate.at_phase("index_score"), estimate.at_phase("index_topk")
    assert scoring["mqa_logits"] == scoring["mqa_logits_next"] == estimate.buffers["mqa_logits"]
    assert "mqa_logits_next" not in choosing
    assert "topk_page_table_rows" in choosing
    assert "topk_page_table_rows" not in scoring


def test_prefetch_stream_adds_the_next_layers_dense_buffers():
    """With prefetching on, a batch of two holds the next layer's gathered keys on a stream of their own."""
    asked = {"kv_dtype": "fp8", "prefill_impl": "flashmla_sparse"}
    plain = RunContext.from_run(asked, V32)
    ahead = RunContext.from_run({**asked, "bs_gt1_l1_prefetch_enabled": True}, V32)
    batch = [(40_000, 1024), (40_000, 1024)]
    without, with_it = estimate_batch(V32, plain, batch), estimate_batch(V32, ahead, batch)
    window = next(window for window in with_it.windows if window.stream == "prefetch")
    added = sum(with_it.buffers.get(name, 0) for name in window.buffers)
    assert added == 2 * 576 * 82_048 + 132 * 82_048
    for phase in window.phases:
        if phase in with_it.phases:
            assert with_it.phases[phase] == without.phases[phase] + added
    assert "prefetch" not in {window.stream for window in without.windows}


def test_load_back_lies_beside_every_phase():
    """Index copies of a load-back are alive on the transfer stream from the first phase to the last."""
    run = RunContext.default_for(V32)
    idle, loading = estimate_batch(V32, run, [(8192, 1024)]), estimate_batch(V32, run, [(8192, 1024, 4096)])
    for phase, size in idle.phases.items():
        assert loading.phases[phase] == size + 16 * 4096
    merged = estimate_batch(V32, run, [(8192, 1024, 4096), (8192, 1024, 4096)])
    assert merged.buffers["loadback_ids"] == 24 * 8192


def test_draft_runs_a_layer_on_top_of_the_targets_hidden_states():
    """With a draft the peak is a layer's phase again, the target's hidden states and the draft's input beside it."""
    target = estimate_batch(V32, RunContext.default_for(V32), [(0, 4096)])
    drafting = estimate_batch(V32, RunContext.default_for(V32, draft=True), [(0, 4096)])
    assert drafting.peak_phase == "draft_attn"
    added = 4096 * (2 * 7168 + 8 + 8 * 7168) + 4 * 2048
    assert drafting.requested == target.phases["attn"] + added


def test_a_shared_topk_is_held_between_layers():
    """A model whose layers share a top-k keeps the last one through the layer that makes the next."""
    shared = preset("glm-5.2")
    estimate = estimate_batch(shared, RunContext.default_for(shared), [(10_000, 1000)])
    assert estimate.at_phase("attn")["topk_indices_last"] == 4 * 2048 * 1000
    assert estimate.at_phase("mlp")["topk_indices"] == 4 * 2048 * 1000


def test_short_requests_leave_some_ranks():
    """Under interleave a request of one token stands on one rank only, and the fullest rank is the one reported."""
    case = read_case(
        {"model": "deepseek-v3.2", "requests": [[50_000, 1], [0, 4096]], "run": {"cp": 4, "cp_strategy": "interleave"}}
    )
    estimate = case.estimate()
    assert estimate.rank == 0
    assert estimate.sizes.Ssel == 50_001 + 4096
    assert estimate.score.cols == 50_001 + 4096
    moved = read_case(
        {"model": "deepseek-v3.2", "requests": [[0, 4097], [50_000, 1]], "run": {"cp": 4, "cp_strategy": "interleave"}}
    )
    assert moved.estimate().rank == 1


def test_zigzag_falls_back_for_a_short_request():
    """One request shorter than two blocks a rank, and the whole batch runs unsplit on every rank."""
    geometry = preset("qwen3-32b")
    run = RunContext.default_for(geometry, cp=4)
    split, whole = estimate_batch(geometry, run, [(0, 4000)]), estimate_batch(geometry, run, [(0, 4000), (0, 7)])
    assert (split.sizes.Tl, split.sizes.Tp) == (1000, 1000)
    assert (whole.sizes.Tl, whole.sizes.Tp) == (4007, 4007)
    assert "cp_kv_full_a" not in whole.buffers


def test_phase_index_of_a_state_is_a_phase():
    """A state's phase is an index into the names the estimator shows."""
    estimator = BatchEstimator.for_model("deepseek-v3.2")
    state = estimator.add(estimator.empty, 0, 4096)
    assert estimator.PHASES[state.phase] == "attn"
    assert len(estimator.parts(state)) == len(estimator.PARTS) == 10
