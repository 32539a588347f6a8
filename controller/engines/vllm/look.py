"""Look: one waiting request as one step's loop meets it, and what is kept of a request between steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.vocabulary import Gate, HostHit, Reason

if TYPE_CHECKING:
    from controller.engines.vllm.pool import Shortage
    from controller.engines.vllm.soft import Judgement

Stop = tuple[Gate, Reason]

KEPT: Final = "_glassgate"
"""The attribute of vLLM's request under which a `Kept` is found."""


class Kept:
    """What is known of a request from one step to the next. Tokens unless said."""

    __slots__ = ("device_hit", "host", "loading", "number", "queued")

    def __init__(self, number: int, queued: int) -> None:
        self.number = number
        """Its number in the run."""
        self.queued = queued
        """What it counts for in the queue's tokens; 0 while it does not wait."""
        self.device_hit = 0
        """Of a host hit on its way: the device hit before it."""
        self.loading = 0
        """Of a host hit on its way: what was asked for; 0 without one."""
        self.host = HostHit.NONE_RESIDENT
        """How the last host hit fared."""


class Look:
    """What the engine's loop did with one waiting request. Tokens unless said."""

    __slots__ = (
        "computed", "external", "free_after", "free_before", "judgement", "kept", "local", "matched", "prefix",
        "request", "running", "shortage", "skip", "state", "tokens",
    )  # fmt: skip

    def __init__(self, request: Any, kept: Kept, running: int) -> None:
        self.request = request
        self.kept = kept
        self.running = running
        """Request slots taken when it was looked at."""
        self.state = LOOKED_AT
        self.skip: Stop | None = None
        """Why the loop went on without it."""
        self.prefix = -1
        """What it holds and what was found for it, device and host; -1 while its prefix was not looked up."""
        self.matched = -1
        """What the engine's connector holds beyond the device hit; -1 while it was not asked."""
        self.computed = self.local = self.external = self.tokens = 0
        """What it held, device hit, host hit and what the step computes, as `allocate_slots` was asked for."""
        self.free_before = self.free_after = 0
        self.judgement: Judgement | None = None
        self.shortage: Shortage | None = None


LOOKED_AT: Final = 0
SKIPPED: Final = 1
VETOED: Final = 2
"""A soft gate of Glassgate refused it."""
NO_ROOM: Final = 3
LOADING: Final = 4
"""Its host hit began to load."""
JOINED: Final = 5

ALIGNED: Final = 1
"""No chunk that ends where the engine must cache state."""
LOOKAHEAD: Final = 2
"""No chunk that ends far enough from the prompt's end for its drafter."""
ENCODER: Final = 3
"""No room in the encoder for the chunk's input."""
