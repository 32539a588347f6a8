"""What a pass decided in 16 bytes, and the recorder of a rank that writes nothing else about its passes.

The ranks of a group must decide alike. The first of them records its passes whole; the collector sums those up the same
way and compares. What a rank may see differently, such as its free tokens, is not part of the sum.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from controller.recorder import Appender, refusal_key
from controller.records import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.decision import PassResult
    from controller.recorder import Journal
    from controller.records import Pass
    from controller.request import Capacity

DIGEST_BYTES: Final = 16

# Of a decision's flat tuple: number, outcome, gate, reason, device hit, extend, host hit.
_decided: Final = itemgetter(0, 1, 2, 3, 9, 10, 12)
_pack: Final = msgspec.msgpack.Encoder().encode


def digest_of(
    number: int,
    revision: int,
    counts: tuple[int, int],
    closed: tuple[int, int],
    batch: Sequence[tuple[int, ...]],
    decisions: Sequence[tuple[int, ...]],
) -> bytes:
    """The digest of one pass: its number, knob revision, (queue, not reached), what closed it, batch and decisions."""
    summed = (number, revision, counts, closed, batch, [_decided(decision) for decision in decisions])
    return blake2b(_pack(summed), digest_size=DIGEST_BYTES).digest()


def digest_of_record(record: Pass) -> bytes:
    """The digest of a pass that was recorded whole."""
    return digest_of(
        record.number, record.revision, (record.queue, record.not_reached), (record.closed_gate, record.closed_reason),
        record.batch, record.decisions,
    )  # fmt: skip


class DigestRecorder(Appender):
    """Stands where `Recorder` stands, on a rank that only says what it decided. One append a pass."""

    __slots__ = ("_key", "_written")

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self._key: tuple[int, ...] | None = None
        self._written = 0

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
        """Write a pass's digest and everything pending in one append; the pass's number, counted from 1.

        Times and queued tokens are the first rank's to record.
        """
        del start_ns, decide_ns, queued_tokens
        self.passes = number = self.passes + 1
        key = refusal_key(result, self.revision, capacity.running)
        if key is None or key != self._key:
            counts = (queue, queue - result.looked_at)
            closed = result.closed_by or (-1, -1)
            digest = digest_of(number, self.revision, counts, closed, result.batch, result.decisions)
            self._pending.append(Digest(number, digest))
            self._written = number
            self._key = key
        self.flush()
        return number

    def settle(self, now_ns: int) -> None:
        """Append what is pending, and how far a refusal has repeated."""
        del now_ns
        if self.passes > self._written:
            self._written = self.passes
            self._pending.append(Digest(self.passes, b""))
        self.flush()

    def end_repeats(self) -> None:
        """Forget the refusal; its next repeat has a digest of its own."""
        self._key = None
