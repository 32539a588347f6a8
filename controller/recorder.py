"""Recorder: turns what happens in an engine into records, one append a pass.

A refusal that repeats is written whole at once; its repeats are counted and written at most once a second and once
when it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from controller.records import AnyRecord, Pass, Repeat, encode
from controller.vocabulary import Outcome

if TYPE_CHECKING:
    from controller.decision import PassResult
    from controller.request import Capacity
    from estimator.batch import BatchEstimator

REPEAT_EVERY_NS: Final = 1_000_000_000
"""A refusal that goes on is written again at most this often, in nanoseconds of the run's clock."""


class Journal(Protocol):
    """Where frames go."""

    def append(self, payload: bytes) -> int:
        """Append one frame."""


def refusal_key(result: PassResult, revision: int, running: int) -> tuple[int, ...] | None:
    """What makes two passes repeat one refusal: same head, gate and reason, nothing admitted; None for other passes.

    An engine may look at several and admit none: then all of them are the same, and what closed the pass is. The last
    is the one that repeats. An idle engine that refuses is another matter than a busy one.
    """
    decisions = result.decisions
    if result.batch or not decisions:
        return None
    number, outcome, gate, reason = decisions[-1][:4]
    if outcome not in (Outcome.WAIT, Outcome.PARK):
        return None
    key = (number, gate, reason, revision, running == 0)
    if len(decisions) == 1:
        return key
    others: list[int] = list(result.closed_by or ())
    for number, outcome, gate, reason, *_ in decisions[:-1]:
        if outcome not in (Outcome.WAIT, Outcome.PARK):
            return None
        others += number, gate, reason
    return (*key, *others)


class Appender:
    """What every recorder has: records that are pending, and the journal they go to in one append."""

    __slots__ = ("_journal", "_pending", "passes", "revision")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: list[AnyRecord] = []
        self.passes = 0
        self.revision = 0

    def note(self, record: AnyRecord) -> None:
        """Keep a record for the next append."""
        self._pending.append(record)

    def flush(self) -> None:
        """Append what is pending, if anything is."""
        if self._pending:
            self._journal.append(encode(self._pending))
            self._pending.clear()

    def mend(self) -> None:
        """Append what is pending but for the records that cannot be encoded, after an append failed of them."""
        self._pending = _encodable(self._pending)
        self.flush()


def _encodable(records: list[AnyRecord]) -> list[AnyRecord]:
    """Those of the records that can be encoded."""
    found = []
    for record in records:
        try:
            encode([record])
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            continue
        found.append(record)
    return found


class _Held:
    """A refusal that repeats, with first, last, least and greatest of its numbers."""

    __slots__ = ("count", "first_ns", "first_pass", "key", "last", "limit", "observed", "written", "written_ns")

    def __init__(self, key: tuple[int, ...], first_pass: int, start_ns: int) -> None:
        self.key = key
        self.first_pass = first_pass
        self.count = self.written = self.first_ns = 0
        self.written_ns = start_ns
        self.observed: list[int] = []
        self.limit: list[int] = []
        self.last: tuple[int, ...] = ()

    def add(self, start_ns: int, decision: tuple[int, ...], last: tuple[int, ...]) -> None:
        observed, limit = decision[4], decision[5]
        if not self.count:
            self.first_ns = start_ns
            self.observed, self.limit = [observed] * 4, [limit] * 4
        self.count += 1
        self.last = last
        for seen, value in ((self.observed, observed), (self.limit, limit)):
            seen[1] = value
            seen[2] = min(seen[2], value)
            seen[3] = max(seen[3], value)

    def record(self, *, ended: bool) -> Repeat:
        self.written = self.count
        number, gate, reason, revision = self.key[:4]
        last_pass, last_ns, queue, not_reached = self.last
        return Repeat(
            self.first_pass, last_pass, self.count, self.first_ns, last_ns, number, gate, reason,
            tuple(self.observed), tuple(self.limit), queue, not_reached, revision, ended,
        )  # fmt: skip


class Recorder(Appender):
    """Writes one run's records on one rank. Times are nanoseconds of the run's clock."""

    __slots__ = ("_held", "estimator")

    def __init__(self, journal: Journal, estimator: BatchEstimator | None = None) -> None:
        super().__init__(journal)
        self._held: _Held | None = None
        self.estimator = estimator

    def passed(
        self,
        capacity: Capacity,
        result: PassResult,
        *,
        start_ns: int,
        decide_ns: int,
        queue: int,
        queued_tokens: int,
    ) -> int:
        """Write a pass and everything pending in one append; the pass's number, counted from 1.

        `queue` and `queued_tokens` are the waiting requests and their prompt tokens at the start.
        """
        self.passes = number = self.passes + 1
        batch, decisions, closed, looked_at, estimate, quota, room = result
        held = self._held
        key = refusal_key(result, self.revision, capacity.running)
        if key is not None:
            if held is not None and held.key == key:
                held.add(start_ns, decisions[-1], (number, start_ns, queue, queue - looked_at))
                if start_ns - held.written_ns >= REPEAT_EVERY_NS:
                    held.written_ns = start_ns
                    self._pending.append(held.record(ended=False))
                self.flush()
                return number
            self.end_repeats()
            self._held = _Held(key, number, start_ns)
        elif held is not None:
            self.end_repeats()
        parts = self.estimator.parts(estimate) if batch and self.estimator is not None else ()
        self._pending.append(
            Pass(
                number,
                start_ns,
                decide_ns,
                self.revision,
                queue,
                queued_tokens,
                queue - looked_at,
                batch,
                *(closed or (-1, -1)),
                estimate.peak_bytes if estimate is not None else -1,
                parts,
                (capacity.free_tokens, capacity.evictable_tokens, int(capacity.reserved_tokens), capacity.running),
                (quota, room),
                decisions,
                tuple((lane.free_pages, lane.evictable_pages) for lane in capacity.lanes),
            )
        )
        self.flush()
        return number

    def settle(self, now_ns: int) -> None:
        """Append what is pending, and how far a refusal has repeated if that was not written for a second."""
        held = self._held
        if held is not None and held.count > held.written and now_ns - held.written_ns >= REPEAT_EVERY_NS:
            held.written_ns = now_ns
            self._pending.append(held.record(ended=False))
        self.flush()

    def end_repeats(self) -> None:
        """Write the last word on a refusal that repeated; call it also before a run ends."""
        held = self._held
        if held is not None and held.count:
            self._pending.append(held.record(ended=True))
        self._held = None
