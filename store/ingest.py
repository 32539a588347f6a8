"""Ingest: frames of one run's journal in, rows out, in transactions that move the cursor with the rows."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, Self

import msgspec

from controller.journal.frames import DATA, LOSS, OVERHEAD_BYTES, Cursor, Frame
from controller.journal.losses import Loss
from controller.records import decode
from estimator.errors import RecordError
from store import digests, ranks
from store.alarms import AlarmWatch
from store.database import BUSY_MS, failures, open_for_writing, wal_bytes
from store.garbage import no_garbage
from store.retention import Retention
from store.rows import Rows, write_alarms

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

    from store.alarms import Alarm

CHUNK_BYTES: Final = 2 << 20
"""A transaction holds about this many bytes of records, some 20,000 decisions, so that memory and log are bounded."""

WAL_BYTES: Final = 64 << 20
"""A write-ahead log longer than this is emptied into the database as soon as no reader needs it."""

_LOSS: Final = """INSERT INTO losses (run, reason, frames, bytes, first_ns, last_ns, segment, byte_offset, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UNSOUND: Final = (
    sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError, ValueError, TypeError, IndexError,
    msgspec.DecodeError,
)  # fmt: skip
"""What a frame causes whose checksums fit but whose records do not: damage, or one that is in the store already."""


class Ingest:
    """Writes one run's frames on one rank into the database at a path, and keeps the database within its retention.

    After StorageError nothing of the failed transaction is kept: read on from `cursor`.
    """

    def __init__(
        self, database: Path, run: str, rank: int = 0, *, busy_ms: int = BUSY_MS, retention: Retention | None = None
    ) -> None:
        self.database = database
        self._busy_ms = busy_ms
        self._retention = Retention() if retention is None else retention
        self._connection = open_for_writing(database, busy_ms=busy_ms)
        try:
            with failures(database):
                self.run = self._find_run(run, rank)
                row = self._execute(
                    "SELECT segment, byte_offset, seq FROM cursors WHERE run = ?", (self.run,)
                ).fetchone()
                self._ranks = self._kept_ranks()
                self._watch = self._kept_watch()
                self._saved_watch = self._watch.saved()
        except BaseException:
            self._connection.close()
            raise
        self.cursor = Cursor(*row) if row else None
        """The place in the journal behind the last frame taken in; None if there is none yet."""

    @property
    def standing(self) -> list[Alarm]:
        """The alarms of this run on this rank that stand, the oldest first."""
        return self._watch.standing

    def feed(self, frames: Iterable[Frame]) -> int:
        """Take frames in, and return how many. Raises StorageError if the database cannot take them."""
        taken = 0
        for chunk in _chunks(frames):
            with failures(self.database), no_garbage():
                self._take(chunk)
                self._keep_small()
            taken += len(chunk)
        return taken

    def note_end(self, reason: str, lost_bytes: int, detail: str) -> None:
        """Keep that the journal of a run that is over ends in bytes that cannot be read; a second time does nothing.

        `torn_end` is what a killed writer had begun, `damaged_end` is what no writer leaves behind.
        """
        place = self.cursor or Cursor(0, 0, 0)
        row = (self.run, reason, int(reason != "torn_end"), lost_bytes, None, None, place.segment, place.offset, detail)
        with failures(self.database):
            known = self._execute(
                "SELECT 1 FROM losses WHERE run = ? AND reason = ? AND segment = ? AND byte_offset = ?",
                (self.run, reason, place.segment, place.offset),
            ).fetchone()
            if known is None:
                self._connection.executemany(_LOSS, [row])

    def tend(self) -> bool:
        """Go on with what retention has begun to drop; whether nothing is left of it. Raises StorageError."""
        with failures(self.database):
            return self._retention.tend(self._connection)

    def close(self) -> None:
        """Close the database. Nothing is pending."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, chunk: list[Frame]) -> None:
        """Write a chunk in one transaction; where one of its frames is unsound, each frame in one of its own."""
        try:
            self._write(chunk)
        except _UNSOUND as error:
            if len(chunk) > 1:
                for frame in chunk:
                    self._take([frame])
            else:
                self._write([], lost=chunk[0], why=error)

    def _write(self, chunk: list[Frame], lost: Frame | None = None, why: Exception | None = None) -> None:
        """Write a chunk, or the loss of a frame, in one transaction, and move the place with it."""
        try:
            rows, losses, place = self._read(chunk) if lost is None else self._lose(lost, why)
            self._execute("BEGIN IMMEDIATE")
            rows.write(self._connection)
            self._connection.executemany(_LOSS, [(self.run, *row) for row in losses])
            saved = self._raise_alarms(rows)
            self._execute("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?)", (self.run, *place))
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            self._watch = AlarmWatch.restore(self._saved_watch)
            raise
        self.cursor, self._saved_watch, self._ranks = place, saved, rows.ranks

    def _read(self, chunk: list[Frame]) -> tuple[Rows, list[tuple[object, ...]], Cursor]:
        """The rows of a chunk, what it says is lost, and the place behind it; the alarms have seen its records."""
        place = self.cursor or Cursor(0, 0, 0)
        missing = damaged = 0
        rows, watch = Rows(self.run, self._ranks), self._watch
        watch.changed.clear()
        watch.set_back.clear()
        losses: list[tuple[object, ...]] = []
        for frame in chunk:
            missing += max(0, frame.seq - place.seq)
            if frame.segment == place.segment:
                damaged += max(0, frame.offset - place.offset)
            place = frame.cursor
            if frame.kind == DATA:
                taken = decode(frame.payload)
                rows.add(taken)
                watch.add(taken)
            elif frame.kind == LOSS:
                loss, row = _stated(frame)
                missing -= loss
                losses.append(row)
        if missing > 0 or damaged > 0:
            losses.append(("missing", max(0, missing), damaged, None, None, place.segment, place.offset, ""))
        if watch.set_back:
            losses.append(_clock(watch.set_back, place))
        return rows, losses, place

    def _lose(self, frame: Frame, why: Exception | None) -> tuple[Rows, list[tuple[object, ...]], Cursor]:
        """A frame that cannot be read, as a loss."""
        place = self.cursor or Cursor(0, 0, 0)
        losses = [_unreadable(frame, why)]
        missing = max(0, frame.seq - place.seq)
        damaged = max(0, frame.offset - place.offset) if frame.segment == place.segment else 0
        if missing or damaged:
            end = frame.cursor
            losses.append(("missing", missing, damaged, None, None, end.segment, end.offset, ""))
        return Rows(self.run, self._ranks), losses, frame.cursor

    def _raise_alarms(self, rows: Rows) -> str:
        """Compare ranks, write the alarms that changed, and return the watch as it was kept."""
        watch = self._watch
        if rows.passes:
            for found in ranks.differences(self._connection, self.run, *rows.passes):
                watch.ranks_differ(*found, rows.last_ns)
        if rows.seen:
            digests.mark_seen(self._connection, self.run, rows.seen)
            digests.compare(self._connection, self.run)
        return write_alarms(self._connection, self.run, watch)

    def _kept_ranks(self) -> int:
        """The ranks of the run's group, as far as it is known."""
        query = "SELECT coalesce(json_extract(setting, '$.ranks'), 1) FROM runs WHERE id = ?"
        return int(self._execute(query, (self.run,)).fetchone()[0])

    def _kept_watch(self) -> AlarmWatch:
        """The alarms as the last transaction left them."""
        row = self._execute("SELECT state FROM alarm_watch WHERE run = ?", (self.run,)).fetchone()
        if row is not None:
            return AlarmWatch.restore(row[0])
        watch = AlarmWatch()
        pool, slots = self._execute("SELECT pool_tokens, slots FROM runs WHERE id = ?", (self.run,)).fetchone()
        watch.state.pool_tokens, watch.state.slots = (-1 if each is None else each for each in (pool, slots))
        return watch

    def _keep_small(self) -> None:
        """Keep the log short, if no reader needs it, and the database within its retention."""
        if wal_bytes(self.database) > WAL_BYTES:
            self._execute("PRAGMA busy_timeout = 0")
            try:
                self._execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            finally:
                self._execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        self._retention.tend(self._connection)

    def _find_run(self, run: str, rank: int) -> int:
        """The number the database has for a run on one rank, given now if it has none."""
        self._execute("INSERT OR IGNORE INTO runs (name, rank) VALUES (?, ?)", (run, rank))
        return int(self._execute("SELECT id FROM runs WHERE name = ? AND rank = ?", (run, rank)).fetchone()[0])

    def _execute(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)


def _chunks(frames: Iterable[Frame]) -> Iterable[list[Frame]]:
    """Frames in runs of about one transaction's worth, cut behind a frame that carries records."""
    chunk: list[Frame] = []
    size = 0
    for frame in frames:
        chunk.append(frame)
        size += len(frame.payload)
        if size >= CHUNK_BYTES and frame.kind == DATA:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _clock(set_back: list[tuple[int, int, int]], place: Cursor) -> tuple[object, ...]:
    """A clock that went back, as a row of losses; no frame is lost by it."""
    number, start_ns, before_ns = set_back[0]
    detail = f"the clock went back: pass {number} began {before_ns - start_ns} ns before the pass before it"
    if len(set_back) > 1:
        detail += f", and {len(set_back) - 1} more did"
    return ("clock", 0, 0, start_ns, before_ns, place.segment, place.offset, detail)


def _unreadable(frame: Frame, why: Exception | None) -> tuple[object, ...]:
    reason = "conflict" if isinstance(why, sqlite3.IntegrityError) else "unreadable"
    size = len(frame.payload) + OVERHEAD_BYTES
    return (reason, 1, size, None, None, frame.segment, frame.offset, f"frame {frame.seq}: {why}"[:500])


def _stated(frame: Frame) -> tuple[int, tuple[object, ...]]:
    """How many of the missing frames a loss frame explains, and its row.

    Frames that left at the size bound are missing for a sink only where it had not read them, so they explain none.
    """
    try:
        loss = Loss.decode(frame.payload)
    except RecordError as error:
        return 0, _unreadable(frame, error)
    bound = loss.reason == "bound"
    detail = f"frames {loss.first_seq} to {loss.last_seq}"
    if bound:
        detail += f": {loss.frames} left the journal at its size bound; those not read before are counted as missing"
    return (0 if bound else loss.frames), (
        loss.reason, 0 if bound else loss.frames, 0 if bound else loss.lost_bytes, loss.first_ns, loss.last_ns,
        frame.segment, frame.offset, detail,
    )  # fmt: skip
