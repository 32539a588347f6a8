"""Make the golden decisions: random cases run through the real PrefillAdder of SGLang 0.5.23.

Run by hand, with the python of the environment that `make engines` makes (no GPU, no model, a few minutes):

    .engines/sglang/bin/python tests/controller/golden/make_sglang_golden.py

It writes two files beside itself, one case a line, the same bytes every time:

    sglang_0_5_23.jsonl          cases in which a replay must decide as the stock class does
    sglang_0_5_23_differs.jsonl  cases in which Glassgate decides otherwise by design: a chunk without room, a chunk
                                 with less room than it wants, a prompt that can never fit

A line is {"case", "expected"}. `case` is what `glassgate decide` reads; a key left out has the engine's default, which
for every Glassgate knob is off. `expected` is what the stock class did: `batch` in order, the continuing chunk first;
`verdicts` for each request looked at; `looked_at`, their number; `stop`, the verdict that ended the pass (`slots` where
the scheduler's own slot check did, null where the queue ran out); `after_chunk`, the budget's state once a continuing
chunk was in, where there is one: the stock loop goes on after NO_TOKEN there, to no effect. The second file adds `why`
and `glassgate`, the batch the design asks for: worked out from the room the stock class saw, or what the stock class
does without the requests refused.

Nothing is faked: RadixCache, UnifiedRadixCache, the latter with its host cache attached and its load-back working, are
the real ones (see sglang_pass.py). A case holds the state as each candidate sees it: a prefix that an earlier member of
the same pass has locked or loaded is a locked device hit to those behind it. Left out are cases in which a hit is
locked in part, or in which the float sum of reserves stands within a rounding error of a limit.
"""

import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from glassgate_sglang_cpu.host import register
from sglang.srt.runtime_context import get_context
from sglang_pass import CLIP, Json, NoRoomError, Outcome, Prefix, Running, Spec, Waiting, World, run_pass

HERE = Path(__file__).parent
CASES = {"radix": 340, "unified": 240, "host": 420}
DIFFERS = {"park": 14, "cut_to_pages": 8, "can_never": 14}
OUTPUTS = (1, 16, 64, 128, 300, 512, 1024, 2048, 4095, 4096, 4097, 6000, 20_000)


KNOWN = (
    # chunk 8192, A 8,700 with 8,192 done, B 9,000: A 508 + B 7,684 cut
    Spec("radix", 1, 1_000_000, 16, 1.0, 8192, 8192, active=(8700, 8192, 128), queue=(Waiting(-1, 0, 9000, 128),)),
    # chunk 32768 over 8 data-parallel ranks, 16 prompts of 2,000: 2,000 + 2,000 + 96
    Spec(
        "radix", 1, 1_000_000, 32, 1.0, 32_768, 16_384, data_parallel=8,
        queue=tuple(Waiting(-1, 0, 2000, 128, number=n) for n in range(16)),
    ),
    # six prompts of 65,000 with 64,000 on the host, 300,000 free: four enter with 1,000 computed each
    Spec(
        "host", 64, 300_032, 16, 1.0, 8192, 16_384, prefixes=(Prefix(0, 64_000, locked=False),) * 6,
        queue=tuple(Waiting(n, 64_000, 65_000, 256, number=n) for n in range(6)),
    ),
    # a host hit of 9 tokens is not worth a transfer, one of 10 is
    Spec(
        "host", 1, 4000, 16, 1.0, 512, 16_384, prefixes=(Prefix(0, 9, locked=False), Prefix(0, 10, locked=False)),
        queue=(Waiting(0, 9, 60, 64), Waiting(1, 10, 60, 64, number=1)),
    ),
)  # fmt: skip
KNOWN_PARK = (
    # free 704, running reserve 2,867, 20,000 left to compute
    Spec(
        "radix", 64, 25_600, 16, 0.7, 2048, 16_384, 22_784, (Running(64, 5000, 10, ignore_eos=False),),
        active=(22_048, 2048, 128), queue=(Waiting(-1, 0, 500, 64),),
    ),
    # free 3, running reserve 2.5: half a token of room holds no page of one
    Spec(
        "radix", 1, 269, 16, 0.5, 256, 16_384, 0, (Running(10, 5, 1, ignore_eos=False),),
        active=(1000, 256, 16), queue=(Waiting(-1, 0, 50, 16),),
    ),
)  # fmt: skip
KNOWN_NEVER = Spec(  # x 100,000 can never fit 76,640, y 500 enters
    "radix", 1, 76_640, 16, 1.0, 8192, 16_384,
    queue=(Waiting(-1, 0, 100_000, 128), Waiting(-1, 0, 500, 128, number=1)),
)  # fmt: skip


def pages(tokens: float, page: int) -> int:
    """Tokens of the whole pages that hold so many tokens."""
    return -(-int(tokens) // page) * page


def make_spec(rng: random.Random, tree: str, *, never: bool = False, starve: bool = False) -> Spec:
    """A random spec. `never` puts in prompts too large for the pool, `starve` an active chunk with hardly any room."""
    page = rng.choice((1, 16, 64))
    chunk = rng.choice((256, 512, 1024, 2048) if starve else (None, None, None, 128, 256, 512, 1024, 2048, 4096, 8192))
    prefixes = make_prefixes(rng, page, host=tree == "host")
    queue = make_queue(rng, prefixes, long_outputs=rng.random() < 0.35)
    running = tuple(
        Running(
            rng.randint(1, 700),
            rng.choice((1, 40, 300, 800, 3000, 4096, 9000)),
            rng.randint(0, 50),
            rng.random() < 0.25,
        )
        for _ in range(rng.choice((0, 0, 1, 2, 4)))
    )
    ratio = rng.choice((1.0, 0.5, 0.75, round(rng.uniform(0.3, 1.0), 3)))
    active = None
    if chunk and (starve or rng.random() < 0.3):
        done = page * rng.randint(1, max(1, 2 * chunk // page))
        active = (done + rng.choice((rng.randint(1, chunk), rng.randint(1, 3 * chunk))), done, rng.choice(OUTPUTS))
    held = sum(pages(r.held, page) for r in running) + sum(p.device for p in prefixes if p.locked)
    held += active[1] if active else 0
    reserve = sum(min(r.remaining, CLIP) * (1.0 if r.ignore_eos else ratio) for r in running)
    fillers = tuple(page * rng.randint(1, max(1, 1500 // page)) for _ in range(rng.choice((0, 1, 3))))
    loose = sum(fillers) + sum(p.device for p in prefixes if not p.locked)
    want = sum(w.demand() - w.shared + page for w in queue) + (min(chunk, active[0] - active[1]) if active else 0)
    room = rng.choice((rng.uniform(0.05, 0.6), rng.uniform(0.4, 1.3), rng.uniform(1.0, 2.0))) * want
    if starve:
        room = rng.choice((rng.uniform(-2000, 0), rng.uniform(0, page), rng.uniform(0, chunk)))
    enough = max(w.demand() for w in queue) + page + 1
    pool = pages(held + max(loose, room + reserve), page)
    eat = 0
    if never:
        pool = pages(rng.uniform(0.3, 1.0) * enough, page)
    elif pool < enough:
        grown = pages(enough + rng.randint(0, 500), page)
        eat, pool = (grown - pool) // page * page, grown
    slots = len(running) + (active is not None) + rng.choice((0, 1, 2, 3, 4, 16, 16, 16, 16, 16, 16, 16, 16, 16))
    max_prefill = rng.choice((256, 600, 1024, 2048, 4096, 16_384, 16_384, 16_384))
    return Spec(
        tree, page, pool, max(slots, 1), ratio, chunk, max_prefill, eat, running, prefixes, fillers, active, queue
    )  # fmt: skip


def make_prefixes(rng: random.Random, page: int, *, host: bool) -> tuple[Prefix, ...]:
    """Cached prefixes of whole pages: on the device, on the host, or on the device with a tail on the host."""
    made = []
    for _ in range(rng.choice((0, 1, 2, 3)) if not host else rng.choice((1, 2, 3))):
        longest = max(1, rng.choice((20, 300, 1500)) // page)
        device, tail = page * rng.randint(1, longest), page * rng.randint(1, longest)
        kind = rng.choice(("device", "host", "both")) if host else "device"
        made.append(
            Prefix(device * (kind != "host"), tail * (kind != "device"), locked=kind != "host" and rng.random() < 0.4)
        )
    return tuple(made)


def make_queue(rng: random.Random, prefixes: tuple[Prefix, ...], *, long_outputs: bool) -> tuple[Waiting, ...]:
    """Waiting requests; most begin with a cached prefix where there is one, some were retracted before."""
    queue = []
    largest = rng.choice((30, 100, 300, 800, 5000))
    for number in range(rng.choice((1, 3, 4, 5, 6, 8, 10))):
        prefix = rng.randrange(len(prefixes)) if prefixes and rng.random() < 0.6 else -1
        shared = prefixes[prefix].device + prefixes[prefix].host if prefix >= 0 else 0
        if shared and rng.random() < 0.2:
            shared = rng.randint(1, shared)
        output = rng.choice(OUTPUTS if long_outputs else OUTPUTS[:7])
        generated = rng.randint(1, min(output, 200)) if output > 1 and rng.random() < 0.12 else 0
        prompt = shared + rng.randint(1, largest) + generated
        queue.append(Waiting(prefix, shared, prompt, output, generated, rng.random() < 0.1, number))
    return tuple(queue)


def sharpen(rng: random.Random, spec: Spec, outcome: Outcome) -> Spec | None:
    """The same spec moved so that one comparison is met exactly, or missed by one token; None where it cannot be."""
    if outcome.input_checks and spec.chunk is None and rng.random() < 0.5:
        asked, left = rng.choice(outcome.input_checks)
        budget = spec.max_prefill + asked - left + rng.choice((0, 1))
        return replace(spec, max_prefill=budget) if budget > 0 else None
    if not outcome.kv_checks:
        return None
    name = rng.choice(sorted(outcome.kv_checks))
    total, room = outcome.kv_checks[name]
    moved = []
    for w in spec.queue:
        output = w.output + int(room) - total - rng.choice((0, 1)) if f"q{w.number}" == name else w.output
        if output - w.generated > CLIP or output < max(1, w.generated) or w.output - w.generated > CLIP:
            output = w.output
        moved.append(replace(w, output=output))
    return replace(spec, queue=tuple(moved)) if tuple(moved) != spec.queue else None


def fits_for_ever(spec: Spec) -> bool:
    """Whether the empty pool holds every waiting request, by SGLang's strict comparison."""
    return all(w.demand() + spec.page < spec.pool for w in spec.queue)


def chunk_has_room(spec: Spec, outcome: Outcome) -> bool:
    """Whether the continuing chunk, if there is one, has room for the whole pages it wants, or a room of whole pages.

    In a room of whole pages SGLang's cut, which follows the room to the token, is Glassgate's too.
    """
    if spec.active is None:
        return True
    room, want = int(outcome.chunk_room), min(spec.chunk, spec.active[0] - spec.active[1])
    return room >= pages(want, spec.page) or (room > 0 and room % spec.page == 0)


def too_close(outcome: Outcome) -> bool:
    """Whether a comparison hangs on the rounding of a float sum rather than on tokens."""
    return any(0 < abs(total - room) < 1e-6 for total, room in outcome.kv_checks.values())


def attempt(spec: Spec, server_args: Any) -> Outcome | None:
    """The outcome of a spec, or None where its state cannot be or a hit is locked in part."""
    try:
        world = World(spec, server_args)
        outcome = run_pass(world)
    except NoRoomError:
        return None
    return None if outcome.partly_locked or too_close(outcome) else outcome


def golden(rng: random.Random, tree: str, count: int, server_args: Any) -> Iterator[Json]:
    """Cases in which a replay must decide as SGLang does; many stand at the edge of a limit."""
    known = [spec for spec in KNOWN if spec.tree == tree]
    made = dull = 0
    while made < count:
        spec = known.pop() if known else make_spec(rng, tree, starve=rng.random() < 0.06)
        outcome = attempt(spec, server_args)
        if outcome is not None and made >= len(KNOWN) and rng.random() < 0.4:
            moved = sharpen(rng, spec, outcome)
            if moved is not None:
                spec, outcome = moved, attempt(moved, server_args)
        if outcome is None or not fits_for_ever(spec) or not chunk_has_room(spec, outcome):
            continue
        if not outcome.expected["batch"]:
            dull += 1
            if dull > count // 12:
                continue
        made += 1
        yield {"case": outcome.case, "expected": outcome.expected}


def differs(rng: random.Random, why: str, count: int, server_args: Any) -> Iterator[Json]:
    """Cases in which Glassgate decides otherwise by design, with what the design asks for."""
    known = {"park": [*KNOWN_PARK], "can_never": [KNOWN_NEVER]}.get(why, [])
    made = 0
    while made < count:
        spec = make_spec(rng, rng.choice(("radix", "unified")), never=why == "can_never", starve=why != "can_never")
        if known:
            spec = known.pop()
        outcome = attempt(spec, server_args)
        if outcome is None:
            continue
        glassgate = refused_apart(spec, outcome, server_args) if why == "can_never" else starved(spec, outcome, why)
        if glassgate is None:
            continue
        made += 1
        yield {"case": outcome.case, "expected": outcome.expected, "why": why, "glassgate": glassgate}


def starved(spec: Spec, outcome: Outcome, why: str) -> list[Json] | None:
    """The batch where the chunk is parked or cut to whole pages; None where it has the room it wants."""
    if not fits_for_ever(spec) or chunk_has_room(spec, outcome):
        return None
    room = int(outcome.chunk_room) // spec.page * spec.page if outcome.chunk_room > 0 else 0
    if (room == 0) != (why == "park"):
        return None
    cut = {"id": "L", "outcome": "admit_chunk", "extend_tokens": room, "cached_tokens": 0, "host_loaded_tokens": 0}
    return [cut] if room else []


def refused_apart(spec: Spec, outcome: Outcome, server_args: Any) -> list[Json] | None:
    """The batch that SGLang makes once the requests that can never fit are taken out of the queue."""
    fitting = tuple(w for w in spec.queue if w.demand() + spec.page < spec.pool)
    if fitting == spec.queue or not fitting or not chunk_has_room(spec, outcome):
        return None
    without = attempt(replace(spec, queue=fitting), server_args)
    if without is None or without.expected["batch"] == outcome.expected["batch"]:
        return None
    if Counter(str(item) for item in without.case["queue"]) - Counter(str(item) for item in outcome.case["queue"]):
        return None
    return without.expected["batch"]


def write(name: str, lines: list[Json]) -> None:
    """Write one case a line."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")
    sys.stderr.write(f"{name}: {len(lines)} cases, {len(text):,} bytes\n")


def main() -> None:
    """Write both files."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    register()
    rng = random.Random(523)  # noqa: S311  cases, not secrets: the same file every time
    host = {
        "hicache_ratio": 2.0,
        "hicache_io_backend": "direct",
        "hicache_mem_layout": "layer_first",
        "hicache_write_policy": "write_through",
    }
    with get_context().override_server_args(enable_hierarchical_cache=True, **host) as server_args:
        write("sglang_0_5_23.jsonl", [c for t, n in CASES.items() for c in golden(rng, t, n, server_args)])
        write("sglang_0_5_23_differs.jsonl", [c for w, n in DIFFERS.items() for c in differs(rng, w, n, server_args)])


if __name__ == "__main__":
    main()
