"""No starvation: whoever fits the empty pool is admitted in finitely many passes, first come, first served."""

from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admission import AdmissionPass, LoadAnswer
from controller.knobs import Knobs
from controller.lanes import spread
from controller.limits import Setting, effective
from controller.request import ActiveChunk, Candidate, Capacity, Lane, PrefixMatch, running_reserve
from controller.vocabulary import HostHit, Outcome, Reason


@dataclass
class Job:
    """One request: lengths in tokens, what a tier holds of its prompt and what it holds of the device in pages."""

    number: int
    prompt: int
    output: int
    device_pages: int = 0
    host_pages: int = 0
    base: int = 0
    arrives: int = 0
    done: int = 0
    generated: int = 0
    held: int = 0


@dataclass
class World:
    """How the engine of one example is made."""

    page: int
    lanes: int
    lane_pages: int
    slots: int
    ratio: float
    knobs: Knobs
    context_parallel: bool
    steps: int
    failures: list[bool]
    jobs: list[Job]


@dataclass
class Engine:
    """A small serving engine in passes: pages by lane, loads that fail now and then, decode, retraction."""

    world: World
    estimator: object
    free: list[int] = field(init=False)
    evictable: list[int] = field(init=False)

    def __post_init__(self) -> None:
        world = self.world
        self.free = [world.lane_pages] * world.lanes
        self.evictable = [0] * world.lanes
        self.limits = effective(
            world.knobs, Setting(context_parallel=world.context_parallel, lanes=world.lanes, slots=world.slots)
        )
        self.failures = cycle(world.failures or [False])
        self.queue: list[Job] = []
        self.running: list[Job] = []
        self.active: Job | None = None
        self.members: dict[int, Job] = {}
        self.admitted: list[int] = []
        self.refused: set[int] = set()
        self.finished: set[int] = set()
        self.parks = self.retractions = 0

    def take(self, job: Job, pages: int) -> bool:
        """Hold so many pages of the job's chain; False, with nothing taken, where a lane has none left."""
        wanted = spread((job.base + job.held) % self.world.lanes, max(0, pages - job.held), self.world.lanes)
        if any(want > free + cached for want, free, cached in zip(wanted, self.free, self.evictable, strict=True)):
            return False
        for lane, want in enumerate(wanted):
            from_free = min(want, self.free[lane])
            self.free[lane] -= from_free
            self.evictable[lane] -= want - from_free
        job.held = max(job.held, pages)
        return True

    def give_back(self, job: Job) -> None:
        """What the job held stays cached, to be evicted at need."""
        for lane, pages in enumerate(spread(job.base, job.held, self.world.lanes)):
            self.evictable[lane] += pages
        job.held = 0

    def candidates(self):
        """The queue; a device hit is what its lanes still have cached."""
        page = self.world.page
        for job in list(self.queue):
            own = spread(job.base, job.device_pages, self.world.lanes)
            hit = job.device_pages if all(o <= e for o, e in zip(own, self.evictable, strict=True)) else 0
            hit = min(hit, (job.prompt - 1) // page)
            host = min(job.host_pages, (job.prompt - 1) // page - hit)
            self.members[job.number] = job
            yield Candidate(
                job.number,
                job.prompt,
                job.output,
                PrefixMatch(hit * page, hit * page, host * page, host * page, HostHit.PLANNED, job.base),
                job,
            )

    def load_back(self, _candidate: Candidate, tokens: int) -> LoadAnswer:
        """Loads fail in the pattern that the example drew."""
        if next(self.failures):
            return LoadAnswer(0, HostHit.ALLOCATOR)
        return LoadAnswer(tokens)

    def commit(self, candidate: Candidate, plan) -> None:
        """Hold what was matched, loaded and computed; the pass promised that the room is there."""
        job, page = candidate.handle, self.world.page
        job.done = plan.device_hit + plan.load + plan.extend
        assert self.take(job, -(-job.done // page)), "a pass promised more room than there is"

    def passes(self) -> bool:
        """One pass and what follows from it; whether anybody entered."""
        page = self.world.page
        capacity = Capacity(
            pool_tokens=self.world.lane_pages * self.world.lanes * page,
            free_tokens=sum(self.free) * page,
            evictable_tokens=sum(self.evictable) * page,
            reserved_tokens=running_reserve([(job.output, False) for job in self.running], self.world.ratio),
            running=len(self.running),
            slots=self.world.slots,
            lanes=tuple(map(Lane, self.free, self.evictable)) if self.world.lanes > 1 else (),
        )
        active = self.active
        chunk = None
        if active is not None:
            chunk = ActiveChunk(active.number, active.prompt, active.done, active.output, active.base)
            self.members[active.number] = active
        result = AdmissionPass(self.limits, capacity, self.estimator).run(self.candidates(), self, chunk)
        for number, outcome, extend, *_ in result.batch:
            self.enter(self.members[number], outcome, extend)
        for number, outcome, _gate, reason, *_ in result.decisions:
            self.parks += outcome == Outcome.PARK
            if outcome == Outcome.REFUSE:
                assert reason == Reason.CAN_NEVER
                self.refused.add(number)
                self.queue.remove(self.members[number])
        return bool(result.batch)

    def enter(self, job: Job, outcome: int, extend: int) -> None:
        """What becomes of a member once its batch has run."""
        if job is self.active:
            job.done += extend
            assert self.take(job, -(-job.done // self.world.page)), "a chunk was promised more room than there is"
            self.active = None
        else:
            self.queue.remove(job)
            if job.number not in self.admitted:
                self.admitted.append(job.number)
        if outcome == Outcome.ADMIT_CHUNK:
            assert self.active is None, "two unfinished chunks"
            self.active = job
        else:
            assert job.done == job.prompt
            self.running.append(job)

    def decode(self) -> None:
        """Every running request generates; the youngest gives way where the pages run out."""
        for job in list(self.running):
            if job not in self.running:
                continue
            step = min(self.world.steps, job.output)
            while not self.take(job, -(-(job.prompt + step) // self.world.page)):
                youngest = self.running.pop()
                self.retractions += 1
                self.give_back(youngest)
                youngest.done = 0
                self.queue.insert(0, youngest)
                if youngest is job:
                    break
            else:
                job.prompt += step
                job.output -= step
                if job.output == 0:
                    self.give_back(job)
                    self.running.remove(job)
                    self.finished.add(job.number)

    def serve(self, most: int) -> None:
        """Pass after pass until everybody is served; fails when an engine with nothing to do keeps somebody waiting."""
        waiting = sorted(self.world.jobs, key=lambda job: job.arrives)
        for tick in range(most):
            while waiting and waiting[0].arrives <= tick:
                self.queue.append(waiting.pop(0))
            if not (waiting or self.queue or self.running or self.active):
                return
            idle = not self.running
            entered = self.passes()
            assert entered or not idle or not (self.queue or self.active), "an idle engine keeps somebody waiting"
            self.decode()
        pytest.fail(f"after {most} passes {self.queue + self.running} are not served")


def never_fits(world: World, job: Job) -> bool:
    """Whether the empty pool cannot take the request, worked out lane by lane from the design's words."""
    need = job.prompt + min(job.output, 4096)
    pool = world.lanes * world.lane_pages * world.page
    if need + world.lanes * world.page >= pool:
        return True
    share = max(spread(job.base, -(-need // world.page), world.lanes))
    return world.lanes > 1 and share + 1 >= world.lane_pages


def limits_of(low: int, high: int):
    """A limit that is often unset."""
    return st.none() | st.integers(low, high)


@st.composite
def worlds(draw, *, most_lanes=1):
    """Engines with all kinds of knobs and small pools, with two owner lanes or more where that many are asked for."""
    page = draw(st.sampled_from([1, 4, 16]))
    count = draw(st.integers(min(2, most_lanes), most_lanes))
    lane_pages = draw(st.integers(10, 40))
    tokens = lane_pages * count * page
    jobs = [
        Job(
            number=number,
            prompt=draw(st.integers(1, tokens // 10) | st.integers(1, tokens // 3) | st.integers(1, tokens + page)),
            output=draw(st.integers(1, 8) | st.integers(1, tokens // 2)),
            device_pages=draw(st.integers(0, 4)),
            host_pages=draw(st.integers(0, 8)),
            base=draw(st.integers(0, count - 1)),
            arrives=draw(st.integers(0, 4)),
        )
        for number in range(draw(st.integers(2, 8)))
    ]
    knobs = Knobs(
        shared_kv_batching=draw(st.booleans()),
        max_requests=draw(limits_of(1, 4)),
        max_extend_tokens=draw(limits_of(1, tokens)),
        max_cached_tokens=draw(limits_of(1, tokens)),
        max_buffer_bytes=draw(limits_of(1, tokens)),
        chunked_prefill_size=draw(limits_of(page, 8 * page)),
        max_prefill_tokens=draw(st.integers(1, tokens)),
        page_size=page,
        load_back_threshold=draw(st.integers(0, 8)),
        enforce=draw(st.booleans()),
    )
    return World(
        page=page,
        lanes=count,
        lane_pages=lane_pages,
        slots=draw(st.sampled_from([64, 4, 2, 1])),
        ratio=draw(st.sampled_from([0.7, 1.0, 0.1, 0.0])),
        knobs=knobs,
        context_parallel=draw(st.booleans()) or count > 1,
        steps=draw(st.sampled_from([2, 1, 5, 20])),
        failures=draw(st.lists(st.booleans(), max_size=4)),
        jobs=jobs,
    )


def served(world: World, flat_estimator) -> Engine:
    """The engine after everybody was served, with what holds of any such run checked."""
    never = {job.number for job in world.jobs if never_fits(world, job)}
    order = [job.number for job in sorted(world.jobs, key=lambda job: job.arrives) if job.number not in never]
    engine = Engine(world, flat_estimator(extend=1, prefix=1))
    engine.serve(most=4000)
    assert engine.refused == never
    assert engine.admitted == order
    assert engine.finished == set(order)
    return engine


@given(world=worlds())
@settings(max_examples=150, deadline=None)
def test_everybody_who_fits_the_empty_pool_is_served_in_order(world, flat_estimator):
    """Every request that fits the empty pool is admitted in arrival order and finishes; all others are refused."""
    engine = served(world, flat_estimator)
    assert sum(engine.free) + sum(engine.evictable) == world.lane_pages


@given(world=worlds(most_lanes=4))
@settings(max_examples=100, deadline=None)
def test_everybody_who_fits_empty_lanes_is_served_in_order(world, flat_estimator):
    """With owner lanes every request that fits empty lanes is admitted in arrival order; all others are refused."""
    engine = served(world, flat_estimator)
    together = [free + cached for free, cached in zip(engine.free, engine.evictable, strict=True)]
    assert together == [world.lane_pages] * world.lanes


def test_a_parked_chunk_goes_on_when_others_give_way(flat_estimator):
    """A chunk parked because a running request outgrew its reserve goes on and is served, first come, first served."""
    jobs = [Job(0, 4, 100), Job(1, 132, 4), Job(2, 8, 4)]
    knobs = Knobs(page_size=4, chunked_prefill_size=8)
    engine = served(World(4, 1, 40, 8, 0.1, knobs, False, 1, [], jobs), flat_estimator)
    assert engine.parks > 0
    assert engine.retractions > 0
