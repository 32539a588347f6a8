"""`glassgate bench`: the admission benchmark, its curves, and what a long load does to memory, lag and files."""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from estimator.errors import GlassgateError, UsageError
from ui.bench.curves import Point, curves
from ui.bench.data import DataFile
from ui.bench.figures import run_all
from ui.bench.growth import growth
from ui.bench.measure import Measurement
from ui.bench.soak import Sample, drifts, soak
from ui.commands.collect import max_size_option
from ui.options import Finite, json_option
from ui.output import narrate, print_json, print_table

_SOAK_RATE: Final = 2_000.0
_SOAK_BYTES: Final = 256 << 20
_DECISIONS: Final = 1_000_000
_QUICK_DECISIONS: Final = 20_000


@click.command()
@click.option("--trace", type=click.Path(), help="Replay this trace too.")
@click.option("--quick", is_flag=True, help="Fewer rounds, a shorter workload, a smaller store.")
@click.option(
    "--plot",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Measure curves instead, and leave them there as CSV and SVG; with --soak its samples.",
)
@click.option(
    "--decisions",
    type=click.IntRange(1_000, 1_000_000_000),
    metavar="N",
    help=f"Decisions that the store of --plot grows to [default: {_DECISIONS:,}].",
)
@click.option("--redraw", is_flag=True, help="Draw the data in the FOLDER of --plot again, and measure nothing.")
@click.option(
    "--soak",
    "minutes",
    type=Finite(min=0.05, max=10_000),
    metavar="MINUTES",
    help="Decide at a steady rate for so long, beside a collector, and follow what could grow.",
)
@click.option(
    "--rate",
    type=Finite(min=1, max=100_000),
    default=_SOAK_RATE,
    show_default=True,
    help="Decisions a second of a soak.",
)
@max_size_option(_SOAK_BYTES, "What a soak's collector keeps its database below")
@json_option
def bench(
    *,
    trace: str | None,
    quick: bool,
    folder: Path | None,
    decisions: int | None,
    redraw: bool,
    minutes: float | None,
    rate: float,
    max_size: int,
    as_json: bool,
) -> None:
    """Measure what deciding, recording and keeping cost on this machine.

    Figures are medians of one run. Compare only what one run measured: machines and their load differ.
    See docs/performance.md.
    """
    if folder is None and (redraw or decisions is not None):
        raise UsageError("--redraw and --decisions go with --plot FOLDER; name the folder")
    if folder is not None:
        _need_plots()  # before an hour is spent
    if redraw:
        pass
    elif minutes is not None:
        _soak(minutes, rate, max_size, folder, as_json=as_json)
    elif folder is not None:
        _curves(folder, decisions or (_QUICK_DECISIONS if quick else _DECISIONS), quick=quick, as_json=as_json)
    else:
        _figures(trace, quick=quick, as_json=as_json)
    if folder is not None:
        _draw(folder)


def _figures(trace: str | None, *, quick: bool, as_json: bool) -> None:
    found = []
    for measurement in run_all(trace=trace, quick=quick):
        narrate(f"{measurement.what}: {measurement.value:,.2f} {measurement.unit}")
        found.append(measurement)
    _print_measurements(found, as_json=as_json)


def _print_measurements(found: list[Measurement], *, as_json: bool) -> None:
    if as_json:
        print_json([measurement._asdict() for measurement in found])
    else:
        print_table(("what", "median", "unit", "note"), found)


def _curves(folder: Path, decisions: int, *, quick: bool, as_json: bool) -> None:
    """The three curves of a decision, and the one of the store with what the whole way took."""
    found = []
    with ExitStack() as stack:
        files: dict[str, DataFile] = {}
        for point in curves(15 if quick else 200):
            if point.curve not in files:
                files[point.curve] = stack.enter_context(DataFile(folder / f"{point.curve}.csv", Point))
                narrate(f"measured: a decision by {point.curve}")
            files[point.curve].add(point)
        store = stack.enter_context(DataFile(folder / "store.csv", Point))
        whole = stack.enter_context(DataFile(folder / "whole.csv", Measurement))
        for each in growth(decisions, narrate):
            if isinstance(each, Measurement):
                whole.add(each)
                found.append(each)
            else:
                store.add(each)
    _print_measurements(found, as_json=as_json)


def _soak(minutes: float, rate: float, max_size: int, folder: Path | None, *, as_json: bool) -> None:
    samples: list[Sample] = []
    with ExitStack() as files:
        file = None if folder is None else files.enter_context(DataFile(folder / "soak.csv", Sample))

        def took(sample: Sample) -> None:
            samples.append(sample)
            if file is not None:
                file.add(sample)
            narrate(
                f"{sample.at_s:,.0f} s: {sample.decisions:,} decisions, {sample.lag_s:.2f} s of lag, "
                f"database {sample.database_bytes / 2**20:,.1f} MiB, load {sample.machine_load:g}"
            )

        ending = soak(minutes, rate, max_size, took)
    found = drifts(samples)
    if as_json:
        print_json(
            {**ending._asdict(), "unaccounted": ending.unaccounted, "drifts": [each._asdict() for each in found]}
        )
    else:
        print_table(
            ("what", "unit", "1st quarter", "2nd", "3rd", "4th", "greatest", "an hour, in the 2nd half"),
            [(each.what, each.unit, *each.quarters, each.greatest, each.per_hour) for each in found],
            "Medians",
        )
    narrate(
        f"{ending.made:,} decisions made: {ending.kept:,} in the database, {ending.pruned:,} pruned, "
        f"{ending.lost:,} counted as lost"
    )
    if ending.unaccounted:
        raise GlassgateError(f"{ending.unaccounted:,} decisions are unaccounted for")


def _need_plots() -> None:
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise UsageError(f"--plot needs {error.name}; install it with: pip install 'glassgate[plot]'") from None


def _draw(folder: Path) -> None:
    from ui.bench.plots import draw  # noqa: PLC0415 - an extra

    for path in draw(folder):
        narrate(f"drawn: {path}")
