"""Exact percentiles over many sorted arrays, without putting them together."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ui.view.snapshot import Quantiles

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


def quantiles(sorted_parts: Sequence[array[int]]) -> Quantiles:
    """The percentiles of all values together: the least value that so many percent of them do not exceed."""
    parts = [part for part in sorted_parts if part]
    count = sum(map(len, parts))
    if not count:
        return Quantiles(None, None, None, 0)
    low = min(part[0] for part in parts)
    high = max(part[-1] for part in parts)
    p50 = _ranked(parts, -(-count * 50 // 100), low, high)
    p95 = _ranked(parts, -(-count * 95 // 100), p50, high)
    return Quantiles(p50, p95, _ranked(parts, -(-count * 99 // 100), p95, high), count)


def _ranked(parts: Sequence[array[int]], rank: int, low: int, high: int) -> int:
    """The value of a rank, counted from 1, which lies between two others."""
    while low < high:
        middle = (low + high) // 2
        if sum(bisect_right(part, middle) for part in parts) >= rank:
            high = middle
        else:
            low = middle + 1
    return low
