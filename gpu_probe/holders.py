"""Holding memory for a moment: on the host page by page, on a CUDA device through torch's caching allocator."""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from gpu_probe.device import gib
from gpu_probe.errors import ProbeError, need_torch
from gpu_probe.host import host_memory

# Host memory is touched in steps of so many bytes, and what is left is read before each.
STEP = 64 << 20
PAGE = 4096


class Held(NamedTuple):
    """What an allocator said at the fullest moment, in bytes."""

    requested: int = 0
    allocated: int = 0
    reserved: int = 0
    peak: int = 0


class OutOfRoomError(Exception):
    """The pieces did not fit. `held` is what was held when it ended; all of it has been given back."""

    def __init__(self, reason: str, held: Held) -> None:
        super().__init__(reason)
        self.held = held


class Holder(Protocol):
    """Something that can hold pieces of memory and give them back."""

    def room(self) -> int:
        """Return the bytes that may be tried at most."""

    def hold(self, pieces: Sequence[int]) -> Held:
        """Allocate all pieces, touch every page, read the allocator and give all back. Raises OutOfRoomError."""


class HostHolder:
    """Anonymous private memory of this process, never within `keep_free` bytes of what the host or container has."""

    def __init__(self, keep_free: int) -> None:
        self._keep_free = keep_free

    def room(self) -> int:
        """Return the bytes that may be taken at this moment."""
        return max(0, host_memory().usable - self._keep_free)

    def hold(self, pieces: Sequence[int]) -> Held:
        """Map and touch the pieces; what is left is read before each step of 64 MiB."""
        maps: list[mmap.mmap] = []
        requested = mapped = touched = 0
        try:
            self._check(sum(pieces), "memory to use")
            for size in pieces:
                span = -(-size // PAGE) * PAGE
                try:
                    maps.append(mmap.mmap(-1, span, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
                except (OSError, ValueError, OverflowError) as error:
                    raise _NoRoomError(f"the system refused {gib(size)}: {error}") from error
                requested, mapped = requested + size, mapped + span
                for start in range(0, span, STEP):
                    stretch = min(STEP, span - start)
                    self._check(stretch, "memory left")
                    maps[-1][start : start + stretch : PAGE] = b"\x01" * -(-stretch // PAGE)
                    touched += stretch
        except _NoRoomError as error:
            raise OutOfRoomError(str(error), Held(requested, mapped, touched, mapped)) from error
        finally:
            for each in maps:
                each.close()
        return Held(requested, mapped, touched, mapped)

    def _check(self, wanted: int, what: str) -> None:
        memory = host_memory()
        if wanted > memory.usable - self._keep_free:
            limit = "" if memory.container is None else f", container limit {gib(memory.container)}"
            space = "" if memory.address_space is None else f", RLIMIT_AS leaves {gib(memory.address_space)}"
            raise _NoRoomError(
                f"{gib(wanted)} wanted, {what} {gib(max(0, memory.usable - self._keep_free))}{limit}{space}"
            )


class _NoRoomError(Exception):
    """A piece did not fit."""


class CudaHolder:
    """Memory of one CUDA device through this process's caching allocator. Its peak statistics start anew."""

    def __init__(self, device: str, keep_free: int) -> None:
        self._torch = need_torch()
        self._device = device
        self._keep_free = keep_free
        try:
            self._torch.cuda.init()
            self._torch.cuda.empty_cache()
        except RuntimeError as error:
            raise ProbeError(f"device: {device} cannot be used ({error}); look at nvidia-smi") from error

    def room(self) -> int:
        """Return the bytes that may be taken: what the device has free, the allocator's cache emptied."""
        return max(0, int(self._torch.cuda.mem_get_info(self._device)[0]) - self._keep_free)

    def hold(self, pieces: Sequence[int]) -> Held:
        """Allocate the pieces as byte tensors and write into each of their pages."""
        cuda = self._torch.cuda
        cuda.empty_cache()
        cuda.reset_peak_memory_stats(self._device)
        before = self._current()
        tensors: list[Any] = []
        reason = ""
        try:
            for size in pieces:
                if size > self.room():
                    reason = f"{gib(size)} wanted, {gib(self.room())} left"
                    break
                tensor = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
                tensors.append(tensor)
                tensor[::PAGE].fill_(1)
            cuda.synchronize(self._device)
        except self._torch.cuda.OutOfMemoryError as error:
            reason = str(error).splitlines()[0]
        held = self._read(before)
        tensors.clear()
        # The loop's name still holds the last piece.
        tensor = None
        with suppress(self._torch.cuda.OutOfMemoryError):
            cuda.synchronize(self._device)
        cuda.empty_cache()
        if reason:
            raise OutOfRoomError(reason, held)
        return held

    def _current(self) -> Held:
        stats = self._torch.cuda.memory_stats(self._device)
        return Held(
            stats.get("requested_bytes.all.current", 0),
            stats.get("allocated_bytes.all.current", 0),
            stats.get("reserved_bytes.all.current", 0),
        )

    def _read(self, before: Held) -> Held:
        """Return what the pieces added, and the most that was allocated of them at once."""
        held = self._current()
        peak = self._torch.cuda.memory_stats(self._device).get("allocated_bytes.all.peak", 0)
        return Held(
            held.requested - before.requested,
            held.allocated - before.allocated,
            held.reserved - before.reserved,
            peak - before.allocated,
        )
