"""`glassgate bench`: the admission benchmark, and what a long load does to memory, lag and files."""

from contextlib import ExitStack
from pathlib import Path

import click

from estimator.errors import GlassgateError
from ui.bench.data import DataFile
from ui.bench.figures import run_all
from ui.bench.soak import Sample, drifts, soak
from ui.options import Bytes, Finite, json_option
from ui.output import narrate, print_json, print_table

_SOAK_RATE = 2_000.0
_SOAK_BYTES = 256 << 20


@click.command()
@click.option("--trace", type=click.Path(), help="Replay this trace too.")
@click.option("--quick", is_flag=True, help="Fewer rounds and a shorter workload.")
@click.option(
    "--soak", "minutes", type=Finite(min=0.05, max=10_000), metavar="MINUTES",
    help="Decide at a steady rate for so long, beside a collector, and follow what could grow.",
)  # fmt: skip
@click.option(
    "--rate",
    type=Finite(min=1, max=100_000),
    default=_SOAK_RATE,
    show_default=True,
    help="Decisions a second of a soak.",
)
@click.option(
    "--max-size", type=Bytes(), metavar="SIZE", default=_SOAK_BYTES,
    help="What a soak's collector keeps its database below [default: 256 MiB].",
)  # fmt: skip
@click.option(
    "--plot", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Write the samples of a soak there."
)
@json_option
def bench(
    *, trace: str | None, quick: bool, minutes: float | None, rate: float, max_size: int, folder: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Measure what deciding, recording and keeping cost on this machine.

    Figures are medians of one run. Compare only what one run measured: machines and their load differ.
    """
    if minutes is not None:
        _soak(minutes, rate, max_size, folder, as_json=as_json)
        return
    found = []
    for measurement in run_all(trace=trace, quick=quick):
        narrate(f"{measurement.what}: {measurement.value:,.2f} {measurement.unit}")
        found.append(measurement)
    if as_json:
        print_json([measurement._asdict() for measurement in found])
    else:
        print_table(("what", "median", "unit", "note"), found)


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
