"""vLLM's API server as a process of its own, and HTTP traffic to it."""

from __future__ import annotations

import http.client
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import bare
from http_server import ANSWER_SECONDS, HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Server(HttpServer):
    """The server, and what its clients were answered."""

    def __init__(self, model: Path, port: int, environment: dict[str, str], folder: Path, *arguments: str) -> None:
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048",
            "--enforce-eager", *arguments,
        ]  # fmt: skip
        # Not bound to the first core, which every other engine on this machine would be bound to.
        chosen = {
            "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_SERVER_DEV_MODE": "1",  # which serves /pause and /resume
        }  # fmt: skip
        super().__init__(command, folder, {**environment, **chosen}, port, "/health")

    def complete(self, prompt: list[int] | list[list[int]], output: int = 16, **keywords: Any) -> dict[str, Any]:
        """One completion, or one of each of several prompts."""
        body = {
            "model": "tiny", "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True, **keywords,
        }  # fmt: skip
        answered: dict[str, Any] = self.post("/v1/completions", body)
        return answered

    def complete_at_once(
        self, prompts: list[list[int]], arrived: Callable[[], object], output: int = 16, **keywords: Any
    ) -> dict[str, Any]:
        """One completion of each prompt; the engine takes none up before `arrived` returns."""
        self.post("/pause?mode=keep", {})
        with ThreadPoolExecutor(1) as clients:
            answered = clients.submit(self.complete, prompts, output, **keywords)
            arrived()
            self.post("/resume", {})
            return answered.result()


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
