"""GatedAdder: SGLang's `PrefillAdder` with Glassgate's gates added, and every decision left as a Look.

The stock verdicts stay the engine's. Written for SGLang 0.5.23, `sglang.srt.managers.schedule_policy.PrefillAdder`.
"""

from __future__ import annotations

from functools import cache
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.schedule_policy import PrefillAdder

from controller.engines.sglang import causes
from controller.engines.sglang.look import Look, Try
from controller.engines.sglang.verdicts import CONTINUE, NO_TOKEN, OTHER

if TYPE_CHECKING:
    from controller.engines.sglang.desk import Desk
    from controller.engines.sglang.look import Stop
    from controller.engines.sglang.terms import Terms


@cache
def watched(budget: type) -> type:
    """The engine's budget class with a memory of what it compared last; it answers the same."""
    total, current, window = (
        getattr(budget, name).fget for name in ("remaining_total", "remaining_current", "remaining_swa")
    )

    class Watched(budget):
        total_seen: float = 0
        current_seen: float = 0
        window_seen: float = 0

        @property
        def remaining_total(self) -> Any:
            self.total_seen = left = total(self)
            return left

        @property
        def remaining_current(self) -> Any:
            self.current_seen = left = current(self)
            return left

        @property
        def remaining_swa(self) -> Any:
            self.window_seen = left = window(self)
            return left

    return Watched


class GatedAdder(PrefillAdder):
    """One pass over the waiting queue. `desk` takes what it leaves; without one it is the stock class.

    A failure of ours never leaves it: the desk is told, and the engine decides alone from there on.
    """

    desk: Desk | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.looks: list[Look] = []
        self.chunk: Look | None = None
        """The continuing chunk."""
        self.parked = False
        self.tops = 0
        """Candidates of the queue that the engine's loop looked at or passed over."""
        self.closed_at_top = False
        """A spent budget ended the loop before it looked at the next one."""
        self.spent: Stop | None = None
        """What closed the pass, where that is a budget and no candidate."""
        self.extend_sum = self.cached_sum = 0
        """Of the batch so far, in tokens; a continuing chunk's done tokens are not cached ones."""
        self.estimate: Any = None
        self.terms: Terms | None = None
        self.trying: Look | None = None
        self.decided_ns = 0
        """When the last candidate was tried."""
        if self.desk is not None:
            try:
                self.memory_budget.__class__ = watched(self.memory_budget.__class__)
                self.terms = self.desk.open(self)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine decides alone
                self.desk.fail(error)
        self.input_budget, self.chunk_budget = self.rem_input_tokens, self.rem_chunk_tokens

    def budget_state(self) -> Any:
        """The engine's verdict on what is left; its loop asks for it at each candidate, before it looks."""
        verdict = super().budget_state()
        if self.trying is None and self.desk is not None:
            if self.parked:
                verdict = OTHER
            elif verdict is OTHER:
                self.spent = causes.spent(self, verdict)
            if verdict is OTHER:
                self.closed_at_top = True
            else:
                self.tops += 1
        return verdict

    def add_chunked_req(self, req: Any) -> Any:
        """Go on with the continuing chunk; it comes back while it is unfinished."""
        desk = self.desk
        if desk is None:
            return super().add_chunked_req(req)
        look = self.chunk = self.trying = Look(req, 0, self.rem_input_tokens, self.rem_chunk_tokens)
        self.parked = desk.parks(self, look)
        left = req if self.parked else super().add_chunked_req(req)
        self.trying = None
        look.chunked = left is not None
        if self.can_run_list:
            desk.admitted(self, look)
        return left

    def add_one_req(self, req: Any, has_chunked_req: bool, truncation_align_size: int | None) -> Any:
        """Try one candidate; the verdict is about the next one."""
        desk, terms = self.desk, self.terms
        if desk is None or terms is None:
            return super().add_one_req(req, has_chunked_req, truncation_align_size)
        members = len(self.can_run_list)
        self.trying = look = Look(req, members, self.rem_input_tokens, self.rem_chunk_tokens)
        self.looks.append(look)
        if terms.before and members:
            look.stop = terms.judge_turn(members)
        verdict = OTHER if look.stop is not None else super().add_one_req(req, has_chunked_req, truncation_align_size)
        self.trying = None
        self.decided_ns = monotonic_ns()
        look.verdict = verdict
        if len(self.can_run_list) > members:
            look.chunked = self.new_chunked_req is req
            desk.admitted(self, look)
            if verdict is not CONTINUE:
                self.spent = causes.spent(self, verdict)
        elif verdict is NO_TOKEN and desk.aborts(self, look):
            return CONTINUE
        return verdict

    def add_one_req_ignore_eos(self, req: Any) -> Any:
        """Try one candidate where there is no prefix cache and it runs to its full length."""
        look, terms = self.trying, self.terms
        if look is not None and terms is not None and terms.after and self.desk is not None:
            look.stop = self.desk.judge_uncached(self, look)
            if look.stop is not None:
                return OTHER
        return super().add_one_req_ignore_eos(req)

    def _select_prefill_admission(self, req: Any, **asked: Any) -> Any:
        shape = super()._select_prefill_admission(req, **asked)
        look, terms = self.trying, self.terms
        if look is None or terms is None:
            return shape
        budget = self.memory_budget
        look.tries.append(Try(asked["host_hit_length"], asked["total_tokens"], budget.total_seen, shape))
        if shape is NO_TOKEN:
            if self.is_hybrid_swa:
                extend = len(req.full_untruncated_fill_ids) - req.prefix_len - asked["host_hit_length"]
                look.said = causes.window_short(self, look, extend, asked["swa_host_hit_length"])
        elif terms.after and shape is not OTHER:
            try:
                whole = len(req.full_untruncated_fill_ids) - shape.prefix_len
                look.stop = terms.judge_shape(self, look, shape, whole)
            except Exception as error:  # noqa: BLE001 - as above
                self.terms = None
                if self.desk is not None:
                    self.desk.fail(error)
            if look.stop is not None:
                return OTHER
        return shape

    def _kv_shard_reserve_scratch(self, prefix_len: int, extend_len: int) -> Any:
        fits = super()._kv_shard_reserve_scratch(prefix_len=prefix_len, extend_len=extend_len)
        if not fits and self.trying is not None:
            self.trying.said = causes.scratch_short(self, prefix_len, extend_len)
        return fits

    def preempt_to_schedule(self, req: Any) -> Any:
        """Take KV from running requests of lower priority."""
        known = len(self.preempt_list)
        done = super().preempt_to_schedule(req)
        if done and self.desk is not None:
            self.desk.preempted(req, self.preempt_list[known:])
        return done
