"""Random batches and runs for the estimator's properties."""

from fractions import Fraction

from hypothesis import strategies as st

from estimator.context import GQA_IMPLS, MLA_IMPLS, SPARSE_IMPLS, MlpSpec, MqaBudget, RunContext
from estimator.presets import PRESETS

GEOMETRIES = [each.geometry for each in PRESETS.values()]


@st.composite
def runs(draw, geometry, *, context_parallel=True):
    """A run that the model can have."""
    impls = SPARSE_IMPLS if geometry.is_sparse else MLA_IMPLS if geometry.is_mla else GQA_IMPLS
    cp = draw(st.sampled_from([1, 1, 2, 4, 8])) if context_parallel else 1
    kinds = ["dense", "none"] + (["moe_triton", "moe_deepgemm"] if geometry.moe_intermediate_size else [])
    return RunContext(
        tp=draw(st.sampled_from([1, 2, 8])),
        cp=cp,
        cp_strategy="none" if cp == 1 else "interleave" if geometry.is_sparse else "zigzag",
        page_size=draw(st.sampled_from([1, 16, 64])),
        kv_dtype=draw(st.sampled_from(["bf16", "fp8"])),
        prefill_impl=draw(st.sampled_from(impls)),
        sm_major=draw(st.sampled_from([9, 10, 12])),
        mqa_budget=MqaBudget(fixed_bytes=draw(st.sampled_from([1 << 20, 1 << 28, 1 << 31, 1 << 40]))),
        mlp=MlpSpec(
            kind=draw(st.sampled_from(kinds)),
            tokens=draw(st.sampled_from([0, 0, 4096])),
            full_rows=draw(st.booleans()),
            dp_tokens=draw(st.sampled_from([0, 0, 20000])),
            ep=draw(st.sampled_from([1, 8])),
        ),
        topk_impl=draw(st.sampled_from(["sgl", "flashinfer", "torch"])),
        overlap_schedule=draw(st.booleans()),
        logprob_rows=draw(st.sampled_from([0, 0, 100, 100_000])),
        logprob_chunk=draw(st.sampled_from([2048, None])),
        shard_size=draw(st.sampled_from([1, 4])),
        pool_tokens=draw(st.sampled_from([0, 100_000])),
        draft=draw(st.booleans()),
        pd_transfer=draw(st.booleans()),
        loadback_io=draw(st.sampled_from(["kernel", "direct"])),
        bs_gt1_l1_prefetch_enabled=draw(st.booleans()),
        safety_factor=draw(st.sampled_from([Fraction(1), Fraction("1.1"), Fraction(7, 3)])),
    )


@st.composite
def requests(draw):
    """(prefix, extend, loaded) tokens; short ones often, since splits and thresholds sit there."""
    prefix = draw(st.one_of(st.just(0), st.integers(0, 3000), st.integers(0, 300_000)))
    return prefix, draw(st.one_of(st.integers(1, 20), st.integers(1, 20_000))), draw(st.integers(0, prefix))


batches = st.lists(requests(), min_size=1, max_size=12)


@st.composite
def models_and_runs(draw, *, context_parallel=True):
    """A built-in model with a run for it."""
    geometry = draw(st.sampled_from(GEOMETRIES))
    return geometry, draw(runs(geometry, context_parallel=context_parallel))
