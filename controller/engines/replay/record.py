"""What a replay records beside its passes, and when records that wait for no pass are appended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from controller.beginning import knobs_in_force, setting_words
from controller.limits import largest_prompt
from controller.prefixes import NOTHING_SHARED
from controller.records import Arrival, RunEnd, RunStart

if TYPE_CHECKING:
    from controller.decision import PassResult
    from controller.engines.replay.workload import WorkloadRequest
    from controller.knobs import Knobs
    from controller.limits import Limits, Setting
    from controller.prefixes import BlockPrefixes
    from controller.records import AnyRecord
    from controller.request import Capacity
    from estimator.batch import BatchEstimator

FLUSH_RECORDS: Final = 256
FLUSH_NS: Final = 1_000_000_000
"""Pending records are appended once there are so many, or once so much simulated time has gone by."""


class PassRecorder(Protocol):
    """What keeps a replay's records; `controller.recorder.Recorder` is one."""

    estimator: BatchEstimator | None
    passes: int
    revision: int

    def note(self, record: AnyRecord) -> None:
        """Keep a record for the next append."""

    def flush(self) -> None:
        """Append what is pending."""

    def passed(
        self, capacity: Capacity, result: PassResult, *, start_ns: int, decide_ns: int, queue: int, queued_tokens: int
    ) -> int:
        """Keep a pass; its number."""

    def end_repeats(self) -> None:
        """Write the last word on a refusal that repeated."""


class ReplayRecord:
    """A recorder that never holds records back for long. Times are simulated ns.

    With `prefixes` an arrival says which earlier request it shares how much of its beginning with.
    """

    __slots__ = ("_flushed_ns", "_noted", "_prefixes", "recorder")

    def __init__(self, recorder: PassRecorder, prefixes: BlockPrefixes | None = None) -> None:
        self.recorder = recorder
        self._prefixes = prefixes
        self._noted = 0
        self._flushed_ns = 0

    def note(self, record: AnyRecord) -> None:
        """Keep a record for the next append, which comes at once when too many are pending."""
        self.recorder.note(record)
        self._noted += 1
        if self._noted >= FLUSH_RECORDS:
            self._noted = 0
            self.recorder.flush()

    def arrived(self, number: int, request: WorkloadRequest, known_tokens: int) -> None:
        """Note that a request joined the queue; the content of its first `known_tokens` tokens has ids."""
        prefixes = self._prefixes
        prefix = NOTHING_SHARED if prefixes is None else prefixes.look(number, request.blocks)
        arrival = Arrival(
            number, request.id, request.arrival_ns, request.prompt_tokens,
            request.max_new_tokens or request.output_tokens, prefix.hashes, "", prefix.like, prefix.shared_tokens,
            known_tokens, request.ignore_eos,
        )  # fmt: skip
        self.note(arrival)

    def append_noted(self) -> None:
        """Append what is pending."""
        if self._noted:
            self._noted = 0
            self.recorder.flush()

    def settle(self, now_ns: int) -> None:
        """Append what is pending if it has become too old."""
        if self._noted and now_ns - self._flushed_ns >= FLUSH_NS:
            self._flushed_ns = now_ns
            self._noted = 0
            self.recorder.flush()

    def passed(
        self, capacity: Capacity, result: PassResult, now_ns: int, decide_ns: int, queue: int, queued_tokens: int
    ) -> int:
        """Record a pass; its number."""
        self._flushed_ns = now_ns
        self._noted = 0
        return self.recorder.passed(
            capacity, result, start_ns=now_ns, decide_ns=decide_ns, queue=queue, queued_tokens=queued_tokens
        )

    def begin(
        self,
        names: tuple[str, str, str, str],
        setting: Setting,
        limits: Limits,
        pool_tokens: int,
        host_tokens: int,
        wall_ns: int,
        manner: dict[str, int | float | str],
    ) -> None:
        """Record the start of a run; `names` are its own, the program's version, the model and its context.

        `manner` is what only a replay has: how it serves. `wall_ns` is the Unix time that simulated time 0 stands for.
        """
        run, version, model, context = names
        words = setting_words(setting) | manner
        at_ns, largest = 0, largest_prompt(limits, pool_tokens)
        start = RunStart(
            run, "replay", version, 0, "", model, at_ns, wall_ns, True, pool_tokens, host_tokens, setting.slots,
            largest, words, context,
        )  # fmt: skip
        self.note(start)

    def knobs(self, now_ns: int, knobs: Knobs, setting: Setting) -> None:
        """Record the knobs in force."""
        self.recorder.revision = knobs.revision
        self.note(knobs_in_force(now_ns, knobs, setting))

    def end(self, now_ns: int, reason: str, requests: int) -> None:
        """Record the end of a run and append everything."""
        self.recorder.end_repeats()
        self.recorder.note(RunEnd(now_ns, reason, self.recorder.passes, requests))
        self.recorder.flush()
