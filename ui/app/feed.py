"""Where snapshots come from: a source that answers, and the thread that asks it so that the screen never waits."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from estimator.errors import GlassgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.snapshot import Ask, Snapshot

SHORTEST_SECONDS: Final = 0.25
"""Between two looks at a run that lives: four repaints a second at most."""
REST: Final = 12
"""A look is followed by a rest of so many times what it took, so that reading stays under a tenth of a core."""
QUIET_SECONDS: Final = 1.0
"""Between two looks at a run that does not move, or at a moment of the past."""


class Source(Protocol):
    """What answers: `ui.view`'s reader, or a script. One thread calls it at a time."""

    def read(self, ask: Ask) -> Snapshot:
        """What is asked for, as it is known now. What cannot be read is told in `Snapshot.problem`."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """What was asked and what the source said; after a seek `snapshot.ask` says where it went."""

    asked: Ask
    snapshot: Snapshot


class Trouble(msgspec.Struct, frozen=True):
    """A source that could not answer, in words; what is on the screen stays."""

    words: str


Delivered: TypeAlias = Answer | Trouble | Exception
"""What a feed delivers; an exception is a fault of ours."""


class Feed(Protocol):
    """What asks the source on the screen's behalf."""

    def start(self, deliver: Callable[[Delivered], None]) -> None:
        """Begin; `deliver` is called for each answer, from any thread."""
        ...

    def ask(self, ask: Ask) -> None:
        """Want this from here on; the newest wins."""
        ...

    def stop(self) -> None:
        """End, and close the source."""
        ...


def look(source: Source, ask: Ask) -> Delivered:
    """One answer of a source, errors told."""
    try:
        return Answer(ask, source.read(ask))
    except (GlassgateError, OSError) as error:
        return Trouble(str(error))
    except Exception as error:  # noqa: BLE001 - a fault of ours is shown by the screen's thread, not lost in this one
        return error


def settled(answer: Delivered, ask: Ask) -> Ask:
    """What to ask from here on: after a seek the moment it went to, else the same."""
    if not ask.seek:
        return ask
    at_ns = answer.snapshot.ask.at_ns if isinstance(answer, Answer) else ask.at_ns
    return msgspec.structs.replace(ask, at_ns=at_ns, seek="")


class DirectFeed:
    """Asks at once and on the caller's thread; for a single picture, and for tests."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ask: Ask | None = None
        self._deliver: Callable[[Delivered], None] | None = None

    def start(self, deliver: Callable[[Delivered], None]) -> None:
        """Begin."""
        self._deliver = deliver

    def ask(self, ask: Ask) -> None:
        """Answer at once."""
        self._ask = ask
        self.again()

    def again(self) -> None:
        """Ask the same again, as time does."""
        if self._deliver is not None and self._ask is not None:
            ask = self._ask
            answer = look(self._source, ask)
            self._ask = settled(answer, ask)
            self._deliver(answer)

    def stop(self) -> None:
        """End."""
        self._source.close()


class ThreadFeed:
    """Asks in a thread of its own: again and again while the run moves, at once when something else is wanted."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._wanted = threading.Condition()
        self._ask: Ask | None = None
        self._fresh = False
        self._stopped = False
        self._deliver: Callable[[Delivered], None] = lambda _: None
        self._thread = threading.Thread(target=self._run, name="glassgate-reader", daemon=True)

    def start(self, deliver: Callable[[Delivered], None]) -> None:
        """Begin."""
        self._deliver = deliver
        self._thread.start()

    def ask(self, ask: Ask) -> None:
        """Want this from here on."""
        with self._wanted:
            self._ask, self._fresh = ask, True
            self._wanted.notify()

    def stop(self) -> None:
        """End within a few seconds, whatever the source does."""
        with self._wanted:
            self._stopped = True
            self._wanted.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        last: Delivered | None = None
        rest: float | None = None
        try:
            while True:
                with self._wanted:
                    self._wanted.wait_for(lambda: self._stopped or self._fresh, timeout=rest)
                    if self._stopped:
                        return
                    ask, self._fresh = self._ask, False
                if ask is None:
                    continue
                began = time.monotonic()
                answer = look(self._source, ask)
                rest = _rest(answer, time.monotonic() - began)
                with self._wanted:
                    if not self._fresh:
                        self._ask = settled(answer, ask)
                if _differs(answer, last):
                    self._deliver(answer)
                    last = answer
        finally:
            self._source.close()


def _rest(answer: Delivered, took: float) -> float:
    """Seconds until the next look."""
    moves = isinstance(answer, Answer) and answer.snapshot.head.presence == "live" and answer.snapshot.head.following
    return max(SHORTEST_SECONDS if moves else QUIET_SECONDS, took * REST)


def _differs(answer: Delivered, last: Delivered | None) -> bool:
    """Whether anything but the time the look took has changed."""
    if not isinstance(answer, Answer) or not isinstance(last, Answer):
        return answer != last
    return answer.asked != last.asked or _timeless(answer.snapshot) != _timeless(last.snapshot)


def _timeless(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, took_ns=0)
