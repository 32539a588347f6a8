"""Look: what an attempt to add one waiting request left behind, as plain values. The record is made from it later."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from controller.vocabulary import Gate, HostHit, Reason


class Stop(NamedTuple):
    """Why somebody was told to wait, with what was compared; 0 of 0 where the engine compares no number."""

    gate: Gate
    reason: Reason
    observed: int = 0
    limit: int = 0


UNATTRIBUTED: Final = Stop(Gate.UNATTRIBUTED, Reason.NOT_TOLD)


class Try(NamedTuple):
    """One selection of a prefill shape by the engine: with the host hit, or again without it. Tokens."""

    host: int
    """The host hit it counted on."""
    needed: int
    """What it asked of the pool."""
    room: float
    """What the pool had, as the engine compared it; it may end in a fraction."""
    shape: Any
    """The engine's `_PrefillAdmission`, or its verdict."""


class Look:
    """One candidate, or the continuing chunk. Tokens unless said."""

    __slots__ = (
        "admitted", "asked", "chunk_left", "chunked", "doomed", "end", "estimate", "evicted", "hit", "host",
        "input_left", "loaded", "matched", "members", "prefix", "request", "said", "stop", "tries", "verdict",
    )  # fmt: skip

    def __init__(self, request: Any, members: int, input_left: int, chunk_left: int | None) -> None:
        self.request = request
        self.members = members
        """Of the batch, before it."""
        self.input_left = input_left
        self.chunk_left = chunk_left
        self.prefix = self.hit = request.prefix_len
        """`hit` is the device hit; `prefix` becomes what the computed tokens stand on."""
        self.matched = request.host_hit_length
        self.tries: list[Try] = []
        self.stop: Stop | None = None
        """Glassgate's own gate that stopped it."""
        self.said: Stop | None = None
        """What one of the engine's own checks told of itself."""
        self.verdict: Any = None
        """The engine's verdict, which is about the next candidate once this one is in."""
        self.admitted = self.chunked = self.doomed = False
        self.end = self.loaded = self.asked = self.evicted = 0
        self.host: HostHit | None = None
        """What became of the load, where one was tried."""
        self.estimate: Any = None
        """The estimator's state with it in the batch."""
