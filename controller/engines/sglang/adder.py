"""GatedAdder: SGLang's `PrefillAdder` with Glassgate's gates added, and every decision left as a Look.

The stock verdicts stay the engine's. Written for SGLang 0.5.23, `sglang.srt.managers.schedule_policy.PrefillAdder`.
"""

from __future__ import annotations

from functools import cache
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.schedule_policy import PrefillAdder

from controller.engines.sglang import causes
from controller.engines.sglang.look import Look
from controller.engines.sglang.terms import UncutShape
from controller.engines.sglang.verdicts import CONTINUE, NO_TOKEN, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

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


_init = PrefillAdder.__init__
_budget_state = PrefillAdder.budget_state
_add_one = PrefillAdder.add_one_req
_add_chunked = PrefillAdder.add_chunked_req
_check_tiles = PrefillAdder._check_prefill_tile_budget  # noqa: SLF001 - AMD's own check
_select = PrefillAdder._select_prefill_admission  # noqa: SLF001 - where the engine judges a candidate


class GatedAdder(PrefillAdder):
    """One pass over the waiting queue. `desk` takes what it leaves; without one it is the stock class.

    A failure of ours never leaves it: the desk is told, and the engine decides alone from there on. The stock methods
    are called by their own names, for each candidate of each pass.
    """

    desk: Desk | None = None
    terms: Terms | None = None
    """In force in this pass; None where the engine decides alone."""
    chunk: Look | None = None
    """The continuing chunk."""
    parked = False
    tops = 0
    """Candidates of the queue that the engine's loop looked at or passed over."""
    closed_at_top = False
    """A spent budget ended the loop before it looked at the next one."""
    spent: Stop | None = None
    """What closed the pass, where that is a budget and no candidate."""
    extend_sum = cached_sum = 0
    """Of the batch so far, in tokens, where a gate needs them; a chunk's done tokens are not cached ones."""
    estimate: Any = None
    trying: Look | None = None
    decided_ns = 0
    """When the last candidate was tried."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _init(self, *args, **kwargs)
        self.looks: list[Look] = []
        if self.desk is not None:
            try:
                self.memory_budget.__class__ = watched(self.memory_budget.__class__)
                self.terms = self.desk.open(self)
            except Exception as error:  # noqa: BLE001 - whatever it is, the engine decides alone
                self._fail(error)
        self.input_budget, self.chunk_budget = self.rem_input_tokens, self.rem_chunk_tokens

    def budget_state(self) -> Any:
        """The engine's verdict on what is left; its loop asks for it at each candidate, before it looks."""
        verdict = _budget_state(self)
        if self.trying is None:
            if self.parked or verdict is OTHER:
                return self._close(verdict)
            self.tops += 1
        return verdict

    def _close(self, verdict: Any) -> Any:
        """The loop ends where it is."""
        self.closed_at_top = True
        if not self.parked:
            self.spent = self._what_is_spent(verdict)
        return OTHER

    def add_chunked_req(self, req: Any) -> Any:
        """Go on with the continuing chunk; it comes back while it is unfinished."""
        desk = self.desk
        if desk is None or self.terms is None:
            return _add_chunked(self, req)
        look = self.chunk = self.trying = Look(req, 0, self.rem_input_tokens, self.rem_chunk_tokens)
        look.prefix = look.hit
        look.matched = look.hit = 0
        try:
            self.parked = desk.parks(self, look)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        left = req if self.parked else _add_chunked(self, req)
        self.trying = None
        if self.can_run_list:
            look.end, look.chunked = req.extend_end, left is not None
            self._join_chunk(look)
        elif not self.parked:
            self._say(look, causes.chunk_short)
        return left

    def add_one_req(self, req: Any, has_chunked_req: bool, truncation_align_size: int | None) -> Any:
        """Try one candidate; the verdict is about the next one."""
        terms = self.terms
        if terms is None:
            return _add_one(self, req, has_chunked_req, truncation_align_size)
        batch = self.can_run_list
        members = len(batch)
        self.trying = look = Look(req, members, self.rem_input_tokens, self.rem_chunk_tokens)
        self.looks.append(look)
        most = terms.most_members
        if most is not None and members >= most and members:
            look.stop, look.verdict, self.trying = terms.full(members), OTHER, None
            return OTHER
        verdict = _add_one(self, req, has_chunked_req, truncation_align_size)
        self.trying = None
        if len(batch) > members:
            look.end, look.prefix = req.extend_end, req.prefix_len
            if terms.after:
                prefix, page = look.prefix, terms.page
                self.extend_sum -= (prefix - look.end) // page * page
                self.cached_sum += prefix
                self.estimate = look.estimate
            if look.matched:
                self._loaded(look)
            if verdict is not CONTINUE:
                look.verdict, look.chunked = verdict, self.new_chunked_req is req
                self.spent = self._what_is_spent(verdict)
        else:
            look.verdict = verdict
            if verdict is NO_TOKEN and self._leaves(look):
                return CONTINUE
        self.decided_ns = monotonic_ns()
        return verdict

    def add_one_req_ignore_eos(self, req: Any) -> Any:
        """Try one candidate where there is no prefix cache and it runs to its full length."""
        look, terms = self.trying, self.terms
        if look is not None and terms is not None and terms.after:
            tokens, left = len(req.full_untruncated_fill_ids) - look.hit, look.chunk_left
            cut = left is not None and tokens > left
            try:
                shape = UncutShape(look.hit, left if cut and left is not None else tokens, cut)
                look.stop = terms.judge_shape(self, look, shape)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)
            if look.stop is not None:
                return OTHER
        return super().add_one_req_ignore_eos(req)

    def _select_prefill_admission(
        self,
        req: Any,
        *,
        total_tokens: int,
        host_hit_length: int,
        swa_host_hit_length: int,
        truncation_align_size: int | None,
        has_chunked_req: bool = False,
    ) -> Any:
        shape = _select(
            self, req, total_tokens=total_tokens, host_hit_length=host_hit_length,
            swa_host_hit_length=swa_host_hit_length, truncation_align_size=truncation_align_size,
            has_chunked_req=has_chunked_req,
        )  # fmt: skip
        look = self.trying
        if look is None:
            return shape
        if look.tried is not None:
            look.first = look.tried
        look.tried = (host_hit_length, total_tokens, self.memory_budget.total_seen, shape)
        if shape is NO_TOKEN:
            if self.is_hybrid_swa:
                extend = len(req.full_untruncated_fill_ids) - req.prefix_len - host_hit_length
                self._say(look, causes.window_short, look, extend, swa_host_hit_length)
        elif shape is not OTHER and self.terms is not None and self.terms.after:
            try:
                stop = self.terms.judge_shape(self, look, shape)
                if stop is not None:
                    look.stop = stop
                    return OTHER
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)
        return shape

    def _kv_shard_reserve_scratch(self, prefix_len: int, extend_len: int) -> Any:
        fits = super()._kv_shard_reserve_scratch(prefix_len=prefix_len, extend_len=extend_len)
        if not fits and self.trying is not None:
            self._say(self.trying, causes.scratch_short, prefix_len, extend_len)
        return fits

    def _check_prefill_tile_budget(self, candidate_extend_len: int) -> Any:
        verdict = _check_tiles(self, candidate_extend_len)
        if verdict is not None and self.trying is not None:
            self._say(self.trying, causes.tiles_short, candidate_extend_len)
        return verdict

    def preempt_to_schedule(self, req: Any) -> Any:
        """Take KV from running requests of lower priority."""
        known = len(self.preempt_list)
        done = super().preempt_to_schedule(req)
        if done and self.desk is not None:
            try:
                self.desk.ledger.preempted(self.preempt_list[known:], req)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)
        return done

    # What may fail of ours

    def _fail(self, error: BaseException) -> None:
        self.terms = None
        if self.desk is not None:
            self.desk.fail(error)

    def _loaded(self, look: Look) -> None:
        """Somebody with a host hit is in the batch."""
        try:
            if self.desk is not None:
                self.desk.loaded(look)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _join_chunk(self, look: Look) -> None:
        """The continuing chunk is in the batch: the sums that a gate needs."""
        terms = self.terms
        if terms is None or not terms.after:
            return
        extend = look.end - look.prefix
        self.extend_sum += terms.aligned(extend)
        try:
            if self.estimate is not None and terms.estimator is not None:
                look.estimate = self.estimate = terms.estimator.add(self.estimate, look.prefix, extend, 0)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _leaves(self, look: Look) -> bool:
        """Whether a candidate that can never fit is to be aborted, so that the loop goes on behind it."""
        try:
            return self.desk is not None and self.desk.aborts(self, look)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return False

    def _what_is_spent(self, verdict: Any) -> Stop | None:
        try:
            return causes.spent(self, verdict)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return None

    def _say(self, look: Look, tell: Callable[..., Stop | None], *seen: Any) -> None:
        try:
            look.said = tell(self, *seen)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
