"""RequestLedger: the requests of one scheduler, numbered in the order of their arrival, and what becomes of them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from vllm.v1.request import RequestStatus

from controller.engines.vllm.look import KEPT, Kept
from controller.records import Abort, Finish, LoadDone, Retract
from controller.vocabulary import HostHit

if TYPE_CHECKING:
    from controller.engines.plugin import EngineRecord

_SUFFIX: Final = re.compile(r"-[0-9a-f]{8}\Z")
_RANDOMIZED: Final = os.environ.get("VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", "0").strip().lower() not in ("1", "true")
_SERVED: Final = (
    RequestStatus.FINISHED_STOPPED,
    RequestStatus.FINISHED_LENGTH_CAPPED,
    RequestStatus.FINISHED_REPETITION,
)
_WHY_LEFT: Final = {
    RequestStatus.FINISHED_ABORTED: "aborted: its client left or asked for it",
    RequestStatus.FINISHED_IGNORED: "ignored: it is longer than the model's limit",
    RequestStatus.FINISHED_ERROR: "the engine ended it with an error",
}


def client_id(name: str) -> str:
    """The id as the client knows it, without the eight random digits by which vLLM tells equal ones apart.

    See `vllm.v1.engine.input_processor.InputProcessor.assign_request_id` (0.32.0). One of several answers to a prompt
    keeps its number in front.
    """
    return _SUFFIX.sub("", name) if _RANDOMIZED else name


class RequestLedger:
    """What is kept of each request while the engine has it. Tokens unless said."""

    def __init__(self, record: EngineRecord) -> None:
        self._record = record
        self._next_number = 0
        self.queued_tokens = 0
        """Of all waiting requests, those that hold KV among them."""

    def kept(self, request: Any) -> Kept:
        """What is known of a request; one that came past `add_request` is taken in now."""
        known = getattr(request, KEPT, None)
        if known is not None:
            found: Kept = known
            return found
        kept = Kept(self._next_number, request.num_tokens)
        self._next_number += 1
        setattr(request, KEPT, kept)
        self.queued_tokens += kept.queued
        self._record.arrived(
            kept.number,
            client_id(request.request_id),
            request.num_prompt_tokens,
            request.max_tokens,
            tokens=request.prompt_token_ids,
            traceparent=(request.trace_headers or {}).get("traceparent", ""),
            ignore_eos=bool(request.sampling_params is not None and request.sampling_params.ignore_eos),
        )
        return kept

    def leaves_queue(self, kept: Kept) -> None:
        """A request does not wait any more."""
        self.queued_tokens -= kept.queued
        kept.queued = 0

    def preempted(self, request: Any, freed: int) -> None:
        """A running request gave back KV and waits again. vLLM calls that a preemption, the record a retraction."""
        kept = self.kept(request)
        kept.queued = request.num_tokens
        self.queued_tokens += kept.queued
        kept.loading = 0
        self._record.note(Retract(kept.number, self._record.now, request.num_output_tokens, freed))

    def load_settled(self, request: Any, *, failed: bool) -> None:
        """The scheduler takes note that a host hit has come, or did not."""
        self.kept(request).host = HostHit.CONTROLLER if failed else HostHit.LOADED

    def loaded(self, request: Any) -> None:
        """A host hit has reached the device."""
        kept = self.kept(request)
        self._record.note(LoadDone(kept.number, self._record.now, kept.loading))

    def left(self, request: Any) -> None:
        """A request left the engine."""
        kept, status, now = self.kept(request), request.status, self._record.now
        self.leaves_queue(kept)
        if status in _SERVED:
            self._record.note(Finish(kept.number, now, request.num_output_tokens))
            if request.prompt_token_ids is not None:
                self._record.knows(kept.number, request.prompt_token_ids, tuple(request.output_token_ids))
        else:
            self._record.note(Abort(kept.number, now, _WHY_LEFT.get(status, status.name.lower())))
