"""The window: the last five minutes in stretches, kept up by reading only the passes that are new.

Passes are added up by SQLite; decisions, of which there are many more, are read from the newest pass back until a
deadline, so that the first picture is there at once.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.vocabulary import HostHit, Outcome
from estimator import PARTS
from ui.view.bucket import Bucket
from ui.view.moment import BUCKET_NS, BUCKETS
from ui.view.repeats import repeated_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.moment import Moment

STARTING_SQL: Final = "SELECT number FROM passes WHERE run = ? AND start_ns >= ? ORDER BY start_ns, number LIMIT 1"
# By number, the last pass that began before a time, and the one that follows a pass.
EARLIER_SQL: Final = (
    "SELECT number FROM passes WHERE run = ? AND number < ? AND start_ns < ? ORDER BY number DESC LIMIT 1"
)
FOLLOWING_SQL: Final = "SELECT number FROM passes WHERE run = ? AND number > ? ORDER BY number LIMIT 1"
BEFORE_SQL: Final = "SELECT number FROM passes WHERE run = ? AND number < ? ORDER BY number DESC LIMIT 1"
GROUPS_SQL: Final = f"""SELECT start_ns / {BUCKET_NS}, closed_gate, revision,
    count(*), min(number), max(number), max(start_ns), max(members), max(extend_tokens),
    max(device_hit_tokens + host_loaded_tokens), max(CASE WHEN members > 0 THEN peak_bytes END), min(room_after),
    max(running + members)
FROM passes WHERE run = ? AND number BETWEEN ? AND ? GROUP BY 1, 2, 3"""  # noqa: S608 - our own constant
REPEATS_SQL: Final = """SELECT first_pass, gate, count, first_ns, last_ns FROM repeats
WHERE run = ? AND first_pass BETWEEN ? AND ?"""
STARTS_SQL: Final = "SELECT number, start_ns FROM passes WHERE run = ? AND number BETWEEN ? AND ?"
ENTERED_SQL: Final = f"""SELECT d.pass, d.request, d.outcome, d.done_tokens, d.host_hit, d.resident_tokens,
    d.matched_tokens, d.asked_tokens, q.arrival_ns, q.admit_pass, q.first_token_ns
FROM decisions d LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = ? AND d.pass BETWEEN ? AND ? AND d.outcome <= {int(Outcome.ADMIT_CHUNK)}"""  # noqa: S608 - our own constant
BELOW_SQL: Final = "SELECT max(number) FROM passes WHERE run = ? AND number < ?"
LOADED_SQL: Final = f"""SELECT p.start_ns / {BUCKET_NS}, p.number, p.host_loaded_tokens, (
    SELECT max(s.end_ns) FROM steps s WHERE s.run = p.run AND s.pass = p.number)
FROM passes p WHERE p.run = ? AND p.number BETWEEN ? AND ? AND p.host_loaded_tokens > 0"""  # noqa: S608 - the same
FIRST_TOKENS_SQL: Final = """SELECT number, first_token_ns FROM json_each(?) j
CROSS JOIN requests q ON q.run = ? AND q.number = j.value WHERE first_token_ns IS NOT NULL"""
STEPS_SQL: Final = """SELECT s.pass, max(s.end_ns) FROM json_each(?) j
CROSS JOIN steps s ON s.run = ? AND s.pass = j.value GROUP BY 1"""
PEAK_SQL: Final = """SELECT parts FROM passes
WHERE run = ? AND number BETWEEN ? AND ? AND peak_bytes = ? AND members > 0 LIMIT 1"""

_LOADED: Final = int(HostHit.LOADED)
_MOST_BUCKETS: Final = 4 * BUCKETS
_GAP: Final = 1_000
"""Passes between what is held and what is wanted that are read too, rather than beginning anew."""
_PASSES: Final = 128
"""Passes whose decisions are read between two looks at the clock."""
_PENDING: Final = 1_000


class Stretch(NamedTuple):
    """One stretch of the window as it stood at the moment."""

    from_ns: int
    to_ns: int
    bucket: Bucket


class Window:
    """The passes of one run around the moments that were asked for, in stretches."""

    def __init__(self) -> None:
        self._forget(0)

    def _forget(self, floor: int) -> None:
        self._floor = floor
        """The oldest stretch that is held."""
        self._buckets: dict[int, Bucket] = {}
        self._high = 0
        """The last pass taken in; 0 for none."""
        self._open_repeat: tuple[int, ...] | None = None
        """That of the last pass, which may grow."""
        self._decided_low, self._decided_high = 0, -1
        """The passes whose decisions were taken in."""
        self._pending: dict[int, tuple[int, int, int]] = {}
        """By request that entered and has no token yet: its stretch, its arrival, the start of its pass."""
        self._loading: dict[int, tuple[int, int]] = {}
        """By pass whose step has not ended yet: its stretch, and the tokens it loaded."""

    def at(self, moment: Moment, deadline_ns: int | None = None) -> WindowView:
        """The window at a moment. Decisions are read until `deadline_ns` of `time.perf_counter_ns`, None to the end.

        Raises sqlite3.Error.
        """
        first = first_since(moment, moment.from_ns)
        first = moment.number + 1 if first is None else first
        if moment.number:
            self._cover(moment)
            self._settle(moment)
            self._decide(moment, first, deadline_ns)
        last = moment.at_ns // BUCKET_NS
        begun = last - BUCKETS + 1
        if moment.run.start_ns is not None:
            begun = max(begun, moment.run.start_ns // BUCKET_NS)
        stretches = [
            Stretch(index * BUCKET_NS, (index + 1) * BUCKET_NS, self._buckets.get(index, _EMPTY))
            for index in range(begun, last)
        ]
        stretches.append(Stretch(last * BUCKET_NS, moment.at_ns + 1, self._last_bucket(moment, last)))
        return WindowView(moment, tuple(stretches), complete=self._decided_low <= first)

    def _cover(self, moment: Moment) -> None:
        """Take in the passes up to the moment that are not held yet, from the beginning of its window on."""
        wanted = moment.from_ns // BUCKET_NS
        if not self._high or wanted < self._floor or moment.number > self._high + _GAP:
            # Further back than asked for, so that stepping back needs no new beginning.
            self._begin(moment, wanted if moment.following else wanted - BUCKETS)
        elif moment.number > self._high:
            self._take(moment, self._high + 1, moment.number, self._high)
            if len(self._buckets) > _MOST_BUCKETS:
                self._drop_oldest(moment)

    def _begin(self, moment: Moment, floor: int) -> None:
        """Hold the stretches from `floor` to the moment and nothing else."""
        self._forget(floor)
        run = moment.run.id
        found = first_since(moment, floor * BUCKET_NS)
        first = moment.number if found is None else found
        # The pass before the first may have been repeated into the window.
        before = moment.connection.execute(BEFORE_SQL, (run, first)).fetchone()
        self._take(moment, first, moment.number, before[0] if before else first)

    def _take(self, moment: Moment, first: int, last: int, repeats_from: int) -> None:
        """Add up the passes next to those that are held, and the repeats of those from `repeats_from` on."""
        execute, run = moment.connection.execute, moment.run.id
        for index, gate, revision, *group in execute(GROUPS_SQL, (run, first, last)):
            self._bucket(index).add_group(gate, revision, tuple(group))
        self._fold_open(-1)
        self._open_repeat = None
        self._high = last
        for row in execute(REPEATS_SQL, (run, repeats_from, last)):
            if row[0] == last:
                self._open_repeat = row
            else:
                self._fold(row, 1)
        self._fold_open(1)

    def _settle(self, moment: Moment) -> None:
        """Take in what became known of passes that are held: repeats of the last one, first tokens, ends of steps."""
        execute, run = moment.connection.execute, moment.run.id
        row = execute(REPEATS_SQL, (run, self._high, self._high)).fetchone()
        if row != self._open_repeat:
            self._fold_open(-1)
            self._open_repeat = row
            self._fold_open(1)
        if self._pending:
            for number, token_ns in execute(FIRST_TOKENS_SQL, (json.dumps(list(self._pending)), run)).fetchall():
                index, arrival_ns, start_ns = self._pending.pop(number)
                if token_ns >= start_ns:
                    self._bucket(index).ttft.add(token_ns, token_ns - arrival_ns)
        if self._loading:
            for number, end_ns in execute(STEPS_SQL, (json.dumps(list(self._loading)), run)).fetchall():
                index, tokens = self._loading.pop(number)
                self._bucket(index).used.add(end_ns, tokens)

    def _decide(self, moment: Moment, first: int, deadline_ns: int | None) -> None:
        """Take in decisions: of the newer passes all, of the older ones until the deadline."""
        if self._decided_high < self._decided_low:
            self._decided_low, self._decided_high = self._high + 1, self._high
        if self._decided_high < self._high:
            self._enter(moment, self._decided_high + 1, self._high)
            self._decided_high = self._high
        while self._decided_low > first and (deadline_ns is None or time.perf_counter_ns() < deadline_ns):
            # Numbers that no pass has are stepped over at once, however many they are.
            newest = moment.connection.execute(BELOW_SQL, (moment.run.id, self._decided_low)).fetchone()[0]
            if newest is None or newest < first:
                self._decided_low = first
                break
            low = max(first, newest - _PASSES + 1)
            self._enter(moment, low, newest)
            self._decided_low = low

    def _enter(self, moment: Moment, first: int, last: int) -> None:
        """Take in the decisions of some passes that let a request enter."""
        execute, numbers = moment.connection.execute, (moment.run.id, first, last)
        starts = dict(execute(STARTS_SQL, numbers))
        for row in execute(ENTERED_SQL, numbers):
            start_ns = starts[row[0]]
            index = start_ns // BUCKET_NS
            if _enter(self._bucket(index), start_ns, row):
                self._pending[row[1]] = index, row[8], start_ns
        while len(self._pending) > _PENDING:
            del self._pending[next(iter(self._pending))]
        for index, number, tokens, end_ns in execute(LOADED_SQL, numbers):
            if end_ns is None:
                self._loading[number] = index, tokens
            else:
                self._bucket(index).used.add(end_ns, tokens)
        while len(self._loading) > _PENDING:
            del self._loading[next(iter(self._loading))]

    def _bucket(self, index: int) -> Bucket:
        """The stretch of an index; one that is not held takes what nobody looks at."""
        if index < self._floor:
            return Bucket()
        bucket = self._buckets.get(index)
        if bucket is None:
            bucket = self._buckets[index] = Bucket()
        return bucket

    def _fold(self, row: tuple[int, ...], sign: int) -> None:
        """Spread a row of repeats over the stretches it lasted."""
        _, gate, count, first_ns, last_ns = row
        begun = max(self._floor, first_ns // BUCKET_NS)
        before = repeated_by(begun * BUCKET_NS - 1, count, first_ns, last_ns)
        for index in range(begun, last_ns // BUCKET_NS + 1):
            come = repeated_by((index + 1) * BUCKET_NS - 1, count, first_ns, last_ns)
            if come > before:
                self._bucket(index).repeats[gate] += sign * (come - before)
            before = come

    def _fold_open(self, sign: int) -> None:
        if self._open_repeat is not None:
            self._fold(self._open_repeat, sign)

    def _drop_oldest(self, moment: Moment) -> None:
        """Let go of the oldest stretches."""
        self._fold_open(-1)
        self._floor = moment.at_ns // BUCKET_NS - 2 * BUCKETS
        self._buckets = {index: bucket for index, bucket in self._buckets.items() if index >= self._floor}
        self._fold_open(1)

    def _last_bucket(self, moment: Moment, index: int) -> Bucket:
        """The stretch that the moment is in, without what came after the moment."""
        if moment.following or not self._high:
            return self._buckets.get(index, _EMPTY)
        execute, run = moment.connection.execute, moment.run.id
        first = first_since(moment, index * BUCKET_NS)
        bucket = Bucket() if first is None else _cut(moment, index, first)
        before = execute(BEFORE_SQL, (run, moment.number + 1 if first is None else first)).fetchone()
        repeats_from = before[0] if before is not None else 0
        for _, gate, count, first_ns, last_ns in execute(REPEATS_SQL, (run, repeats_from, moment.number)):
            come = repeated_by(moment.at_ns, count, first_ns, last_ns)
            come -= repeated_by(index * BUCKET_NS - 1, count, first_ns, last_ns)
            if come:
                bucket.repeats[gate] += come
        return bucket


def first_since(moment: Moment, from_ns: int) -> int | None:
    """The first pass, by number, of those up to the moment that began at a time or later; None for none.

    Where the clock was set back, passes that began before that time may follow it. Raises sqlite3.Error.
    """
    execute, run = moment.connection.execute, moment.run.id
    row = execute(STARTING_SQL, (run, from_ns)).fetchone()
    if row is None or row[0] > moment.number:
        return None
    earlier = execute(EARLIER_SQL, (run, row[0], from_ns)).fetchone()
    (first,) = execute(FOLLOWING_SQL, (run, earlier[0] if earlier is not None else -1)).fetchone()
    return int(first)


def _cut(moment: Moment, index: int, first: int) -> Bucket:
    """A stretch anew, from its first pass to the moment."""
    execute, numbers = moment.connection.execute, (moment.run.id, first, moment.number)
    bucket = Bucket()
    for at, gate, revision, *group in execute(GROUPS_SQL, numbers):
        if at == index:
            bucket.add_group(gate, revision, tuple(group))
    starts = dict(execute(STARTS_SQL, numbers))
    for row in execute(ENTERED_SQL, numbers):
        if starts[row[0]] // BUCKET_NS == index:
            _enter(bucket, starts[row[0]], row)
    for at, _, tokens, end_ns in execute(LOADED_SQL, numbers):
        if at == index and end_ns is not None:
            bucket.used.add(end_ns, tokens)
    return bucket


def _enter(bucket: Bucket, start_ns: int, row: tuple[Any, ...]) -> bool:
    """Take in one decision that let a request enter; whether its first token is still to come."""
    passed, request, outcome, done, host_hit, resident, matched, asked, arrival_ns, admit_pass, token_ns = row
    if not done:
        if resident or asked:
            loaded = host_hit == _LOADED
            bucket.add_hit(passed, request, host_hit, (resident, matched, asked), loaded=loaded)
        if admit_pass == passed and arrival_ns is not None:
            bucket.queued.add(start_ns, start_ns - arrival_ns if start_ns > arrival_ns else 0)
    if outcome or arrival_ns is None:
        return False
    if token_ns is None:
        return True
    if token_ns >= start_ns:
        bucket.ttft.add(token_ns, token_ns - arrival_ns)
    return False


class WindowView:
    """The window as it stood at one moment."""

    def __init__(self, moment: Moment, stretches: tuple[Stretch, ...], *, complete: bool) -> None:
        self.moment = moment
        self.stretches = stretches
        """The oldest first; the last one is that of the moment."""
        self.complete = complete
        """All decisions of the window were taken in."""
        self.passes = sum(stretch.bucket.met for stretch in stretches)
        """Passes, repeats counted."""

    @property
    def buckets(self) -> Iterator[Bucket]:
        """The buckets of the stretches, the oldest first."""
        return (stretch.bucket for stretch in self.stretches)

    def stops(self) -> dict[int, int]:
        """Passes by the gate that closed them, repeats counted."""
        stops: dict[int, int] = {}
        for bucket in self.buckets:
            for gate, count in bucket.met_by_gate().items():
                stops[gate] = stops.get(gate, 0) + count
        return stops

    def peak_of(self, bucket: Bucket) -> tuple[int, tuple[tuple[str, int], ...]] | None:
        """The largest estimate in a bucket and its parts, bytes. Raises sqlite3.Error."""
        if bucket.peak is None:
            return None
        peak, parts = bucket.peak
        if not parts:
            moment = self.moment
            values = (moment.run.id, bucket.first, bucket.last, peak)
            row = moment.connection.execute(PEAK_SQL, values).fetchone()
            parts = parts_of(row[0]) if row else ()
            bucket.peak = peak, parts
        return peak, parts


def parts_of(text: str | None) -> tuple[tuple[str, int], ...]:
    """The parts of an estimate by name, bytes, the largest first, those of nothing left out."""
    held = zip(PARTS, json.loads(text), strict=False) if text else ()
    return tuple(sorted(((name, size) for name, size in held if size), key=lambda part: -part[1]))


_EMPTY: Final = Bucket()
