"""Where snapshots come from: a source that answers, and the thread that asks it so that the screen never waits."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from estimator.errors import GlassgateError
from ui.view.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.snapshot import Ask

SHORTEST_SECONDS: Final = 0.25
"""Between two looks at a run that lives: four repaints a second at most."""
REST: Final = 12
"""A look is followed by a rest of so many times what it took, so that reading stays under a tenth of a core."""
QUIET_SECONDS: Final = 1.0
"""Between two looks at a run that does not move, or at a moment of the past."""


class Target(msgspec.Struct, frozen=True):
    """A pass to find: by number, or the next one before or after a moment, if wanted one that a gate closed."""

    number: int | None = None
    after_ns: int | None = None
    before_ns: int | None = None
    gate: str = ""
    """A gate, `*` for any gate, or empty for any pass."""


class Found(msgspec.Struct, frozen=True):
    """A pass that was looked for, and the moment at which it was over, in ns of the run's clock."""

    number: int
    at_ns: int


class Source(Protocol):
    """What answers: `ui.view`'s reader, or a script. One thread calls it at a time."""

    def read(self, ask: Ask) -> Snapshot:
        """What is asked for, as it is known now. What cannot be read is told in `Snapshot.problem`."""
        ...

    def find_pass(
        self,
        ask: Ask,
        *,
        number: int | None = None,
        after_ns: int | None = None,
        before_ns: int | None = None,
        gate: str = "",
    ) -> tuple[int, int] | None:
        """(number, moment it was over) of the pass sought in the run of `ask`, as `Target` says; None without one."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class Sought(msgspec.Struct, frozen=True):
    """The answer to a search."""

    target: Target
    found: Found | None


class Trouble(msgspec.Struct, frozen=True):
    """A source that could not answer, in words; what is on the screen stays."""

    words: str


Delivered: TypeAlias = Snapshot | Sought | Trouble | Exception
"""What a feed delivers; an exception is a fault of ours."""


class Feed(Protocol):
    """What asks the source on the screen's behalf."""

    def start(self, deliver: Callable[[Delivered], None]) -> None:
        """Begin; `deliver` is called for each answer, from any thread."""
        ...

    def ask(self, ask: Ask) -> None:
        """Want this from here on; the newest wins."""
        ...

    def seek(self, target: Target) -> None:
        """Look for a pass; the newest search wins."""
        ...

    def stop(self) -> None:
        """End, and close the source."""
        ...


def look(source: Source, ask: Ask) -> Snapshot | Trouble | Exception:
    """One answer of a source, errors told."""
    try:
        return source.read(ask)
    except (GlassgateError, OSError) as error:
        return Trouble(str(error))
    except Exception as error:  # noqa: BLE001 - a fault of ours is shown by the screen's thread, not lost in this one
        return error


def search(source: Source, ask: Ask, target: Target) -> Sought | Trouble | Exception:
    """One search, errors told."""
    try:
        found = source.find_pass(
            ask, number=target.number, after_ns=target.after_ns, before_ns=target.before_ns, gate=target.gate
        )
    except (GlassgateError, OSError) as error:
        return Trouble(str(error))
    except Exception as error:  # noqa: BLE001 - as above
        return error
    return Sought(target, None if found is None else Found(*found))


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
            self._deliver(look(self._source, self._ask))

    def seek(self, target: Target) -> None:
        """Look at once."""
        if self._deliver is not None and self._ask is not None:
            self._deliver(search(self._source, self._ask, target))

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
        self._target: Target | None = None
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

    def seek(self, target: Target) -> None:
        """Look for a pass, before anything else."""
        with self._wanted:
            self._target = target
            self._wanted.notify()

    def stop(self) -> None:
        """End within a few seconds, whatever the source does."""
        with self._wanted:
            self._stopped = True
            self._wanted.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        last: Snapshot | Trouble | Exception | None = None
        rest = 0.0
        try:
            while True:
                with self._wanted:
                    self._wanted.wait_for(self._is_wanted, timeout=rest if self._ask is not None else None)
                    if self._stopped:
                        return
                    ask, target, self._target = self._ask, self._target, None
                    self._fresh = self._fresh and target is not None
                if ask is None:
                    continue
                if target is not None:
                    self._deliver(search(self._source, ask, target))
                    continue
                began = time.monotonic()
                answer = look(self._source, ask)
                rest = _rest(answer, ask, time.monotonic() - began)
                if _differs(answer, last):
                    self._deliver(answer)
                    last = answer
        finally:
            self._source.close()

    def _is_wanted(self) -> bool:
        return self._stopped or self._fresh or (self._target is not None and self._ask is not None)


def _rest(answer: Snapshot | Trouble | Exception, ask: Ask, took: float) -> float:
    """Seconds until the next look."""
    moves = not isinstance(answer, Trouble | Exception) and answer.head.presence == "live" and ask.at_ns is None
    return max(SHORTEST_SECONDS if moves else QUIET_SECONDS, took * REST)


def _differs(answer: Snapshot | Trouble | Exception, last: Snapshot | Trouble | Exception | None) -> bool:
    """Whether anything but the time the look took has changed."""
    if last is None or type(answer) is not type(last):
        return True
    if isinstance(answer, Exception | Trouble) or isinstance(last, Exception | Trouble):
        return answer != last
    return msgspec.structs.replace(answer, took_ns=0) != msgspec.structs.replace(last, took_ns=0)
