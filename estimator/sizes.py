"""The symbols that buffer formulas are written in, worked out for a whole batch on one rank.

Every buffer is a sum of coefficient x symbol, so a symbol carries all that is not linear: maxima, roundings, the chunk
rule, and which path a batch takes (a symbol of a path not taken is zero).
"""

from collections.abc import Sequence
from typing import NamedTuple

from estimator.context import MOST, RunContext
from estimator.errors import InputError, shown
from estimator.geometry import Geometry
from estimator.rounding import ceil_div
from estimator.scores import ScoreShape, score_shape
from estimator.split import RankRows, rank_rows

# Kernels that may project a whole short context at once (attention_backend_handler.py:25).
ONE_SHOT_IMPLS = frozenset({"fa3", "flashinfer", "flashmla"})


class Request(NamedTuple):
    """One member of a batch, in tokens: prefix reused, extend to compute, loaded of the prefix from the host."""

    prefix: int
    extend: int
    loaded: int = 0


class Sizes(NamedTuple):
    """The value of every symbol. Tokens unless said otherwise; "here" means on the rank in question."""

    one: int  # the constant 1
    B: int  # requests
    T: int  # sum of extends
    Tl: int  # logical query rows here
    Tp: int  # physical rows here, padded
    Tm: int  # rows of the feed-forward part
    S: int  # sum of contexts
    P: int  # sum of prefixes
    Ssel: int  # sum of contexts of the requests that have a row here
    BM: int  # requests x longest context
    BMsel: int  # the same for the requests that have a row here
    BPsel: int  # requests here x pages of the longest context here
    flat: int  # entries of the flattened page table, 0 where none is built
    Tcp: int  # T while context parallelism is on, else 0
    Tlmax: int  # the largest Tl of any rank while context parallelism is on, else 0
    Ri: int  # rows that are scored
    Rk: int  # rows with a top-k result
    Ki: int  # keys gathered for scoring
    score: int  # bytes of one score chunk
    score_next: int  # bytes of the chunk allocated beside it
    chunk: int  # rows one top-k call handles
    chunk_prev: int  # the same where scores are cut, else 0
    chunk_next: int  # rows of the chunk after it, 0 where nothing is cut
    chunk_table: int  # chunk rows x longest context here, where the page-table rows are gathered
    chunk_scores: int  # chunk rows x keys
    Ta: int  # rows of the absorbed (sparse) attention path
    Td: int  # rows of the dense attention path that need no accumulators
    n: int  # context tokens whose K and V are materialised at once
    nk: int  # the same where they are not a chunk of a prefix, which is let go before
    Te: int  # extend tokens materialised beside a prefix chunk
    To: int  # rows with accumulators of a chunked prefix
    ids: int  # KV slots listed for materialising
    Sd: int  # context tokens dequantised for the sparse path
    Tc: int  # extend tokens concatenated when there is no prefix
    Kq: int  # rows of the persistent fp8 buffer of flashmla_sparse_q8
    R: int  # rows asked for prompt logprobs
    c: int  # rows of one logprob chunk
    blk: int  # pages this rank sends in the gather of a sharded prefix
    own: int  # extend tokens of a sharded pool that this rank owns, rounded up
    Lb: int  # bytes of load-back index copies
    G: int  # pages of the extends


class Measured(NamedTuple):
    """A batch on one rank: its symbols, how its rows were split, and how its scores are cut."""

    rank: int
    sizes: Sizes
    rows: RankRows
    score: ScoreShape


def check_requests(requests: Sequence[Request]) -> None:
    """Raise InputError for a request with a negative length or nothing to compute, or more loaded than its prefix."""
    for index, request in enumerate(requests):
        if request.prefix < 0 or request.extend < 1 or request.loaded < 0:
            raise _out_of_bounds(index, request, "prefix and loaded must be at least 0 and extend at least 1")
        if max(request) > MOST:
            raise _out_of_bounds(index, request, f"each must be at most {MOST} tokens")
        if request.loaded > request.prefix:
            raise InputError(
                f"request {index}: loaded {request.loaded} exceeds its prefix {request.prefix}; count loads as prefix"
            )


def _out_of_bounds(index: int, request: Request, bounds: str) -> InputError:
    return InputError(
        f"request {index}: prefix {shown(request.prefix)}, extend {shown(request.extend)}, loaded "
        f"{shown(request.loaded)}; {bounds}"
    )


def takes_dense_sparse_path(geometry: Geometry, context: RunContext, longest: int, total: int) -> bool:
    """Say whether a sparse model attends densely: short contexts, no CP, SM90 or SM100 (dsa_backend.py:4064-4078)."""
    return (
        geometry.is_sparse
        and context.cp == 1
        and context.sm_major in {9, 10}
        and longest <= context.dense_context
        and total <= context.dense_capacity
    )


def measure(geometry: Geometry, context: RunContext, requests: Sequence[Request]) -> list[Measured]:
    """Work out the symbols for every rank that can differ, from the whole batch at once."""
    return [
        _on_rank(geometry, context, requests, rank, rows)
        for rank, rows in enumerate(rank_rows(context, [request.extend for request in requests]))
    ]


def _on_rank(
    geometry: Geometry, context: RunContext, requests: Sequence[Request], rank: int, rows: RankRows
) -> Measured:
    contexts = [request.prefix + request.extend for request in requests]
    here = [contexts[index] for index in rows.members]
    prefixes = [request.prefix for request in requests]
    total, prefix, extend = sum(contexts), sum(prefixes), sum(request.extend for request in requests)
    longest, longest_here, total_here = max(contexts, default=0), max(here, default=0), sum(here)
    page = context.page_size
    paged = context.sharded or context.pd_transfer
    dense = takes_dense_sparse_path(geometry, context, longest, total)
    ragged = geometry.is_sparse and context.kv_dtype == "fp8" and context.prefill_impl in RAGGED_IMPLS
    scored = geometry.is_sparse and not dense and (context.cp > 1 or longest > geometry.index_topk)
    score = score_shape(
        rows.logical if scored else 0,
        total_here if scored else 0,
        row_align=max(1, 128 // geometry.index_heads) if geometry.is_sparse else 1,
        budget=context.mqa_budget.bytes,
    )
    plain = (
        _plain_mla(context, prefixes, extend, total, split=rows.split)
        if geometry.is_mla and not geometry.is_sparse
        else None
    )
    absorbed = geometry.is_mla and not dense and (plain is None or plain.absorbed)
    logprobs = min(context.logprob_rows, extend)
    loaded = [request.loaded for request in requests if request.loaded]
    mlp_rows = extend if context.mlp.full_rows else rows.physical
    sizes = Sizes(
        one=1,
        B=len(requests),
        T=extend,
        Tl=rows.logical,
        Tp=rows.physical,
        Tm=max(mlp_rows, context.mlp.tokens, context.mlp.dp_tokens),
        S=total,
        P=prefix,
        Ssel=total_here,
        BM=len(requests) * longest,
        BMsel=len(here) * longest_here,
        BPsel=len(here) * -(-longest_here // page),
        flat=total_here if prefix and (ragged or (dense and context.kv_dtype == "fp8")) else 0,
        Tcp=extend if rows.split else 0,
        Tlmax=rows.longest if rows.split else 0,
        Ri=rows.physical if scored else 0,
        Rk=rows.physical if geometry.is_sparse and not dense else 0,
        Ki=total_here if scored else 0,
        score=score.chunk_bytes,
        score_next=score.next_bytes,
        chunk=score.chunk_rows,
        chunk_prev=score.chunk_rows if score.chunks > 1 else 0,
        chunk_next=min(score.chunk_rows, score.rows - score.chunk_rows),
        chunk_table=score.chunk_rows * longest_here if score.chunks > 1 and not ragged else 0,
        chunk_scores=score.chunk_rows * total_here,
        Ta=rows.physical if absorbed else 0,
        Td=extend if geometry.is_mla and not absorbed and not (plain and plain.accumulated) else 0,
        n=total if dense else plain.context if plain else 0,
        nk=total if dense else plain.context if plain and not plain.accumulated else 0,
        Te=plain.extend if plain else 0,
        To=plain.accumulated if plain else 0,
        ids=(total if prefix else 0) if dense else plain.ids if plain else 0,
        Sd=total_here if prefix and absorbed else 0,
        Tc=extend if not prefix and absorbed else 0,
        Kq=total_here + geometry.index_topk if absorbed else 0,
        R=logprobs,
        c=logprobs if context.logprob_chunk is None else min(logprobs, context.logprob_chunk),
        blk=sum(ceil_div(ceil_div(each, page), context.shard_size) for each in prefixes) if paged else 0,
        own=-(-extend // context.shard_size),
        Lb=sum(loaded) * (24 if len(loaded) > 1 else 16),
        G=sum(-(-request.extend // page) for request in requests) if paged else 0,
    )
    return Measured(rank, sizes, rows, score)


# fp8 KV with these kernels hands the top-k a flattened (ragged) key space instead of pages.
RAGGED_IMPLS = frozenset({"flashmla_sparse", "flashmla_sparse_q8", "triton_sparse_mla"})


class _PlainMla(NamedTuple):
    absorbed: bool = False
    context: int = 0
    extend: int = 0
    accumulated: int = 0
    ids: int = 0


def _plain_mla(context: RunContext, prefixes: Sequence[int], extend: int, total: int, *, split: bool) -> _PlainMla:
    """Choose MLA's path without an indexer (attention_backend_handler.py:93-165).

    No prefix, or a prefix over the threshold, materialises K and V: all at once where the contexts fit the capacity,
    else prefix chunk by prefix chunk. A small prefix, and any batch under context parallelism, takes the absorbed
    path.
    """
    prefix = sum(prefixes)
    if split:
        return _PlainMla(absorbed=True)
    if context.prefill_impl == "triton":
        return _PlainMla(absorbed=True) if prefix else _PlainMla(context=extend)
    if context.prefill_impl != "trtllm_mla" and 0 < prefix < context.chunked_prefix_threshold:
        return _PlainMla(absorbed=True)
    if context.prefill_impl in ONE_SHOT_IMPLS and total <= context.dense_capacity:
        return _PlainMla(context=total, ids=total if prefix else 0)
    if not prefix:
        return _PlainMla(extend=extend)
    slice_tokens = max(1, context.dense_capacity // len(prefixes))
    first = sum(min(each, slice_tokens) for each in prefixes)
    return _PlainMla(context=first, extend=extend, accumulated=extend, ids=prefix)
