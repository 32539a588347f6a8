"""`glassgate estimate`: the temporary device buffers of a batch."""

from typing import Any

import click

from controller.knobs import parse_bytes
from estimator.allocation import allocation_plan, play
from estimator.batch import BatchEstimator
from estimator.case import Case, answer, read_cases
from estimator.errors import InputError, KnobError, NotFoundError
from estimator.fit import largest_batch, largest_prompt
from store.words import size
from ui.options import json_option
from ui.output import cell, data, print_json, print_table
from ui.timeline import timeline_lines


@click.command()
@click.argument("case", metavar="CASE.json")
@click.option("--name", help="Only the case of this name, where the file holds several.")
@click.option(
    "--limit", metavar="SIZE", help="Also the largest batch and the largest prompt that fit, for instance 4GiB."
)
@json_option
def estimate(*, case: str, name: str | None, limit: str | None, as_json: bool) -> None:
    """Estimate the temporary device buffers of a batch: every buffer, when it is alive, and the peak.

    CASE.json holds one case or a list: the model, requests as [prefix, extend] in tokens, and the run, see
    docs/estimator.md. Nothing is allocated.
    """
    most = None if limit is None else parse_bytes(limit, "--limit")
    if most is not None and most < 1:
        raise KnobError(f"--limit is {limit!r}; it is a size of at least one byte")
    cases = read_cases(case)
    if not cases:
        raise InputError(f"{case} holds no case; write one object, or a list of them")
    if name is not None:
        found = [each for each in cases if each.name == name]
        if not found:
            raise NotFoundError(f"{case} has no case {name!r}; it has {', '.join(repr(each.name) for each in cases)}")
        cases = found
    if as_json:
        answers = [{**answer(each), **({} if most is None else {"fits": _fits(each, most)})} for each in cases]
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    for number, each in enumerate(cases):
        if number:
            data().print()
        _print(each, most)


def _fits(case: Case, limit: int) -> dict[str, Any]:
    """What fits the limit: requests of the case's first shape, and one prompt alone."""
    estimator = BatchEstimator(case.geometry, case.context)
    fits: dict[str, Any] = {"limit_bytes": limit}
    if case.requests:
        prefix, extend = case.requests[0][:2]
        batch = largest_batch(estimator, limit, prefix=prefix, extend=extend)
        fits["batch"] = {"prefix_tokens": prefix, "extend_tokens": extend, **batch._asdict()}
    fits["prompt"] = {"chunk_tokens": case.context.chunked_prefill_size, **largest_prompt(estimator, limit)._asdict()}
    return fits


def _print(case: Case, limit: int | None) -> None:
    out, found = data(), case.estimate()
    alive = found.at_phase(found.peak_phase)
    where: dict[str, list[str]] = {}
    for window in found.windows:
        for buffer in window.buffers:
            where.setdefault(buffer, []).append(f"{window.name} ({window.stream})")
    tokens = answer(case)["tokens"]
    out.print(
        f"[bold]{case.name}[/bold]: {case.geometry.name}, {cell(tokens['requests'])} requests, "
        f"{cell(tokens['T'])} tokens to compute behind {cell(tokens['sumP'])} cached",
        soft_wrap=True,
    )
    out.print()
    rows = sorted(found.buffers.items(), key=lambda item: (-item[1], item[0]))
    print_table(
        ("buffer", "bytes", "", "window (stream)", "at the peak"),
        [(name, held, size(held), ", ".join(where.get(name, ())), alive.get(name, "-")) for name, held in rows if held],
    )
    out.print()
    for line in timeline_lines(found):
        out.print(line, markup=False, soft_wrap=True)
    out.print()
    reading = play(allocation_plan(found))
    print_table(
        ("", "bytes", ""),
        [
            (f"peak, in {found.peak_phase}", found.requested, size(found.requested)),
            (f"times safety factor {case.context.safety_factor}", found.peak_bytes, size(found.peak_bytes)),
            ("rounded to allocator blocks", reading.rounded, size(reading.rounded)),
            ("reserved by a fresh allocator", reading.reserved, size(reading.reserved)),
        ],
    )
    if limit is not None:
        out.print()
        _print_fits(_fits(case, limit), limit)


def _print_fits(fits: dict[str, Any], limit: int) -> None:
    out = data()
    if "batch" in fits:
        batch = fits["batch"]
        shape = f"{cell(batch['prefix_tokens'])} cached + {cell(batch['extend_tokens'])} computed"
        at_least = "at least " if batch["bounded"] else ""
        out.print(
            f"{size(limit)} hold {at_least}{cell(batch['largest'])} requests of {shape}, "
            f"peak {size(batch['peak_bytes'])}",
            soft_wrap=True,
        )
    prompt = fits["prompt"]
    ends = ", the model's context" if prompt["bounded"] else ""
    out.print(
        f"{size(limit)} hold a prompt of {cell(prompt['largest'])} tokens{ends}, in chunks of "
        f"{cell(prompt['chunk_tokens'])}, peak {size(prompt['peak_bytes'])}",
        soft_wrap=True,
    )
