"""A real SGLang server on a CPU, real HTTP traffic to it, and the run that Glassgate keeps of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from http_server import HttpServer, free_port

from controller.engines.plugin import PluginStatus, read_status
from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.records import Pass, decode
from controller.run_directory import RunDirectory, list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

POOL, CHUNK, PREFILL, SLOTS, PAGE = 4096, 512, 1024, 8, 16
FLAGS = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph",
    "--skip-server-warmup", "--mem-fraction-static", "0.3", "--sleep-on-idle", "--enable-metrics",
    "--enable-cache-report", "--max-total-tokens", str(POOL), "--max-running-requests", str(SLOTS), "--page-size",
    str(PAGE), "--chunked-prefill-size", str(CHUNK), "--max-prefill-tokens", str(PREFILL),
)  # fmt: skip
HOST_CACHE = (
    "--enable-hierarchical-cache", "--hicache-ratio", "4", "--hicache-io-backend", "direct", "--hicache-mem-layout",
    "layer_first", "--hicache-write-policy", "write_through",
)  # fmt: skip
Answer = dict[str, Any]


def tokens(count: int, seed: int) -> list[int]:
    """Token ids that another seed's do not begin with."""
    draw = random.Random(seed)  # noqa: S311 - prompts, not secrets
    return [draw.randrange(3, 500) for _ in range(count)]


def command_of(model: Path, port: int, *flags: str) -> list[str]:
    """The command of a server."""
    return [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1", "--port",
        str(port), *FLAGS, *flags,
    ]  # fmt: skip


def records_of(run: RunDirectory, kind: type) -> list[Any]:
    """Every record of a kind in the journal of one rank."""
    with JournalReader(run.journal) as reader:
        found = [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]
    return [record for record in found if isinstance(record, kind)]


def reference() -> list[tuple[str, list[int], int]]:
    """Traffic with shared prefixes, short prompts and long ones, under names of its own."""
    shared = [tokens(256, seed) for seed in range(4)]
    lengths = (20, 100, 300, 700)
    return [
        (f"ref-{number}", shared[number % 4] + tokens(lengths[number // 4 % 4], 100 + number), 8)
        for number in range(48)
    ]


def answers_to_reference(server: Server) -> dict[str, list[int]]:
    """The tokens that a server answers to the reference traffic, a dozen requests at a time."""
    return {name: answer["output_ids"] for name, answer in server.burst(reference(), clients=12).items()}


class Server(HttpServer):
    """SGLang's server under Glassgate's settings, its clients, and the run that is kept of it."""

    def __init__(self, model: Path, folder: Path, environment: dict[str, str], *flags: str) -> None:
        port = free_port()
        super().__init__(command_of(model, port, *flags), folder, environment, port, "/model_info")
        self.home = Path(environment["GLASSGATE_HOME"])
        self.environment = environment

    def generate(self, name: str, prompt: Sequence[int], output: int = 8, **headers: str) -> Answer:
        """One greedy completion of exactly `output` tokens."""
        sampling = {"temperature": 0, "max_new_tokens": output, "ignore_eos": True}
        body = {"rid": name, "input_ids": list(prompt), "sampling_params": sampling}
        answer: Answer = self.post("/generate", body, **headers)
        return answer

    def burst(self, requests: Iterable[tuple[str, Sequence[int], int]], clients: int = 32) -> dict[str, Answer]:
        """All requests at once, or as many at a time as there are clients; the answers by name."""
        waiting, found, lock = list(requests), {}, threading.Lock()
        waiting.reverse()

        def client() -> None:
            while True:
                with lock:
                    if not waiting:
                        return
                    name, prompt, output = waiting.pop()
                try:
                    found[name] = self.generate(name, prompt, output)
                except OSError as error:
                    found[name] = {"error": error}

        threads = [threading.Thread(target=client) for _ in range(min(clients, len(waiting)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(180)
        return found

    def batch(self, requests: Iterable[tuple[str, Sequence[int], int]]) -> list[Answer]:
        """All requests in one call, so that they join the queue together."""
        listed = list(requests)
        body = {
            "rid": [name for name, _, _ in listed],
            "input_ids": [list(prompt) for _, prompt, _ in listed],
            "sampling_params": [
                {"temperature": 0, "max_new_tokens": output, "ignore_eos": True} for _, _, output in listed
            ],
        }
        answers: list[Answer] = self.post("/generate", body)
        return answers

    def behind_a_plug(self, requests: Sequence[tuple[str, Sequence[int], int]]) -> list[Answer]:
        """All requests in one call, while a long prompt keeps the engine busy, so that they are queued together."""
        name = f"plug-of-{requests[0][0]}"
        plug = threading.Thread(target=self.generate, args=(name, tokens(2600, zlib.crc32(name.encode())), 2))
        plug.start()
        time.sleep(0.03)
        answers = self.batch(requests)
        plug.join(60)
        return answers

    # What Glassgate keeps of it

    @property
    def run(self) -> RunDirectory:
        """The run's first rank."""
        return next(each.run for each in list_runs(self.home / "runs") if each.info is not None and each.info.rank == 0)

    @property
    def status(self) -> PluginStatus:
        """What the plug-in says of itself."""
        found = read_status(self.run.path)
        assert found is not None
        return found

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the store."""
        with sqlite3.connect(f"file:{self.run.path / 'glassgate.db'}?mode=ro", uri=True, timeout=10) as store:
            return store.execute(sql, values).fetchall()

    def until(self, found: Callable[[], Any], what: str, seconds: float = 120) -> Any:
        """Wait until something is found, and return it."""
        end = time.monotonic() + seconds
        while True:
            try:
                seen = found()
            except sqlite3.Error:
                seen = None
            if seen:
                return seen
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come; the server said: {self.log.read_text()[-3000:]}")
            time.sleep(0.1)

    def glassgate(self, *words: str, code: int = 0) -> str:
        """What a command of Glassgate prints, run in the engine's own environment."""
        command = [sys.executable, "-m", "estimator.launch", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def set_knobs(self, **knobs: Any) -> None:
        """Turn knobs as an operator does, and wait until they are in force."""
        self.glassgate("knobs", "set", *(f"{name}={value}" for name, value in knobs.items()))

    def start_collector(self) -> None:
        """Start a collector by hand, as an operator does; it ends by itself once the engine is gone."""
        command = [sys.executable, "-m", "estimator.launch", "collect", str(self.run.path)]
        self.collector = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill_scheduler(self) -> None:
        """Kill the process that schedules, as the kernel does when memory runs out."""
        os.kill(self.status.pid, signal.SIGKILL)

    def records(self, kind: type) -> list[Any]:
        """Every record of a kind in the first rank's journal."""
        return records_of(self.run, kind)

    def journal_end(self) -> Pass:
        """The last pass that the journal holds whole."""
        found: list[Pass] = self.records(Pass)
        return found[-1]

    @contextlib.contextmanager
    def load(self, clients: int = 8, output: int = 16) -> Iterator[list[Answer]]:
        """Clients that send requests one after another until the end of the block, or until the engine is gone."""
        over, answers = threading.Event(), []

        def client(place: int) -> None:
            turn = 0
            while not over.is_set():
                turn += 1
                prompt = tokens(64 * (turn % 4), 1) + tokens(20 + (37 * turn + place) % 200, 1000 * place + turn)
                try:
                    answers.append(self.generate(f"load-{place}-{turn}", prompt, output))
                except OSError:
                    return

        threads = [threading.Thread(target=client, args=(place,)) for place in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield answers
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
