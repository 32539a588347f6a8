"""The running batch: requests that decode, advanced many steps at once.

Nothing here is counted token by token. A step counter stands for every running request's progress: each holds the
step at which it began, and sums over the batch are kept as a constant plus a multiple of the counter.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final

from controller.request import CLIP_OUTPUT_TOKENS

if TYPE_CHECKING:
    from controller.engines.replay.inflight import InFlight

_STALE: Final = 64
"""Entries of requests that have left which the heap for retraction may hold beyond as many as there are live ones."""

_Entry = tuple[int, int, "InFlight"]


class RunningBatch:
    """Requests that have their first token and lack their last. `page` is in tokens.

    A running request with g of its tokens out holds KV for its prompt and g - 1 tokens. The next step writes one more,
    into a new page where the ones before are full.
    """

    __slots__ = (
        "_clipped", "_context", "_crossings", "_falling", "_finishes", "_joins", "_left", "_page", "_retractable",
        "_unclips", "size", "step",
    )  # fmt: skip

    def __init__(self, page: int) -> None:
        self.size = 0
        self.step = 0
        self._page = page
        self._joins = 0
        self._context = 0  # context tokens less size * step
        self._crossings = [0] * page  # requests that need a page at step s, for each s mod page
        self._finishes: list[_Entry] = []
        self._retractable: list[tuple[int, int, int, InFlight]] = []
        # Tokens they may still generate, charged at most CLIP_OUTPUT_TOKENS, apart for requests with and without
        # ignore_eos: how many are clipped, how many are not, the latter's sum of last steps, and when the former
        # cease to be.
        self._clipped = [0, 0]
        self._falling = [0, 0]
        self._left = [0, 0]
        self._unclips: list[_Entry] = []

    @property
    def context_tokens(self) -> int:
        """Tokens the next step attends to, its own among them, added up over the batch."""
        return self._context + self.size * self.step

    @property
    def steps_to_finish(self) -> int:
        """Steps until the next request has its last token; the batch is not empty."""
        finishes = self._finishes
        while finishes[0][2].joined != finishes[0][1]:
            heappop(finishes)
        return finishes[0][0] - self.step

    def join(self, request: InFlight) -> None:
        """Take in a request whose prompt is computed and that has tokens left to generate."""
        self._joins += 1
        order = request.joined = self._joins
        birth = request.birth = self.step - request.generated
        finish = birth + request.output
        last = request.last_step = birth + request.allowed
        self.size += 1
        self._context += request.workload_prompt - birth
        self._crossings[(birth + 1 - request.workload_prompt) % self._page] += 1
        heappush(self._finishes, (finish, order, request))
        retractable = self._retractable
        if len(retractable) > 2 * self.size + _STALE:
            self._retractable = retractable = [row for row in retractable if row[3].joined == -row[2]]
            heapify(retractable)
        heappush(retractable, (-birth, -request.workload_prompt, -order, request))
        kind = request.ignore_eos
        if last - self.step > CLIP_OUTPUT_TOKENS:
            self._clipped[kind] += 1
            heappush(self._unclips, (last - CLIP_OUTPUT_TOKENS, order, request))
        else:
            self._falling[kind] += 1
            self._left[kind] += last

    def advance(self, steps: int) -> list[InFlight]:
        """Run steps, no more than until the next request finishes; those that have finished, in order of joining."""
        self.step = step = self.step + steps
        unclips = self._unclips
        while unclips and unclips[0][0] <= step:
            _, order, request = heappop(unclips)
            if request.joined == order:
                kind = request.ignore_eos
                self._clipped[kind] -= 1
                self._falling[kind] += 1
                self._left[kind] += request.last_step
        finished = []
        finishes = self._finishes
        while finishes and finishes[0][0] <= step:
            _, order, request = heappop(finishes)
            if request.joined == order:
                self._leave(request)
                finished.append(request)
        return finished

    def retract(self) -> InFlight:
        """Take out the request to retract: fewest tokens generated, then longest prompt, then last to join.

        That is the order of SGLang 0.5.23, `ScheduleBatch.retract_decode`. The batch is not empty.
        """
        retractable = self._retractable
        while True:
            _, _, order, request = heappop(retractable)
            if request.joined == -order:
                self._leave(request)
                return request

    def remove(self, request: InFlight) -> None:
        """Take out a request that leaves before its time."""
        self._leave(request)

    def pages_for(self, steps: int) -> int:
        """New pages that so many steps need."""
        page, crossings = self._page, self._crossings
        cycles, rest = divmod(steps, page)
        start = self.step % page
        end = start + rest
        pages = cycles * self.size + sum(crossings[start:end])
        if end > page:
            pages += sum(crossings[: end - page])
        return pages

    def steps_within(self, pages: int) -> int:
        """The most steps that need no more than `pages` new pages; the batch is not empty."""
        page, crossings = self._page, self._crossings
        cycles, left = divmod(pages, self.size)
        steps = cycles * page
        start = self.step % page
        for needed in islice(crossings[start:] + crossings[:start], page):
            left -= needed
            if left < 0:
                break
            steps += 1
        return steps

    def reserved_tokens(self, new_token_ratio: float) -> float:
        """Tokens held back so that the batch can go on; what `controller.request.running_reserve` adds up."""
        whole, shared = (
            CLIP_OUTPUT_TOKENS * self._clipped[eos] + self._left[eos] - self._falling[eos] * self.step
            for eos in (True, False)
        )
        return whole + shared * new_token_ratio

    def _leave(self, request: InFlight) -> None:
        """Take a request out of every sum and note what it has generated; the heaps drop it when they meet it."""
        request.joined = -1
        birth = request.birth
        request.generated = self.step - birth
        self.size -= 1
        self._context -= request.workload_prompt - birth
        self._crossings[(birth + 1 - request.workload_prompt) % self._page] -= 1
        kind = request.ignore_eos
        if request.last_step - self.step > CLIP_OUTPUT_TOKENS:
            self._clipped[kind] -= 1
        else:
            self._falling[kind] -= 1
            self._left[kind] -= request.last_step
