"""Waiting: what each request's wait was spent on, kept up as records come in, at the cost of the looks alone.

It says what `store.waits.attribute` says afterwards. The time of those a pass did not look at is summed once for all of
them, by what closed the pass; each keeps what that sum was when it last was looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from controller.vocabulary import Outcome
from store.waits import BEHIND, BETWEEN, HELD, UNATTRIBUTED

if TYPE_CHECKING:
    from controller.records import Pass, Repeat

NO_STOP: Final = -1
_KINDS: Final = (HELD, BEHIND, BETWEEN, UNATTRIBUTED)
_HELD, _BEHIND, _BETWEEN, _UNATTRIBUTED = range(4)
_BASE: Final = 1 << 16
"""A spending's key is kind * _BASE + stop + 1."""


def stop_code(gate: int, reason: int) -> int:
    """Gate and reason as one number; NO_STOP where no gate is named."""
    return gate * 256 + reason if gate >= 0 else NO_STOP


def stop_of(code: int) -> tuple[int, int] | None:
    """Gate and reason of a code."""
    return divmod(code, 256) if code >= 0 else None


class Spent(NamedTuple):
    """One part of a wait."""

    kind: str
    """`held`, `behind`, `between_passes` or `unattributed`."""
    stop: tuple[int, int] | None
    ns: int
    until_ns: int
    """The run's time when it last was over."""


class Waited(NamedTuple):
    """A wait that is over. Times are ns of the run's clock."""

    number: int
    start_ns: int
    end_ns: int
    after: str
    ended: str
    first_look_ns: int | None
    first_pass: int
    looks: int
    spent: tuple[Spent, ...]
    """The parts add up to the wait."""


class _Waiter(msgspec.Struct, array_like=True):
    start_ns: int
    after: str
    met: bool = False
    """Whether a pass that could have looked at it has begun."""
    first_look_ns: int = -1
    first_pass: int = 0
    looks: int = 0
    since: dict[int, int] = {}
    """What had been summed by stop when it last was looked at, or was met first."""
    spent: dict[int, tuple[int, int]] = {}
    """By key: (ns, when it last was over)."""

    def spend(self, key: int, ns: int, until_ns: int) -> None:
        if ns > 0:
            before = self.spent.get(key, (0, 0))[0]
            self.spent[key] = before + ns, until_ns


class Waiting(msgspec.Struct):
    """Everybody who waits in one run on one rank, as far as its records have been taken. It can be kept and read back.

    Call `begin` for a pass, then `look` for each of its decisions; `repeat`, `join` and `leave` as their records come.
    """

    waiters: dict[int, _Waiter] = {}
    fresh: list[int] = []
    """Those no pass could have looked at yet."""
    told: dict[int, int] = {}
    """What the last pass said to those it told to wait."""
    summed: dict[int, int] = {}
    """Ns by stop of the passes so far, NO_STOP for time that cannot be attributed."""
    over: dict[int, int] = {}
    """When each of these sums last grew."""
    number: int = 0
    """The last pass; 0 before the first."""
    last_pass: int = 0
    """The last repeat of it, else its own number."""
    start_ns: int = 0
    stop: int = NO_STOP
    last_repeat_ns: int = -1
    repeated: int = 0

    def join(self, number: int, at_ns: int, after: str) -> None:
        """A request begins to wait, unless it does already."""
        if number not in self.waiters:
            self.waiters[number] = _Waiter(at_ns, after)
            self.fresh.append(number)

    def begin(self, record: Pass) -> None:
        """A pass begins."""
        start_ns = record.start_ns
        whole = record.number <= self.last_pass + 1
        if self.number:
            self._close(start_ns, whole=whole)
        self.number = self.last_pass = record.number
        self.start_ns, self.last_repeat_ns, self.repeated = start_ns, -1, 0
        self.stop = stop_code(record.closed_gate, record.closed_reason)
        self.told = {}
        self._meet(start_ns, whole=whole)

    def look(self, number: int, outcome: int, code: int) -> Waited | None:
        """The pass decided about a request that waits; its wait if that is over."""
        waiter = self.waiters.get(number)
        if waiter is None:
            return None
        start_ns = self.start_ns
        if not waiter.met:  # it came while the pass was deciding
            self._met(waiter, max(start_ns, waiter.start_ns), dict(self.summed), whole=True)
            self.fresh.remove(number)
        self._settle(waiter)
        waiter.since = dict(self.summed)
        waiter.looks += 1
        if waiter.first_look_ns < 0:
            waiter.first_look_ns, waiter.first_pass = max(start_ns, waiter.start_ns), self.number
        if outcome == Outcome.WAIT:
            self.told[number] = code
            return None
        if outcome == Outcome.PARK:
            return None
        return self._ended(number, waiter, start_ns, "can_never" if outcome == Outcome.REFUSE else "admit")

    def repeat(self, record: Repeat) -> None:
        """The last pass has been repeated so far."""
        if record.first_pass != self.number:
            return
        self.last_pass = max(self.last_pass, record.last_pass)
        self.last_repeat_ns = max(self.last_repeat_ns, record.last_ns)
        waiter = self.waiters.get(record.number)
        if waiter is not None:
            waiter.looks += record.count - self.repeated
        self.repeated = record.count
        fresh = []
        for number in self.fresh:
            one = self.waiters[number]
            if one.start_ns > record.last_ns:
                fresh.append(number)
                continue
            met_ns = max(record.first_ns, one.start_ns)
            since = dict(self.summed)
            since[self.stop] = since.get(self.stop, 0) + max(0, met_ns - self.start_ns)
            self._met(one, met_ns, since, whole=True)
        self.fresh = fresh

    def leave(self, number: int, at_ns: int, ended: str) -> Waited | None:
        """A request leaves the queue without being admitted; its wait, None if it did not wait."""
        waiter = self.waiters.get(number)
        if waiter is None:
            return None
        at_ns = max(at_ns, waiter.start_ns)
        if not waiter.met:
            self.fresh.remove(number)
            waiter.spend(_key(_BETWEEN, NO_STOP), at_ns - waiter.start_ns, at_ns)
        elif number in self.told:
            waiter.spend(_key(_HELD, self.told.pop(number)), at_ns - self.start_ns, at_ns)
        else:
            running = at_ns - self.start_ns
            summed = dict(self.summed)
            summed[self.stop] = summed.get(self.stop, 0) + max(0, running)
            self._settle(waiter, summed, {**self.over, self.stop: at_ns})
        return self._ended(number, waiter, at_ns, ended)

    def _close(self, until_ns: int, *, whole: bool) -> None:
        """The last pass's time is over, and belongs to what it said."""
        known_ns = until_ns if whole else max(self.start_ns, min(until_ns, self.last_repeat_ns))
        for stop, begin_ns, end_ns in ((self.stop, self.start_ns, known_ns), (NO_STOP, known_ns, until_ns)):
            if end_ns > begin_ns:
                self.summed[stop] = self.summed.get(stop, 0) + end_ns - begin_ns
                self.over[stop] = end_ns
        since = dict(self.summed)
        for number, code in self.told.items():
            waiter = self.waiters[number]
            waiter.spend(_key(_HELD, code), known_ns - self.start_ns, known_ns)
            waiter.spend(_key(_UNATTRIBUTED, NO_STOP), until_ns - known_ns, until_ns)
            waiter.since = since

    def _meet(self, start_ns: int, *, whole: bool) -> None:
        """A pass begins, which those who came before it could have been looked at by."""
        if not self.fresh:
            return
        since, fresh = dict(self.summed), []
        for number in self.fresh:
            waiter = self.waiters[number]
            if waiter.start_ns > start_ns:
                fresh.append(number)
            else:
                self._met(waiter, start_ns, since, whole=whole)
        self.fresh = fresh

    @staticmethod
    def _met(waiter: _Waiter, at_ns: int, since: dict[int, int], *, whole: bool) -> None:
        waiter.met = True
        waiter.since = since
        waiter.spend(_key(_BETWEEN if whole else _UNATTRIBUTED, NO_STOP), at_ns - waiter.start_ns, at_ns)

    def _settle(
        self, waiter: _Waiter, summed: dict[int, int] | None = None, over: dict[int, int] | None = None
    ) -> None:
        """Spend what went by since it last was looked at."""
        over = self.over if over is None else over
        since = waiter.since
        for stop, ns in (self.summed if summed is None else summed).items():
            kind = _UNATTRIBUTED if stop == NO_STOP else _BEHIND
            waiter.spend(_key(kind, stop), ns - since.get(stop, 0), over.get(stop, 0))

    def _ended(self, number: int, waiter: _Waiter, end_ns: int, ended: str) -> Waited:
        del self.waiters[number]
        self.told.pop(number, None)
        parts = [
            Spent(_KINDS[key // _BASE], stop_of(key % _BASE - 1), ns, until_ns)
            for key, (ns, until_ns) in waiter.spent.items()
        ]
        parts.sort(key=lambda part: part.until_ns)
        return Waited(
            number,
            waiter.start_ns,
            max(end_ns, waiter.start_ns),
            waiter.after,
            ended,
            waiter.first_look_ns if waiter.first_look_ns >= 0 else None,
            waiter.first_pass,
            waiter.looks,
            tuple(parts),
        )


def _key(kind: int, stop: int) -> int:
    return kind * _BASE + stop + 1
