"""Pruning: old passes and runs dropped by age and by size, the room given back, and a note of what went and why.

Whole runs go first, the oldest before others; of a run that goes on, or the last one left, the oldest passes. A step
deletes few enough rows that a writer or reader beside it hardly waits, and an ingest takes new records in between.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from estimator.errors import UsageError
from store.database import failures, open_for_writing
from store.runs import StoredRun, stored_runs
from store.words import size

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REMEMBERED: Final = 20_000_000
"""So many pruned requests are known by a hash of their id, some 24 bytes each; beyond that the oldest are forgotten."""

_REMEMBERED_SHARE: Final = 16
_REMEMBERED_BYTES: Final = 24
"""What is remembered takes about one part in so many of a bound on size, at so many bytes a request."""
_DAY_NS: Final = 24 * 3600 * 1_000_000_000
_LOW_WATER: Final = 0.9
"""Pruning for size goes on down to this part of the bound, so that it is not needed again at once."""
_STEP_PASSES: Final = 2_000
_STEP_REQUESTS: Final = 10_000
_STEP_PAGES: Final = 2_000
_SHARES: Final = 20
"""For size, a run is shortened by one of so many parts at a time."""

# The rows of a run that hang on a pass or request, children first.
_OF_RUN: Final = (
    "repeats", "steps", "loads", "retractions", "alarms", "requests", "knobs", "knob_changes", "smoke", "digests",
    "rank_differences", "rank_marks",
)  # fmt: skip
_NOTE: Final = """INSERT INTO pruned (run, whole, first_pass, last_pass, first_ns, passes, decisions, requests,
remembered, at_unix_ns, why) VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0, ?, ?)"""
_GONE: Final = """SELECT number, id FROM requests q WHERE run = :run AND number <= :most AND end_ns < :cut
AND NOT EXISTS (SELECT 1 FROM decisions d WHERE d.run = q.run AND d.request = q.number)
AND number NOT IN (SELECT request FROM repeats WHERE run = :run)
AND number NOT IN (SELECT request FROM alarms WHERE run = :run AND request IS NOT NULL)"""


class Pruned(NamedTuple):
    """What was dropped of one rank of a run, or would be. `whole` when nothing but its name is kept."""

    run: str
    rank: int
    whole: bool
    first_pass: int
    last_pass: int
    passes: int
    decisions: int
    requests: int
    """0 in a dry run that shortens a run: which requests can go is seen when their passes are gone."""
    why: str


class Pruning(NamedTuple):
    """A pruning's outcome. Bytes are those in use, without what is free inside the file."""

    dropped: tuple[Pruned, ...]
    bytes_before: int
    bytes_after: int
    """Estimated by the share of decisions in a dry run."""


class _Unit(NamedTuple):
    """Something to drop: the passes of a run up to a number, or all of it."""

    run: StoredRun
    first_pass: int
    last_pass: int
    whole: bool
    why: str


Steps = Generator[None, None, tuple[Pruned, ...]]
"""Work that can be left between its steps; what it comes to is what was dropped."""


def _whole(steps: Steps) -> tuple[Pruned, ...]:
    """Do all steps, and return what was dropped."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            dropped: tuple[Pruned, ...] = done.value
            return dropped


def prune(
    database: Path, *, keep_days: float | None = None, max_bytes: int | None = None, dry_run: bool = False,
    now_ns: int | None = None,
) -> Pruning:  # fmt: skip
    """Drop what ended more than `keep_days` ago, and then the oldest until the database is below `max_bytes`.

    `now_ns` is the Unix time to count days from. Raises UsageError without any bound, RecordError and StorageError as
    opening does; what was dropped before an error stays dropped and noted.
    """
    if keep_days is None and max_bytes is None:
        raise UsageError("nothing says what to prune; give --keep-days, --max-size or both")
    connection = open_for_writing(database)
    try:
        with failures(database):
            pruner = Pruner(connection, time.time_ns() if now_ns is None else now_ns, max_bytes, dry_run=dry_run)
            before = bytes_in_use(connection)
            dropped: tuple[Pruned, ...] = ()
            if keep_days is not None:
                dropped += _whole(pruner.for_age(keep_days))
            if max_bytes is not None and pruner.bytes_left > max_bytes:
                dropped += _whole(pruner.for_size(max_bytes))
            after = pruner.bytes_left if dry_run else bytes_in_use(connection)
            if dropped and not dry_run:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    return Pruning(dropped, before, after)


def hash_of(request: str) -> int:
    """The number by which a pruned request is known: 64 bits of a BLAKE2b digest of its id, signed as SQLite has it."""
    return int.from_bytes(blake2b(request.encode(errors="surrogatepass"), digest_size=8).digest(), "big", signed=True)


def bytes_in_use(connection: sqlite3.Connection) -> int:
    """Bytes of the database without what is free inside the file."""
    pages, free, page = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page)


class Pruner:
    """Drops, or says what it would drop. Raises sqlite3.Error."""

    def __init__(
        self, connection: sqlite3.Connection, now_ns: int, max_bytes: int | None, *, dry_run: bool = False
    ) -> None:
        self._connection = connection
        self._now_ns = now_ns
        # Ids alone must not come to fill a small database.
        self._remembered = (
            REMEMBERED if max_bytes is None else min(REMEMBERED, max_bytes // (_REMEMBERED_SHARE * _REMEMBERED_BYTES))
        )
        self._dry_run = dry_run
        self._gone: dict[int, int] = {}
        """By run, the last pass dropped; the run's last one when all of it went."""
        self.bytes_left = bytes_in_use(connection)
        self._bytes_a_decision = 0.0
        if dry_run:
            self._bytes_a_decision = self._freed_by_a_decision()

    def for_age(self, keep_days: float) -> Steps:
        """Drop what ended so many days ago. Runs without a date are left alone."""
        cut_ns = self._now_ns - int(keep_days * _DAY_NS)
        why = f"older than {keep_days:g} {'day' if keep_days == 1 else 'days'}"
        units = []
        for run in stored_runs(self._connection):
            ended_ns = _unix(run, run.last_ns)
            if ended_ns is None or run.wall_ns is None or run.start_ns is None:
                continue
            if ended_ns < cut_ns and self._is_over(run):
                units.append(self._all_of(run, why))
            else:
                last = self._number(
                    "SELECT number FROM passes WHERE run = ? AND start_ns < ? ORDER BY start_ns DESC LIMIT 1",
                    run.id, cut_ns - run.wall_ns + run.start_ns,
                )  # fmt: skip
                units.append(self._part_of(run, last, why))
        return (yield from self._drop_all(unit for unit in units if unit is not None))

    def for_size(self, max_bytes: int) -> Steps:
        """Drop the oldest until the database is down to nine tenths of the bound."""
        return (yield from self._drop_all(self._oldest_first(f"larger than {size(max_bytes)}"), _LOW_WATER * max_bytes))

    def _drop_all(self, units: Iterable[_Unit], until_bytes: float = 0) -> Steps:
        """Drop one unit after another, until so many bytes are left."""
        dropped: list[Pruned] = []
        for unit in units:
            dropped.append((yield from self._drop(unit)))
            if self.bytes_left <= until_bytes:
                break
        return tuple(dropped)

    def _oldest_first(self, why: str) -> Iterator[_Unit]:
        runs = sorted(stored_runs(self._connection), key=lambda run: (run.wall_ns or 0, run.id))
        latest = runs[-1].name if runs else ""
        for run in runs:
            if run.name != latest and self._is_over(run) and (unit := self._all_of(run, why)) is not None:
                yield unit
        shares = [share for run in runs for share in self._shares(run)]
        for _, number, shortened in sorted(shares, key=lambda share: share[:2]):
            if (unit := self._part_of(shortened, number, why)) is not None:
                yield unit

    def _shares(self, run: StoredRun) -> Iterator[tuple[int, int, StoredRun]]:
        """Unix time and number of the passes at which a run may be cut for size."""
        first, last = self._passes(run)
        for share in range(1, _SHARES if last > first else 0):
            number = first + (last - first) * share // _SHARES
            start_ns = self._number(
                "SELECT start_ns FROM passes WHERE run = ? AND number <= ? ORDER BY number DESC LIMIT 1", run.id, number
            )
            yield _unix(run, start_ns) or 0, number, run

    def _is_over(self, run: StoredRun) -> bool:
        """Whether no more records of it will come: it ended, or nothing came for a day."""
        if run.end_ns is not None:
            return True
        last_ns = _unix(run, run.last_ns)
        return last_ns is not None and last_ns < self._now_ns - _DAY_NS

    def _passes(self, run: StoredRun) -> tuple[int, int]:
        """The first and the last pass of a run that are still there; the last is 0 without any."""
        first = max(
            self._gone.get(run.id, 0) + 1,
            self._number("SELECT min(number) FROM passes WHERE run = ?", run.id),
        )
        return first, self._number("SELECT max(number) FROM passes WHERE run = ?", run.id)

    def _all_of(self, run: StoredRun, why: str) -> _Unit | None:
        first, last = self._passes(run)
        kept = self._number("SELECT count(*) FROM requests WHERE run = ?", run.id)
        return _Unit(run, first, last, True, why) if last >= first or (kept and run.id not in self._gone) else None

    def _part_of(self, run: StoredRun, last: int, why: str) -> _Unit | None:
        """The passes up to a number, but none of a refusal that goes on."""
        first, _ = self._passes(run)
        going_on = self._number("SELECT min(first_pass) FROM repeats WHERE run = ? AND ended = 0", run.id)
        last = min(last, going_on - 1) if going_on else last
        return _Unit(run, first, last, False, why) if last >= first else None

    def _drop(self, unit: _Unit) -> Generator[None, None, Pruned]:
        run = unit.run
        self._gone[run.id] = unit.last_pass
        if self._dry_run:
            span = run.id, unit.first_pass, unit.last_pass
            passes = self._number("SELECT count(*) FROM passes WHERE run = ? AND number BETWEEN ? AND ?", *span)
            decisions = self._number("SELECT count(*) FROM decisions WHERE run = ? AND pass BETWEEN ? AND ?", *span)
            requests = self._number("SELECT count(*) FROM requests WHERE run = ?", run.id) if unit.whole else 0
            self.bytes_left -= round(decisions * self._bytes_a_decision)
        else:
            passes, decisions, requests = yield from self._delete(unit)
            yield from self._forget()
            yield from self._give_back()
            self.bytes_left = bytes_in_use(self._connection)
        return Pruned(
            run.name, run.rank, unit.whole, unit.first_pass, unit.last_pass, passes, decisions, requests, unit.why
        )

    def _freed_by_a_decision(self) -> float:
        """Bytes that go with a decision: its share of all but what an empty database has, less what ids then take."""
        decisions = max(1, self._number("SELECT count(*) FROM decisions"))
        trees = self._number("SELECT count(*) FROM sqlite_master WHERE rootpage > 0") + 1
        empty = trees * self._number("PRAGMA page_size")
        requests = min(self._remembered, self._number("SELECT count(*) FROM requests"))
        return max(0, self.bytes_left - empty - requests * _REMEMBERED_BYTES) / decisions

    def _delete(self, unit: _Unit) -> Generator[None, None, tuple[int, int, int]]:
        """Delete in steps, each with its note, and return how many passes, decisions and requests went."""
        execute, run = self._connection.execute, unit.run.id
        first_ns = self._number("SELECT start_ns FROM passes WHERE run = ? AND number >= ? LIMIT 1", run, 0)
        execute("BEGIN IMMEDIATE")
        note = execute(
            _NOTE, (run, unit.whole, unit.first_pass, unit.first_pass - 1, first_ns, self._now_ns, unit.why)
        ).lastrowid
        execute("COMMIT")
        for last in range(unit.first_pass + _STEP_PASSES - 1, unit.last_pass + _STEP_PASSES, _STEP_PASSES):
            self._delete_passes(run, min(last, unit.last_pass), int(note or 0))
            yield
        if unit.whole:
            yield from self._delete_rest(run, int(note or 0))
        counts: tuple[int, int, int] = execute(
            "SELECT passes, decisions, requests FROM pruned WHERE id = ?", (note,)
        ).fetchone()
        return counts

    def _delete_passes(self, run: int, last: int, note: int) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            last_ns = self._number(
                "SELECT start_ns FROM passes WHERE run = ? AND number <= ? ORDER BY number DESC LIMIT 1", run, last
            )
            cut_ns = (
                self._number(
                    "SELECT start_ns FROM passes WHERE run = ? AND number > ? ORDER BY number LIMIT 1", run, last
                )
                or last_ns + 1
            )
            most = self._number("SELECT max(request) FROM decisions WHERE run = ? AND pass <= ?", run, last)
            decisions = execute("DELETE FROM decisions WHERE run = ? AND pass <= ?", (run, last)).rowcount
            execute("DELETE FROM repeats WHERE run = ? AND first_pass <= ?", (run, last))
            execute("DELETE FROM digests WHERE run = ? AND pass <= ?", (run, last))
            execute("DELETE FROM rank_differences WHERE run = ? AND pass <= ?", (run, last))
            execute("DELETE FROM steps WHERE run = ? AND pass BETWEEN 1 AND ?", (run, last))
            execute("DELETE FROM steps WHERE run = ? AND pass = 0 AND start_ns < ?", (run, cut_ns))
            execute("DELETE FROM alarms WHERE run = ? AND closed_ns < ?", (run, cut_ns))
            passes = execute("DELETE FROM passes WHERE run = ? AND number <= ?", (run, last)).rowcount
            gone = execute(_GONE, {"run": run, "most": most, "cut": cut_ns}).fetchall()
            self._delete_requests(run, gone, note)
            execute(
                "UPDATE pruned SET last_pass = ?, last_ns = ?, passes = passes + ?, decisions = decisions + ?, "
                "requests = requests + ?, remembered = remembered + ? WHERE id = ?",
                (last, last_ns, passes, decisions, len(gone), len(gone), note),
            )
            execute("COMMIT")
        except BaseException:
            execute("ROLLBACK")
            raise

    def _delete_requests(self, run: int, gone: list[tuple[int, str | None]], note: int) -> None:
        """Delete requests and what hangs on them alone, and remember their ids by a hash."""
        many = self._connection.executemany
        numbers = [(run, number) for number, _ in gone]
        for table, column in (("loads", "request"), ("retractions", "request"), ("requests", "number")):
            many(f"DELETE FROM {table} WHERE run = ? AND {column} = ?", numbers)  # noqa: S608 - our own names
        many(
            "INSERT OR IGNORE INTO pruned_requests VALUES (?, ?)",
            [(hash_of(name), note) for _, name in gone if name is not None],
        )

    def _delete_rest(self, run: int, note: int) -> Generator[None, None, None]:
        """Delete what is left of a run without passes. Its name and its place in the journal stay."""
        execute = self._connection.execute
        while True:
            execute("BEGIN IMMEDIATE")
            try:
                for table in ("repeats", "steps", "alarms"):
                    execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - our own names
                gone = execute(
                    "SELECT number, id FROM requests WHERE run = ? LIMIT ?", (run, _STEP_REQUESTS)
                ).fetchall()
                self._delete_requests(run, gone, note)
                execute(
                    "UPDATE pruned SET requests = requests + ?, remembered = remembered + ? WHERE id = ?",
                    (len(gone), len(gone), note),
                )
                if len(gone) < _STEP_REQUESTS:
                    for table in _OF_RUN:
                        execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608 - our own names
                execute("COMMIT")
            except BaseException:
                execute("ROLLBACK")
                raise
            if len(gone) < _STEP_REQUESTS:
                return
            yield

    def _forget(self) -> Generator[None, None, None]:
        """Forget the ids of the requests pruned first, where too many are remembered."""
        remembered = 0
        for note, requests in self._connection.execute(
            "SELECT id, remembered FROM pruned WHERE remembered > 0 ORDER BY id DESC"
        ).fetchall():
            remembered += requests
            if remembered > self._remembered:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("DELETE FROM pruned_requests WHERE pruned = ?", (note,))
                self._connection.execute("UPDATE pruned SET remembered = 0 WHERE id = ?", (note,))
                self._connection.execute("COMMIT")
                yield

    def _give_back(self) -> Generator[None, None, None]:
        """Give free pages back to the disk, some at a time."""
        free = self._number("PRAGMA freelist_count")
        while free:
            self._connection.execute(f"PRAGMA incremental_vacuum({_STEP_PAGES})").fetchall()
            before, free = free, self._number("PRAGMA freelist_count")
            if free >= before:
                return
            yield

    def _number(self, sql: str, *values: object) -> int:
        """The one number a statement gives; 0 for nothing."""
        row = self._connection.execute(sql, values).fetchone()
        return int(row[0]) if row and row[0] is not None else 0


def _unix(run: StoredRun, at_ns: int) -> int | None:
    """The Unix time of a moment of a run, None without its start."""
    return None if run.wall_ns is None or run.start_ns is None else run.wall_ns + at_ns - run.start_ns
