"""What a what-if foretells of a real engine, and what then happens: the tables of docs/fidelity.md.

    .venv/bin/python tests/engines/foretold.py sglang
    .venv/bin/python tests/engines/foretold.py vllm --traffic conversations --rate 8 --knob ''

Run it in Glassgate's own environment with the extra `tune`; the engine runs in the one that `make engines` made. The
engine serves the traffic under a limit that is too small (`--knob`). Its record is replayed, which gives the fidelity;
`glassgate tune` searches better knobs over it; and the same traffic is served again under the file that it wrote. Told
are both tables in Markdown, on stdout. It ends with 1 where the tuned server's batches are not larger, though that was
foretold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "engines" / "support"))

from http_server import HttpServer, free_port  # noqa: E402 - found by the path above

START_SECONDS = 600
BURST = (15, 30)
RATES = {"bursts": 2.0, "conversations": 8.0}
FLAGS = {
    "sglang": (
        "-m", "sglang.launch_server", "--model-path", "{model}", "--device", "cpu", "--attention-backend",
        "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph", "--skip-server-warmup",
        "--mem-fraction-static", "0.3", "--max-total-tokens", "65536", "--max-running-requests", "64", "--page-size",
        "16", "--chunked-prefill-size", "512",
    ),
    "vllm": (
        "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--max-model-len", "2048",
        "--enforce-eager", "--max-num-seqs", "64",
    ),
}  # fmt: skip
FIGURES = (("TTFT p50", "ttft_p50"), ("TTFT p99", "ttft_p99"), ("queue p50", "queue_p50"))

Ask = tuple[float, list[int], int]
"""When, in seconds from the start; the prompt; tokens to generate."""


def tokens(draw: random.Random, count: int) -> list[int]:
    """Token ids of the tiny model."""
    return [draw.randrange(3, 500) for _ in range(count)]


def bursts(seconds: float, rate: float) -> Iterator[Ask]:
    """Many short prompts at once, `rate` times a second."""
    draw = random.Random(7)  # noqa: S311 - prompts, not secrets
    for number in range(int(rate * seconds)):
        for _ in range(draw.randint(*BURST)):
            yield number / rate, tokens(draw, draw.randint(20, 90)), draw.randint(1, 4)


def conversations(seconds: float, rate: float) -> Iterator[Ask]:
    """Prompts of 24 conversations that share a beginning and grow from turn to turn, `rate` a second."""
    draw = random.Random(7)  # noqa: S311 - prompts, not secrets
    shared = tokens(draw, 96)
    texts = [[*shared, *tokens(draw, 40)] for _ in range(24)]
    at = 0.0
    while at < seconds:
        place = draw.randrange(len(texts))
        yield at, texts[place], draw.randint(4, 24)
        texts[place] = texts[place] + tokens(draw, draw.randint(10, 40))
        if len(texts[place]) > 1_200:
            texts[place] = [*shared, *tokens(draw, 40)]
        at += draw.expovariate(rate)


class Served(HttpServer):
    """An engine's server in a folder of its own, for as long as the block lasts."""

    start_seconds = START_SECONDS

    def __init__(self, engine: str, engines: Path, folder: Path, **environment: str) -> None:
        home, port = engines / engine, free_port()
        flags = [each.format(model=home / "tiny-model") for each in FLAGS[engine]]
        names = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("GLASSGATE", "OTEL_"))}
        chosen = {
            "GLASSGATE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "engines" / "support")]),
        }  # fmt: skip
        command = [str(home / "bin" / "python"), *flags, *names]
        super().__init__(command, folder, {**bare, **chosen, **environment}, port, "/v1/models")

    def send(self, asked: list[Ask]) -> None:
        """Send each request at its time, however many are still being answered."""
        for prompt in ([5] * 40, [6] * 80):  # what is compiled or loaded with the first ones is no part of it
            self._complete(prompt, 4)
        began = time.monotonic()
        with ThreadPoolExecutor(256) as clients:
            answers = []
            for at, prompt, output in asked:
                time.sleep(max(0.0, began + at - time.monotonic()))
                answers.append(clients.submit(self._complete, prompt, output))
        for answer in answers:
            answer.result()

    def _complete(self, prompt: list[int], output: int) -> None:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True}
        self.post("/v1/completions", body)


def glassgate(home: Path, *words: str) -> dict[str, Any]:
    """What a command of Glassgate prints."""
    sys.stderr.write(f"glassgate {' '.join(words)}\n")
    done = subprocess.run(
        [sys.executable, "-m", "estimator.launch", *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=False,
        env={**os.environ, "GLASSGATE_HOME": str(home)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.returncode)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ms(value: float | None) -> str:
    """A time in ms."""
    return "-" if value is None else f"{1000 * value:,.1f} ms"


def print_fidelity(what: str, found: dict[str, Any]) -> None:
    """The row of the first table."""
    fidelity, recorded, replayed = found["fidelity"], found["recorded"], found["replayed"]
    fit = found["fit"]["prefill"]["median"]
    print("| engine, traffic | batches, mean members | same members, overlap | steps off, median | TTFT off as a whole "  # noqa: T201 - data
          "| TTFT p50, recorded and replayed | computed tokens | fidelity |\n" + "| --- " * 8 + "|")  # fmt: skip
    print(  # noqa: T201 - data
        f"| {what} | {fidelity['passes']:,}, {recorded['batch_size_mean']:.2f} | {100 * fidelity['same_share']:.1f} %, "
        f"{100 * fidelity['overlap']:.1f} % | {100 * fit:.0f} % | {ms(fidelity['ttft_error'])} of "
        f"{ms(fidelity['ttft_mean'])} | {ms(recorded['ttft_p50'])}, {ms(replayed['ttft_p50'])} | "
        f"{recorded['computed_tokens']:,}, {replayed['computed_tokens']:,} | {fidelity['score']:.2f} |"
    )


def print_foretold(rows: list[tuple[str, dict[str, Any]]]) -> None:
    """The second table."""
    print("\n| | " + " | ".join(words for words, _ in FIGURES) + " | batch size |\n" + "| --- " * 5 + "|")  # noqa: T201
    for words, figures in rows:
        times = " | ".join(ms(figures[name]) for _, name in FIGURES)
        print(f"| {words} | {times} | {figures['batch_size_mean']:.1f} |")  # noqa: T201 - data


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine", choices=sorted(FLAGS))
    parser.add_argument("--engines", type=Path, default=ROOT / ".engines", help="where `make engines` put them")
    parser.add_argument("--traffic", choices=sorted(RATES), default="bursts")
    parser.add_argument("--rate", type=float, help=f"bursts or requests a second [{RATES}]; fewer on a slow machine")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--knob", default="max_requests=1", help="the bottleneck; '' for none, and no search then")
    parser.add_argument("--points", default="32")
    chosen = parser.parse_args()
    rate = chosen.rate or RATES[chosen.traffic]
    asked = list({"bursts": bursts, "conversations": conversations}[chosen.traffic](chosen.seconds, rate))
    name, _, value = chosen.knob.partition("=")
    knob = {f"GLASSGATE_{name.upper()}": value} if name else {}
    with tempfile.TemporaryDirectory(prefix="glassgate-foretold-") as at:
        folder = Path(at)
        homes = [folder / "first", folder / "second"]
        with Served(chosen.engine, chosen.engines, folder, GLASSGATE_HOME=str(homes[0]), **knob) as server:
            server.send(asked)
        first = glassgate(homes[0], "whatif", "--min-fidelity", "0")
        traffic = f"{chosen.engine}, {chosen.traffic}, {rate:g} a second"
        print_fidelity(traffic + (f", `{chosen.knob}`" if name else ""), first)
        if not name:
            return 0
        config = folder / "tuned.toml"
        tuned = glassgate(homes[0], "tune", "--minimise", "ttft_p99", "--points", chosen.points, "-o", str(config))
        if tuned["confirmed"] is None:
            sys.stderr.write("nothing better was found\n")
            return 1
        second = {"GLASSGATE_HOME": str(homes[1]), "GLASSGATE_CONFIG": str(config)}
        with Served(chosen.engine, chosen.engines, folder, **second) as server:
            server.send(asked)
        served = glassgate(homes[1], "whatif", "--min-fidelity", "0")
        changes = ", ".join(f"`{each['knob']}` {each['after']}" for each in tuned["chosen"]["changes"])
        foretold = tuned["confirmed"]["what_if"]
        print_foretold([
            (f"recorded under `{chosen.knob}`", first["recorded"]),
            ("the same, replayed", first["replayed"]),
            (f"what `glassgate tune` chose, {changes}, replayed", foretold),
            ("served again under the file that it wrote", served["recorded"]),
        ])  # fmt: skip
    sizes = [each["batch_size_mean"] for each in (first["recorded"], foretold, served["recorded"])]
    return int(sizes[1] > sizes[0] >= sizes[2])


if __name__ == "__main__":
    sys.exit(main())
