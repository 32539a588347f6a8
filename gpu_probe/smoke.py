"""The start-up smoke allocation: the bytes an operator allows are allocated for real, touched, read and given back.

Meant to run in the process that owns the device, after weights, KV pool and graphs are in place. Never on the
scheduler's path.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from estimator.batch import BatchEstimator
from estimator.errors import InputError
from estimator.estimate import Estimate
from gpu_probe.device import describe, gib
from gpu_probe.errors import ProbeError
from gpu_probe.holders import CudaHolder, Held, Holder, HostHolder, OutOfRoomError

# Without an estimate: engines ask for buffers of up to some GiB, one by one.
PIECE = 1 << 30
# What a smoke allocation leaves alone of the host's memory, so that the machine stays alive beside it.
HOST_KEEP_FREE = 1 << 30
HOST_KEEP_SHARE = 20
# Bisection stops after so many trials, or once the answer is known to 1/256 of what was asked.
TRIALS = 8
FINENESS = 256
PAGE = 4096


class SmokeError(ProbeError):
    """The device did not hold what `max_buffer_bytes` allows."""


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """What a smoke allocation found. Bytes; times in ns of the clock that was given.

    `requested`, `allocated`, `reserved` are the allocator's own figures while everything was held (on the CPU: asked
    for, mapped in pages, resident), `peak` the most that was allocated at once. `largest` is the most that did fit:
    `asked` where it passed. `why` is empty where it passed, and one line otherwise.
    """

    at_ns: int
    device: str
    name: str
    asked: int
    pieces: int
    requested: int
    allocated: int
    reserved: int
    peak: int
    free_before: int
    free_after: int
    total: int
    keep_free: int
    largest: int
    trials: int
    took_ns: int
    passed: bool
    why: str = ""

    def record_fields(self) -> dict[str, Any]:
        """Return the fields of a journal's smoke record, by their names there."""
        names = ("at_ns", "device", "asked", "reserved", "peak", "free_before", "passed", "why")
        return {name: getattr(self, name) for name in names}

    def check(self) -> "SmokeResult":
        """Return this result if it passed. Raises SmokeError with `why` otherwise."""
        if not self.passed:
            raise SmokeError(self.why)
        return self


def pieces_of(estimate: Estimate) -> list[int]:
    """Return the bytes of each buffer alive at an estimate's peak, largest first."""
    alive = [estimate.buffers.get(name, 0) for name in estimate.live[estimate.peak_phase]]
    return sorted((size for size in alive if size), reverse=True)


def chunk_pieces(estimator: BatchEstimator | None, chunk: int | None) -> list[int] | None:
    """Return the bytes of each buffer that a full chunk of `chunk` tokens has alive at its peak, largest first.

    None without an estimator, or where prompts are not cut into chunks.
    """
    if estimator is None or chunk is None:
        return None
    return pieces_of(estimator.explain(estimator.add(estimator.empty, 0, chunk)))


def shape_pieces(asked: int, pieces: Sequence[int] | None = None) -> list[int]:
    """Return pieces that add up to `asked` bytes: as given while they fit, then pieces of up to 1 GiB.

    Raises InputError for a piece below one byte, or nothing asked.
    """
    if asked < 1:
        raise InputError(f"smoke: {asked} bytes asked, but must be at least 1")
    shaped: list[int] = []
    left = asked
    for piece in pieces or ():
        if piece < 1:
            raise InputError(f"smoke: a piece of {piece} bytes, but must be at least 1")
        if piece <= left:
            shaped.append(piece)
            left -= piece
    while left:
        shaped.append(min(left, PIECE))
        left -= shaped[-1]
    return shaped


def smoke(
    device: str,
    asked: int,
    pieces: Sequence[int] | None = None,
    *,
    keep_free: int | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> SmokeResult:
    """Allocate `asked` bytes on a device in pieces, touch every page, read the allocator, free all of it.

    `keep_free` bytes of the device's free memory are never taken; on the CPU by default 1 GiB or 5 % of memory,
    whichever is more, on CUDA 0. Does not raise when it does not fit: the result says why, how much did fit, and what
    to set. Raises ProbeError for a device that is not there, InputError for sizes that cannot be.
    """
    shaped = shape_pieces(asked, pieces)
    before = describe(device)
    if keep_free is None:
        keep_free = max(HOST_KEEP_FREE, before.total // HOST_KEEP_SHARE) if before.device == "cpu" else 0
    if keep_free < 0:
        raise InputError(f"smoke: keep_free is {keep_free}, but must be at least 0")
    holder: Holder = HostHolder(keep_free) if before.device == "cpu" else CudaHolder(before.device, keep_free)
    at_ns = clock()
    try:
        held = holder.hold(shaped)
        passed, reason, largest, trials = True, "", asked, 0
    except OutOfRoomError as error:
        held, passed, reason = error.held, False, str(error)
        largest, trials = _largest(holder, asked, pieces)
    after = describe(device)
    result = SmokeResult(
        at_ns=at_ns,
        device=before.device,
        name=before.name,
        asked=asked,
        pieces=len(shaped),
        requested=held.requested,
        allocated=held.allocated,
        reserved=held.reserved,
        peak=held.peak,
        free_before=before.free,
        free_after=after.free,
        total=before.total,
        keep_free=keep_free,
        largest=largest,
        trials=trials,
        took_ns=clock() - at_ns,
        passed=passed,
    )
    return result if passed else replace(result, why=_why(result, reason))


def _largest(holder: Holder, asked: int, pieces: Sequence[int] | None) -> tuple[int, int]:
    """Return the largest size below `asked` that could be held, in bytes, and how many sizes were tried."""
    low, high = 0, min(asked - 1, holder.room())
    step = max(PAGE, asked // FINENESS)
    trials = 0
    tried = high
    while trials < TRIALS and tried > low:
        trials += 1
        if _fits(holder, tried, pieces):
            low = tried
        else:
            high = tried
        if high - low <= step:
            break
        tried = (low + high) // 2
    return low, trials


def _fits(holder: Holder, size: int, pieces: Sequence[int] | None) -> bool:
    try:
        holder.hold(shape_pieces(size, pieces))
    except OutOfRoomError:
        return False
    return True


def _why(result: SmokeResult, reason: str) -> str:
    kept = f", {gib(result.keep_free)} kept free" if result.keep_free else ""
    if result.largest:
        fits = f"{gib(result.largest)} ({result.largest} bytes) did fit"
        remedy = f"set --max-buffer-bytes {result.largest} or less"
    else:
        fits, remedy = "nothing did fit", "free memory on the device"
    more = "" if result.device == "cpu" else ", or lower mem_fraction_static so that the KV pool leaves more"
    return (
        f"smoke {result.device}: asked {gib(result.asked)} ({result.asked} bytes) in {result.pieces} pieces, {fits}; "
        f"{gib(result.free_before)} of {gib(result.total)} were free{kept} ({reason}); {remedy}{more}"
    )


__all__ = ["Held", "SmokeError", "SmokeResult", "chunk_pieces", "pieces_of", "shape_pieces", "smoke"]
