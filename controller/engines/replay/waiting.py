"""The waiting queue: first come, first served, by arrival."""

from collections import deque
from collections.abc import Iterator

from controller.engines.replay.inflight import InFlight


class WaitingQueue:
    """Requests in order of arrival. A retracted one goes back to its place by arrival.

    `tokens` is the sum of what their prefills would compute without a cache.
    """

    __slots__ = ("_requests", "tokens")

    def __init__(self) -> None:
        self._requests: deque[InFlight] = deque()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self._requests)

    def add(self, request: InFlight) -> None:
        """Add one that has just arrived."""
        self._requests.append(request)
        self.tokens += request.prompt

    def put_back(self, request: InFlight) -> None:
        """Add a retracted one. Only others that were retracted can stand before it, so it is near the front."""
        place = 0
        for other in self._requests:
            if other.number > request.number:
                break
            place += 1
        self._requests.insert(place, request)
        self.tokens += request.prompt

    def remove(self, request: InFlight) -> bool:
        """Take out one that gives up, wherever it stands; whether it waited."""
        try:
            self._requests.remove(request)
        except ValueError:
            return False
        self.tokens -= request.prompt
        return True

    def pop(self) -> InFlight:
        """Take out the first."""
        request = self._requests.popleft()
        self.tokens -= request.prompt
        return request
