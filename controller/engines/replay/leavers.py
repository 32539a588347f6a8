"""Requests whose clients give up at a known time."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.engines.replay.inflight import InFlight

NEVER: Final = 1 << 62
"""A time later than any, ns."""


class Leavers:
    """Those of the requests that arrived which leave before their time, earliest first. Times are simulated ns."""

    __slots__ = ("_heap", "next_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, InFlight]] = []
        self.next_ns = NEVER
        """When the next one leaves, if it is not done by then."""

    def add(self, request: InFlight, leaves_ns: int) -> None:
        """Note one that has just arrived."""
        heappush(self._heap, (leaves_ns, request.number, request))
        self.next_ns = self._heap[0][0]

    def until(self, now_ns: int) -> Iterator[InFlight]:
        """Those whose time has come, done or not."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            yield heappop(heap)[2]
        self.next_ns = heap[0][0] if heap else NEVER
