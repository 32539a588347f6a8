"""vLLM's API server as a process of its own, and HTTP traffic to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

import bare

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 600
STOP_SECONDS = 120
ANSWER_SECONDS = 300
"""These bound what a slow machine may take; nothing waits longer than it has to."""


class Server:
    """The server, its log, and what its clients were answered."""

    def __init__(self, model: Path, port: int, environment: dict[str, str], folder: Path, *arguments: str) -> None:
        self.port = port
        self.log = folder / "server.log"
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048",
            "--enforce-eager", *arguments,
        ]  # fmt: skip
        # Not bound to the first core, which every other engine on this machine would be bound to.
        chosen = {
            "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }  # fmt: skip
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=folder, env={**environment, **chosen}, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Self:
        end = time.monotonic() + START_SECONDS
        while not self.answers("/health"):
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(self.log.read_text()[-4000:])
            time.sleep(0.3)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server and what it started."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_SECONDS)

    @property
    def pid(self) -> int:
        """The process that serves HTTP; the engine's own is a child of it."""
        return self._process.pid

    def ends_within(self, seconds: float) -> bool:
        """Whether the server ends by itself."""
        try:
            self._process.wait(seconds)
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
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def complete(self, prompt: list[int] | list[list[int]], output: int = 16, **keywords: Any) -> dict[str, Any]:
        """One completion, or one of each of several prompts."""
        body = {
            "model": "tiny", "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True, **keywords,
        }  # fmt: skip
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - our own server
            answered: dict[str, Any] = json.loads(answer.read())
        return answered

    def metric(self, name: str) -> float:
        """The sum of one of the engine's own counters."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


class Load:
    """Clients that send requests one after another until told to stop. What fails once the engine is gone is kept."""

    def __init__(self, server: Server, clients: int = 8, output: int = 16) -> None:
        self._server, self._output = server, output
        self._over = threading.Event()
        self.answers: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._send, args=(place,)) for place in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)

    def serves(self, count: int) -> None:
        """Wait until so many more are answered."""
        wanted, end = len(self.answers) + count, time.monotonic() + ANSWER_SECONDS
        while len(self.answers) < wanted:
            assert not self.failures, self.failures
            assert time.monotonic() < end, f"{len(self.answers)} answers, wanted {wanted}"
            time.sleep(0.05)

    def _send(self, place: int) -> None:
        shared = bare.tokens(200, 1)
        turn = 0
        while not self._over.is_set():
            turn += 1
            prompt = [*shared[: 32 * (turn % 6)], *bare.tokens(20 + (37 * turn + place) % 200, 1000 * place + turn)]
            try:
                self.answers.append(self._server.complete(prompt, self._output))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(error)
                return
