"""What Glassgate costs in vLLM: `schedule()` of the stock class and of ours, and the requests a loaded engine serves.

    OMP_NUM_THREADS=1 python tests/engines/vllm/bench.py MODEL [--requests N] [--pairs N] [--block N] [--json]

MODEL is the folder of the tiny model that tests/engines/support/tiny_model.py makes. It prints a table, or with --json
that of `schedule()` alone. Both schedulers get the same requests and take turns step by step, and so do they in one
engine, block by block, so that what else the machine does is shared alike. Everything is recorded, estimates too; no
collector runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_CPU_KVCACHE_SPACE="1",
    HF_HUB_OFFLINE="1",
    GLASSGATE_COLLECTOR="off",
)
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

import bare  # noqa: E402 - the environment comes first
from vllm import LLM, SamplingParams  # noqa: E402 - as above
from vllm.inputs import TokensPrompt  # noqa: E402 - as above
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402 - as above

from controller.engines.vllm import install  # noqa: E402 - as above
from controller.engines.vllm.scheduler import GlassgateScheduler  # noqa: E402 - as above

SLOTS = 64
LEAST_SAMPLES = 50


class Row(NamedTuple):
    """One line of the table of `schedule()`: a median of each class in microseconds, and how many calls it is of."""

    case: str
    what: str
    stock_us: float
    ours_us: float
    ratio_of_means: float
    calls: int

    @classmethod
    def of(cls, case: str, what: str, stock: list[int], ours: list[int]) -> Row:
        """A line from what each call took, ns."""
        medians = (statistics.median(each) / 1e3 for each in (stock, ours))
        return cls(case, what, *medians, statistics.mean(ours) / statistics.mean(stock), len(ours))


class Timed:
    """One scheduler, and how long each of its calls took, ns, by what the step was."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.taken: dict[str, list[int]] = {"all": []}

    def step(self) -> None:
        """One step; what kind it was is known afterwards."""
        scheduler = self.scheduler
        waited = bool(scheduler.waiting)
        began = time.perf_counter_ns()
        output = scheduler.schedule()
        taken = time.perf_counter_ns() - began
        kind = "only decode" if not waited else "admit" if output.scheduled_new_reqs else "queue, none enters"
        self.taken["all"].append(taken)
        self.taken.setdefault(kind, []).append(taken)
        scheduler.update_from_output(output, bare.output_of(scheduler, output))


def requests(count: int) -> list[tuple[list[int], int]]:
    """Prompts of 100 to 1,000 tokens, half of them with a beginning in common, and 100 to 400 tokens to generate."""
    draw = random.Random(7)  # noqa: S311 - the same requests every time
    shared = bare.tokens(512, 3)
    made = []
    for number in range(count):
        own = bare.tokens(draw.randrange(100, 1000), number)
        made.append(([*shared[: draw.choice((0, 256))], *own], draw.randrange(100, 400)))
    return made


def schedules(model: str, count: int, rate: float) -> tuple[Timed, Timed]:
    """Both schedulers on the same requests, of which so many arrive in each step on average."""
    both = []
    for chosen in (Scheduler, GlassgateScheduler):
        config = bare.configure(model, max_num_batched_tokens=8192, max_num_seqs=SLOTS)
        both.append(Timed(bare.build(chosen, config, 8000)))
    draw = random.Random(9)  # noqa: S311 - the same arrivals every time
    todo = requests(count)
    due, step = 0.0, 0
    gc.collect()
    gc.disable()
    while todo or both[0].scheduler.has_requests():
        due += draw.random() * 2 * rate
        while todo and due >= 1:
            due -= 1
            prompt, output = todo.pop()
            for each in both:
                each.scheduler.add_request(bare.request(f"r{len(todo)}", prompt, output))
        step += 1
        for each in both if step % 2 else reversed(both):
            each.step()
    gc.enable()
    for each in both:
        each.scheduler.shutdown()
    return both[0], both[1]


def serve(model: str, count: int, pairs: int) -> list[tuple[tuple[float, float], ...]]:
    """Seconds for a block of requests that one engine serves with a full queue, not watched and watched in turns.

    For each pair and each of the two: by the wall, and of this thread's CPU, which serves alone and does not count what
    else the machine does.

    The watch is taken out of the scheduler between two blocks, when the engine is empty, and put back: without it our
    class calls the stock one's methods and nothing else.
    """
    install.install()
    llm = LLM(
        model, max_model_len=2048, max_num_batched_tokens=1024, max_num_seqs=16, enforce_eager=True, block_size=32,
        num_gpu_blocks_override=2000, seed=0, disable_log_stats=False,
    )  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    watch = scheduler._glassgate
    prompts = [TokensPrompt(prompt_token_ids=prompt) for prompt, _ in requests(count)]
    chosen = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    found = []
    for pair in range(-1, pairs):
        taken = {}
        for on in (False, True) if pair % 2 else (True, False):
            scheduler._glassgate = watch if on else None
            llm.reset_prefix_cache()
            wall, cpu = time.perf_counter(), time.thread_time()
            llm.generate(prompts, chosen, use_tqdm=False)
            taken[on] = time.perf_counter() - wall, time.thread_time() - cpu
        if pair >= 0:  # the first pair warms up
            found.append((taken[False], taken[True]))
    scheduler._glassgate = watch
    llm.llm_engine.engine_core.shutdown()
    install.uninstall()
    return found


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    os.environ["GLASSGATE_HOME"] = tempfile.mkdtemp()
    rows = []
    for name, rate in (("at 9 tenths of the slots", 0.9 * SLOTS / 250), ("a queue at all times", 4.0)):
        stock, ours = schedules(asked.model, asked.requests, rate)
        for kind, taken in ours.taken.items():
            theirs = stock.taken.get(kind, [])
            if len(taken) >= LEAST_SAMPLES and len(theirs) >= LEAST_SAMPLES:
                rows.append(Row.of(name, kind, theirs, taken))
    if asked.json:
        say(json.dumps([each._asdict() for each in rows]))
        return
    say("| schedule() | steps | stock, median us | ours, median us | ratio | ratio of means |")
    say("|---|---|---|---|---|---|")
    for each in rows:
        ratio = each.ours_us / each.stock_us
        medians = f"{each.stock_us:.1f} | {each.ours_us:.1f} | {ratio:.3f} | {each.ratio_of_means:.3f}"
        say(f"| {each.case}: {each.what} | {each.calls} | {medians} |")
    if not asked.pairs:
        return
    found = serve(asked.model, asked.block, asked.pairs)
    say("\n| a full queue | blocks | stock, ms a request | ours | requests a second, ours to stock (quartiles) |")
    say("|---|---|---|---|---|")
    for place, clock in enumerate(("by the wall", "CPU of the engine's thread")):
        a, b = (1e3 * statistics.median(pair[on][place] for pair in found) / asked.block for on in (0, 1))
        each = sorted(stock[place] / ours[place] for stock, ours in found)
        least, middle, most = each[len(each) // 4], statistics.median(each), each[3 * len(each) // 4]
        say(f"| {clock} | {len(found)} | {a:.2f} | {b:.2f} | {middle:.3f} ({least:.3f} to {most:.3f}) |")


if __name__ == "__main__":
    main()
