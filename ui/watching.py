"""The demo on the screen: an engine in a child process, and the screen in front of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller.run_directory import RunDirectory, default_base, list_runs
from controller.whole_file import FILE_MODE, make_folders
from estimator.errors import GlassgateError, StorageError
from store.database import reading
from ui.output import narrate
from ui.where import database_of

LOG: Final = "replay.log"
"""What the engine printed, in its run's folder."""
BEGIN_SECONDS: Final = 60.0
"""How long a run may take to begin, and its first part to be replayed."""
END_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.05


class EngineFailedError(GlassgateError):
    """The demo's engine ended before there was anything to look at; what it printed is in the message."""


class Engine:
    """A process with its run. Unless it is to be `kept` it ends when our process does, however that ends."""

    def __init__(self, command: list[str], base: Path, *, kept: bool) -> None:
        try:
            make_folders(base)
            self._log = base / f".demo-{os.getpid()}.log"
            log = os.fdopen(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE), "wb")
        except OSError as error:
            raise StorageError(f"the runs' folder {base} cannot be written: {error.strerror}") from None
        self._base = base
        self._before = {each.run.path.name for each in list_runs(base)}
        # In a session of its own it hears neither Ctrl-C nor the hangup of this terminal; the end of its input ends it.
        with log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.DEVNULL if kept else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.run: RunDirectory | None = None

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def begin(self, until_ns: int) -> RunDirectory:
        """Wait until the run has been replayed up to a simulated time, as far as its database shows; the run.

        Raises EngineFailedError where it ends before it has a run, or takes longer than BEGIN_SECONDS.
        """
        deadline = time.monotonic() + BEGIN_SECONDS
        while time.monotonic() < deadline:
            code = self._process.poll()
            if self.run is None:
                self.run = self._find()
            if self.run is not None and (code is not None or _reached(self.run) >= until_ns):
                return self.run
            if code is not None:
                raise EngineFailedError(f"the demo's engine ended with exit code {code}: {self._last_words()}")
            time.sleep(_LOOK_SECONDS)
        raise EngineFailedError(f"the demo's engine did not begin within {BEGIN_SECONDS:g} s: {self._last_words()}")

    def end(self) -> None:
        """End the process, in good order if it will, and wait for it."""
        process = self._process
        for ask in (self._close_input, lambda: process.send_signal(signal.SIGINT), process.terminate, process.kill):
            if process.poll() is None:
                ask()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
        self._close_input()
        self._log.unlink(missing_ok=True)

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _find(self) -> RunDirectory | None:
        """The run the process has begun; its log is moved there."""
        for listed in list_runs(self._base):
            if listed.info is not None and listed.info.pid == self.pid and listed.run.path.name not in self._before:
                with contextlib.suppress(OSError):
                    self._log.rename(listed.run.path / LOG)
                return listed.run
        return None

    def _last_words(self) -> str:
        path = self._log if self.run is None else self.run.path / LOG
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it printed nothing"
        return "what it printed is gone"


def watch(
    arguments: list[str], base: Path | None, *, until_ns: int, keep: bool, show: Callable[[RunDirectory], None]
) -> RunDirectory:
    """Begin the demo's engine, `show` its run, and end it when that returns, unless it is to be kept; the run.

    Raises EngineFailedError, and what `show` raises.
    """
    base = default_base() if base is None else base
    engine = Engine([sys.executable, "-P", "-m", "ui.demo_engine", *arguments], base, kept=keep)
    shown = False
    try:
        run = engine.begin(until_ns)
        shown = True
        show(run)
    finally:
        if not (keep and shown):
            engine.end()
    if run.state != "ended":
        narrate(f"run {run.path.name} goes on in process {engine.pid}; kill -INT {engine.pid} ends it in good order")
    return run


def _reached(run: RunDirectory) -> int:
    """The latest simulated time in the run's database, ns; -1 while there is none."""
    path = database_of(run)
    with contextlib.suppress(GlassgateError), reading(path) as connection:
        row = connection.execute("SELECT max(last_ns) FROM runs").fetchone()
        return -1 if row is None or row[0] is None else int(row[0])
    return -1
