"""What PyTorch's CUDA caching allocator makes of a list of requests.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp`: a request is rounded up to 512 B; up to 1 MiB it comes
from a 2 MiB segment, up to 10 MiB from a 20 MiB segment, above that from a segment of its own, rounded up to 2 MiB.
The figures are those of `torch.cuda.memory_stats`: requested, allocated (here `rounded`) and reserved.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BLOCK = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
MIDDLE = 10 << 20
LARGE_SEGMENT = 20 << 20
SEGMENT_ALIGN = 2 << 20
# A block of the large pool is split only if more than this would be left.
LARGE_REMAINDER = 1 << 20


def ceil_div(value: int, by: int) -> int:
    """Return value / by rounded up; both in the same unit."""
    return -(-value // by)


@dataclass(frozen=True, slots=True)
class Reading:
    """Peaks of one fresh allocator, in bytes: as asked for, in 512 B blocks, and taken from the device."""

    requested: int
    rounded: int
    reserved: int


def round_block(size: int) -> int:
    """Return the bytes of the block that serves a request of `size` bytes."""
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


def segment_size(size: int) -> int:
    """Return the bytes of the segment taken from the device for a request of `size` bytes that no free block fits."""
    block = round_block(size)
    if block <= SMALL:
        return SMALL_SEGMENT
    if block < MIDDLE:
        return LARGE_SEGMENT
    return -(-block // SEGMENT_ALIGN) * SEGMENT_ALIGN


def read_fresh(sizes: Iterable[int]) -> Reading:
    """Return the reading of a fresh allocator after these requests, all alive at once, in this order.

    A request takes the smallest free block that fits, as the allocator does, before a segment is taken from the device.
    """
    requested = rounded = reserved = 0
    free: dict[bool, list[int]] = {True: [], False: []}
    for size in sizes:
        if size <= 0:
            continue
        block = round_block(size)
        small = block <= SMALL
        pool = free[small]
        fits = [held for held in pool if held >= block]
        if fits:
            held = min(fits)
            pool.remove(held)
        else:
            held = segment_size(size)
            reserved += held
        rest = held - block
        if rest >= BLOCK if small else rest > LARGE_REMAINDER:
            pool.append(rest)
            rounded += block
        else:
            rounded += held
        requested += size
    return Reading(requested, rounded, reserved)


def read_phases(phases: Sequence[Sequence[int]]) -> Reading:
    """Return the largest reading of any phase, each taken alone in a fresh allocator.

    Blocks that one phase leaves behind serve the next where they fit, so `reserved` is a floor for a process whose
    phases do not fit each other's blocks; that fragmentation is what the safety factor is for.
    """
    readings = [read_fresh(sizes) for sizes in phases]
    return Reading(
        max((reading.requested for reading in readings), default=0),
        max((reading.rounded for reading in readings), default=0),
        max((reading.reserved for reading in readings), default=0),
    )
