"""Alignment: the batches of two runs as rows, each with the batch of either side that goes with it in time.

Two batches share a row when they have the same members and began within `SAME_NS` of each other, or else when of those
that are left each is the other's nearest in time, not more than `NEAR_NS` away. Every batch stands in one row, and on
either side they keep their order, however many there are on the other.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SAME_NS: Final = 1_000_000_000
NEAR_NS: Final = 10_000_000_000
Parting = Literal["alone", "members", "tokens", "gate", "verdict"]
"""What two runs part in: a batch without one beside it, who is in it, how many tokens of theirs, what closed it, or
what those were told who stayed out."""


class Batch(msgspec.Struct, frozen=True):
    """One pass that admitted somebody. `start_ns` is on the clock that both sides share."""

    number: int
    start_ns: int
    members: tuple[str, ...]
    """Ids, the continuing chunk first."""
    device: int
    loaded: int
    computed: int
    gate: str
    """What closed it; empty when nothing did."""
    reason: str
    told: tuple[tuple[str, str, str, str], ...] = ()
    """(request, outcome, gate, reason) of those that were looked at and stayed out."""


Pair = tuple[int | None, int | None]
"""The places of the batches of a row, left and right; None where there is none."""
Gap = tuple[tuple[int, int], tuple[int, int]]
"""A stretch of places of the left side and one of the right, each from its first to behind its last."""


class Row(msgspec.Struct, frozen=True):
    """The batches that stand beside each other, and what they part in."""

    left: Batch | None
    right: Batch | None
    parts: tuple[Parting, ...] = ()

    @property
    def start_ns(self) -> int:
        """When it began; at the left where there are two."""
        batch = self.left or self.right
        return 0 if batch is None else batch.start_ns


def rows_of(left: Sequence[Batch], right: Sequence[Batch]) -> tuple[Row, ...]:
    """The rows of two runs, in time."""
    found = []
    for one, other in align(left, right):
        a = None if one is None else left[one]
        b = None if other is None else right[other]
        found.append(Row(a, b, parts(a, b)))
    return tuple(found)


def parts(left: Batch | None, right: Batch | None) -> tuple[Parting, ...]:
    """What two batches part in; nothing when they are the same decision."""
    if left is None or right is None:
        return ("alone",)
    found: list[Parting] = []
    if sorted(left.members) != sorted(right.members):
        found.append("members")
    elif (left.computed, left.device + left.loaded) != (right.computed, right.device + right.loaded):
        found.append("tokens")
    if (left.gate, left.reason) != (right.gate, right.reason):
        found.append("gate")
    if _told_otherwise(left, right, whole="members" not in found):
        found.append("verdict")
    return tuple(found)


def _told_otherwise(left: Batch, right: Batch, *, whole: bool) -> bool:
    """Whether those who stayed out of both were told another thing; `whole`, also whether one alone was told any."""
    one, other = ({request: told for request, *told in batch.told} for batch in (left, right))
    if whole:
        return one != other
    return any(one[request] != other[request] for request in one.keys() & other.keys())


def align(left: Sequence[Batch], right: Sequence[Batch]) -> list[Pair]:
    """The rows of two runs as places, each side in the order of its passes, which is that of their times."""
    pairs = _paired(left, right)
    rows: list[Pair] = []
    for (lefts, rights), pair in zip(_gaps(pairs, (0, len(left)), (0, len(right))), [*pairs, None], strict=True):
        rows += _between(left, right, lefts, rights)
        if pair is not None:
            rows.append(pair)
    return rows


def _paired(left: Sequence[Batch], right: Sequence[Batch]) -> list[tuple[int, int]]:
    """The places that go together, in order on both sides.

    The same members first, then nearest pairs among what is left between those that are found, until none is near.
    """
    pairs = list(_same(left, right))
    todo = list(_gaps(pairs, (0, len(left)), (0, len(right))))
    while todo:
        lefts, rights = todo.pop()
        found = list(_nearest(left, right, lefts, rights))
        pairs += found
        if found:
            todo += _gaps(found, lefts, rights)
    return sorted(pairs)


def _gaps(pairs: Sequence[tuple[int, int]], lefts: tuple[int, int], rights: tuple[int, int]) -> Iterator[Gap]:
    """Of stretches of both sides, what is before, between and behind pairs that are in order."""
    i, j = lefts[0], rights[0]
    for one, other in pairs:
        yield (i, one), (j, other)
        i, j = one + 1, other + 1
    yield (i, lefts[1]), (j, rights[1])


def _same(left: Sequence[Batch], right: Sequence[Batch]) -> Iterator[tuple[int, int]]:
    """Batches of the same members at about the same time, the nearest first where there are several."""
    places: dict[tuple[str, ...], list[int]] = {}
    for j, batch in enumerate(right):
        places.setdefault(batch.members, []).append(j)
    free = 0
    for i, batch in enumerate(left):
        known = places.get(batch.members, [])
        near = [
            (abs(right[j].start_ns - batch.start_ns), j)
            for j in known[bisect_left(known, free) :]
            if abs(right[j].start_ns - batch.start_ns) <= SAME_NS
        ]
        if near:
            _, j = min(near)
            yield i, j
            free = j + 1


def _nearest(
    left: Sequence[Batch], right: Sequence[Batch], of_left: tuple[int, int], of_right: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Among stretches of both sides, those that are each other's nearest; such pairs never cross."""
    lefts = [left[i].start_ns for i in range(*of_left)]
    rights = [right[j].start_ns for j in range(*of_right)]
    if not lefts or not rights:
        return
    for place, at_ns in enumerate(lefts):
        near = _nearest_place(rights, at_ns)
        if abs(rights[near] - at_ns) <= NEAR_NS and _nearest_place(lefts, rights[near]) == place:
            yield of_left[0] + place, of_right[0] + near


def _nearest_place(times: Sequence[int], at_ns: int) -> int:
    """The place of the nearest of sorted times, the earliest of those that are as near."""
    after = bisect_left(times, at_ns)
    if after == len(times) or (after and at_ns - times[after - 1] <= times[after] - at_ns):
        return bisect_left(times, times[after - 1])
    return after


def _between(
    left: Sequence[Batch], right: Sequence[Batch], of_left: tuple[int, int], of_right: tuple[int, int]
) -> Iterator[Pair]:
    """The batches that stand alone between two pairs, by their time."""
    i, j = of_left[0], of_right[0]
    while i < of_left[1] or j < of_right[1]:
        if j == of_right[1] or (i < of_left[1] and left[i].start_ns <= right[j].start_ns):
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1
