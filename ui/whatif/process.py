"""PreviewProcess: a comparison made in a process of its own, so that a screen never waits for it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from estimator.errors import GlassgateError

# What replays is imported in the process that replays: it takes half a second, which a screen has not.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from controller.engines.replay import Progress
    from ui.whatif.comparison import Comparison, Tell

NICE: Final = 10
"""How far the process stands back behind others."""
TELL_NS: Final = 200_000_000
"""How far it is, is told again after so long."""
_BEGIN: Final = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ui.whatif.process import work
work(int(sys.argv[2]))"""
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
    function of a module, and what it makes can be pickled. Raises OSError where no process can be started.
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
        self.standing = READING
        self._found: Any = None
        self._answer, theirs = Pipe(duplex=False)
        # Not `multiprocessing`: it starts a helper with this process's stderr, and that of a screen has no number.
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own Python
                [sys.executable, "-c", _BEGIN, json.dumps(sys.path), str(theirs.fileno())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )  # fmt: skip
        asked = shown, (database, run, dict(changes), since, until), more
        with suppress(BrokenPipeError):  # it is gone already, and `poll` says so
            self._stdin.write(pickle.dumps(asked))
            self._stdin.flush()  # and left open: its end tells the other process that this one has gone

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was asked for"  # noqa: S101 - just above
        return self._process.stdin

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
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._process.wait, name="glassgate-preview-end", daemon=True).start()


def work(answer: int) -> None:
    """What the other process does: read what is asked from stdin, and answer it to a file descriptor."""
    with suppress(OSError):
        os.nice(NICE)
    shown, arguments, more = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    threading.Thread(target=_end_with_parent, name="glassgate-preview-parent", daemon=True).start()
    from ui.whatif.comparison import preview  # noqa: PLC0415 - see above

    with Connection(answer, readable=False) as told:
        found: Any
        try:
            found = preview(*arguments, **more, tell=_teller(told))
            found = found if shown is None else shown(found)
        except GlassgateError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked is told
            found = GlassgateError(f"the preview failed: {type(error).__name__}: {error}")
        with suppress(BrokenPipeError):
            told.send(found)


def _end_with_parent() -> None:
    """Let this process end when the one that asked does, also by SIGKILL, which leaves it no time to say so."""
    with suppress(OSError):
        sys.stdin.buffer.read()
    os._exit(1)


def _teller(answer: Connection) -> Tell:
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
