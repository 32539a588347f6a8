"""`glassgate whatif`: a stretch of a run as it was, and under other knobs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from estimator.errors import UsageError
from store.words import counted, duration
from ui.cli import INTERRUPTED
from ui.comparing import print_comparison
from ui.keeping import keep
from ui.options import Finite, json_option, model_option, span_options
from ui.output import narrate, print_json
from ui.progress import ReplayProgress
from ui.record import find_record
from ui.settings import load_settings
from ui.stopping import stopped_by_signals
from ui.whatif.comparison import compare
from ui.whatif.fidelity import FLOOR
from ui.whatif.recorded import Recorded, read_recorded
from ui.whatif.side_by_side import NOT_ESTIMATED
from ui.whatif.span import Span, read_span
from ui.whatif.steps import Steps, steps_of


def fidelity_option(words: str) -> Callable[[Any], Any]:
    """Below which fidelity nothing is to be made of a replay; the words say what is not done then."""
    return click.option(
        "--min-fidelity",
        type=Finite(min=0, max=1),
        default=FLOOR,
        show_default=True,
        help=f"{words} where the recorded knobs reproduce the record less well.",
    )


@click.command()
@click.argument("run", required=False)
@click.option("--set", "changes", multiple=True, metavar="KNOB=VALUE", help="A knob to set anew; give it repeatedly.")
@span_options
@model_option
@fidelity_option("Draw no conclusion")
@click.option("--keep", "kept", is_flag=True, help="Keep the replay under the new knobs as a run of its own.")
@click.option("--database", type=click.Path(path_type=Path), help="Read this database instead of a run's.")
@json_option
@click.pass_context
def whatif(
    ctx: click.Context,
    /,
    *,
    run: str | None,
    changes: tuple[str, ...],
    since: str | None,
    until: str | None,
    rank: int | None,
    model: str | None,
    min_fidelity: float,
    kept: bool,
    database: Path | None,
    as_json: bool,
) -> None:
    """Replay a stretch of RUN (the newest by default) under its recorded knobs and with some set anew.

    First it is told how well the recorded knobs reproduce what really happened; below --min-fidelity nothing else is.
    Without --set that is all there is to see. Nothing is changed: neither the run nor its record.
    """
    values = read_changes(changes)
    with find_record(database, run) as record:
        recorded, span, steps = open_span(record.database, record.run, rank, since, until, model)
        with ReplayProgress() as told, stopped_by_signals() as stopped:
            found = compare(
                recorded, span, values, steps, tell=lambda _, standing: told.show(standing),
                stopped=lambda: bool(stopped),
            )  # fmt: skip
    if stopped:
        narrate("stopped before its end; nothing is told")
        ctx.exit(INTERRUPTED)
    narrate(f"fidelity {found.fidelity.score:.2f}: {found.fidelity.words()}")
    found.check(min_fidelity)
    run_kept = keep(recorded, span, steps, values, load_settings().runs).path.name if kept else None
    if as_json:
        print_json({**found.as_dict(), "kept": run_kept})
    else:
        print_comparison(found)
    if run_kept is not None:
        narrate(f"kept as run {run_kept}; look into it with glassgate ui {run_kept}")


def told_rank(recorded: Recorded) -> str:
    """Which rank it is, where there are several; each is replayed by itself."""
    ranks = ", ".join(map(str, recorded.ranks))
    return f", rank {recorded.rank} of {ranks}" if len(recorded.ranks) > 1 else ""


def read_changes(changes: tuple[str, ...]) -> dict[str, str]:
    """Knobs and values as they were given with --set. Raises UsageError for what is no `KNOB=VALUE`, or said twice."""
    values: dict[str, str] = {}
    for text in changes:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set {text!r} is no KNOB=VALUE; write for instance --set max_requests=16")
        name = name.strip()
        if name in values:
            raise UsageError(f"--set names {name} twice, {values[name]} and {value}; give it once")
        values[name] = value
    return values


def open_span(
    database: Path, run: str | None, rank: int | None, since: str | None, until: str | None, model: str | None
) -> tuple[Recorded, Span, Steps]:
    """A run, the stretch of it that is looked at and how long its steps take; told on stderr."""
    recorded = read_recorded(database, run, rank)
    span = read_span(recorded, since, until)
    steps = steps_of(recorded, model)
    asked = sum(span.since_ns <= each.arrival_ns <= span.until_ns for each in span.requests)
    narrate(
        f"run {recorded.name} ({recorded.engine}{told_rank(recorded)}): {duration(span.until_ns - span.since_ns)} with "
        f"{counted(asked, 'request')}, {span.words}; {steps.words}"
    )
    if recorded.lost_frames:
        narrate(f"the record lost {counted(recorded.lost_frames, 'frame')}, so the replay misses what was in them")
    if recorded.setting.has_model and recorded.estimator() is None:
        narrate(NOT_ESTIMATED)
    return recorded, span, steps
