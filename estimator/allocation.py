"""An estimate as a plan: every buffer allocated and freed in the order of the timeline."""

from typing import NamedTuple

from estimator.estimate import Estimate
from estimator.rounding import CachingAllocator, Reading
from estimator.timeline import PHASES


class Event(NamedTuple):
    """One step of the plan: the buffer of a window is allocated, or freed. Bytes; `key` is unique in the plan."""

    phase: str
    allocates: bool
    key: str
    buffer: str
    stream: str
    bytes: int


def allocation_plan(estimate: Estimate) -> list[Event]:
    """Return the plan of an estimate: what a phase needs is allocated as it starts, and freed as its window ends.

    Played on any allocator, the most bytes alive at once are `estimate.requested`.
    """
    phases = [phase for phase in PHASES if phase in estimate.phases]
    events: list[Event] = []
    alive: list[Event] = []
    for phase in phases:
        wanted = [window for window in estimate.windows if phase in window.phases]
        names = {f"{window.name}/{name}" for window in wanted for name in window.buffers}
        ended = [event for event in alive if event.key not in names]
        events += [event._replace(phase=phase, allocates=False) for event in ended]
        alive = [event for event in alive if event.key in names]
        held = {event.key for event in alive}
        for window in wanted:
            for name in window.buffers:
                key, size = f"{window.name}/{name}", estimate.buffers.get(name, 0)
                if size and key not in held:
                    alive.append(Event(phase, True, key, name, window.stream, size))
                    events.append(alive[-1])
    events += [event._replace(phase=phases[-1], allocates=False) for event in alive]
    return events


def play(plan: list[Event]) -> Reading:
    """Return what torch.cuda would report as peaks if a fresh caching allocator served this plan.

    `reserved` shows what the rounding and the order of one step cost. A process that has run other batches before may
    hold more, and one without room frees cached segments and tries again.
    """
    allocator = CachingAllocator()
    for event in plan:
        if event.allocates:
            allocator.allocate(event.key, event.bytes, event.stream)
        else:
            allocator.release(event.key, event.bytes)
    return allocator.peak
