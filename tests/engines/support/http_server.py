"""An engine's server as a process of its own, and HTTP requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

START_SECONDS = 1200
STOP_SECONDS = 120
ANSWER_SECONDS = 300
"""These bound what a slow machine may take; nothing waits longer than it has to."""


def free_port() -> int:
    """A port of this machine that nobody else has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class HttpServer:
    """The server with its log; it is ready once it serves `ready`. It ends with all that it started."""

    start_seconds: float = START_SECONDS

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], port: int, ready: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._ready = port, ready
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Self:
        end = time.monotonic() + self.start_seconds
        with contextlib.ExitStack() as failing:  # an interrupt while it starts leaves nothing behind either
            failing.callback(self.stop)
            while not self.answers(self._ready):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(self.log.read_text(errors="replace")[-6000:])
                time.sleep(0.3)
            failing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and what it started."""
        if self.process.poll() is None:
            self.process.terminate()
        self.ends_within(STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # what it left behind, or itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ends_within(self, seconds: float) -> bool:
        """Whether the server ends by itself."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def answers(self, path: str) -> bool:
        """Whether a path is served."""
        try:
            self.get(path)
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        """The text at a path."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def post(self, path: str, body: Any, seconds: float = ANSWER_SECONDS, **headers: str) -> Any:
        """What is answered to a JSON body. Raises HTTPError for a refusal."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", **headers},
        )
        with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310 - our own server
            return json.loads(answer.read() or b"null")

    def metric(self, name: str) -> float:
        """The sum of one of the engine's own counters."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
