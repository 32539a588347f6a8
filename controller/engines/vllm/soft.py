"""SoftGates: the four limits that stop a step's prefill batch from growing, judged candidate by candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.gates import EXEMPT, NOT_EVALUATED, OFF, PASS, REFUSE, WOULD_REFUSE
from controller.vocabulary import Gate

if TYPE_CHECKING:
    from controller.limits import Limits
    from estimator.batch import BatchEstimator

Triple = tuple[int, int, int]
"""Verdict, observed, limit."""

SKIPPED: Final[Triple] = (NOT_EVALUATED, 0, 0)


class Judgement(NamedTuple):
    """What the four gates said of one candidate."""

    refused_by: Gate | None
    requests: Triple
    extend: Triple
    cached: Triple
    buffer: Triple
    estimate: Any
    """The estimator's state with the candidate in the batch."""


class SoftGates:
    """The batch of one step as the soft gates see it. Tokens unless said.

    A batch's members are the prompts that the step computes a part of: those that run and are not complete yet, and
    those that join. A host hit that begins to load joins nothing, but counts like a member, so that a limit also bounds
    how many come at once. The first member passes with the checks marked `exempt`, and so does one that holds KV: no
    limit keeps a lone request out, and none keeps KV idle.
    """

    __slots__ = (
        "_decoding", "_rows", "_without_safety", "cached_sum", "estimate", "estimator", "extend_sum", "joined",
        "limits", "members",
    )  # fmt: skip

    def __init__(self, limits: Limits, estimator: BatchEstimator | None, safety_percent: int | None = None) -> None:
        self._without_safety = estimator
        self.turn(limits, safety_percent)
        self.begin()

    def turn(self, limits: Limits, safety_percent: int | None) -> None:
        """Judge by other limits from the next step on; the estimate is multiplied by `safety_percent`/100."""
        self.limits = limits
        plain = self._without_safety
        self.estimator = None if plain is None else plain.with_safety(safety_percent)
        self._rows = 0
        self._decoding: Any = None

    def begin(self) -> None:
        """A step begins, with nothing in its batch."""
        self.members = self.joined = self.extend_sum = self.cached_sum = 0
        self.estimate: Any = None if self.estimator is None else self.estimator.empty

    def decode(self, rows: int) -> None:
        """Requests that decode in the same step give the batch's buffers so many rows, and nothing else."""
        estimator = self.estimator
        if estimator is None or rows <= 0:
            return
        if self.members:
            self.estimate = estimator.add(self.estimate, 0, rows)
            return
        if self._rows != rows:
            self._rows, self._decoding = rows, estimator.add(estimator.empty, 0, rows)
        self.estimate = self._decoding

    def go_on(self, done: int, tokens: int) -> None:
        """A prompt that runs already is computed further."""
        self.members += 1
        self.extend_sum += self._charged(tokens)
        if self.estimator is not None:
            self.estimate = self.estimator.add(self.estimate, done, tokens)

    def judge(self, tokens: int, prefix: int, loaded: int, *, holds_kv: bool) -> Judgement:
        """What the gates say of a candidate that would compute `tokens` on a prefix, `loaded` of it from outside.

        With 0 tokens it would only begin to load its host hit.
        """
        limits = self.limits
        past = EXEMPT if holds_kv or self.members == 0 else REFUSE if limits.enforce else WOULD_REFUSE
        requests = _triple(self.joined + 1, limits.max_requests, past)
        cached = _triple(self.cached_sum + prefix, limits.max_cached, past)
        extend = buffer = SKIPPED
        estimate = self.estimate
        if tokens:
            extend = _triple(self.extend_sum + self._charged(tokens), limits.max_extend, past)
            if self.estimator is not None:
                estimate = self.estimator.add(estimate, prefix, tokens, loaded)
                buffer = _triple(estimate.peak_bytes, limits.max_buffer, past)
            else:
                buffer = OFF, 0, 0
        refused_by = None
        if past == REFUSE:
            if requests[0] == REFUSE:
                refused_by = Gate.REQUEST_COUNT
            elif extend[0] == REFUSE:
                refused_by = Gate.EXTEND_TOKENS
            elif cached[0] == REFUSE:
                refused_by = Gate.CACHED_TOKENS
            elif buffer[0] == REFUSE:
                refused_by = Gate.BUFFER_BYTES
        return Judgement(refused_by, requests, extend, cached, buffer, estimate)

    def take(self, tokens: int, prefix: int, judgement: Judgement | None) -> None:
        """The candidate joined, or its host hit began to load."""
        self.members += 1
        self.joined += 1
        self.extend_sum += self._charged(tokens)
        self.cached_sum += prefix
        if judgement is not None:
            self.estimate = judgement.estimate

    def _charged(self, tokens: int) -> int:
        page = self.limits.page
        return -(-tokens // page) * page


def _triple(observed: int, limit: int | None, past: int) -> Triple:
    if limit is None:
        return OFF, observed, 0
    return (PASS if observed <= limit else past), observed, limit
