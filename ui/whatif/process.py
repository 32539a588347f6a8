"""PreviewProcess: a comparison made in a process of its own, so that a screen never waits for it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from estimator.errors import GlassgateError

# What replays is imported in the process that replays: it takes half a second, which a screen has not.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from controller.engines.replay import Progress
    from ui.whatif.comparison import Comparison

NICE: Final = 10
"""How far the process stands back behind others."""
TELL_NS: Final = 200_000_000
"""How far it is, is told again after so long."""
_END_S: Final = 0.02
"""So long the end of the process is waited for; what takes longer is left to a thread."""


class Standing(NamedTuple):
    """How far a preview is."""

    words: str
    """What it is at."""
    fraction: float
    """Part of all that is replayed, 0 to 1."""


READING: Final = Standing("reading the record", 0.0)


class PreviewProcess:
    """A comparison that is being made. `poll` and `stop` never wait; it ends with this process, however that ends.

    Arguments are those of `comparison.preview`. `shown` makes of the comparison what `poll` gives, over there; it is a
    function of a module, and what it makes can be pickled.
    """

    def __init__(
        self,
        database: Path,
        run: str | None,
        changes: Mapping[str, Any],
        since: str | int | None = None,
        until: str | int | None = None,
        *,
        shown: Callable[[Comparison], Any] | None = None,
        **more: Any,
    ) -> None:
        # Not forked: a screen has threads, and locks that nobody would let go of in the child.
        context = multiprocessing.get_context("spawn")
        self.standing = READING
        self._answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(theirs, shown, database, run, dict(changes), since, until), kwargs=more, daemon=True,
            name="glassgate-preview",
        )  # fmt: skip
        self._process.start()
        theirs.close()
        self._found: Any = None

    def poll(self) -> Any:
        """The comparison, or the GlassgateError that says why there is none; None while it is being made."""
        while self._found is None and self._answer.poll():
            try:
                told = self._answer.recv()
            except (EOFError, OSError):
                told = GlassgateError("the preview ended without an answer; ask again")
            if isinstance(told, Standing):
                self.standing = told
                continue
            self._found = told
            self._end()
        return self._found

    def stop(self) -> None:
        """End it, whatever it is at. What was found stays."""
        if self._found is None:
            self._found = GlassgateError("the preview was stopped")
            self._end()

    def _end(self) -> None:
        self._process.kill()  # it holds nothing that would have to be put in order
        self._answer.close()
        self._process.join(_END_S)
        if self._process.exitcode is None:
            threading.Thread(target=self._process.join, name="glassgate-preview-end", daemon=True).start()


def _work(answer: Connection, shown: Callable[[Comparison], Any] | None, *arguments: Any, **more: Any) -> None:
    with suppress(OSError):
        os.nice(NICE)
    _end_with_parent()
    from ui.whatif.comparison import preview  # noqa: PLC0415 - see above

    found: Any
    try:
        found = preview(*arguments, **more, tell=_teller(answer))
        found = found if shown is None else shown(found)
    except GlassgateError as error:
        found = error
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked is told
        found = GlassgateError(f"the preview failed: {type(error).__name__}: {error}")
    with suppress(BrokenPipeError):
        answer.send(found)


def _end_with_parent() -> None:
    """Let this process end when the one that asked does, also by SIGKILL, which leaves it no time to say so."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="glassgate-preview-parent", daemon=True).start()


def _teller(answer: Connection) -> Callable[[str, Progress], None]:
    """What tells how far the two replays are."""
    told_ns = 0

    def tell(what: str, standing: Progress) -> None:
        nonlocal told_ns
        now_ns = time.monotonic_ns()
        if now_ns - told_ns < TELL_NS:
            return
        told_ns = now_ns
        half = (standing.fraction or 0.0) / 2
        with suppress(BrokenPipeError):
            answer.send(Standing(f"replaying {what}", half if what == "as recorded" else 0.5 + half))

    return tell
