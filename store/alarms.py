"""Standing alarms: what should not happen, or not for long, found in the records as they come in.

A record costs the same however much came before. What the watch knows of the records before is `WatchState`, kept in
the database beside the rows, so that a restart goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from controller import records
from controller.vocabulary import NOT_READY_GATES, Gate, Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class AlarmSpec(NamedTuple):
    """One kind of alarm. It is raised when what it measures reaches `threshold`, in `unit`."""

    name: str
    meaning: str
    threshold: int
    unit: str


IDLE_REFUSAL: Final = AlarmSpec(
    "idle_refusal",
    "Nothing runs and nothing is held, the head of the queue fits, and the pass turned it away: a broken invariant.",
    1,
    "passes",
)
NO_PROGRESS: Final = AlarmSpec(
    "no_progress", "So many passes looked at one request, and none gave it a token.", 1_000, "passes"
)
PARKED_SLOTS: Final = AlarmSpec(
    "parked_slots", "No request slot is free, and parked requests hold this share of them.", 50, "percent"
)
UNUSED_LOAD: Final = AlarmSpec(
    "unused_load",
    "A prefix was loaded from the host and then not used: its request left, gave its KV back, or was not computed "
    "within 30 s while later batches were.",
    1,
    "loads",
)
LONG_WAIT: Final = AlarmSpec(
    "long_wait", "Passes told one request to wait for one and the same reason for so long.", 60_000_000_000, "ns"
)
RANKS_DIFFER: Final = AlarmSpec(
    "ranks_differ", "Two ranks of a run decided differently in a pass of the same number.", 1, "passes"
)
ALARMS: Final = (IDLE_REFUSAL, NO_PROGRESS, PARKED_SLOTS, UNUSED_LOAD, LONG_WAIT, RANKS_DIFFER)

UNUSED_AFTER_NS: Final = 30_000_000_000
"""A finished load whose request is in no computed batch for so long counts as unused, ns of the run's clock."""
QUIET_NS: Final = 60_000_000_000
"""An alarm about single events is closed when none has come for so long, ns of the run's clock."""

_PARK: Final = int(Outcome.PARK)
_WAIT: Final = int(Outcome.WAIT)
_CHECKS: Final = 17
_KV_CHECK: Final = _CHECKS + 3 * Gate.KV_CAPACITY
_REFUSED: Final = int(Verdict.REFUSE)

Key = tuple[str, int, str]
"""An open alarm: its kind, the request it is about or -1, and what else tells it apart."""


class Alarm(msgspec.Struct, array_like=True, kw_only=True):
    """One stretch of time in which an alarm stood. Times are ns of the run's clock."""

    number: int
    """Within the run on this rank, from 1."""
    name: str
    opened_ns: int
    last_ns: int
    """When it last was seen to stand."""
    closed_ns: int | None = None
    count: int = 1
    """Passes, loads or looks that showed it."""
    measured: int
    threshold: int
    unit: str
    request: int | None = None
    gate: int | None = None
    reason: int | None = None
    first_pass: int | None = None
    last_pass: int | None = None
    observed: int | None = None
    """What the gate saw when it last was seen, in the gate's unit."""
    limit: int | None = None
    detail: str = ""


class _Held(msgspec.Struct, array_like=True):
    """A request that passes looked at and gave nothing."""

    stop: tuple[int, int]
    since_ns: int
    """The first look of those that named this stop."""
    looks: int
    """Passes written whole; `repeats` counts those after `pass_number`."""
    pass_number: int
    observed: int
    limit: int
    repeats: int = 0
    parked: bool = False


class _Loading(msgspec.Struct, array_like=True):
    """A request whose host hit was loaded and which was in no finished step yet."""

    pass_number: int
    tokens: int
    done_ns: int = -1
    """When the load had reached the device; -1 before."""


class WatchState(msgspec.Struct):
    """What the watch knows of the records before. `pool_tokens` and `slots` are -1 while unknown."""

    alarms: int = 0
    pool_tokens: int = -1
    slots: int = -1
    last_pass: int = 0
    last_ns: int = -1
    held: dict[int, _Held] = {}
    loading: dict[int, _Loading] = {}
    open: list[tuple[Key, Alarm]] = []


class AlarmWatch:
    """Takes one run's records on one rank in order. `changed` holds the alarms that `add` touched, by number.

    `set_back` holds (pass, its start, start of the pass before) of the passes that began before their predecessor.
    """

    __slots__ = ("_open", "_takers", "changed", "set_back", "state")

    def __init__(self, state: WatchState | None = None) -> None:
        self.state = WatchState() if state is None else state
        self.changed: dict[int, Alarm] = {}
        self.set_back: list[tuple[int, int, int]] = []
        self._open: dict[Key, Alarm] = dict(self.state.open)
        self._takers: dict[type, Callable[..., None]] = {
            records.RunStart: self._run_start, records.Pass: self._pass, records.Repeat: self._repeat,
            records.StepEnd: self._step, records.LoadDone: self._load, records.Finish: self._finish,
            records.Abort: self._abort, records.Retract: self._retract, records.Preempt: self._preempt,
        }  # fmt: skip

    @classmethod
    def restore(cls, text: str) -> AlarmWatch:
        """A watch that goes on from a state that `saved` gave. Raises msgspec.DecodeError for any other text."""
        return cls(msgspec.json.decode(text, type=WatchState))

    def saved(self) -> str:
        """The state as JSON."""
        self.state.open = list(self._open.items())
        return msgspec.json.encode(self.state).decode()

    @property
    def standing(self) -> list[Alarm]:
        """The alarms that stand, the oldest first."""
        return list(self._open.values())

    def add(self, gathered: Iterable[records.AnyRecord]) -> None:
        """Take records."""
        takers = self._takers
        for record in gathered:
            taker = takers.get(type(record))
            if taker is not None:
                taker(record)

    def ranks_differ(self, other: int, passes: int, first: int, last: int, at_ns: int) -> None:
        """Raise the alarm for passes, from first to last, that another rank decided differently."""
        detail = f"rank {other} decided otherwise"
        alarm = self._stand(RANKS_DIFFER, at_ns, cause=str(other), passed=last, more=passes, detail=detail)
        alarm.measured = alarm.count
        alarm.first_pass = min(first, alarm.first_pass or first)

    def _run_start(self, r: records.RunStart) -> None:
        self.state.pool_tokens, self.state.slots = r.pool_tokens, r.slots

    def _pass(self, r: records.Pass) -> None:
        state, batch, decisions = self.state, r.batch, r.decisions
        if r.start_ns < state.last_ns and r.number > state.last_pass:
            self.set_back.append((r.number, r.start_ns, state.last_ns))
        state.last_pass, state.last_ns = r.number, r.start_ns
        held, loading = state.held, state.loading
        for member in batch:
            if member[0] in held:
                self._release(member[0], r.start_ns)
            if member[4]:
                loading[member[0]] = _Loading(r.number, member[4])
        if len(decisions) > len(batch):
            for decision in decisions:
                if decision[1] >= _PARK:
                    self._turned_away(r, decision)
        if self._open:
            self._lapse(r)

    def _turned_away(self, r: records.Pass, decision: tuple[int, ...]) -> None:
        """A decision that gave no token."""
        number, outcome, gate, reason, observed, limit = decision[:6]
        if outcome > _WAIT:  # refused for good
            self._release(number, r.start_ns)
            return
        stop, at_ns = (gate, reason), r.start_ns
        known = self.state.held.get(number)
        if known is None:
            known = _Held(stop, at_ns, 0, r.number, observed, limit)
            self.state.held[number] = known
        known.looks += known.repeats + 1
        known.pass_number, known.repeats = r.number, 0
        known.parked = outcome == _PARK
        self._judge(number, known, stop, at_ns, r.number, (observed, limit))
        free, evictable, _, running = r.before
        turned_away = outcome == _WAIT and gate not in NOT_READY_GATES
        if not r.batch and not running and turned_away and number == r.decisions[0][0]:
            whole = 0 <= self.state.pool_tokens <= free + evictable
            if whole or (len(decision) > _KV_CHECK and decision[_KV_CHECK] != _REFUSED):
                self._stand(IDLE_REFUSAL, at_ns, number, stop=stop, passed=r.number, numbers=(observed, limit))
        if known.parked:
            self._parked(running, at_ns, r.number, stop, (observed, limit))

    def _judge(
        self, number: int, known: _Held, stop: tuple[int, int], at_ns: int, passed: int, numbers: tuple[int, int]
    ) -> None:
        """Raise what a further look without a token means for its request."""
        if stop != known.stop:
            known.stop, known.since_ns = stop, at_ns
            self._close((LONG_WAIT.name, number, ""), at_ns)
        known.observed, known.limit = numbers
        looks, waited_ns = known.looks + known.repeats, at_ns - known.since_ns
        if looks >= NO_PROGRESS.threshold:
            alarm = self._stand(NO_PROGRESS, at_ns, number, stop=stop, passed=passed, numbers=numbers)
            alarm.count = alarm.measured = looks
        if waited_ns >= LONG_WAIT.threshold:
            alarm = self._stand(LONG_WAIT, at_ns, number, stop=stop, passed=passed, numbers=numbers)
            alarm.measured = waited_ns

    def _parked(self, running: int, at_ns: int, passed: int, stop: tuple[int, int], numbers: tuple[int, int]) -> None:
        slots = self.state.slots
        if slots <= 0:
            return
        parked = sum(each.parked for each in self.state.held.values())
        share = 100 * parked // slots
        if running + parked >= slots and share >= PARKED_SLOTS.threshold:
            detail = f"{parked} parked and {running} running in {slots} slots"
            alarm = self._stand(PARKED_SLOTS, at_ns, stop=stop, passed=passed, numbers=numbers, detail=detail)
            alarm.measured = share
        else:
            self._close((PARKED_SLOTS.name, -1, ""), at_ns)

    def _repeat(self, r: records.Repeat) -> None:
        stop, at_ns = (r.gate, r.reason), r.last_ns
        known = self.state.held.get(r.number)
        gone = known is None and r.ended  # the last word on a refusal may follow the word that its request left
        if known is None or known.pass_number != r.first_pass:  # the pass it repeats is missing from the record
            looks = 1 if known is None else known.looks + known.repeats
            known = _Held(stop, r.first_ns, looks, r.first_pass, r.observed[0], r.limit[0])
            self.state.held[r.number] = known
        more = r.count - known.repeats
        if more <= 0:
            return
        known.repeats = r.count
        numbers = r.observed[1], r.limit[1]
        self._judge(r.number, known, stop, at_ns, r.last_pass, numbers)
        for name, request in ((IDLE_REFUSAL.name, r.number), (PARKED_SLOTS.name, -1)):
            alarm = self._open.get((name, request, ""))
            if alarm is not None and alarm.last_pass is not None and alarm.last_pass >= r.first_pass:
                self._touch(alarm, at_ns, r.last_pass, more)
                alarm.observed, alarm.limit = numbers
        if gone:
            self._release(r.number, at_ns)

    def _lapse(self, r: records.Pass) -> None:
        """Close what this pass does not show any more."""
        for (name, request, cause), alarm in list(self._open.items()):
            over = (name in (IDLE_REFUSAL.name, PARKED_SLOTS.name) and alarm.last_pass != r.number) or (
                name == UNUSED_LOAD.name and r.start_ns - alarm.last_ns >= QUIET_NS
            )
            if over:
                self._close((name, request, cause), r.start_ns)

    def _step(self, r: records.StepEnd) -> None:
        loading = self.state.loading
        if not loading or r.passed < 0:
            return
        for number, load in list(loading.items()):
            if load.pass_number > r.passed:
                break
            if load.pass_number == r.passed:
                del loading[number]
            elif load.done_ns >= 0 and r.end_ns - load.done_ns >= UNUSED_AFTER_NS:
                del loading[number]
                self._unused(number, load, r.end_ns, "not computed")

    def _load(self, r: records.LoadDone) -> None:
        load = self.state.loading.get(r.number)
        if load is not None:
            load.done_ns, load.tokens = r.at_ns, r.tokens

    def _finish(self, r: records.Finish) -> None:
        self._left(r.number, r.at_ns, "")

    def _abort(self, r: records.Abort) -> None:
        self._left(r.number, r.at_ns, "aborted")

    def _retract(self, r: records.Retract) -> None:
        self._left(r.number, r.at_ns, "retracted")

    def _preempt(self, r: records.Preempt) -> None:
        self._left(r.number, r.at_ns, "preempted")

    def _left(self, number: int, at_ns: int, cause: str) -> None:
        """A request left the batch or the queue."""
        if number in self.state.held:
            self._release(number, at_ns)
        load = self.state.loading.pop(number, None)
        if load is not None and load.done_ns >= 0 and cause:
            self._unused(number, load, at_ns, cause)

    def _unused(self, number: int, load: _Loading, at_ns: int, cause: str) -> None:
        detail = f"{cause} after a load of {load.tokens} tokens in pass {load.pass_number}"
        alarm = self._stand(UNUSED_LOAD, at_ns, cause=cause, passed=load.pass_number, detail=detail)
        alarm.request, alarm.measured = number, alarm.count
        alarm.observed = (alarm.observed or 0) + load.tokens

    def _release(self, number: int, at_ns: int) -> None:
        """A request got tokens, left, or was refused for good."""
        self.state.held.pop(number, None)
        if self._open:
            for spec in (NO_PROGRESS, LONG_WAIT, IDLE_REFUSAL):
                self._close((spec.name, number, ""), at_ns)

    def _stand(
        self,
        spec: AlarmSpec,
        at_ns: int,
        request: int = -1,
        *,
        cause: str = "",
        stop: tuple[int, int] | None = None,
        passed: int,
        numbers: tuple[int, int] | None = None,
        more: int = 1,
        detail: str = "",
    ) -> Alarm:
        """Open an alarm, or count one that stands once more."""
        key = spec.name, request, cause
        alarm = self._open.get(key)
        if alarm is None:
            self.state.alarms += 1
            alarm = Alarm(
                number=self.state.alarms, name=spec.name, opened_ns=at_ns, last_ns=at_ns, count=more,
                measured=spec.threshold, threshold=spec.threshold, unit=spec.unit, first_pass=passed, last_pass=passed,
                request=request if request >= 0 else None,
            )  # fmt: skip
            self._open[key] = alarm
            self.changed[alarm.number] = alarm
        else:
            self._touch(alarm, at_ns, passed, more)
        if stop is not None:
            alarm.gate, alarm.reason = stop
        if numbers is not None:
            alarm.observed, alarm.limit = numbers
        alarm.detail = detail
        return alarm

    def _touch(self, alarm: Alarm, at_ns: int, passed: int, more: int) -> None:
        alarm.last_ns = max(alarm.last_ns, at_ns)
        alarm.last_pass = max(passed, alarm.last_pass or passed)
        alarm.count += more
        if alarm.name == IDLE_REFUSAL.name:
            alarm.measured = alarm.count
        self.changed[alarm.number] = alarm

    def _close(self, key: Key, at_ns: int) -> None:
        alarm = self._open.pop(key, None)
        if alarm is not None:
            alarm.closed_ns = max(at_ns, alarm.last_ns)
            self.changed[alarm.number] = alarm
