"""The reader: one thread that answers the newest ask, and again whenever a run that is followed has moved on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from estimator.errors import GlassgateError
from ui.view.snapshot import Ask, Head, Quantiles, Snapshot
from ui.view.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.source import Source

EVERY_S: Final = 0.5
"""A run that is followed is looked at again after so long, and what was read is painted: one rhythm for both."""
SOON_S: Final = 0.1
"""The same while an answer did not read the window to its end."""
BEAT_S: Final = 1.0
"""Where nothing new was written, the ages on the screen are brought up to date after so long."""
CLOSE_S: Final = 5.0
"""Closing waits so long for a read to end, in case whoever is told waits for whoever closes."""
_NONE: Final = Quantiles(None, None, None, 0)


class SnapshotReader(Protocol):
    """What the screen reads from. `start` is called once, before the first ask."""

    def start(self, tell: Callable[[Snapshot], None]) -> None:
        """From here on, hand every snapshot to `tell`, from any thread."""

    def ask(self, ask: Ask) -> None:
        """What is to be shown; it stands until the next one. An older one may go without an answer."""

    def close(self) -> None:
        """Hand over no more."""


class Answering(Protocol):
    """What a reader's thread asks; `ui.view.view.View` is one."""

    def answer(self, ask: Ask) -> Snapshot:
        """A snapshot."""

    @property
    def changed(self) -> bool:
        """Whether another answer may say something else."""

    def interrupt(self) -> None:
        """End a long read, from any thread."""

    def close(self) -> None:
        """Let go of everything."""


class Reader:
    """A `SnapshotReader` with a thread of its own. Errors become `Snapshot.problem`, with what was shown before."""

    def __init__(self, source: Source, view: Callable[[], Answering] | None = None) -> None:
        self._view = view or (lambda: View(source))
        self._news = threading.Condition()
        self._ask: Ask | None = None
        self._asked = False
        self._closed = False
        self._tell: Callable[[Snapshot], None] = _nobody
        self._last: Snapshot | None = None
        self._reading: Answering | None = None
        self._thread = threading.Thread(target=self._run, name="glassgate-reader", daemon=True)

    def start(self, tell: Callable[[Snapshot], None]) -> None:
        """From here on, hand every snapshot to `tell`, from the reader's thread."""
        self._tell = tell
        self._thread.start()

    def ask(self, ask: Ask) -> None:
        """What is to be shown; it stands until the next one."""
        with self._news:
            self._ask, self._asked = ask, True
            self._news.notify()

    def close(self) -> None:
        """End the thread; no snapshot is handed over after this returns."""
        with self._news:
            self._closed = True
            self._news.notify()
        reading = self._reading
        if reading is not None:
            reading.interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        view = self._reading = self._view()
        quiet = 0.0
        try:
            while (wanted := self._next()) is not None:
                asked, ask = wanted
                quiet = 0.0 if asked else quiet + self._every_s
                if asked or (quiet >= BEAT_S and self._ages) or self._moved(view):
                    quiet = 0.0
                    self._hand_over(self._answer(view, ask, asked=asked))
        finally:
            view.close()

    def _next(self) -> tuple[bool, Ask] | None:
        """Wait for an ask or for the time to look again; whether it is a new one, and the ask. None at the end."""
        with self._news:
            while not self._closed:
                if self._asked and self._ask is not None:
                    self._asked = False
                    return True, self._ask
                if not self._news.wait(self._every_s if self._follows else None) and self._ask is not None:
                    return False, self._ask
        return None

    @property
    def _every_s(self) -> float:
        """After how long the same ask is looked at again, s."""
        return EVERY_S if self._last is None or self._last.complete else SOON_S

    @property
    def _follows(self) -> bool:
        """Whether the same ask may get another answer by and by."""
        last = self._last
        if self._ask is None or last is None:
            return False
        return self._ask.at_ns is None or not last.complete or bool(last.problem)

    @property
    def _ages(self) -> bool:
        """Whether what is on the screen gets older while nothing is written."""
        last = self._last
        return last is not None and last.head.following and last.head.presence not in ("ended", "recording")

    def _moved(self, view: Answering) -> bool:
        try:
            return view.changed
        except Exception:  # noqa: BLE001 - the answer says what is wrong, and the thread goes on
            return True

    def _answer(self, view: Answering, ask: Ask, *, asked: bool) -> Snapshot | None:
        """An answer, or what was shown before with what went wrong; None where that was said already."""
        try:
            self._last = view.answer(ask)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is shown, and the thread goes on
            if self._closed:
                return None
            last = self._last if self._last is not None else _empty(ask)
            problem = _told(error, ask)
            if not asked and last.problem == problem:
                return None
            self._last = msgspec.structs.replace(last, ask=ask, problem=problem)
        return self._last

    def _hand_over(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None and not self._closed:
            self._tell(snapshot)


def _nobody(_snapshot: Snapshot) -> None:
    """Nobody listens yet."""


def _told(error: Exception, ask: Ask) -> str:
    """What went wrong and what to do about it; errors of ours say that themselves."""
    if isinstance(error, GlassgateError):
        return str(error)
    what = ", ".join(sorted(ask.panels)) or "the headline"
    return (
        f"reading {what} failed ({type(error).__name__}: {error}); run `glassgate db check`, and report this if the "
        "database is sound"
    )


def _empty(ask: Ask) -> Snapshot:
    """A snapshot of nothing, for an error that came before anything was read."""
    head = Head(
        run="", rank=0, engine=None, version=None, model=None, simulated=False, presence="recording", at_ns=None,
        wall_ns=None, first_ns=None, last_ns=None, last_pass=None, last_pass_age_ns=None, revision=None, queue=None,
        running=None, ttft=_NONE, queue_time=_NONE, binding=None, strip=(), passes_in_window=0,
    )  # fmt: skip
    return Snapshot(ask=ask, head=head, runs=())
