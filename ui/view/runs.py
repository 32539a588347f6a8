"""The runs that can be shown: those of the open database, and those that have a folder."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from estimator.errors import GlassgateError
from ui.view.snapshot import MOST_ROWS, Presence, RunChoice
from ui.where import database_of

if TYPE_CHECKING:
    from controller.run_directory import RunDirectory
    from ui.view.clock import Clock
    from ui.view.moment import RunRow
    from ui.view.opened import Opened
    from ui.view.source import Source

LIST_NS: Final = 5_000_000_000
"""The folder of runs is listed again after so long, or after LIST_SHARE times as long as it took, if that is longer."""
LIST_SHARE: Final = 100


class Runs:
    """Lists runs. The folder of runs is not looked at before the second answer, which may take long."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._listed_ns = -1
        self._wait_ns = LIST_NS
        self._asked = False
        self._elsewhere: list[RunChoice] = []
        self._states: dict[tuple[str, int], Presence] = {}

    @property
    def complete(self) -> bool:
        """Whether the folder of runs was looked at."""
        return self._listed_ns >= 0

    def choices(self, rows: list[RunRow], opened: Opened | None, *, whole: bool = False) -> tuple[RunChoice, ...]:
        """The runs of the open database, the latest first, and then the others."""
        now_ns = self._clock.monotonic_ns()
        if whole or (self._asked and (self._listed_ns < 0 or now_ns - self._listed_ns >= self._wait_ns)):
            self._list(now_ns)
        self._asked = True
        found = []
        if opened is not None:
            found = [
                RunChoice(
                    row.id, row.name, row.rank, row.engine, row.model or None, row.wall_ns, self._presence(row),
                    row.passes, database=str(opened.place.database),
                )
                for row in rows
            ]  # fmt: skip
        known = {(row.name, row.rank) for row in rows}
        found += [choice for choice in self._elsewhere if (choice.run, choice.rank) not in known]
        return tuple(found[:MOST_ROWS])

    def _presence(self, row: RunRow) -> Presence:
        return self._states.get((row.name, row.rank), "recording" if row.end_ns is None else "ended")

    def _list(self, now_ns: int) -> None:
        self._listed_ns = now_ns
        began_ns = time.perf_counter_ns()
        self._elsewhere = []
        for folder in self._source.folders():
            with suppress(GlassgateError):
                self._elsewhere.append(choice_of(folder))
        self._wait_ns = max(LIST_NS, LIST_SHARE * (time.perf_counter_ns() - began_ns))
        self._states = {(choice.run, choice.rank): choice.presence for choice in self._elsewhere}


def choice_of(folder: RunDirectory) -> RunChoice:
    """A run by its folder alone. Raises RecordError for one that cannot be read."""
    info = folder.info
    started_wall_ns = None
    with suppress(ValueError):
        started_wall_ns = int(dt.datetime.fromisoformat(info.started).timestamp() * 1_000_000) * 1_000
    return RunChoice(
        0, info.run_id, info.rank, info.engine, info.model, started_wall_ns, folder.state, None,
        folder=str(folder.path), database=str(database_of(folder)),
    )  # fmt: skip
