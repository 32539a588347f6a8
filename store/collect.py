"""Collect: a run's journal into a database, from where that database stands to where the journal stands."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from controller.journal import Cursor, JournalReader, write_cursor
from controller.run_directory import LIVE, RunDirectory
from estimator.errors import StorageError
from store.database import BUSY_MS
from store.ingest import Ingest
from store.sinks import SinkStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from controller.journal import Frame
    from store.retention import Retention

SINK: Final = "sqlite"
"""The name under which the journal knows the store, so that it keeps what the store has not read."""

_POLL_FRAMES: Final = 20_000
_TAKE_FRAMES: Final = 4_000
_TELL_SECONDS: Final = 1.0


class SqliteSink:
    """The database at a path as the sink of one run. What `take` returns from is in the database for good.

    Its cursor moves in the transaction that writes the rows, so that a restart neither loses nor doubles. Raises
    RecordError for a run or database that is not ours or newer, StorageError where the database cannot be written.
    """

    name = SINK

    def __init__(
        self, run: RunDirectory, database: Path, *, busy_ms: int = BUSY_MS, retention: Retention | None = None
    ) -> None:
        info = run.info
        self._run, self._rank = info.run_id, info.rank
        self._journal = run.journal
        self.ingest = Ingest(database, info.run_id, info.rank, busy_ms=busy_ms, retention=retention)
        self._delivered = self._failures = self._last_delivery_ns = 0
        self._last_error = ""
        self._told: Cursor | None = None
        self._told_at = 0.0
        self.tell_journal()

    @property
    def cursor(self) -> Cursor | None:
        """The place the database holds."""
        return self.ingest.cursor

    @property
    def wants(self) -> int:
        """Frames a call of `take` should bring: about one transaction."""
        return _TAKE_FRAMES

    def take(self, frames: Sequence[Frame]) -> None:
        """Write frames. Raises StorageError where the database cannot take them; then read on from `cursor`."""
        try:
            self._delivered += self.ingest.feed(frames)
        except StorageError as error:
            self._failures += 1
            self._last_error = str(error)
            raise
        self._last_delivery_ns = time.time_ns()
        self._last_error = ""
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self.tell_journal()

    def settle(self, seconds: float) -> bool:
        """Nothing is ever left to deliver; False while what is beyond the bounds of the database is being dropped."""
        del seconds
        self.tell_journal()
        with suppress(StorageError):  # a database that cannot be pruned at this moment is complete all the same
            return self.ingest.tend()
        return True

    def status(self) -> SinkStatus:
        """Where it stands; it counts frames."""
        return SinkStatus(
            self.name, self._run, self._rank, self.cursor, self._delivered, 0, 0, self._failures,
            self._last_error, self._last_delivery_ns,
        )  # fmt: skip

    def close(self, seconds: float) -> None:
        """Close the database."""
        del seconds
        self.ingest.close()

    def tell_journal(self) -> None:
        """Say in the journal's folder what it need not keep for us. The place that counts is in the database."""
        place = self.cursor or Cursor(0, 0, 0)
        self._told_at = time.monotonic()
        if place != self._told:
            with suppress(StorageError):  # a journal kept on a read-only disk frees nothing
                write_cursor(self._journal, SINK, place)
                self._told = place


class Collector:
    """Follows one run's journal into the database at a path.

    Raises RecordError for a run or database that is not ours or newer, StorageError where the database cannot be
    written; after that the next `poll` goes on from the last frame taken in.
    """

    def __init__(self, run: RunDirectory, database: Path) -> None:
        self._run = run
        self._journal = run.journal
        self.damage: str | None = None
        """What cannot be read at the end of the journal of a run that is over, in a sentence."""
        self._sink = SqliteSink(run, database)
        self._ingest = self._sink.ingest
        self._reader: JournalReader | None = None

    def poll(self) -> int:
        """Take in what the journal holds by this moment, and return how many frames that was."""
        taken = 0
        try:
            if self._reader is None:
                self._reader = JournalReader(self._journal, start=self._sink.cursor)
            while frames := self._reader.poll(_POLL_FRAMES):
                self._sink.take(frames)
                taken += len(frames)
        except BaseException:
            self._forget_reader()
            raise
        if taken:
            self._sink.tell_journal()
        self._look_at_end()
        return taken

    def _look_at_end(self) -> None:
        """Where the run is over, whatever stands behind its last sound frame is lost: keep that and say it."""
        reader, cursor = self._reader, self._sink.cursor
        if reader is None or self._run.state in LIVE:
            return
        where = f"the journal of run {self._run.path.name}"
        if cursor is None or reader.header is None:
            self.damage = f"{where} holds nothing that can be read"
            self._ingest.note_end("damaged_end", reader.tail_bytes, "no sound frame")
        elif reader.tail == "corrupt":
            self.damage = f"{where} ends in {reader.tail_bytes:,} damaged bytes; what was in them is lost"
            self._ingest.note_end("damaged_end", reader.tail_bytes, "bytes that are no frame")
        elif reader.tail == "torn":
            self.damage = f"{where} ends in {reader.tail_bytes:,} bytes of a frame that was never finished"
            self._ingest.note_end("torn_end", reader.tail_bytes, "a frame that was never finished")

    def close(self) -> None:
        """Close the journal and the database."""
        self._forget_reader()
        self._sink.close(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget_reader(self) -> None:
        """The next poll opens another one, at the place the database holds."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None


def collect_run(run_directory: RunDirectory | Path | str, database: Path) -> int:
    """Take a run's journal into the database at a path, as far as it goes, and return how many frames that was.

    What is in the database already is not taken twice. Raises as `Collector` does.
    """
    run = run_directory if isinstance(run_directory, RunDirectory) else RunDirectory(run_directory)
    with Collector(run, database) as collector:
        return collector.poll()
