"""Identity: trace and span ids derived from the record, so that a second delivery of a span can be told.

An id is a BLAKE2b digest of run, rank, kind and numbers; it is the same whenever and wherever it is derived, and never
zero, which W3C Trace Context forbids.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

_TRACE_BYTES = 16
_SPAN_BYTES = 8


class Ids(NamedTuple):
    """A span's trace id (128 bits) and span id (64 bits), both above zero."""

    trace: int
    span: int

    @property
    def trace_hex(self) -> str:
        """32 hexadecimal digits."""
        return f"{self.trace:032x}"

    @property
    def span_hex(self) -> str:
        """16 hexadecimal digits."""
        return f"{self.span:016x}"


class Identity:
    """Derives the ids of one run's spans on one rank."""

    __slots__ = ("_rank", "_run")

    def __init__(self, run: str, rank: int) -> None:
        self._run = run
        self._rank = f"{run}\0{rank}\0"

    def of_pass(self, number: int) -> Ids:
        """Of `prefill.pass`, which begins a trace."""
        return self._both("pass", number)

    def of_decision(self, number: int, position: int) -> int:
        """Span id of `prefill.decision`, by its pass and its place there; its trace is the pass's."""
        return _number(f"{self._rank}decision\0{number}\0{position}", _SPAN_BYTES)

    def of_repeat(self, first_pass: int) -> int:
        """Span id of `prefill.repeat`, by the pass it repeats; its trace is that pass's."""
        return _number(f"{self._rank}repeat\0{first_pass}", _SPAN_BYTES)

    def of_queue(self, number: int, start_ns: int) -> int:
        """Span id of `prefill.queue`, by the request's number and the run's time when the wait began."""
        return _number(f"{self._rank}queue\0{number}\0{start_ns}", _SPAN_BYTES)

    def request_trace(self, request: str) -> int:
        """Trace id for a request that came without one; all ranks of a run derive the same."""
        return _number(f"{self._run}\0request\0{request}", _TRACE_BYTES)

    def of_smoke(self, device: str, at_ns: int) -> Ids:
        """Of `glassgate.smoke_allocation`."""
        return self._both(f"smoke\0{device}", at_ns)

    def of_knob_change(self, at_ns: int, place: int) -> Ids:
        """Of `glassgate.knob_change`; `place` counts the changes of one moment from 0."""
        return self._both(f"knob_change\0{place}", at_ns)

    def _both(self, kind: str, number: int) -> Ids:
        digest = blake2b(f"{self._rank}{kind}\0{number}".encode(), digest_size=_TRACE_BYTES + _SPAN_BYTES).digest()
        return Ids(int.from_bytes(digest[:_TRACE_BYTES], "big") or 1, int.from_bytes(digest[_TRACE_BYTES:], "big") or 1)


def _number(text: str, size: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1
