"""A loaded vLLM server over HTTP, without Glassgate and with it, in one run.

    python tests/engines/vllm/bench_server.py MODEL [--pairs N] [--seconds N] [--no-collector]

Two servers stand side by side and are loaded in turns, so that what else the machine does is shared alike; the one
whose turn it is not has nothing to do. Told are requests per second, and the CPU time that the engine's process, all of
its threads, takes for a request, which other load disturbs less. The collector runs as it does for an operator.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from http_server import free_port  # noqa: E402 - found by the path above
from server import Load, Server  # noqa: E402

CLIENTS = 16
ARGUMENTS = ("--max-num-batched-tokens", "1024", "--max-num-seqs", "12", "--block-size", "32")


class Turn(NamedTuple):
    """What one turn of a server gave."""

    rate: float
    """Requests per second."""
    cpu_ms: float
    """Of the engine's process, for each request."""


def engine_of(server: Server) -> psutil.Process:
    """The server's process that schedules and computes."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return next(each for each in children if "EngineCore" in " ".join(each.cmdline()))


def turn(server: Server, seconds: float) -> Turn:
    """Load a server with more clients than slots. What is under way at the end is not counted."""
    engine = engine_of(server)
    with Load(server, CLIENTS, output=32) as load:
        load.serves(CLIENTS)
        before, began, spent = len(load.answers), time.perf_counter(), sum(engine.cpu_times()[:2])
        time.sleep(seconds)
        served, taken = len(load.answers) - before, time.perf_counter() - began
        spent = sum(engine.cpu_times()[:2]) - spent
    if load.failures:
        raise SystemExit(str(load.failures[0]))
    return Turn(served / taken, 1000 * spent / served)


def quartiles(ratios: list[float]) -> str:
    """The middle of the ratios, and the quartiles."""
    each = sorted(ratios)
    return f"{statistics.median(each):.3f} ({each[len(each) // 4]:.3f} to {each[3 * len(each) // 4]:.3f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--no-collector", action="store_true")
    asked = parser.parse_args()
    folders = [Path(tempfile.mkdtemp()) for _ in range(2)]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GLASSGATE")}
    plain = {**bare, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    watched = {
        **plain, "GLASSGATE": "1", "GLASSGATE_HOME": str(folders[1]),
        "GLASSGATE_COLLECTOR": "off" if asked.no_collector else "on",
    }  # fmt: skip
    found: list[tuple[Turn, Turn]] = []
    with (
        Server(asked.model, free_port(), plain, folders[0], *ARGUMENTS) as stock,
        Server(asked.model, free_port(), watched, folders[1], *ARGUMENTS) as ours,
    ):
        for pair in range(-1, asked.pairs):
            turns = {server: turn(server, asked.seconds) for server in ((stock, ours) if pair % 2 else (ours, stock))}
            if pair >= 0:  # the first pair warms up
                found.append((turns[stock], turns[ours]))
    what = "no collector" if asked.no_collector else "with its collector"
    say(f"| over HTTP, {CLIENTS} clients, {what} | pairs | stock, median | ours, median | ours to stock (quartiles) |")
    say("|---|---|---|---|---|")
    for place, name in enumerate(("requests per second", "CPU of the engine's process, ms a request")):
        a, b = (statistics.median(pair[on][place] for pair in found) for on in (0, 1))
        ratios = quartiles([ours_[place] / stock_[place] for stock_, ours_ in found])
        say(f"| {name} | {len(found)} | {a:.2f} | {b:.2f} | {ratios} |")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
