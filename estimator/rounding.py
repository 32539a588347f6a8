"""What PyTorch's CUDA caching allocator makes of allocations: a separate step after the estimate.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` with its default settings. A request is rounded up to 512
B. Up to 1 MiB it is served from 2 MiB segments, below 10 MiB from 20 MiB segments, from there on from a segment of
its own, rounded up to 2 MiB. Free blocks are kept by stream and by small or large, the smallest that fits is taken,
and neighbours that are free join. The figures are those of `torch.cuda.memory_stats`: requested, allocated (here
`rounded`), reserved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """Peaks of one allocator, in bytes: as asked for, in its own blocks, and taken from the device."""

    requested: int
    rounded: int
    reserved: int


def round_block(size: int) -> int:
    """Return the bytes of the block that serves a request of `size` bytes."""
    return max(BLOCK, ceil_div(size, BLOCK) * BLOCK)


def segment_size(size: int) -> int:
    """Return the bytes of the segment taken from the device for a request of `size` bytes that no free block fits."""
    block = round_block(size)
    if block <= SMALL:
        return SMALL_SEGMENT
    if block < MIDDLE:
        return LARGE_SEGMENT
    return ceil_div(block, SEGMENT_ALIGN) * SEGMENT_ALIGN


@dataclass(slots=True)
class _Block:
    size: int
    asked: int = 0  # 0 while free


@dataclass(slots=True)
class _Segment:
    stream: str
    small: bool
    blocks: list[_Block]


@dataclass(slots=True)
class CachingAllocator:
    """A fresh caching allocator that only counts. Sizes in bytes."""

    requested: int = 0
    rounded: int = 0
    reserved: int = 0
    peak: Reading = field(default_factory=lambda: Reading(0, 0, 0))
    _segments: list[_Segment] = field(default_factory=list)
    _held: dict[str, tuple[_Segment, _Block]] = field(default_factory=dict)

    def allocate(self, name: str, size: int, stream: str = "compute") -> None:
        """Allocate `size` bytes under a name not in use, on one stream."""
        wanted = round_block(size)
        small = wanted <= SMALL
        best: tuple[_Segment, int] | None = None
        for segment in self._segments:
            if segment.small is not small or segment.stream != stream:
                continue
            for index, block in enumerate(segment.blocks):
                fits = not block.asked and block.size >= wanted
                if fits and (best is None or block.size < best[0].blocks[best[1]].size):
                    best = segment, index
        if best is None:
            fresh = _Segment(stream, small, [_Block(segment_size(size))])
            self._segments.append(fresh)
            self.reserved += fresh.blocks[0].size
            best = fresh, 0
        segment, index = best
        block = segment.blocks[index]
        rest = block.size - wanted
        if rest >= BLOCK if small else rest > LARGE_REMAINDER:
            block.size = wanted
            segment.blocks.insert(index + 1, _Block(rest))
        block.asked = max(1, size)
        self._held[name] = segment, block
        self.requested += size
        self.rounded += block.size
        self.peak = Reading(
            max(self.peak.requested, self.requested),
            max(self.peak.rounded, self.rounded),
            max(self.peak.reserved, self.reserved),
        )

    def release(self, name: str, size: int) -> None:
        """Free what was allocated under a name with that size; it joins free neighbours."""
        segment, block = self._held.pop(name)
        self.requested -= size
        self.rounded -= block.size
        block.asked = 0
        blocks = segment.blocks
        index = next(position for position, each in enumerate(blocks) if each is block)
        if index + 1 < len(blocks) and not blocks[index + 1].asked:
            block.size += blocks.pop(index + 1).size
        if index and not blocks[index - 1].asked:
            blocks[index - 1].size += blocks.pop(index).size


def read_fresh(sizes: Sequence[int]) -> Reading:
    """Return the reading of a fresh allocator after these requests in this order, all alive at once."""
    allocator = CachingAllocator()
    for index, size in enumerate(sizes):
        if size > 0:
            allocator.allocate(str(index), size)
    return allocator.peak
