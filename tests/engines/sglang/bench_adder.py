"""What Glassgate adds to SGLang's scheduling pass: the stock class against ours, turn about, in one run.

    .engines/sglang/bin/python tests/engines/sglang/bench_adder.py [--rounds N] [--json]

Real trees, allocators and requests, 32 running requests and a queue of 64 with shared prefixes. `call` is one
`add_one_req`; `pass` is the whole of it: making the adder, matching each prefix and trying each request, and with ours
also writing the pass to a journal on disk, everything in it. Medians in microseconds, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "controller" / "golden"), str(HERE), str(HERE.parents[2])]

import torch  # noqa: E402 - the path comes first
from sglang.srt.managers.schedule_policy import PrefillAdder  # noqa: E402
from sglang.srt.runtime_context import get_context  # noqa: E402
from sglang_pass import Prefix, Spec, World, make_request, prefix_ids  # noqa: E402

from controller.engines.sglang.adder import GatedAdder  # noqa: E402
from controller.engines.sglang.desk import Desk  # noqa: E402
from controller.engines.sglang.sheet import Sheet, Standing  # noqa: E402
from controller.engines.sglang.terms import Terms  # noqa: E402
from controller.journal import JournalWriter  # noqa: E402
from controller.knobs import Knobs  # noqa: E402
from controller.limits import Setting, effective  # noqa: E402
from controller.recorder import Recorder  # noqa: E402
from controller.vocabulary import HostHit  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE, QUEUE, RUNNING, PROMPT, SHARED = 16, 64, 32, 512, 256
CONTINUE = "CONTINUE"


class Case(NamedTuple):
    """What is timed: the tree, the chunk size, tokens to generate, and the knobs that are on."""

    name: str
    tree: str
    chunk: int | None
    output: int
    knobs: dict[str, int]


CASES = (
    Case("all enter, radix tree", "radix", None, 64, {}),
    Case("all enter, unified tree", "unified", None, 64, {}),
    Case("all enter, limits on that do not bind", "unified", None, 64,
         {"max_requests": 1000, "max_extend_tokens": 1 << 30, "max_cached_tokens": 1 << 30}),
    Case("chunk of 2,048", "unified", 2048, 64, {}),
    Case("the first is refused for room", "unified", None, 4000, {}),
)  # fmt: skip


class Seat:
    """Stands where an engine's record stands: a recorder with a journal on disk."""

    def __init__(self, folder: Path) -> None:
        self.recorder = Recorder(JournalWriter(folder, run_id="bench"))
        self.faults = self
        self.leads = True
        self.now = 0

    def add(self, _what: str, error: BaseException, _lost: str) -> None:
        """No fault belongs here."""
        raise error

    def stand_aside(self, why: str) -> None:
        """Nor this."""
        raise RuntimeError(why)


class Times(NamedTuple):
    """What one class took, in microseconds."""

    calls: list[float]
    passes: list[float]


def world_of(case: Case, server_args: Any) -> tuple[World, Any]:
    """A world with 16 shared prefixes on the device, and running requests."""
    pool = 1 << 17 if case.output < 4000 else 1 << 14
    prefixes = tuple(Prefix(SHARED, 0, locked=False) for _ in range(16))
    world = World(Spec(case.tree, PAGE, pool, 256, 0.7, case.chunk, 1 << 20, prefixes=prefixes), server_args)
    reqs = [make_request(f"r{n}", array("q", [1] * 8), case.output) for n in range(RUNNING)]
    return world, SimpleNamespace(reqs=reqs, batch_size=lambda: RUNNING)


def queue_of(draw: random.Random, case: Case) -> list[Any]:
    """Waiting requests, each with one of the shared prefixes and a tail of its own."""
    made = []
    for number in range(QUEUE):
        ids = prefix_ids(number % 16, SHARED)
        ids.extend(draw.randrange(1 << 40, 1 << 41) for _ in range(PROMPT - SHARED))
        made.append(make_request(f"q{number}", ids, case.output))
    return made


def one_pass(adder_class: type, world: World, running: Any, queue: list[Any], times: Times, finish: Any) -> None:
    """One pass of the scheduler's loop, timed."""
    spec, clock = world.spec, time.perf_counter_ns
    began = clock()
    adder = adder_class(
        PAGE, world.tree, world.allocator, running, 0.7, spec.max_prefill, spec.chunk, max_running_requests=256,
        waiting_queue_len=QUEUE,
    )  # fmt: skip
    for request in queue:
        if adder.budget_state().name == "OTHER":
            break
        request.init_next_round_input(world.tree)
        at = clock()
        verdict = adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None)
        times.calls.append((clock() - at) / 1e3)
        if verdict.name != CONTINUE:
            break
    if finish is not None:
        finish(adder, queue)
    times.passes.append((clock() - began) / 1e3)
    for request in adder.can_run_list:
        world.tree.unlock(request.lock)


def bench(case: Case, rounds: int, folder: Path, server_args: Any) -> tuple[Times, Times]:
    """Both classes, turn about, over the same queues."""
    world, running = world_of(case, server_args)
    chunk = case.chunk
    knobs = Knobs(chunked_prefill_size=chunk, max_prefill_tokens=1 << 20, page_size=PAGE, **case.knobs)
    terms = Terms(effective(knobs, Setting(slots=256, has_model=False)), None, park=True)
    seat = Seat(folder)
    desk = Desk(seat, terms)  # type: ignore[arg-type]
    ours = type("BenchAdder", (GatedAdder,), {"desk": desk})

    def write(adder: Any, queue: list[Any]) -> None:
        standing = Standing(
            terms, desk.ledger.number, RUNNING, 224, {}, out_of_slots=False, no_hit=HostHit.DISABLED, estimates=False
        )
        result = Sheet(adder, standing).write(queue)
        seat.recorder.passed(
            desk.found,
            result,
            start_ns=seat.recorder.passes,
            decide_ns=1,
            queue=QUEUE,
            queued_tokens=QUEUE * PROMPT,  # type: ignore[arg-type]
        )

    stock_times, our_times = Times([], []), Times([], [])
    draw = random.Random(0)  # noqa: S311 - prompts, not secrets
    for turn in range(rounds + 3):
        if turn == 3:  # the first ones warm up
            for times in (stock_times, our_times):
                times.calls.clear()
                times.passes.clear()
        for first in ((turn % 2), 1 - turn % 2):
            if first:
                one_pass(PrefillAdder, world, running, queue_of(draw, case), stock_times, None)
            else:
                one_pass(ours, world, running, queue_of(draw, case), our_times, write)
    return stock_times, our_times


class Row(NamedTuple):
    """One line of the table: a median of each class in microseconds, and how many calls it is of."""

    case: str
    what: str
    stock_us: float
    ours_us: float
    stock_p99_us: float
    ours_p99_us: float
    calls: int


def row(case: str, what: str, stock: list[float], ours: list[float]) -> Row:
    """A line of the table."""
    high = [sorted(each)[int(0.99 * len(each))] for each in (stock, ours)]
    return Row(case, what, statistics.median(stock), statistics.median(ours), *high, len(stock))


def table(rows: list[Row]) -> Iterator[str]:
    """The rows in Markdown."""
    yield "| case | what | stock, us | ours, us | ratio | stock p99 | ours p99 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for each in rows:
        a, b = each.stock_us, each.ours_us
        high = f"{each.stock_p99_us:,.0f} | {each.ours_p99_us:,.0f}"
        yield f"| {each.case} | {each.what} | {a:,.1f} | {b:,.1f} | {b / a:.2f} | {high} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rows = []
    with get_context().override_server_args() as server_args, tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(CASES):
            few = asked.rounds if case.output < 4000 and case.chunk is None else 8 * asked.rounds
            stock, ours = bench(case, few, Path(folder) / str(number), server_args)
            rows += row(case.name, "call", stock.calls, ours.calls), row(case.name, "pass", stock.passes, ours.passes)
    lines = [json.dumps([each._asdict() for each in rows])] if asked.json else table(rows)
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
