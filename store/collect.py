"""Collect: a run's journal into a database, from where that database stands to where the journal stands."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from controller.journal import Cursor, JournalReader, write_cursor
from controller.run_directory import RunDirectory
from estimator.errors import StorageError
from store.ingest import Ingest

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SINK: Final = "sqlite"
"""The name under which the journal knows the store, so that it keeps what the store has not read."""

_POLL_FRAMES: Final = 20_000


class Collector:
    """Follows one run's journal into the database at a path.

    Raises RecordError for a run or database that is not ours or newer, StorageError where the database cannot be
    written; after that the next `poll` goes on from the last frame taken in.
    """

    def __init__(self, run: RunDirectory, database: Path) -> None:
        info = run.info
        self._journal = run.journal
        self._ingest = Ingest(database, info.run_id, info.rank)
        self._reader: JournalReader | None = None
        self._tell_journal()

    def poll(self) -> int:
        """Take in what the journal holds by this moment, and return how many frames that was."""
        taken = 0
        try:
            if self._reader is None:
                self._reader = JournalReader(self._journal, start=self._ingest.cursor)
            while frames := self._reader.poll(_POLL_FRAMES):
                taken += self._ingest.feed(frames)
        except BaseException:
            self._forget_reader()
            raise
        if taken:
            self._tell_journal()
        return taken

    def close(self) -> None:
        """Close the journal and the database."""
        self._forget_reader()
        self._ingest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell_journal(self) -> None:
        """Say in the journal's folder what it need not keep for us. The place that counts is in the database."""
        with suppress(StorageError):  # a journal kept on a read-only disk frees nothing
            write_cursor(self._journal, SINK, self._ingest.cursor or Cursor(0, 0, 0))

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
