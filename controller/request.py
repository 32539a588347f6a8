"""What a decision is made from: the waiting request, its prefix match, the capacity left.

Engines build these from mirrored state only, so that every rank of a group builds the same ones.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controller.vocabulary import HostHit
from estimator.errors import InputError

CLIP_OUTPUT_TOKENS: Final = 4096
"""Output tokens a candidate or a running request is charged for at most (SGLang 0.5.23, `CLIP_MAX_NEW_TOKENS`)."""

UNBOUNDED: Final = 1 << 50
"""Tokens of a pool without a bound: large enough never to bind, small enough to add up in 64 bits."""


class Lane(msgspec.Struct, frozen=True, gc=False):
    """One owner lane's pages: the rank that owns every Nth page of a chain (SGLang 0.5.23, page-interleaved pool)."""

    free_pages: int
    evictable_pages: int

    def __post_init__(self) -> None:
        """Refuse page counts below zero."""
        if self.free_pages < 0 or self.evictable_pages < 0:
            raise InputError(
                f"a lane has {self.free_pages} free and {self.evictable_pages} evictable pages; both are >= 0"
            )


class PrefixMatch(msgspec.Struct, frozen=True, gc=False):
    """What the prefix cache holds of a candidate's prompt, looked up without allocating anything. All in tokens."""

    device_tokens: int = 0
    """The device hit (L1)."""
    unlocked_tokens: int = 0
    """The part of the device hit nobody has locked yet; it stops being evictable once the candidate is tested."""
    host_tokens: int = 0
    """The host hit (L2) that continues the device hit without a gap."""
    resident_tokens: int = 0
    """Host tokens of this prompt in all, also those behind a gap."""
    host_answer: HostHit = HostHit.PLANNED
    """`PLANNED` when the hit may be asked for, else `IN_FLIGHT` or `DISABLED`."""
    first_lane: int | None = None
    """The lane that owns page 0 of the chain; None for a chain that has none yet."""


NO_MATCH: Final = PrefixMatch()


class Candidate(msgspec.Struct, gc=False):
    """A waiting request as a pass looks at it."""

    number: int
    """The request's number in the run; the record maps it to its id."""
    prompt_tokens: int
    """Tokens to hold before decoding begins; after a retraction these include the tokens generated before."""
    output_tokens: int
    """Tokens it may still generate, not yet clipped."""
    match: PrefixMatch = NO_MATCH
    handle: Any = None
    """Whatever the engine needs to commit the candidate."""
    generated_tokens: int = 0
    """Tokens generated before a retraction; they stand in the prompt, and SGLang reserves output for them again."""

    def __post_init__(self) -> None:
        """Refuse a candidate that leaves nothing to compute or generates less than nothing."""
        match = self.match
        if match.device_tokens + match.host_tokens >= self.prompt_tokens:
            raise InputError(
                f"a prompt of {self.prompt_tokens} tokens has {match.device_tokens} device-hit and {match.host_tokens} "
                "host-hit tokens; together they must leave at least one token to compute"
            )
        if self.output_tokens < 0:
            raise InputError(f"output_tokens is {self.output_tokens}; it is a whole number >= 0")


class ActiveChunk(msgspec.Struct, frozen=True, gc=False):
    """The one request whose prompt is partly computed and goes on in this pass. All in tokens."""

    number: int
    prompt_tokens: int
    done_tokens: int
    output_tokens: int
    first_lane: int | None = None
    handle: Any = None

    def __post_init__(self) -> None:
        """Refuse a chunk with nothing left to compute."""
        if not 0 <= self.done_tokens < self.prompt_tokens:
            raise InputError(
                f"the active chunk has done {self.done_tokens} of {self.prompt_tokens} prompt tokens; "
                "at least one must be left"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The KV pool and request slots as a pass finds them. Tokens unless said."""

    pool_tokens: int
    free_tokens: int
    evictable_tokens: int = 0
    reserved_tokens: float = 0
    """Held back for running requests, see `running_reserve`; it may end in a fraction of a token."""
    running: int = 0
    """Requests that hold a slot, the active chunk not among them."""
    slots: int = 2048
    """Request slots in all."""
    lanes: tuple[Lane, ...] = ()
    """Owner lanes; empty means one lane, the pool itself."""

    def __post_init__(self) -> None:
        """Refuse a pool that holds more than it has."""
        if min(self.pool_tokens, self.free_tokens, self.evictable_tokens, self.reserved_tokens, self.running) < 0:
            raise InputError(f"a capacity below zero: {self}")
        if self.free_tokens + self.evictable_tokens > self.pool_tokens:
            raise InputError(
                f"free_tokens {self.free_tokens} + evictable_tokens {self.evictable_tokens} is more than "
                f"pool_tokens {self.pool_tokens}"
            )
        if self.slots < 1:
            raise InputError(f"running_slots is {self.slots}; it is a whole number >= 1")


def running_reserve(remaining: list[tuple[int, bool]], new_token_ratio: float) -> float:
    """Tokens held back so that running requests can go on: the sum of min(left, 4096) x ratio.

    `remaining` holds (tokens left to generate, ignore_eos); with ignore_eos the ratio is 1 (SGLang 0.5.23,
    `PrefillAdder._get_running_request_total_token_offset`).
    """
    total = 0.0
    for left, ignore_eos in remaining:
        total += min(left, CLIP_OUTPUT_TOKENS) * (1.0 if ignore_eos else new_token_ratio)
    return total
