"""`glassgate bench`: the admission benchmark."""

import click

from ui.benchmarks import run_all
from ui.options import json_option
from ui.output import narrate, print_json, print_table


@click.command()
@click.option("--trace", type=click.Path(), help="Replay this trace too.")
@click.option("--quick", is_flag=True, help="Fewer rounds and a shorter workload.")
@json_option
def bench(*, trace: str | None, quick: bool, as_json: bool) -> None:
    """Measure what deciding, recording and keeping cost on this machine.

    Figures are medians of one run. Compare only what one run measured: machines and their load differ.
    """
    found = []
    for measurement in run_all(trace=trace, quick=quick):
        narrate(f"{measurement.what}: {measurement.value:,.2f} {measurement.unit}")
        found.append(measurement)
    if as_json:
        print_json([measurement._asdict() for measurement in found])
    else:
        print_table(("what", "median", "unit", "note"), found)
