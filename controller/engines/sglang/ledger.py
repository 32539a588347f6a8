"""RequestLedger: the requests of one scheduler, numbered in the order of their arrival, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sglang.srt.managers.schedule_batch import FINISH_ABORT
from sglang.srt.observability import trace

from controller.records import Abort, Finish, LoadDone, Preempt, Retract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.engines.plugin import EngineRecord

KEPT: Final = "_glassgate"
"""The attribute of SGLang's request under which a `Kept` is found."""


class Kept:
    """What is known of a request from one pass to the next."""

    __slots__ = ("arrived", "began", "ended", "freed", "number", "queued")

    def __init__(self, number: int) -> None:
        self.number = number
        """Its number in the run."""
        self.queued = 0
        """Tokens it counts for in the queue; 0 while it does not wait."""
        self.freed = 0
        """Tokens of KV that it gave back when it was put aside last: what became free, or can be evicted since."""
        self.arrived = False
        self.began = False
        """Its first token is out."""
        self.ended = False


class RequestLedger:
    """What is kept of each request while the engine has it."""

    def __init__(self, record: EngineRecord) -> None:
        self._record = record
        self._next_number = 0
        self.queued_tokens = 0
        """Prompt tokens of all waiting requests."""

    def kept(self, request: Any) -> Kept:
        """What is known of a request; one that is seen for the first time gets its number."""
        known: Kept | None = request.__dict__.get(KEPT)
        if known is None:
            known = Kept(self._next_number)
            self._next_number += 1
            setattr(request, KEPT, known)
        return known

    def number(self, request: Any) -> int:
        """A request's number in the run."""
        return self.kept(request).number

    def arrived(self, request: Any) -> None:
        """A request is about to join the queue for the first time."""
        kept = self.kept(request)
        kept.arrived = True
        prompt = request.origin_input_ids
        self._record.arrived(
            kept.number, request.rid, len(prompt), request.sampling_params.max_new_tokens or 0, tokens=prompt,
            traceparent=_traceparent(request), ignore_eos=bool(request.sampling_params.ignore_eos),
        )  # fmt: skip
        self._waits(request, kept)

    def came_back(self, request: Any) -> None:
        """A running request that gave its KV back waits again."""
        kept = self.kept(request)
        if kept.queued == 0:
            self._record.note(Retract(kept.number, self._record.now, len(request.output_ids), kept.freed))
            self._waits(request, kept)

    def preempted(self, requests: Iterable[Any], by: Any) -> None:
        """Running requests gave their KV back for one of higher priority, and wait again."""
        number, at_ns = self.number(by), self._record.now
        for request in requests:
            kept = self.kept(request)
            self._record.note(Preempt(kept.number, at_ns, number))
            self._waits(request, kept)

    def left_queue(self, request: Any) -> None:
        """A request waits no more."""
        kept = self.kept(request)
        self.queued_tokens -= kept.queued
        kept.queued = 0

    def aborted(self, request: Any, why: str) -> None:
        """A request left without being served; one that never joined the queue is not in the record."""
        self.left_queue(request)
        kept = self.kept(request)
        if kept.arrived and not kept.ended:
            kept.ended = True
            self._record.note(Abort(kept.number, self._record.now, why))

    def ended(self, requests: Iterable[Any]) -> None:
        """Write down those that are over: served, or ended by an error or their client."""
        for request in requests:
            reason = request.finished_reason
            if reason is None:
                continue
            kept = self.kept(request)
            if kept.ended:
                continue
            if isinstance(reason, FINISH_ABORT):
                self.aborted(request, str(reason.message))
            else:
                kept.ended = True
                self._record.note(Finish(kept.number, self._record.now, len(request.output_ids)))
                self._record.knows(kept.number, request.origin_input_ids, request.output_ids)

    def first_tokens(self, requests: Iterable[Any]) -> tuple[int, ...]:
        """Numbers of those whose first token is out since this was last asked."""
        begun = []
        for request in requests:
            kept = self.kept(request)
            if not kept.began and request.output_ids:
                kept.began = True
                begun.append(kept.number)
        return tuple(begun)

    def landed(self, request: Any, tokens: int) -> None:
        """A load-back reached the device."""
        self._record.note(LoadDone(self.number(request), self._record.now, tokens))

    def _waits(self, request: Any, kept: Kept) -> None:
        kept.queued = len(request.origin_input_ids) + len(request.output_ids)
        self.queued_tokens += kept.queued


def _traceparent(request: Any) -> str:
    """The request's own trace, where the engine carries one (`--enable-trace`)."""
    context = request.time_stats.trace_ctx
    if not context.tracing_enable:
        return ""
    carrier: dict[str, str] = {}
    trace.propagate.inject(carrier, context.root_span_context)
    return carrier.get("traceparent", "")
