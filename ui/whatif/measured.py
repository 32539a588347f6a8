"""Measured: how long the steps of a recorded run took, and what was in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from statistics import median_high
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.request import CLIP_OUTPUT_TOKENS
from store.database import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.whatif.recorded import Recorded

MOST_PASSES: Final = 20_000
"""The newest so many passes of a record are looked at."""
MOST_REQUESTS: Final = 20_000
_LEAST_TOKENS: Final = 2
_MOST_RESERVES: Final = 500

_STEPS: Final = """SELECT p.start_ns, s.start_ns, s.end_ns, count(*), sum(d.extend_tokens), sum(d.prefix),
    sum(d.extend_tokens * d.prefix + d.extend_tokens * (d.extend_tokens + 1) / 2)
FROM (
    SELECT pass, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM steps
    WHERE run = ? AND pass > 0 GROUP BY pass ORDER BY pass DESC LIMIT ?
) s
CROSS JOIN passes p ON p.run = ? AND p.number = s.pass
CROSS JOIN (SELECT run, pass, extend_tokens, outcome,
    done_tokens + device_hit_tokens + CASE host_hit WHEN 1 THEN asked_tokens ELSE 0 END AS prefix FROM decisions) d
    ON d.run = p.run AND d.pass = p.number AND d.outcome <= 1
GROUP BY s.pass ORDER BY s.pass"""
_STARTS: Final = "SELECT start_ns FROM steps WHERE run = ? AND start_ns >= ? ORDER BY start_ns"
_SERVED: Final = """SELECT first_token_ns, end_ns, prompt_tokens, generated_tokens, output_tokens,
    coalesce(ignore_eos, 0) FROM requests
WHERE run = ? AND ended = 'finish' AND first_token_ns IS NOT NULL AND generated_tokens IS NOT NULL
ORDER BY number DESC LIMIT ?"""
_RESERVES: Final = """SELECT start_ns, reserved_tokens FROM passes
WHERE run = ? AND running > 0 AND members > 0 ORDER BY number DESC LIMIT ?"""


class Prefill(NamedTuple):
    """One prefill step: how long it took and what was in it. Tokens unless said."""

    ns: int
    """From the pass's start to the step's end, or to the next step's start where that comes before it."""
    members: int
    extend_tokens: int
    cached_tokens: int
    pairs: int
    """Causal pairs of a computed token with one before it."""


class Decode(NamedTuple):
    """Decode steps as one request saw them, on average over its life."""

    ns: float
    """One step."""
    steps: int
    batch: float
    """Requests that decoded beside it, itself among them."""
    context_tokens: float
    """KV tokens that they had together."""


class _Served(NamedTuple):
    first_ns: int
    end_ns: int
    prompt: int
    generated: int
    output: int
    ignore_eos: int


class Measured(NamedTuple):
    """What a record says of its steps."""

    prefills: tuple[Prefill, ...]
    decodes: tuple[Decode, ...]
    reserve_ratio: float | None
    """The part of what running requests could still generate that was held back; None where none ran."""
    lag_ns: int = 0
    """How long after a step's time its tokens are out: an engine that overlaps steps takes them in during the next."""


def read_measured(recorded: Recorded) -> Measured:
    """What a record says of its steps. Raises RecordError and StorageError."""
    run = recorded.id
    with reading(recorded.database) as connection:
        steps = connection.execute(_STEPS, (run, MOST_PASSES, run)).fetchall()
        starts = [row[0] for row in connection.execute(_STARTS, (run, steps[0][1] if steps else 0))]
        served = [_Served(*row) for row in connection.execute(_SERVED, (run, MOST_REQUESTS))]
        reserves = connection.execute(_RESERVES, (run, _MOST_RESERVES)).fetchall()
    prefills, stretches, lags = [], [], []
    for decided, start, end, *what in steps:
        place = bisect_right(starts, start)
        over = min(end, starts[place]) if place < len(starts) else end
        if over > decided:
            prefills.append(Prefill(over - decided, *what))
            stretches.append((decided, over))
            lags.append(end - over)
    decodes = _decodes(served, _Stretches(stretches))
    return Measured(tuple(prefills), tuple(decodes), _ratio(served, reserves), median_high(lags) if lags else 0)


class _Stretches:
    """Stretches of time in order, of which any part can be added up."""

    def __init__(self, stretches: Sequence[tuple[int, int]]) -> None:
        ordered = sorted(stretches)
        self._starts = [start for start, _ in ordered]
        self._ends = list(accumulate((end for _, end in ordered), max))
        self._sums = [0, *accumulate(end - start for start, end in ordered)]
        self._stretches = ordered

    def within(self, from_ns: int, until_ns: int) -> int:
        """How much of them lies in a stretch; those that overlap count apart."""
        first, last = bisect_right(self._ends, from_ns), bisect_left(self._starts, until_ns)
        if first >= last:
            return 0
        whole = self._sums[last] - self._sums[first]
        before = max(0, from_ns - self._starts[first])
        after = max(0, self._stretches[last - 1][1] - until_ns)
        return max(0, whole - before - after)


def _decodes(served: list[_Served], prefill: _Stretches) -> list[Decode]:
    """What each request saw of decoding, without the prefill steps in between."""
    load = _Load(served)
    found = []
    for each in served:
        steps = each.generated - 1
        span = each.end_ns - each.first_ns
        if each.generated < _LEAST_TOKENS or span <= 0:
            continue
        ns = span - prefill.within(each.first_ns, each.end_ns)
        batch, context = load.mean(each.first_ns, each.end_ns)
        if ns > 0:
            found.append(Decode(ns / steps, steps, batch, context))
    return found


class _Load:
    """How many requests decoded, and with how much context, as integrals over time."""

    def __init__(self, served: list[_Served]) -> None:
        changes: dict[int, tuple[int, int]] = {}
        for each in served:
            context = each.prompt + each.generated // 2
            for at_ns, sign in ((each.first_ns, 1), (each.end_ns, -1)):
                count, tokens = changes.get(at_ns, (0, 0))
                changes[at_ns] = (count + sign, tokens + sign * context)
        self._times = sorted(changes)
        self._level: list[tuple[int, int]] = []
        self._sums: list[tuple[int, int]] = []
        count = tokens = count_sum = token_sum = 0
        before = self._times[0] if self._times else 0
        for at_ns in self._times:
            count_sum += count * (at_ns - before)
            token_sum += tokens * (at_ns - before)
            more, context = changes[at_ns]
            count, tokens, before = count + more, tokens + context, at_ns
            self._level.append((count, tokens))
            self._sums.append((count_sum, token_sum))

    def mean(self, from_ns: int, until_ns: int) -> tuple[float, float]:
        """Mean requests and context tokens in a stretch of time."""
        (first, first_tokens), (last, last_tokens) = self._until(from_ns), self._until(until_ns)
        span = until_ns - from_ns
        return (last - first) / span, (last_tokens - first_tokens) / span

    def _until(self, at_ns: int) -> tuple[int, int]:
        place = bisect_right(self._times, at_ns) - 1
        since = at_ns - self._times[place]
        (count, tokens), (count_sum, token_sum) = self._level[place], self._sums[place]
        return count_sum + count * since, token_sum + tokens * since


def _ratio(served: list[_Served], reserves: list[tuple[int, int]]) -> float | None:
    """The median share of what running requests could still generate that the passes held back."""
    found = []
    for at_ns, reserved in reserves:
        left = whole = 0.0
        for each in served:
            if each.first_ns <= at_ns < each.end_ns:
                done = each.generated * (at_ns - each.first_ns) / max(1, each.end_ns - each.first_ns)
                may = min(each.output - done, CLIP_OUTPUT_TOKENS)
                whole, left = (whole + may, left) if each.ignore_eos else (whole, left + may)
        if left > 0:
            found.append(max(0.0, reserved - whole) / left)  # with ignore_eos all of it is held back
    return min(1.0, median_high(found)) if found else None
