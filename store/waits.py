"""What a wait was spent on: every nanosecond of it, by gate and reason, from the passes that went by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HELD: Final = "held"
"""Looked at and told to wait; the time up to the next pass belongs to the gate that said so."""
BEHIND: Final = "behind"
"""Not looked at; the time belongs to the gate that closed the pass before its turn."""
BETWEEN: Final = "between_passes"
"""Before the first pass that could have looked at it."""
UNATTRIBUTED: Final = "unattributed"
"""Passes are missing from the record, or one that closed nothing did not look at it."""

Stop = tuple[int, int]
"""Gate and reason, as the record has them."""
Key = tuple[str, Stop | None]


class PassedBy(NamedTuple):
    """One pass as somebody who waits meets it. Its repeats follow it under the same verdict."""

    number: int
    start_ns: int
    stop: Stop | None
    """What closed it."""
    last_pass: int
    """The last of its repeats, else its own number."""
    first_repeat_ns: int | None = None
    last_repeat_ns: int | None = None


class Piece(NamedTuple):
    """A stretch of a wait that was spent on one thing. Times are ns of the run's clock."""

    from_ns: int
    to_ns: int
    key: Key


class _Spending:
    """A wait's clock and what has been spent so far."""

    __slots__ = ("clock_ns", "end_ns", "pieces")

    def __init__(self, start_ns: int, end_ns: int) -> None:
        self.clock_ns = start_ns
        self.end_ns = end_ns
        self.pieces: list[Piece] = []

    def until(self, moment_ns: int, key: Key) -> None:
        """Spend the time up to a moment, but not beyond the wait's end."""
        moment_ns = min(moment_ns, self.end_ns)
        if moment_ns > self.clock_ns:
            if self.pieces and self.pieces[-1].key == key:
                self.pieces[-1] = self.pieces[-1]._replace(to_ns=moment_ns)
            else:
                self.pieces.append(Piece(self.clock_ns, moment_ns, key))
            self.clock_ns = moment_ns


def attribute(start_ns: int, end_ns: int, passes: Iterable[PassedBy], verdicts: Mapping[int, Stop]) -> dict[Key, int]:
    """Nanoseconds of a wait by (kind, stop), in the order in which each began; see `pieces_of`."""
    return summed(pieces_of(start_ns, end_ns, passes, verdicts))


def summed(pieces: Iterable[Piece]) -> dict[Key, int]:
    """Nanoseconds by what they were spent on, in the order in which each began."""
    spent: dict[Key, int] = {}
    for piece in pieces:
        spent[piece.key] = spent.get(piece.key, 0) + piece.to_ns - piece.from_ns
    return spent


def pieces_of(
    start_ns: int, end_ns: int, passes: Iterable[PassedBy], verdicts: Mapping[int, Stop]
) -> tuple[Piece, ...]:
    """A wait as pieces in order of time that follow one another without a gap.

    `passes` are in order of number: the last one that began before the wait if there is one, those within it, and the
    one that ended it. `verdicts` holds what a pass said of this request, by the pass's number.
    """
    spending = _Spending(start_ns, end_ns)
    before: PassedBy | None = None
    for each in passes:
        # With no pass known before it, one that began in the wait is the next only if it is the run's first.
        known = before.last_pass if before is not None else each.number - 1 if each.start_ns < start_ns else 0
        whole = each.number <= known + 1
        if before is not None and _met_at(before, start_ns) is not None:
            _spend_pass(before, verdicts, spending, each.start_ns, whole=whole)
        else:
            met_ns = _met_at(each, start_ns)
            if met_ns is not None:
                spending.until(met_ns, (BETWEEN if whole else UNATTRIBUTED, None))
        before = each
        if each.start_ns >= end_ns:
            break
    if before is not None and _met_at(before, start_ns) is not None:
        _spend_pass(before, verdicts, spending, end_ns, whole=True)
    spending.until(end_ns, (BETWEEN, None))
    return tuple(spending.pieces)


def _met_at(each: PassedBy, start_ns: int) -> int | None:
    """When a wait met the pass: at its beginning, or at a repeat of it; None if both were over."""
    if each.start_ns >= start_ns:
        return each.start_ns
    if each.first_repeat_ns is None or each.last_repeat_ns is None or each.last_repeat_ns < start_ns:
        return None
    return max(each.first_repeat_ns, start_ns)


def _spend_pass(
    each: PassedBy, verdicts: Mapping[int, Stop], spending: _Spending, until_ns: int, *, whole: bool
) -> None:
    """The time from a pass to the next. Where passes between are missing, what was said last is known no further."""
    verdict = verdicts.get(each.number)
    key: Key = (UNATTRIBUTED, None)
    if verdict is not None:
        key = HELD, verdict
    elif each.stop is not None:
        key = BEHIND, each.stop
    if not whole:
        if each.last_repeat_ns is not None:
            spending.until(each.last_repeat_ns, key)
        key = UNATTRIBUTED, None
    spending.until(until_ns, key)
