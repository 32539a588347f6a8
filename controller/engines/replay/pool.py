"""Pool: the device tier's pages, counted by owner lane.

Page P of a chain that begins in lane b is owned by lane (b + P) mod N. With one lane only the two totals are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.request import Lane
from estimator.errors import UsageError

if TYPE_CHECKING:
    from controller.engines.replay.tree import Node


class Pool:
    """How many pages are free and how many hold prefixes nobody has locked. Everything here is in pages.

    `free` may go below zero between `take` and the eviction that pays for it, never after.
    """

    __slots__ = ("evictable", "free", "lane_evictable", "lane_free", "lanes", "pages")

    def __init__(self, pages: int, lanes: int = 1) -> None:
        if pages < lanes:
            raise UsageError(
                f"the device tier holds {pages} pages for {lanes} owner lanes; give it at least one page in every lane"
            )
        each = pages // lanes
        self.lanes = lanes
        self.pages = self.free = each * lanes
        self.evictable = 0
        self.lane_free = [each] * lanes
        self.lane_evictable = [0] * lanes

    def take(self, base: int, first: int, count: int) -> None:
        """Use `count` pages from page `first` of a chain that begins in lane `base`."""
        self.free -= count
        if self.lanes > 1:
            self._spread(self.lane_free, base + first, count, -1)

    def give(self, base: int, first: int, count: int) -> None:
        """Free pages that were taken."""
        self.free += count
        if self.lanes > 1:
            self._spread(self.lane_free, base + first, count, 1)

    def loosen(self, base: int, first: int, count: int) -> None:
        """Count pages as evictable."""
        self.evictable += count
        if self.lanes > 1:
            self._spread(self.lane_evictable, base + first, count, 1)

    def tighten(self, base: int, first: int, count: int) -> None:
        """Count evictable pages as locked."""
        self.evictable -= count
        if self.lanes > 1:
            self._spread(self.lane_evictable, base + first, count, -1)

    def evict(self, node: Node, missing: int) -> tuple[int, int]:
        """Free a leaf's last pages while pages are missing: the pages freed, and those still missing then."""
        loose = node.device - max(node.pins) if node.pins else node.device
        if self.lanes == 1:
            taken = min(loose, missing)
            node.device -= taken
            self.free += taken
            self.evictable -= taken
            return taken, missing - taken
        taken = 0
        while taken < loose and missing:
            taken += 1
            node.device -= 1
            page = node.first + node.device
            missing -= self.lane_free[(node.base + page) % self.lanes] < 0
            self.tighten(node.base, page, 1)
            self.give(node.base, page, 1)
        return taken, missing

    def missing(self) -> int:
        """Pages by which the lanes are overdrawn, added up."""
        if self.lanes == 1:
            return -self.free if self.free < 0 else 0
        return sum(-free for free in self.lane_free if free < 0)

    def short_lane(self, base: int, first: int, count: int) -> bool:
        """Whether some lane could not give its share of `count` pages even with all it may evict."""
        need = [0] * self.lanes
        self._spread(need, base + first, count, 1)
        room = map(int.__add__, self.lane_free, self.lane_evictable)
        return any(wanted > left for wanted, left in zip(need, room, strict=True))

    def roomiest(self) -> int:
        """The lane with the most free pages, the lowest of them: there a new chain begins."""
        return self.lane_free.index(max(self.lane_free)) if self.lanes > 1 else 0

    def lane_state(self) -> tuple[Lane, ...]:
        """Free and evictable pages of every lane; empty with one lane, which the totals describe."""
        if self.lanes == 1:
            return ()
        return tuple(map(Lane, self.lane_free, self.lane_evictable))

    def _spread(self, values: list[int], start: int, count: int, sign: int) -> None:
        lanes = self.lanes
        each, extra = divmod(count, lanes)
        if each:
            for lane in range(lanes):
                values[lane] += sign * each
        for lane in range(start, start + extra):
            values[lane % lanes] += sign
