"""The requests per second of a loaded vLLM server, without and with Glassgate, over HTTP.

    python tests/engines/vllm/bench_server.py MODEL [--pairs N] [--seconds N] [--collector]

Two servers stand side by side and are loaded in turns, so that what else the machine does is shared alike; the one
whose turn it is not has nothing to do. With --collector the one with Glassgate has its collector, as by default.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from server import Load, Server  # noqa: E402 - found by the path above

CLIENTS = 16
ARGUMENTS = ("--max-num-batched-tokens", "1024", "--max-num-seqs", "12", "--block-size", "32")


def port() -> int:
    """A free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def rate(server: Server, seconds: float) -> float:
    """Answers a second with more clients than slots; what is under way at the end does not count."""
    with Load(server, CLIENTS, output=32) as load:
        time.sleep(1)
        before, began = len(load.answers), time.perf_counter()
        time.sleep(seconds)
        served, taken = len(load.answers) - before, time.perf_counter() - began
    if load.failures:
        raise SystemExit(str(load.failures[0]))
    return served / taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--collector", action="store_true")
    asked = parser.parse_args()
    folders = [Path(tempfile.mkdtemp()) for _ in range(2)]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GLASSGATE")}
    plain = {**bare, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    watched = {
        **plain, "GLASSGATE": "1", "GLASSGATE_HOME": str(folders[1]),
        "GLASSGATE_COLLECTOR": "on" if asked.collector else "off",
    }  # fmt: skip
    found = []
    with (
        Server(asked.model, port(), plain, folders[0], *ARGUMENTS) as stock,
        Server(asked.model, port(), watched, folders[1], *ARGUMENTS) as ours,
    ):
        for pair in range(asked.pairs):
            turns = (stock, ours) if pair % 2 else (ours, stock)
            rates = {id(server): rate(server, asked.seconds) for server in turns}
            found.append((rates[id(stock)], rates[id(ours)]))
    a, b = (statistics.median(pair[place] for pair in found) for place in (0, 1))
    each = sorted(ours / stock for stock, ours in found)
    least, middle, most = each[len(each) // 4], statistics.median(each), each[3 * len(each) // 4]
    what = "with a collector" if asked.collector else "no collector"
    sys.stdout.write(
        "| requests per second over HTTP | blocks | stock, median | ours, median | ratio of pairs (quartiles) |\n"
        "|---|---|---|---|---|\n"
        f"| {CLIENTS} clients, {what} | {len(found)} | {a:.1f} | {b:.1f} | {middle:.3f} ({least:.3f} to {most:.3f}) |\n"
    )


if __name__ == "__main__":
    main()
