"""The reader of two runs: one thread that reads and aligns them, opens rows, and reads again what has moved on."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError
from ui.view.beside import Beside, BesideView, Opening, both_names
from ui.view.source import Place, Source, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.snapshot import RunChoice

EVERY_S: Final = 2.0
"""Runs that go on are read again after so long, or after SHARE times as long as reading took, if that is longer."""
SHARE: Final = 10
CLOSE_S: Final = 5.0


def source_of(choice: RunChoice) -> Source:
    """Where a run that can be chosen is read from. Raises RecordError for a folder that is no run."""
    if choice.folder:
        folder = RunDirectory(choice.folder)
        return Source(place_of(folder), folder.path.parent)
    database = Path(choice.database)
    return Source(Place(database, choice.run, choice.rank), database.parent.parent)


class BesideReading(Protocol):
    """What the screen of two runs reads from."""

    def start(self, tell: Callable[[Beside | Opening], None]) -> None:
        """From here on, hand over what is read, from any thread."""

    def open(self, place: int) -> None:
        """Open the row at a place; only the last one that was asked for needs an answer."""

    def close(self) -> None:
        """Hand over no more."""


class BesideReader:
    """A `BesideReading` with a thread of its own. What cannot be read is told as `Beside.problem`."""

    def __init__(self, left: Source, right: Source) -> None:
        self._sources = left, right
        self._asked: queue.Queue[int | None] = queue.Queue()
        self._tell: Callable[[Beside | Opening], None] = _nobody
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="glassgate-beside", daemon=True)

    def start(self, tell: Callable[[Beside | Opening], None]) -> None:
        """From here on, hand over what is read, from the reader's thread."""
        self._tell = tell
        self._thread.start()

    def open(self, place: int) -> None:
        """Open the row at a place."""
        self._asked.put(place)

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        view = BesideView(*self._sources)
        left, right = both_names(*self._sources)
        beside = Beside(left, right, fraction=0.0)
        try:
            beside, wait_s = self._read(view, beside)
            while not self._closed:
                try:
                    place = self._last(wait_s)
                except queue.Empty:
                    if self._moved(view):
                        beside, wait_s = self._read(view, beside)
                    continue
                if place is not None and place < len(beside.rows):
                    self._open(view, beside, place)
        except _Closed:
            pass
        finally:
            view.close()

    def _last(self, wait_s: float) -> int | None:
        """The last place that was asked for. Raises queue.Empty when there is none for so long."""
        place = self._asked.get(timeout=wait_s)
        while not self._asked.empty():
            place = self._asked.get_nowait()
        return place

    def _read(self, view: BesideView, before: Beside) -> tuple[Beside, float]:
        """Both runs; what was shown before stays where they cannot be read. And how long to wait until the next."""
        began = time.perf_counter()

        def progress(fraction: float) -> None:
            if self._closed:
                raise _Closed
            if not before.rows:
                self._hand_over(msgspec.structs.replace(before, fraction=fraction))

        try:
            found = view.read(progress)
        except GlassgateError as error:
            found = msgspec.structs.replace(before, fraction=1.0, problem=str(error))
        self._hand_over(found)
        return found, max(EVERY_S, SHARE * (time.perf_counter() - began))

    def _open(self, view: BesideView, beside: Beside, place: int) -> None:
        try:
            self._hand_over(view.open(beside, place))
        except GlassgateError as error:
            self._hand_over(msgspec.structs.replace(beside, problem=str(error)))

    def _moved(self, view: BesideView) -> bool:
        try:
            return view.changed
        except GlassgateError:
            return True

    def _hand_over(self, told: Beside | Opening) -> None:
        if not self._closed:
            self._tell(told)


class _Closed(Exception):  # noqa: N818 - it is no error
    """The reader was closed while it read."""


def _nobody(_told: Beside | Opening) -> None:
    """Nobody listens yet."""
