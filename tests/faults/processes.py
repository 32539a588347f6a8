"""Processes that a test starts, kills and waits for."""

import contextlib
import fcntl
import json
import multiprocessing
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from controller.journal import Cursor, write_cursor
from controller.run_directory import ListedRun, RunDirectory, list_runs
from tests.faults.accounting import stored_end
from tests.faults.child import PRELOADED, Setup, begin, glassgate
from tests.faults.engine import serve
from tests.waiting import wait_until

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([*PRELOADED, "tests.faults.child", "tests.faults.engine"])
PATIENCE_SECONDS = 600.0
"""How long anything may take that must come; a busy machine is slow, a hang is for ever."""


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until something is so, however busy the machine is, and return it."""
    return wait_until(condition, seconds, what)


class Child:
    """A program in a process of its own, forked from one that has it imported, which saves a second each time.

    It is used as a `subprocess.Popen` is; what it writes goes into files.
    """

    def __init__(self, target: Callable[..., object], *arguments: Any, out: Path, setup: Setup) -> None:
        self.out, self.err = out.with_suffix(".out"), out.with_suffix(".err")
        for each in (self.out, self.err):
            each.write_bytes(b"")
        self._process = _CONTEXT.Process(target=begin, args=(target, arguments, self.out, self.err, setup), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, None while it lives."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """How it ended, None while it lives."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9, and wait for it."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait for its end, which must come."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"it did not end in {timeout:.0f} s: {self.err.read_text()[-2000:]}"

    def communicate(self, timeout: float = PATIENCE_SECONDS) -> tuple[str, str]:
        """Wait for its end, and what it wrote to stdout and stderr."""
        self.wait(timeout)
        return self.out.read_text(errors="replace"), self.err.read_text(errors="replace")

    def ended(self, *codes: int, timeout: float = PATIENCE_SECONDS) -> str:
        """Wait for its end, which is with one of the codes (0 if none is given) and no traceback; its stderr."""
        out, told = self.communicate(timeout)
        assert self.returncode in (codes or (0,)), (self.returncode, out[-2000:], told[-2000:])
        assert "Traceback" not in told, told
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Place:
    """A folder of a test's own, and the environment in which its commands run."""

    def __init__(self, path: Path, **more: str) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("GLASSGATE", "OTEL_"))}
        self.environment = {
            **bare,
            "GLASSGATE_HOME": str(path / "home"),
            "XDG_CONFIG_HOME": str(path / "config"),
            "COLUMNS": "200",
            **more,
        }
        self.runs = path / "home" / "runs"
        # Beside it, since it may be on a disk that is to be full, or go altogether.
        self._said = path.with_name(f"{path.name}-said")
        self._said.mkdir()
        self._children = 0

    def child(
        self, target: Callable[..., object], *arguments: Any, limit_bytes: int | None = None, terminal: str = "",
        **more: str,
    ) -> Child:  # fmt: skip
        """A function in a process of its own, in this place."""
        self._children += 1
        setup = Setup({**self.environment, **more}, self.path, limit_bytes, terminal)
        return Child(target, *arguments, out=self._said / str(self._children), setup=setup)

    def start(self, *words: str, **more: Any) -> Child:
        """Start `glassgate` with arguments; with `limit_bytes` no file it writes may grow beyond so many bytes."""
        return self.child(glassgate, *words, **more)

    def say(self, *words: str, codes: tuple[int, ...] = (0,), **more: Any) -> subprocess.CompletedProcess[str]:
        """Run `glassgate` to its end, which is one of the codes and has no traceback."""
        process = self.start(*words, **more)
        told = process.ended(*codes)
        return subprocess.CompletedProcess(
            words, process.returncode or 0, process.out.read_text(errors="replace"), told
        )

    def listed(self) -> list[ListedRun]:
        """Every run begun here."""
        return list_runs(self.runs) if self.runs.is_dir() else []

    def first_run(self) -> RunDirectory:
        """The run that a command begins, as soon as it is there."""
        found: list[ListedRun] = until(self.listed, "the run")
        return found[0].run

    def catch_up(self, run: Path, *more: str, **options: Any) -> dict[str, Any]:
        """Collect a run to its end, and where SQLite then stands."""
        done = self.say("collect", str(run), "--once", "--json", *more, **options)
        standings = {each["sink"]: each for each in json.loads(done.stdout)}
        sqlite: dict[str, Any] = standings["sqlite"]
        assert sqlite["frames_behind"] == 0
        return sqlite

    def decision_spans(self, *more: str) -> set[tuple[str, str]]:
        """Trace and span id of every decision, as the store has them."""
        told = self.say("query", "SELECT trace_id, span_id FROM decision_spans", "--limit", "1000000", "--json", *more)
        return {(row["trace_id"], row["span_id"]) for row in json.loads(told.stdout)}


def limit(pid: int, limit_bytes: int | None) -> None:
    """No file the process writes may grow beyond so many bytes; None lifts that."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if limit_bytes is None else limit_bytes, hard))


class Engine(Child):
    """The engine of `engine.py` while it runs, and its run. With `hold` its journal keeps what has been collected."""

    def __init__(self, place: Place, name: str = "run", *, hold: bool = True, **asked: Any) -> None:
        self._stop, acknowledged = place.path / f"{name}.stop", place.path / f"{name}.acknowledged"
        self._acknowledged = acknowledged
        wanted = {"folder": str(place.runs), "name": name, "acknowledged": str(acknowledged), **asked}
        wanted["stop"] = str(self._stop)
        super().__init__(
            serve, wanted, out=place.path / f"{name}.engine", setup=Setup(place.environment, place.path, None, "")
        )
        path = until(lambda: self.out.read_text().endswith("\n") and self.out.read_text(), "the engine")
        self.run = RunDirectory(path.strip())
        if hold:
            write_cursor(self.run.journal, "held", Cursor(0, 0, 0))

    @property
    def acknowledged(self) -> tuple[int, int]:
        """Frames that append returned for, and how many of them it called lost."""
        try:
            held = self._acknowledged.read_bytes()
        except FileNotFoundError:
            held = b""
        return struct.unpack("<QQ", held) if len(held) == 16 else (0, 0)

    def goes_on(self, frames: int) -> None:
        """Wait until it has appended more than so many frames more, written or lost."""
        at = self.acknowledged[0]
        until(lambda: self.acknowledged[0] > at + frames, "frames of the engine")

    def ahead_of(self, database: Path) -> int:
        """Frames that a database has not yet."""
        return self.acknowledged[0] - stored_end(database)

    def end(self) -> str:
        """Let it end in good order; what it said on stderr."""
        self._stop.touch()
        return self.ended()


class Screen:
    """`glassgate ui` in a terminal of its own, whose output is read and kept."""

    def __init__(self, place: Place, *words: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.process = place.start("ui", *words, terminal=os.ttyname(slave), TERM="xterm-256color")
        self._slave = slave
        self._text = bytearray()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """All it ever wrote, escape sequences included."""
        return self._text.decode(errors="replace")

    def press(self, keys: str) -> None:
        """Type."""
        with contextlib.suppress(OSError):
            os.write(self._master, keys.encode())

    def type(self, keys: str, wanted: str) -> None:
        """Type, and wait for words to be written."""
        begin = len(self._text)
        self.press(keys)
        until(lambda: wanted in self._text[begin:].decode(errors="replace"), f"{wanted!r} after {keys!r}")

    def _read(self) -> None:
        while not self._over.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                try:
                    read = os.read(self._master, 65_536)
                except OSError:  # nobody has the other end any more
                    return
                self._text += read

    def close(self) -> None:
        """Kill it if it lives, and let go of the terminal."""
        self.process.kill()
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)
        os.close(self._slave)
        os.close(self._master)
