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


Try = tuple[int, int, float, Any]
"""One selection of a prefill shape by the engine: the host hit it counted on, what it asked of the pool, what the pool
had as the engine compared it (it may end in a fraction), in tokens; and the engine's `_PrefillAdmission` or verdict."""


class Look:
    """One candidate, or the continuing chunk. Tokens unless said.

    What most looks do not have stands on the class, since one is made for every candidate of every pass.
    """

    end = -1
    """Where what it computes ends; -1 while it is not in the batch."""
    prefix = 0
    """What a member's computed tokens stand on."""
    tried: Try | None = None
    """The last selection of a shape."""
    first: Try | None = None
    """The one before, where the load of a host hit failed in between."""
    stop: Stop | None = None
    """Glassgate's own gate that stopped it."""
    said: Stop | None = None
    """What one of the engine's own checks told of itself."""
    verdict: Any = None
    """The engine's verdict, which is about the next candidate once this one is in; None where the loop goes on."""
    chunked = doomed = False
    loaded = asked = evicted = 0
    host: HostHit | None = None
    """What became of the load, where one was tried."""
    estimate: Any = None
    """The estimator's state with it in the batch."""

    def __init__(self, request: Any, members: int, input_left: int, chunk_left: int | None) -> None:
        self.request = request
        self.members = members
        """Of the batch, before it."""
        self.input_left = input_left
        self.chunk_left = chunk_left
        self.hit = request.prefix_len
        """The device hit."""
        self.matched = request.host_hit_length

    @property
    def admitted(self) -> bool:
        """Whether it is in the batch."""
        return self.end >= 0
