"""A loaded SGLang server with Glassgate and without, turn about, in one run.

    .engines/sglang/bin/python tests/engines/sglang/bench_server.py [--turns N]

Each turn starts a server, loads it with 16 clients that send 320 prompts of 20 to 220 tokens, a quarter of them with a
shared prefix, and stops it. Told are requests per second, and the CPU time that the scheduler's process takes for a
request, which other load on the machine disturbs less: medians over the rounds of all turns, and their ratio. The
collector runs beside the engine, as it does for an operator.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2]), str(HERE.parent / "support")]

from conftest import server_environment  # noqa: E402 - the path comes first
from serving import HOST_CACHE, Server, tokens  # noqa: E402

REQUESTS, CLIENTS, ROUNDS = 320, 16, 5


def requests(turn: int) -> list[tuple[str, list[int], int]]:
    """Prompts that no other round has."""
    made = []
    for number in range(REQUESTS):
        head = tokens(128, number % 8) if number % 4 == 0 else []
        made.append((f"b-{turn}-{number}", head + tokens(20 + number * 37 % 200, 10_000 * turn + number), 16))
    return made


def scheduler_of(server: Server) -> psutil.Process:
    """The server's process that schedules."""
    return next(
        each for each in psutil.Process(server.process.pid).children(recursive=True)
        if "sglang::scheduler" in " ".join(each.cmdline())
    )  # fmt: skip


def rounds_of(model: Path, folder: Path, turn: int, *, on: bool) -> list[tuple[float, float]]:
    """Requests per second, and CPU milliseconds a request, in each round of one server."""
    environment = server_environment(folder, **({"on": "1"} if on else {}))
    found = []
    with Server(model, folder, environment, *HOST_CACHE) as server:
        scheduler = scheduler_of(server)
        for each in range(ROUNDS + 1):
            load = requests(100 * turn + each)
            spent, began = sum(scheduler.cpu_times()[:2]), time.perf_counter()
            answers = server.burst(load, clients=CLIENTS)
            took = time.perf_counter() - began
            spent = sum(scheduler.cpu_times()[:2]) - spent
            if any("output_ids" not in answer for answer in answers.values()):
                raise RuntimeError("a request was not answered")
            if each:  # the first one warms up
                found.append((REQUESTS / took, 1000 * spent / REQUESTS))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    model = Path(sys.prefix) / "tiny-model"
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(2 * turns):
            on = turn % 2 == (turn // 2) % 2
            found[on] += rounds_of(model, Path(folder) / str(turn), turn // 2, on=on)
    print("| what | stock | ours | ratio | rounds |")  # noqa: T201 - data
    print("| --- | --- | --- | --- | --- |")  # noqa: T201
    for place, what in enumerate(("requests per second", "CPU of the scheduler's process, ms a request")):
        stock, ours = (statistics.median(each[place] for each in found[on]) for on in (False, True))
        print(f"| {what} | {stock:.2f} | {ours:.2f} | {ours / stock:.3f} | {len(found[True])} each |")  # noqa: T201


if __name__ == "__main__":
    main()
