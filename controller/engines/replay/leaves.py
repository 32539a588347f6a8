"""Leaves by the time they were last touched, least recent first."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.engines.replay.tree import Node

DEVICE: Final = 1
HOST: Final = 2
"""The bits of `Node.queued` for the leaves of each tier."""

NEVER: Final = 1 << 62
"""A stamp later than any."""


class Leaves:
    """A heap of leaves that is put right only when it is read: its entries may be out of date, but never too late.

    Stamps of touches are unique, and a node stands in it once, so that no two entries are equal.
    """

    __slots__ = ("_bit", "_heap", "_is_leaf")

    def __init__(self, is_leaf: Callable[[Node], bool], bit: int) -> None:
        self._heap: list[tuple[int, Node]] = []
        self._is_leaf = is_leaf
        self._bit = bit

    def offer(self, node: Node) -> None:
        """Note a node that may have become a leaf."""
        if not node.queued & self._bit and self._is_leaf(node):
            node.queued |= self._bit
            heappush(self._heap, (node.stamp, node))

    def pop(self) -> Node | None:
        """Take out the least recently touched leaf, if there is any."""
        heap, is_leaf = self._heap, self._is_leaf
        while heap:
            stamp, node = heap[0]
            if is_leaf(node):
                if stamp == node.stamp:
                    heappop(heap)
                    node.queued ^= self._bit
                    return node
                heapreplace(heap, (node.stamp, node))
            else:
                heappop(heap)
                node.queued ^= self._bit
        return None

    def next_stamp(self) -> int:
        """No leaf in here was touched before this."""
        return self._heap[0][0] if self._heap else NEVER
