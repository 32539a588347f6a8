"""Summary: what a replay adds up to, built while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ddsketch import DDSketch

from controller.vocabulary import Gate, HostHit, Outcome, Reason

if TYPE_CHECKING:
    from controller.decision import PassResult

RELATIVE_ACCURACY: Final = 0.01
"""How far a percentile of a time may be off, as a share of its value; the maximum is exact."""

_QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
_NS_PER_S: Final = 1_000_000_000
_GATES: Final = tuple(Gate)
_REASONS: Final = tuple(Reason)
_OUTCOMES: Final = tuple(Outcome)
_HOST_HITS: Final = tuple(HostHit)


class Times:
    """A stream of durations in ns, kept as a sketch whose size does not grow with the stream."""

    __slots__ = ("_max", "_sketch")

    def __init__(self) -> None:
        self._sketch = DDSketch(RELATIVE_ACCURACY)
        self._max = 0

    def add(self, ns: int) -> None:
        """Add one duration."""
        self._sketch.add(ns)
        self._max = max(self._max, ns)

    def seconds(self) -> dict[str, float]:
        """p50, p90, p95, p99 and max in seconds; empty when nothing was added."""
        if not self._sketch.count:
            return {}
        sketch = {name: self._sketch.get_quantile_value(share) or 0.0 for name, share in _QUANTILES}
        return {name: min(value, self._max) / _NS_PER_S for name, value in sketch.items()} | {
            "max": self._max / _NS_PER_S
        }


class Summary:
    """What a replay adds up to. Tokens unless said.

    `prompt_tokens`, `device_hit_tokens`, `host_hit_tokens` and the hit ratio count each request once, at its first
    admission; `computed_tokens` counts all that was computed, after retractions too.
    """

    __slots__ = (
        "_batch_sizes", "_closed_by", "_outcomes", "_skips", "_stops", "aborts", "computed_tokens",
        "device_hit_tokens", "finished", "first_token_times", "host_hit_tokens", "largest_prompt_tokens", "passes",
        "prompt_tokens", "queue_times", "requests", "retractions", "simulated_ns", "wall_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0
        """Requests that arrived."""
        self.finished = 0
        self.passes = 0
        self.prompt_tokens = 0
        self.device_hit_tokens = 0
        self.host_hit_tokens = 0
        self.computed_tokens = 0
        self.retractions = 0
        self.aborts = 0
        self.simulated_ns = 0
        self.wall_ns = 0
        self.largest_prompt_tokens = 0
        """The longest prompt with one token of output that the empty device tier can serve."""
        self.queue_times = Times()
        """From arrival to the start of the pass that admitted first."""
        self.first_token_times = Times()
        """From arrival to the first token (TTFT)."""
        self._batch_sizes: dict[int, int] = {}
        self._outcomes = [0] * len(_OUTCOMES)
        self._stops: dict[tuple[int, int], int] = {}
        self._closed_by: dict[tuple[int, int] | None, int] = {}
        self._skips = [0] * len(_HOST_HITS)

    def passed(self, result: PassResult) -> None:
        """Count one pass with its decisions."""
        batch, decisions, closed = result[:3]
        self.passes += 1
        if batch:
            size = len(batch)
            self._batch_sizes[size] = self._batch_sizes.get(size, 0) + 1
            for member in batch:
                self.computed_tokens += member[2]
        self._closed_by[closed] = self._closed_by.get(closed, 0) + 1
        outcomes, skips, stops = self._outcomes, self._skips, self._stops
        for decision in decisions:
            outcomes[decision[1]] += 1
            skips[decision[12]] += 1
            if decision[2] >= 0:
                stop = decision[2:4]
                stops[stop] = stops.get(stop, 0) + 1  # type: ignore[index,arg-type]  # a slice of two

    def admitted(self, prompt: int, device_hit: int, host_hit: int, waited_ns: int) -> None:
        """Count a request at its first admission."""
        self.prompt_tokens += prompt
        self.device_hit_tokens += device_hit
        self.host_hit_tokens += host_hit
        self.queue_times.add(waited_ns)

    @property
    def hit_ratio(self) -> float:
        """Device and host hits over prompt tokens, at first admission; 0 before any."""
        return (self.device_hit_tokens + self.host_hit_tokens) / self.prompt_tokens if self.prompt_tokens else 0.0

    def outcomes(self) -> dict[str, int]:
        """Decisions by outcome."""
        return {outcome.word: self._outcomes[outcome] for outcome in _OUTCOMES}

    def stops(self) -> dict[str, dict[str, int]]:
        """Decisions that a gate made wait, refused, parked or cut, by gate and reason."""
        return _by_gate(self._stops)

    def closed_by(self) -> dict[str, dict[str, int]]:
        """Passes by the gate and reason that closed them; the rest looked at the whole queue."""
        return _by_gate({stop: count for stop, count in self._closed_by.items() if stop is not None})

    def host_skips(self) -> dict[str, int]:
        """Decisions by the reason why a host hit was skipped; looks at prompts with none on the host are left out."""
        left_out = (HostHit.PLANNED, HostHit.LOADED, HostHit.NONE_RESIDENT)
        return {answer.word: self._skips[answer] for answer in _HOST_HITS if answer not in left_out}

    def batch_size(self) -> dict[str, int]:
        """p50, p90, p95, p99 and max of members a prefill batch had, exact; empty when there was no batch."""
        sizes = sorted(self._batch_sizes.items())
        if not sizes:
            return {}
        count = sum(self._batch_sizes.values())
        found = {}
        for name, share in _QUANTILES:
            left = share * (count - 1)
            for size, times in sizes:
                left -= times
                if left < 0:
                    found[name] = size
                    break
        return found | {"max": sizes[-1][0]}

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "requests": self.requests,
            "finished": self.finished,
            "aborts": self.aborts,
            "retractions": self.retractions,
            "passes": self.passes,
            "decisions": {"by_outcome": self.outcomes(), "by_gate": self.stops()},
            "closed_by": self.closed_by(),
            "host_hits_skipped": self.host_skips(),
            "prompt_tokens": self.prompt_tokens,
            "device_hit_tokens": self.device_hit_tokens,
            "host_hit_tokens": self.host_hit_tokens,
            "computed_tokens": self.computed_tokens,
            "hit_ratio": round(self.hit_ratio, 6),
            "batch_size": self.batch_size(),
            "queue_seconds": self.queue_times.seconds(),
            "ttft_seconds": self.first_token_times.seconds(),
            "largest_prompt_tokens": self.largest_prompt_tokens,
            "simulated_seconds": self.simulated_ns / _NS_PER_S,
            "wall_seconds": self.wall_ns / _NS_PER_S,
        }


def _by_gate(stops: dict[tuple[int, int], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for gate, reason in sorted(stops):
        found.setdefault(_GATES[gate].word, {})[_REASONS[reason].word] = stops[gate, reason]
    return found
