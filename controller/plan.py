"""Plan: what one pass would do with one candidate, worked out before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.host_hits import plan_load_back
from controller.request import CLIP_OUTPUT_TOKENS
from controller.vocabulary import Gate, HostHit, Reason

if TYPE_CHECKING:
    from controller.admission import AdmissionPass, LoadAnswer
    from controller.request import ActiveChunk, Candidate


class Plan:
    """One candidate's load-back plan and shape. All in tokens; `charged` and `whole` are page-aligned."""

    __slots__ = (
        "asked", "charged", "cut", "cut_by", "device_hit", "done", "estimate", "evicted", "extend", "first_lane",
        "host", "load", "number", "output", "prefix", "prompt", "remaining", "reserve", "resident", "unlocked",
        "wanted", "whole",
    )  # fmt: skip

    number: int
    prompt: int
    done: int
    """Computed in earlier passes; only a continuing chunk has any."""
    device_hit: int
    unlocked: int
    """The part of the device hit that stops being evictable when this candidate is tested."""
    resident: int
    """On the host, for this prompt, in all."""
    wanted: int
    """The host hit as it was matched."""
    load: int
    """What the load-back plan brings from the host."""
    asked: int
    """What the cache was asked to load."""
    evicted: int
    host: HostHit
    remaining: int
    """The prompt without done tokens and device hit: what it needs room for, loads included."""
    output: int
    """What it may still generate, clipped: what `kv_capacity` tests."""
    reserve: int
    """What is held back for its output once it is admitted: generated tokens are not taken off (SGLang 0.5.23,
    `PrefillAdder._select_prefill_admission`)."""
    prefix: int
    """What the computed tokens stand on: done, device hit and load."""
    extend: int
    """What this pass would compute; 0 when not one page of compute budget or room is left."""
    charged: int
    whole: int
    cut: bool
    cut_by: tuple[Gate, Reason] | None
    first_lane: int | None
    estimate: Any
    """The estimator's state with the candidate in the batch."""

    @classmethod
    def of(cls, candidate: Candidate, batch: AdmissionPass) -> Plan:
        """What the pass would do with a waiting request."""
        match = candidate.match
        plan = cls()
        plan.number = candidate.number
        plan.prompt = candidate.prompt_tokens
        plan.done = plan.asked = plan.evicted = 0
        plan.device_hit = match.device_tokens
        plan.unlocked = match.unlocked_tokens
        plan.resident = match.resident_tokens
        plan.wanted = match.host_tokens
        plan.first_lane = match.first_lane
        plan.remaining = plan.prompt - plan.device_hit
        plan.output = min(candidate.output_tokens, CLIP_OUTPUT_TOKENS)
        plan.reserve = min(candidate.output_tokens + candidate.generated_tokens, CLIP_OUTPUT_TOKENS)
        plan.estimate = None
        load, plan.host = plan_load_back(match, batch.limits.load_back_threshold, batch.quota - plan.unlocked)
        plan.shape(batch, load)
        return plan

    @classmethod
    def of_chunk(cls, chunk: ActiveChunk, batch: AdmissionPass) -> Plan:
        """What the pass would do with the continuing chunk if there is room."""
        plan = cls()
        plan.number = chunk.number
        plan.prompt = chunk.prompt_tokens
        plan.done = chunk.done_tokens
        plan.device_hit = plan.unlocked = plan.resident = plan.wanted = plan.asked = plan.evicted = 0
        plan.host = HostHit.NONE_RESIDENT
        plan.first_lane = chunk.first_lane
        plan.remaining = plan.prompt - plan.done
        plan.output = plan.reserve = min(chunk.output_tokens, CLIP_OUTPUT_TOKENS)
        plan.estimate = None
        plan.shape(batch, load=0)
        return plan

    def shape(self, batch: AdmissionPass, load: int) -> None:
        """What this pass would compute once `load` host tokens are there: all of it, or a cut in whole pages.

        On the shared path only a first member is ever cut; any other is charged whole, and waits if it does not fit.
        """
        limits = batch.limits
        page, budget = limits.page, limits.chunk_budget
        self.load = load
        self.prefix = self.done + self.device_hit + load
        self.extend = self.prompt - self.prefix
        self.whole = self.charged = -(-self.extend // page) * page
        self.cut, self.cut_by = False, None
        if (
            budget is not None
            and batch.chunk_spent + self.whole > budget
            and not (limits.shared_path and batch.members)
        ):
            self.cut_to(budget - batch.chunk_spent, page)
            self.cut_by = Gate.CHUNK_TOKENS, Reason.BUDGET

    def cut_to(self, left: int, page: int) -> None:
        """Compute at most `left` tokens, so that the prefix ends on a page; perhaps nothing."""
        self.extend = max(0, (self.prefix + left // page * page) // page * page - self.prefix)
        self.charged = -(-self.extend // page) * page
        self.cut = True

    def take(self, answer: LoadAnswer) -> bool:
        """Note what the load brought; False when it failed."""
        self.asked, self.evicted, self.host = self.load, answer.evicted_tokens, answer.host
        return answer.loaded_tokens == self.load
