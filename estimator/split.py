"""Which rows of a batch stand on which rank under context-parallel prefill."""

from collections.abc import Sequence
from typing import NamedTuple

from estimator.context import RunContext


class RankRows(NamedTuple):
    """The rows of one rank. Rows in tokens; `members` are the indices of the requests that have a row here."""

    logical: int
    physical: int
    longest: int  # the largest `logical` of any rank
    members: tuple[int, ...]
    split: bool  # False where the batch runs without context parallelism


def rank_rows(context: RunContext, extends: Sequence[int]) -> list[RankRows]:
    """Split a batch as SGLang does; one entry a rank, or a single entry where all ranks hold the same rows.

    Interleave (cp/interleave.py:242-266): batch token j goes to rank j mod cp. Zigzag (cp/zigzag.py:109-169): each
    request is cut in 2 cp blocks and rank r owns blocks r and 2 cp - 1 - r; a request shorter than 2 cp turns
    splitting off for its batch. Physical rows are rounded up alike on all ranks (cp/padding.py:24-43).
    """
    total = sum(extends)
    everyone = tuple(range(len(extends)))
    if context.cp_strategy == "interleave":
        return _interleaved(context.cp, extends)
    if context.cp_strategy == "zigzag" and extends and min(extends) >= 2 * context.cp:
        blocks = 2 * context.cp
        logical = [
            sum(_block(extend, blocks, rank) + _block(extend, blocks, blocks - 1 - rank) for extend in extends)
            for rank in range(context.cp)
        ]
        longest = max(logical)
        physical = -(-longest // blocks) * blocks
        return [RankRows(each, physical, longest, everyone, split=True) for each in logical]
    return [RankRows(total, total, total, everyone, split=False)]


def _block(extend: int, blocks: int, index: int) -> int:
    return extend // blocks + (1 if index < extend % blocks else 0)


def _interleaved(cp: int, extends: Sequence[int]) -> list[RankRows]:
    counts = [[0] * len(extends) for _ in range(cp)]
    start = 0
    for index, extend in enumerate(extends):
        for rank in range(cp):
            first = (rank - start) % cp
            counts[rank][index] = 0 if first >= extend else -(-(extend - first) // cp)
        start += extend
    logical = [sum(row) for row in counts]
    longest = max(logical)
    physical = -(-longest // cp) * cp
    return [
        RankRows(
            logical[rank], physical, longest, tuple(i for i, count in enumerate(counts[rank]) if count), split=True
        )
        for rank in range(cp)
    ]
