"""The view: answers what the screen asks for, from one database at a time."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from estimator.errors import GlassgateError, NotFoundError, RecordError
from store.database import failures
from ui.view.clock import SystemClock
from ui.view.moment import moment_of, read_runs
from ui.view.opened import Opened
from ui.view.parts import fill
from ui.view.presence import Pulse, is_gone
from ui.view.runs import Runs
from ui.view.seek import seek
from ui.view.snapshot import Ask, Head, Presence, Quantiles, Snapshot

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from controller.run_directory import RunDirectory
    from ui.view.clock import Clock
    from ui.view.moment import RunRow
    from ui.view.source import Place, Source

DECIDE_NS: Final = 40_000_000
"""Decisions of the window are read for so long in one answer; what is left is read with the next ones."""
_NONE: Final = Quantiles(None, None, None, 0)


class View:
    """Reads what `source` names, for one thread. It keeps one database open."""

    def __init__(self, source: Source, clock: Clock | None = None) -> None:
        self._source = source
        self._clock = SystemClock() if clock is None else clock
        self._runs = Runs(source, self._clock)
        self._opened: Opened | None = None
        self._complete = True
        self._shown: tuple[Snapshot, RunDirectory] | None = None
        """What was shown last of a run that has a folder, and that folder."""

    def answer(self, ask: Ask, *, whole: bool = False) -> Snapshot:
        """What was asked for, read in one transaction. `whole` reads the window to its end, however long that takes.

        Of a run whose folder was removed with its record while it was shown, it is what was shown last, as a problem.
        Raises RecordError, StorageError and NotFoundError.
        """
        try:
            snapshot, folder = self._read(ask, whole=whole)
        except GlassgateError:
            if self._shown is None or _whose(ask) != _whose(self._shown[0].ask) or not is_gone(self._shown[1]):
                raise
            return self._removed(ask, *self._shown)
        self._shown = None if folder is None else (snapshot, folder)
        return snapshot

    def _read(self, ask: Ask, *, whole: bool) -> tuple[Snapshot, RunDirectory | None]:
        """An answer from the record, and the folder of the run that it shows."""
        began_ns = time.perf_counter_ns()
        place = self._source.place_for(ask)
        if place.folder is not None and not _begun(place.database):
            self.close()
            return self._not_collected(ask, place, began_ns), place.folder
        opened = self._open(place)
        with failures(place.database), _legible(place.database):
            opened.connection.execute("BEGIN")
            try:
                opened.look()
                rows = read_runs(opened.connection)
                row = _chosen(rows, ask, place)
                if row is None:
                    return self._not_collected(ask, place, began_ns), place.folder
                choices = self._runs.choices(rows, opened, whole=whole)
                pulse = opened.pulse(row)
                ask, sought = _found(opened.connection, row, ask)
                moment = moment_of(opened.connection, row, ask.at_ns, pulse.now_ns(row))
                snapshot = fill(ask, moment, opened.memory(row), pulse, None if whole else began_ns + DECIDE_NS)
            finally:
                opened.connection.execute("ROLLBACK")
        self._complete = snapshot.complete and self._runs.complete
        presence = snapshot.head.presence
        choices = tuple(
            msgspec.structs.replace(choice, presence=presence) if choice.key == row.id and not choice.folder else choice
            for choice in choices
        )
        problem = _gone_words(row.name) if pulse.gone else ""
        took_ns = time.perf_counter_ns() - began_ns
        snapshot = msgspec.structs.replace(snapshot, runs=choices, sought=sought, problem=problem, took_ns=took_ns)
        return snapshot, pulse.folder

    @property
    def changed(self) -> bool:
        """Whether another answer may say something else. Raises StorageError."""
        opened = self._opened
        if opened is None or not self._complete or opened.replaced:
            return True
        with failures(opened.place.database):
            return opened.changed

    def interrupt(self) -> None:
        """End a long read, from any thread."""
        opened = self._opened
        if opened is not None:
            with suppress(Exception):
                opened.connection.interrupt()

    def close(self) -> None:
        """Close the database."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def _open(self, place: Place) -> Opened:
        """The database at a place, opened anew if it is another file by now."""
        opened = self._opened
        if opened is None or opened.place.key != place.key or opened.replaced:
            self.close()
            opened = self._opened = Opened(place, self._source.base, self._clock)
        return opened

    def _removed(self, ask: Ask, shown: Snapshot, folder: RunDirectory) -> Snapshot:
        """What was shown last of a run whose folder is gone; of its life nothing is known any more."""
        presence: Presence = "ended" if shown.head.presence == "ended" else "recording"
        head = msgspec.structs.replace(shown.head, presence=presence, last_pass_age_ns=None, lag_ns=None)
        return msgspec.structs.replace(
            shown, ask=ask, head=head, runs=self._runs.choices([], None), missing="",
            problem=_gone_words(folder.path.name),
        )  # fmt: skip

    def _not_collected(self, ask: Ask, place: Place, began_ns: int) -> Snapshot:
        """What can be said of a run of which the database holds nothing yet."""
        if place.folder is None:
            raise NotFoundError(f"database {place.database} holds no run of that name; record one into it")
        info = place.folder.info
        presence = Pulse(place.folder, self._clock).life().presence
        head = Head(
            run=info.run_id, rank=info.rank, engine=info.engine, version=info.version, model=info.model,
            simulated=False, presence=presence, at_ns=None, wall_ns=None, first_ns=None, last_ns=None, last_pass=None,
            last_pass_age_ns=None, revision=None, queue=None, running=None, ttft=_NONE, queue_time=_NONE,
            binding=None, strip=(), passes_in_window=0, end_reason=info.end_reason,
        )  # fmt: skip
        name = place.folder.path.name
        missing = f"nothing of run {name} is in {place.database} yet; `glassgate collect {name}` takes its journal in"
        return Snapshot(
            ask=ask, head=head, runs=self._runs.choices([], None), missing=missing,
            took_ns=time.perf_counter_ns() - began_ns,
        )  # fmt: skip


def _whose(ask: Ask) -> tuple[int | None, str, str]:
    """What tells which run is asked for."""
    return ask.run, ask.database, ask.folder


def _gone_words(name: str) -> str:
    return f"the folder of run {name} is gone, and this is what was read of it; `r` shows the other runs"


@contextmanager
def _legible(database: Path) -> Iterator[None]:
    """Turn what a record of another making, or a damaged one, causes into an error an operator can mend."""
    try:
        yield
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise RecordError(
            f"database {database} holds what this Glassgate cannot show ({type(error).__name__}: {error}); "
            "`glassgate db check` looks into it"
        ) from error


def _begun(database: Path) -> bool:
    """Whether anything was written to a database yet."""
    try:
        return database.stat().st_size > 0
    except OSError:
        return False


def _found(connection: sqlite3.Connection, row: RunRow, ask: Ask) -> tuple[Ask, str]:
    """The ask with its seek carried out, and what was not found."""
    if not ask.seek:
        return ask, ""
    at_ns, sought = seek(connection, row, ask)
    moved = {} if at_ns is None else {"at_ns": at_ns}
    return msgspec.structs.replace(ask, seek="", **moved), sought


def _chosen(rows: list[RunRow], ask: Ask, place: Place) -> RunRow | None:
    """The run that was asked for, else the one the place names, else the one begun last."""
    if ask.run is not None:
        return next((row for row in rows if row.id == ask.run), None)
    if place.run is None:
        return rows[0] if rows else None
    fitting = [row for row in rows if row.name == place.run]
    return next((row for row in fitting if row.rank == place.rank), None)
