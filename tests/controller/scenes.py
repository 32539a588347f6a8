"""Passes drawn at random: their inputs, and an engine that holds page by page what they promise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import Decision
from controller.knobs import Knobs
from controller.lanes import spread
from controller.limits import Limits, Setting, effective
from controller.request import ActiveChunk, Candidate, Capacity, Lane, PrefixMatch
from controller.vocabulary import HostHit


@dataclass(frozen=True)
class Wish:
    """A waiting request as it is drawn: lengths in tokens, hits in pages."""

    prompt: int
    output: int
    device_pages: int
    host_pages: int
    locked: bool
    base: int
    answer: HostHit
    fails: bool
    evicts: int


@dataclass(frozen=True)
class Scene:
    """All that a pass is made from."""

    knobs: Knobs
    setting: Setting
    capacity: Capacity
    chunk: ActiveChunk | None
    wishes: tuple[Wish, ...]
    rates: tuple[int, int, int] | None

    @property
    def limits(self) -> Limits:
        """What is in force."""
        return effective(self.knobs, self.setting)


@dataclass
class Allocator:
    """An engine that holds what the pass promised, page by page, and fails the test when it has none."""

    scene: Scene

    def __post_init__(self) -> None:
        capacity, page = self.scene.capacity, self.scene.knobs.page_size
        self.lanes = [[lane.free_pages, lane.evictable_pages] for lane in capacity.lanes] or [
            [capacity.free_tokens // page, capacity.evictable_tokens // page]
        ]
        self.drawn = 0
        self.loads: list[int] = []
        self.commits: list[int] = []
        self.chunk = self.scene.chunk

    def candidates(self, admission: AdmissionPass) -> Iterator[Candidate]:
        """The queue; a hit that its lanes have no evictable pages for is held by others."""
        page = self.scene.knobs.page_size
        self.go_on(admission.batch)
        for number, wish in enumerate(self.scene.wishes):
            self.drawn += 1
            device = min(wish.device_pages, (wish.prompt - 1) // page)
            host = min(wish.host_pages, (wish.prompt - 1) // page - device)
            own = spread(wish.base, device, len(self.lanes))
            locked = wish.locked or any(want > lane[1] for want, lane in zip(own, self.lanes, strict=True))
            match = PrefixMatch(
                device * page,
                0 if locked else device * page,
                host * page,
                host * page,
                wish.answer,
                wish.base if self.scene.capacity.lanes else None,
            )
            yield Candidate(number, wish.prompt, wish.output, match, wish)

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """What the example drew; a load that fails may have evicted some pages."""
        assert tokens == candidate.match.host_tokens
        self.loads.append(candidate.number)
        if not candidate.handle.fails:
            return LoadAnswer(tokens)
        evicted = 0
        for lane in self.lanes:
            if not candidate.match.unlocked_tokens:
                pages = min(candidate.handle.evicts, lane[1])
                lane[0], lane[1] = lane[0] + pages, lane[1] - pages
                evicted += pages * self.scene.knobs.page_size
        return LoadAnswer(0, HostHit.ALLOCATOR, evicted)

    def commit(self, candidate: Candidate, plan: Any) -> None:
        """Lock the device hit, then take pages for what is loaded and computed."""
        page = self.scene.knobs.page_size
        self.commits.append(candidate.number)
        hit = plan.device_hit // page
        if plan.unlocked:
            self.take(candidate.handle.base, hit, evictable_only=True)
        pages = -(-(plan.prefix + plan.extend) // page) - hit
        self.take((candidate.handle.base + hit) % len(self.lanes), pages)

    def go_on(self, batch: Sequence[tuple[int, ...]]) -> None:
        """Take pages for the continuing chunk, once, if it got tokens."""
        chunk, self.chunk = self.chunk, None
        if chunk is not None and batch and batch[0][0] == chunk.number:
            page = self.scene.knobs.page_size
            held = chunk.done_tokens // page
            self.take((chunk.first_lane + held) % len(self.lanes), -(-(chunk.done_tokens + batch[0][2]) // page) - held)

    def take(self, first: int, pages: int, *, evictable_only: bool = False) -> None:
        """Take pages from the lanes that own them, free ones first."""
        for lane, want in zip(self.lanes, spread(first, pages, len(self.lanes)), strict=True):
            free = 0 if evictable_only else min(want, lane[0])
            lane[0] -= free
            lane[1] -= want - free
            assert lane[1] >= 0, "a pass promised more pages than there are"


@dataclass
class Ran:
    """A scene that was run."""

    scene: Scene
    engine: Allocator
    result: Any
    limits: Limits

    @property
    def decisions(self) -> list[Decision]:
        """Decisions about the queue, without the continuing chunk's."""
        return self.all_decisions[self.scene.chunk is not None :]

    @property
    def all_decisions(self) -> list[Decision]:
        """All decisions, the continuing chunk's first."""
        return [Decision.read(flat) for flat in self.result.decisions]

    def charged(self) -> list[int]:
        """Page-aligned tokens each member computes."""
        page = self.limits.page
        return [-(-member[2] // page) * page for member in self.result.batch]


def limits_of(low: int, high: int):
    """A limit that is often unset."""
    return st.none() | st.none() | st.integers(low, high)


@st.composite
def wishes(draw, page: int, lanes: int):
    """A waiting request."""
    return Wish(
        prompt=draw(st.integers(2, [12, 12, 12, 12, 40, 600][draw(st.integers(0, 5))] * page)),
        output=draw(st.sampled_from([0, 1, 5, 20, page, 6000])),
        device_pages=draw(st.integers(0, 6)),
        host_pages=draw(st.integers(0, 12)),
        locked=draw(st.booleans()),
        base=draw(st.integers(0, lanes - 1)),
        answer=draw(st.sampled_from([HostHit.PLANNED] * 6 + [HostHit.IN_FLIGHT, HostHit.DISABLED])),
        fails=draw(st.sampled_from([False, False, True])),
        evicts=draw(st.integers(0, 3)),
    )


@st.composite
def scenes(draw, *, most_lanes: int = 1):
    """A pass's inputs, all kinds; with owner lanes where more than one is asked for."""
    page = draw(st.sampled_from([1, 4, 16]))
    lanes = draw(st.integers(min(2, most_lanes), most_lanes))
    knobs = Knobs(
        shared_kv_batching=draw(st.sampled_from([True, True, True, False])),
        max_requests=draw(limits_of(1, 6)),
        max_extend_tokens=draw(limits_of(1, 60 * page)),
        max_cached_tokens=draw(limits_of(1, 40 * page)),
        max_buffer_bytes=draw(limits_of(1, 120 * page)),
        chunked_prefill_size=draw(limits_of(page, 80 * page)),
        max_prefill_tokens=draw(st.integers(1, 100 * page)),
        page_size=page,
        load_back_threshold=draw(st.sampled_from([0, page, 3 * page])),
        enforce=draw(st.booleans()),
    )
    slots = draw(st.sampled_from([2048] * 6 + [6, 3, 1]))
    setting = Setting(context_parallel=draw(st.booleans()) or lanes > 1, lanes=lanes, slots=slots)
    most = draw(st.sampled_from([200, 200, 60, 20]))
    pages = [(draw(st.integers(0, most)), draw(st.integers(0, most))) for _ in range(lanes)]
    held = draw(st.integers(0, 40))
    free, evictable = sum(each[0] for each in pages), sum(each[1] for each in pages)
    capacity = Capacity(
        pool_tokens=(free + evictable + held * lanes) * page,
        free_tokens=free * page,
        evictable_tokens=evictable * page,
        reserved_tokens=draw(st.sampled_from([0, 0, 0, 1.5, 10, 200])),
        running=draw(st.integers(0, 2)),
        slots=slots,
        lanes=tuple(Lane(*each) for each in pages) if lanes > 1 else (),
    )
    chunk = None
    if draw(st.booleans()):
        done = draw(st.integers(0, 20)) * page
        prompt = done + draw(st.integers(1, 50 * page))
        chunk = ActiveChunk(99, prompt, done, draw(st.integers(0, 50)), draw(st.integers(0, lanes - 1)))
    queue = draw(st.lists(wishes(page, lanes), min_size=draw(st.sampled_from([0, 3, 6])), max_size=8))
    rates = draw(st.none() | st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(0, 1)))
    return Scene(knobs, setting, capacity, chunk, tuple(queue), rates)


ANY = st.one_of(scenes(), scenes(most_lanes=4))
"""Passes of every kind, with owner lanes and without."""
