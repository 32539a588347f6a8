"""Peak against estimate: an estimate's plan really executed, and a prefill step that was not built from the plan."""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from estimator import Geometry, RunContext, estimate_batch, preset
from estimator.allocation import allocation_plan
from estimator.errors import GlassgateError
from estimator.estimate import Estimate
from gpu_probe.device import describe, gib
from gpu_probe.errors import ProbeError, check_device, need_torch
from gpu_probe.host import host_memory

FAMILIES = ("deepseek-v3.2", "deepseek-v3", "qwen3-32b")
KEEP_FREE = 1 << 30


@dataclass(frozen=True, slots=True)
class Measurement:
    """A peak that was measured, beside its estimate. Bytes.

    `requested` is the most alive at once as asked for, `allocated` and `reserved` the allocator's figures (on `cpu` and
    `meta` equal to it). `held` counts for each side stream the most it ever held, since what such a stream frees serves
    no other; on CUDA it is `requested`.
    """

    device: str
    estimated: int
    requested: int
    held: int
    allocated: int
    reserved: int

    @property
    def ratio(self) -> float:
        """Estimate by measured peak: below 1 is an under-estimate."""
        return self.estimated / self.held if self.held else 1.0


class Ratios(NamedTuple):
    """Estimate by measured peak over many batches; `under` counts those below 1."""

    model: str
    fidelity: str
    batches: int
    least: float
    median: float
    most: float
    under: int


def run_plan(estimate: Estimate, device: str) -> Measurement:
    """Execute an estimate's allocation plan: every buffer of every window allocated and freed in order.

    On CUDA the allocator is read, on `cpu` and `meta` the storages of live tensors are counted. Raises ProbeError where
    torch or the device is missing, or memory does not suffice.
    """
    device = check_device(device)
    torch = need_torch()
    from gpu_probe.watch import watch_for  # noqa: PLC0415 - imports torch

    if device == "cpu":
        _check_host(estimate.requested)
    held: dict[str, Any] = {}
    try:
        with watch_for(device) as watch:
            for event in allocation_plan(estimate):
                with watch.stream(event.stream):
                    if event.allocates:
                        held[event.key] = torch.empty(event.bytes, dtype=torch.uint8, device=device)
                    else:
                        del held[event.key]
            peaks = watch.peaks()
    except RuntimeError as error:
        held.clear()
        raise _too_large(device, estimate.requested, error) from error
    return Measurement(device, estimate.requested, *peaks)


def run_step(
    geometry: Geometry,
    run: RunContext,
    requests: Sequence[Sequence[int]],
    device: str,
    *,
    whole: bool = False,
    model: Any = None,
) -> Measurement:
    """Run a prefill step of a batch of (prefix, extend) and measure its peak on the fullest rank.

    `whole` makes besides the listed buffers those the engine was read to make (see gpu_probe/step.py). `model` is a
    `gpu_probe.model.Model` to use again. Raises ProbeError where torch, the device or memory is missing, or the step
    is not written for the run.
    """
    device = check_device(device)
    need_torch()
    from gpu_probe import step  # noqa: PLC0415 - imports torch
    from gpu_probe.model import Model  # noqa: PLC0415 - imports torch
    from gpu_probe.watch import watch_for  # noqa: PLC0415 - imports torch

    estimate = estimate_batch(geometry, run, requests)
    if device == "cpu":
        _check_host(2 * estimate.requested)
    # A card holds one rank at a time; the fullest is the one the estimate speaks of.
    ranks = (estimate.rank,) if device.startswith("cuda") else range(run.cp)
    measured: list[Measurement] = []
    try:
        model = model or Model(geometry, run, device)
        for rank in ranks:
            watch = watch_for(device)
            step.run_step(model, requests, watch, rank=rank, whole=whole)
            measured.append(Measurement(device, estimate.requested, *watch.peaks()))
    except RuntimeError as error:
        raise _too_large(device, estimate.requested, error) from error
    return max(measured, key=lambda each: each.held)


def ratios(
    geometry: Geometry,
    run: RunContext,
    batches: Iterable[Sequence[Sequence[int]]],
    device: str,
    *,
    whole: bool = False,
) -> Ratios:
    """Measure a step for each batch and sum up estimate by measured peak. Raises ProbeError, see `run_step`."""
    device = check_device(device)
    need_torch()
    from gpu_probe.model import Model  # noqa: PLC0415 - imports torch

    model = Model(geometry, run, device)
    if device.startswith("cuda"):
        # Libraries take their workspaces at the first call; they are no buffers of a batch.
        run_step(geometry, run, [(64, 64)], device, whole=whole, model=model)
    found = [run_step(geometry, run, batch, device, whole=whole, model=model).ratio for batch in batches]
    if not found:
        raise ProbeError("measure: no batches; give --batches 1 or more")
    fidelity = "whole" if whole else "listed"
    under = sum(ratio < 1 for ratio in found)
    return Ratios(geometry.name, fidelity, len(found), min(found), statistics.median(found), max(found), under)


def random_batches(seed: int, count: int, *, tokens: int, context: int) -> list[list[tuple[int, int]]]:
    """Return random batches of 1 to 16 requests: up to about `tokens` to compute, contexts up to `context` tokens."""
    rng = random.Random(seed)  # noqa: S311 - batches that can be made again, not secrets
    batches: list[list[tuple[int, int]]] = []
    for _ in range(count):
        members = rng.randint(1, 16)
        most = max(2, rng.choice([tokens // 8, tokens]) // members)
        longest = max(1, rng.choice([context // 32, context // 4, context]) - most)
        batches.append(
            [(rng.choice([0, rng.randint(0, longest)]), rng.randint(most // 2, most)) for _ in range(members)]
        )
    return batches


def small(geometry: Geometry) -> Geometry:
    """Return a model of the same family small enough to compute on the host in a moment."""
    latent = geometry.kv_lora_rank > 0
    return replace(
        geometry,
        name=f"{geometry.name} (small)",
        hidden_size=256,
        intermediate_size=512,
        heads=8,
        vocab_size=1024,
        kv_heads=geometry.kv_heads and 2,
        q_lora_rank=128 if latent else 0,
        kv_lora_rank=64 if latent else 0,
        qk_nope_head_dim=32 if latent else 0,
        qk_rope_head_dim=16 if latent else 0,
        head_dim=0 if latent else 32,
        v_head_dim=32,
        index_heads=geometry.index_topk and 32,
        index_head_dim=geometry.index_topk and 32,
        index_topk=geometry.index_topk and 64,
        moe_intermediate_size=geometry.moe_intermediate_size and 128,
        experts_per_token=geometry.moe_intermediate_size and 2,
        routed_experts=geometry.moe_intermediate_size and 8,
    )


def table(rows: Sequence[Ratios]) -> str:
    """Return the ratios as a Markdown table."""
    lines = [
        "| model | fidelity | batches | min | median | max | under-estimates |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.model} | {row.fidelity} | {row.batches} | {row.least:.4f} | {row.median:.4f} | {row.most:.4f} "
        f"| {row.under} |"
        for row in rows
    ]
    return "\n".join(lines)


def _check_host(wanted: int) -> None:
    room = host_memory().usable - KEEP_FREE
    if wanted > room:
        raise ProbeError(
            f"measure: {gib(wanted)} wanted on cpu, {gib(max(0, room))} may be taken; use a smaller batch, or meta"
        )


def _too_large(device: str, estimated: int, error: Exception) -> ProbeError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ProbeError(f"measure: {device} could not run a batch of {gib(estimated)} ({reason}); use a smaller batch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table for three families. Exit status: 0, 1 with an under-estimate of listed buffers, 9 on an error."""
    parser = argparse.ArgumentParser(prog="python -m gpu_probe.measure", description=__doc__)
    parser.add_argument("--device", default="meta", help="cuda:0, cpu (small models) or meta (default)")
    parser.add_argument("--batches", type=int, default=200, help="batches a family (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tp", type=int, default=8, help="tensor-parallel size a rank is cut for (default 8)")
    parser.add_argument("--model", action="append", help="a preset; may be given several times (default three)")
    parser.add_argument("--fidelity", choices=("listed", "whole", "both"), default="both")
    given = parser.parse_args(arguments)
    try:
        rows = _rows(given)
    except GlassgateError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is a command
        return error.exit_code
    where = "sizes only, no memory" if given.device == "meta" else describe(given.device).line
    print(f"{given.device}: {where}; torch {need_torch().__version__}; {time.strftime('%Y-%m-%d')}\n")  # noqa: T201 - see above
    print(table(rows))  # noqa: T201 - this is a command
    return int(any(row.under for row in rows if row.fidelity == "listed"))


def _rows(given: argparse.Namespace) -> list[Ratios]:
    device = check_device(given.device)
    host = device == "cpu"
    tokens, context = (256, 2048) if host else (8192, 40_000)
    batches = random_batches(given.seed, given.batches, tokens=tokens, context=context)
    rows: list[Ratios] = []
    for name in given.model or FAMILIES:
        geometry = small(preset(name)) if host else preset(name)
        run = RunContext.default_for(geometry, tp=1 if host else given.tp)
        fidelities = {"listed": (False,), "whole": (True,)}.get(given.fidelity, (False, True))
        rows += [ratios(geometry, run, batches, device, whole=whole) for whole in fidelities]
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
