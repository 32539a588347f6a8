"""One stretch of the window: what its passes amounted to, added up so that no pass is kept."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Final, NamedTuple

NOTHING: Final = -1
"""The gate of passes that nothing closed."""
_SKIPS: Final = 50


class Extremes(NamedTuple):
    """The most that the passes under one revision used of each limit. Tokens unless said."""

    members: int
    extend: int
    cached: int
    peak: int | None
    """Bytes; None without an estimate."""
    least_room: int
    """Free and evictable less reserved, as the pass left it."""
    slots: int
    """Running requests and members."""

    def widened(self, other: Extremes) -> Extremes:
        """The extremes of both."""
        peaks = [peak for peak in (self.peak, other.peak) if peak is not None]
        return Extremes(
            max(self.members, other.members), max(self.extend, other.extend), max(self.cached, other.cached),
            max(peaks) if peaks else None, min(self.least_room, other.least_room), max(self.slots, other.slots),
        )  # fmt: skip


class Timed:
    """Values that became known at a time, for sums and sorted values by a moment."""

    __slots__ = ("_latest", "_sorted", "_total", "_values")

    def __init__(self) -> None:
        self._values: list[tuple[int, int]] = []
        self._latest = -1
        self._total = 0
        self._sorted: array[int] | None = None

    def add(self, at_ns: int, value: int) -> None:
        """One more value."""
        self._values.append((at_ns, value))
        if at_ns > self._latest:  # noqa: PLR1730 - max() costs a call for each decision
            self._latest = at_ns
        self._total += value
        self._sorted = None

    def sum_by(self, at_ns: int) -> int:
        """The sum of those known by a moment."""
        if at_ns >= self._latest:
            return self._total
        return sum(value for known_ns, value in self._values if known_ns <= at_ns)

    def sorted_by(self, at_ns: int) -> array[int]:
        """Those known by a moment, the least first."""
        if at_ns < self._latest:
            return array("q", sorted(value for known_ns, value in self._values if known_ns <= at_ns))
        if self._sorted is None:
            self._sorted = array("q", sorted(value for _, value in self._values))
        return self._sorted


class Skip(NamedTuple):
    """One request that entered without the host hit there was for it."""

    number: int
    """The pass."""
    request: int
    host_hit: int
    tokens: int


class Bucket:
    """What the passes that began in one stretch of time amounted to. Tokens unless said."""

    __slots__ = (
        "asked", "closed", "extremes", "first", "last", "last_stop", "loaded", "matched", "passes", "peak", "queued",
        "repeats", "resident", "skipped", "skips", "ttft", "used",
    )  # fmt: skip

    def __init__(self) -> None:
        self.passes = 0
        """Passes written whole."""
        self.first = self.last = 0
        """Their numbers."""
        self.closed: Counter[int] = Counter()
        """Passes by the gate that closed them."""
        self.repeats: Counter[int] = Counter()
        """Further passes that met the same refusal."""
        self.last_stop: dict[int, int] = {}
        self.extremes: dict[int, Extremes] = {}
        """By revision."""
        self.peak: tuple[int, tuple[tuple[str, int], ...]] | None = None
        """The largest estimate, bytes, and its parts once they were read."""
        self.resident = self.matched = self.asked = self.loaded = 0
        """Host hits of requests that entered."""
        self.skipped: dict[int, tuple[int, int]] = {}
        """(tokens, decisions) by the reason why."""
        self.skips: list[Skip] = []
        """The last of them, oldest first."""
        self.used = Timed()
        """Loaded tokens whose batch was computed."""
        self.ttft = Timed()
        """ns, of the requests whose prompt was completed."""
        self.queued = Timed()
        """Time in the queue of the requests that entered, ns."""

    def add_group(self, gate: int | None, revision: int, group: tuple[int, ...]) -> None:
        """Take passes that one gate closed: how many, first and last number, last start, and their extremes."""
        count, first, last, last_ns, *rest = group
        stop = NOTHING if gate is None else gate
        self.first = min(self.first, first) if self.passes else first
        self.last = max(self.last, last)
        self.passes += count
        self.closed[stop] += count
        if gate is not None:
            self.last_stop[gate] = max(self.last_stop.get(gate, 0), last_ns)
        extremes = Extremes(*rest)
        known = self.extremes.get(revision)
        self.extremes[revision] = extremes if known is None else known.widened(extremes)
        if extremes.peak is not None and (self.peak is None or extremes.peak > self.peak[0]):
            self.peak = extremes.peak, ()

    def add_hit(self, passed: int, request: int, host_hit: int, tokens: tuple[int, int, int], *, loaded: bool) -> None:
        """Take the host hit of a request that entered: (resident, matched, asked) tokens."""
        resident, matched, asked = tokens
        self.resident += resident
        self.matched += matched
        self.asked += asked
        if loaded:
            self.loaded += asked
        elif matched:
            known, decisions = self.skipped.get(host_hit, (0, 0))
            self.skipped[host_hit] = known + matched, decisions + 1
            self.skips.append(Skip(passed, request, host_hit, matched))
            if len(self.skips) > 2 * _SKIPS:
                self.skips = sorted(self.skips)[-_SKIPS:]

    @property
    def met(self) -> int:
        """Passes, repeats counted."""
        return self.passes + self.repeats.total()

    def met_by_gate(self) -> Counter[int]:
        """Passes by the gate that closed them, repeats counted."""
        return self.closed + self.repeats if self.repeats else self.closed
