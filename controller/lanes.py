"""Owner lanes: the pages each context-parallel rank has left, when KV is shared across ranks.

Page P of a chain whose page 0 lies in lane b is owned by lane (b + P) mod N, so a run of pages is spread almost
evenly (SGLang 0.5.23, `PageInterleavePoolAllocator`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.plan import Plan
    from controller.request import Capacity


def spread(first_lane: int, pages: int, lanes: int) -> list[int]:
    """Pages that fall to each lane when `pages` successive ones begin in `first_lane`."""
    each, extra = divmod(pages, lanes)
    return [each + ((lane - first_lane) % lanes < extra) for lane in range(lanes)]


class LaneRoom:
    """Pages left in each lane during one pass."""

    __slots__ = ("count", "free", "page", "room")

    def __init__(self, capacity: Capacity, page: int) -> None:
        self.count = len(capacity.lanes)
        self.page = page
        reserved = math.ceil(capacity.reserved_tokens / (page * self.count))
        self.free = [lane.free_pages for lane in capacity.lanes]
        self.room = [lane.free_pages + lane.evictable_pages - reserved for lane in capacity.lanes]

    def start(self, first_lane: int | None) -> int:
        """The lane of a chain's page 0; a chain without one begins in the lane with most free pages, lowest first."""
        if first_lane is not None:
            return first_lane
        return max(range(self.count), key=lambda lane: (self.free[lane], -lane))

    def short_of(self, plan: Plan) -> tuple[int, int] | None:
        """(pages needed, pages left) in the first lane that cannot take its share of the candidate, else None.

        The candidate's own unlocked device hit is not room, and it needs one page a lane on top of its share.
        """
        page, count = self.page, self.count
        start = self.start(plan.first_lane)
        hit, unlocked = (plan.done + plan.device_hit) // page, plan.unlocked // page
        own = spread((start + hit - unlocked) % count, unlocked, count)
        need = spread((start + hit) % count, -(-(plan.remaining + plan.output) // page), count)
        for lane in range(count):
            room = self.room[lane] - own[lane]
            if need[lane] + 1 >= room:
                return need[lane] + 1, room
        return None

    def promise(self, plan: Plan, output: int) -> None:
        """Take what an admitted candidate will hold: its loads, what is computed, its output, one page a lane."""
        page, count = self.page, self.count
        start = plan.first_lane = self.start(plan.first_lane)
        hit, unlocked = (plan.done + plan.device_hit) // page, plan.unlocked // page
        own = spread((start + hit - unlocked) % count, unlocked, count)
        pages = -(-(plan.load + plan.extend + output) // page)
        taken = spread((start + hit) % count, pages, count)
        allocated = spread((start + hit) % count, -(-(plan.load + plan.extend) // page), count)
        for lane in range(count):
            self.room[lane] -= own[lane] + taken[lane] + 1
            self.free[lane] -= allocated[lane]

    def chunk_room(self) -> int:
        """Tokens a continuing chunk may take so that no lane runs out: the tightest lane's, times the lanes."""
        return max(0, min(self.room)) * self.count * self.page
