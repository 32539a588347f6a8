"""Watching memory while a step runs: live storages of torch tensors, or a CUDA device's caching allocator."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

COMPUTE = "compute"


class Peaks(NamedTuple):
    """Most bytes at once: `requested` as asked for, `allocated` in the allocator's blocks, `reserved` of the device.

    `held` adds to the compute stream's live bytes the high-water mark of each other stream, since what a side stream
    frees serves that stream only. Where an allocator is read, `held` is `requested`.
    """

    requested: int
    held: int
    allocated: int
    reserved: int


class Watch(Protocol):
    """Counts what is allocated while it is entered."""

    def __enter__(self) -> Self:
        """Start counting; what exists already is not counted."""

    def __exit__(self, *raised: object) -> None:
        """Stop counting."""

    def kernel(self) -> Any:
        """Return a context in which allocations stand for a kernel's own workspace and are not counted."""

    def stream(self, name: str) -> Any:
        """Return a context in which allocations belong to a stream of that name."""

    def peaks(self) -> Peaks:
        """Return the peaks so far."""


class StorageWatch(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch types it not
    """Counts the storages behind tensors of one device kind, from their making until the last reference is gone.

    A storage is seen as the output of an operator. What a kernel allocates and frees within itself is not seen. Works
    on `meta`, where a tensor has a size and no memory, and on `cpu`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch types it not
        self._kind = kind
        self._live: dict[int, tuple[weakref.ref[Any], int, str]] = {}
        self._known: dict[int, Any] = {}
        self._streams: dict[str, int] = {COMPUTE: 0}
        self._marks: dict[str, int] = {}
        self._stream = COMPUTE
        self._counting = True
        self._total = self._requested = self._held = 0

    def __enter__(self) -> Self:
        """Start counting."""
        super().__enter__()  # type: ignore[no-untyped-call] # torch types it not
        return self

    def know(self, *tensors: torch.Tensor) -> None:
        """Leave these tensors, and all views of them, out of the count."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = storage  # noqa: SLF001 - torch has no public identity of a storage

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and look at what it returns."""
        result = func(*args, **(kwargs or {}))
        if self._counting:
            if isinstance(result, torch.Tensor):
                self._look(result)
            elif isinstance(result, (tuple, list)):
                for each in result:
                    if isinstance(each, torch.Tensor):
                        self._look(each)
        return result

    @contextmanager
    def kernel(self) -> Iterator[None]:
        """Count nothing within."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """Count for a stream."""
        before, self._stream = self._stream, name
        try:
            yield
        finally:
            self._stream = before

    def peaks(self) -> Peaks:
        """Return the peaks; a storage has no blocks or segments, so all but `held` are equal."""
        return Peaks(self._requested, self._held, self._requested, self._requested)

    def _look(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != self._kind:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - torch has no public identity of a storage
        if key in self._known or key in self._live:
            return
        size, stream = storage.nbytes(), self._stream
        self._live[key] = (weakref.ref(storage, partial(self._forget, key)), size, stream)
        self._total += size
        here = self._streams.get(stream, 0) + size
        self._streams[stream] = here
        if stream != COMPUTE:
            self._marks[stream] = max(self._marks.get(stream, 0), here)
        self._requested = max(self._requested, self._total)
        self._held = max(self._held, self._streams[COMPUTE] + sum(self._marks.values()))

    def _forget(self, key: int, _gone: object) -> None:
        _reference, size, stream = self._live.pop(key)
        self._total -= size
        self._streams[stream] -= size


class CudaWatch:
    """Reads the caching allocator of one CUDA device. Its peak statistics start anew as the watch is entered."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._base = Peaks(0, 0, 0, 0)
        self._most = Peaks(0, 0, 0, 0)
        self._streams: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Wait for the device, empty the cache, and take what is allocated as the base."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._base = self._read("current")
        self._most = self._base
        return self

    def __exit__(self, *_raised: object) -> None:
        """Wait for the device and read the peaks a last time."""
        torch.cuda.synchronize(self._device)
        self._note()

    @contextmanager
    def kernel(self) -> Iterator[None]:
        """Read the peaks before, and forget those from within: they are a kernel's own workspace here."""
        self._note()
        try:
            yield
        finally:
            torch.cuda.reset_peak_memory_stats(self._device)

    def stream(self, name: str) -> Any:
        """Allocate on a side stream of the device."""
        if name == COMPUTE:
            return nullcontext()
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call] # torch types it not
        return torch.cuda.stream(self._streams[name])

    def peaks(self) -> Peaks:
        """Return the peaks above the base."""
        self._note()
        pairs = zip(self._most, self._base, strict=True)
        return Peaks(*(most - base for most, base in pairs))

    def _note(self) -> None:
        self._most = Peaks(*map(max, self._most, self._read("peak")))

    def _read(self, what: str) -> Peaks:
        stats = torch.cuda.memory_stats(self._device)
        requested = int(stats.get(f"requested_bytes.all.{what}", 0))
        allocated, reserved = (int(stats.get(f"{name}_bytes.all.{what}", 0)) for name in ("allocated", "reserved"))
        return Peaks(requested, requested, allocated, reserved)


def watch_for(device: str) -> StorageWatch | CudaWatch:
    """Return what counts on a device."""
    return CudaWatch(device) if device.startswith("cuda") else StorageWatch(device.partition(":")[0])
