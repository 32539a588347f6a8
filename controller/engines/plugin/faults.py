"""Faults: what failed inside a plug-in, said once, counted, and left beside the run. Serving goes on."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final

import msgspec

from controller.whole_file import read_json, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "faults.json"
_LONGEST: Final = 4_000
_WRITE_NS: Final = 1_000_000_000


class Fault(msgspec.Struct):
    """One thing that failed, and how often. Times are Unix ns."""

    what: str
    lost: str
    """What is lost by it."""
    error: str
    """Kind and words of the first error."""
    trace: str
    count: int
    first_ns: int
    last_ns: int


class FaultsFile(msgspec.Struct):
    """What stands in a run's faults.json."""

    pid: int
    faults: list[Fault]


class Faults:
    """The faults of one process. Any thread may add one; adding never raises.

    They are kept until `keep_in` names the run's folder, and written there at once when one is of a kind that was not
    seen before, else at most once a second by `write`.
    """

    def __init__(self, engine: str) -> None:
        self._log = logging.getLogger("glassgate")
        self._engine = engine
        self._found: dict[str, Fault] = {}
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._dirty = False
        self._written_ns = 0

    def __len__(self) -> int:
        """How many things have failed."""
        return len(self._found)

    def count(self, what: str) -> int:
        """How often one thing has failed."""
        found = self._found.get(what)
        return found.count if found is not None else 0

    def add(self, what: str, error: BaseException, lost: str) -> None:
        """Count a failure: `what` failed, and `lost` says what that costs. The first of its kind is logged."""
        now = time.time_ns()
        with self._lock:
            known = self._found.get(what)
            if known is None:
                trace = "".join(traceback.format_exception(error))[-_LONGEST:]
                words = f"{type(error).__name__}: {error}"[:_LONGEST]
                self._found[what] = Fault(what, lost, words, trace, 1, now, now)
            else:
                known.count += 1
                known.last_ns = now
            self._dirty = True
        if known is None:
            with contextlib.suppress(Exception):
                self._log.error(
                    "glassgate: %s failed (%s); %s. %s serves on. Said once; `glassgate doctor` counts it.",
                    what, words, lost, self._engine, exc_info=error,
                )  # fmt: skip
            self.write(at_once=True)

    @contextlib.contextmanager
    def contained(self, what: str, lost: str) -> Iterator[None]:
        """Keep what fails inside from going further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.add(what, error, lost)

    def keep_in(self, folder: Path) -> None:
        """Write faults into a run's folder from now on, those so far too."""
        self._path = folder / FILE
        self.write(at_once=True)

    def write(self, *, at_once: bool = False) -> None:
        """Bring the file up to date, if there is something to say and it is time to."""
        now = time.monotonic_ns()
        if self._path is None or not self._dirty or not (at_once or now - self._written_ns >= _WRITE_NS):
            return
        self._written_ns = now
        with self._lock, contextlib.suppress(OSError, ValueError):
            write_whole(self._path, msgspec.json.encode(FaultsFile(os.getpid(), list(self._found.values()))) + b"\n")
            self._dirty = False

    def begin_in_child(self) -> None:
        """Count anew in a forked process, and write nothing there."""
        self._lock = threading.Lock()
        self._path = None


def read_faults(folder: Path) -> list[Fault]:
    """The faults that the engine of a run left; none when it left no file that can be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return read_json(folder / FILE, FaultsFile).faults
    return []
