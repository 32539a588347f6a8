"""`glassgate tune`: knobs that would have served a stretch of a run better."""

import os
from pathlib import Path
from typing import Final

import click

from controller.run_directory import RunDirectory
from estimator.errors import UsageError
from store.words import counted
from ui.cli import INTERRUPTED
from ui.commands.whatif import fidelity_option, open_span, read_changes
from ui.comparing import print_comparison
from ui.options import json_option, model_option, span_options
from ui.output import data, narrate, print_json
from ui.progress import ReplayProgress
from ui.record import find_record
from ui.saving import read_saved, save_knobs
from ui.settings import load_settings
from ui.stopping import stopped_by_signals
from ui.tuning import SearchProgress, found_dict, print_found, told_choice
from ui.whatif.choice import Choice, choose
from ui.whatif.comparison import Comparison, baseline_of, compare
from ui.whatif.goal import Aim, Bound, read_aim, read_bound
from ui.whatif.played import values_of, with_changes
from ui.whatif.search import Found, Question, Search
from ui.whatif.space import space_of
from ui.whatif.workers import Workers
from ui.where import database_of

CONFIG: Final = Path("glassgate-tuned.toml")
DEFAULT_POINTS: Final = 64
DEFAULT_AIM: Final = "tokens_per_second"


@click.command()
@click.argument("run", required=False)
@click.option(
    "--maximise", "--maximize", multiple=True, metavar="FIGURE", help="What is to be great [tokens_per_second]."
)
@click.option("--minimise", "--minimize", multiple=True, metavar="FIGURE", help="What is to be small.")
@click.option(
    "--subject-to", multiple=True, metavar="BOUND", help="What has to hold, such as 'ttft_p99<5s'; give it repeatedly."
)
@click.option(
    "--knob",
    "knobs",
    multiple=True,
    metavar="KNOB[=LOW:HIGH]",
    help="Search this knob, give it repeatedly [default: those that can matter for the run].",
)
@click.option("--set", "changes", multiple=True, metavar="KNOB=VALUE", help="A knob to set anew for every point.")
@click.option(
    "--points", type=click.IntRange(min=1), default=DEFAULT_POINTS, show_default=True, help="Points to try in all."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes that replay [default: one for each core].")
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--storage",
    metavar="FILE|URL",
    help="Where the study is kept; by a URL that Optuna knows machines share it [default: a file beside the database].",
)
@click.option("--study", default="", metavar="NAME", help="The study's name [default: from the question].")
@span_options
@model_option
@fidelity_option("Search nothing")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=CONFIG,
    show_default=True,
    help="The TOML file that the chosen knobs are written to; what else is in it stays.",
)
@click.option("--database", type=click.Path(path_type=Path), help="Read this database instead of a run's.")
@json_option
@click.pass_context
def tune(
    ctx: click.Context,
    /,
    *,
    run: str | None,
    maximise: tuple[str, ...],
    minimise: tuple[str, ...],
    subject_to: tuple[str, ...],
    knobs: tuple[str, ...],
    changes: tuple[str, ...],
    points: int,
    jobs: int | None,
    seed: int,
    storage: str | None,
    study: str,
    since: str | None,
    until: str | None,
    rank: int | None,
    model: str | None,
    min_fidelity: float,
    output: Path,
    database: Path | None,
    as_json: bool,
) -> None:
    """Search the knobs under which a stretch of RUN (the newest by default) would have been served better.

    Points are replays of the stretch; each is kept in the study, so that Ctrl-C ends the search in good order and the
    same command takes it up again. The first goal chooses among the points that keep every bound; changes that do not
    matter are taken back, and the chosen point is replayed once more beside the knobs as they were. Written is a file
    that `glassgate replay` and the plug-ins read (GLASSGATE_CONFIG).
    """
    aims, bounds = _goals(maximise, minimise, subject_to)
    values = read_changes(changes)
    read_saved(output)  # what is wrong with it is told before the search, not after
    with find_record(database, run) as record:
        recorded, span, steps = open_span(record.database, record.run, rank, since, until, model)
        fixed = with_changes(recorded, span, values)
        question = Question(
            aims=aims,
            bounds=bounds,
            space=space_of(recorded, fixed, knobs),
            fixed=values_of(recorded, span, values),
        )
        asked = question.asked(recorded, span, steps)
        where = storage or str(_beside(database, run or recorded.name).with_name(f"{recorded.name}.tune"))
        with ReplayProgress() as told:
            baseline = baseline_of(recorded, span, steps, tell=lambda _, standing: told.show(standing))
        narrate(f"fidelity {baseline.fidelity.score:.2f}: {baseline.fidelity.words()}")
        baseline.fidelity.check(min_fidelity)
        search = Search(question, asked, storage=where, name=study, seed=seed)
        narrate(f"study {search.name} in {where}: {counted(search.done, 'point')} tried before, {points:,} wanted")
        with (
            Workers(recorded, span, steps, jobs or os.cpu_count() or 1) as workers,
            SearchProgress(points, aims[0]) as progress,
            stopped_by_signals(lambda: progress.say("ending after the points in hand")) as stopped,
        ):
            search.run(workers, fixed, points, tell=progress.show, stopped=lambda: bool(stopped))
            found = search.found(fixed)
            choice = None
            if found.best is not None and not stopped:
                progress.say("taking back what does not matter")
                choice = choose(found.best, found.current.values, question, lambda each: workers.submit(each).result())
        if stopped:
            _print(found, question, None, None, None, as_json=as_json)
            narrate(f"interrupted; the study is kept, and the same command goes on from {found.tried:,} points")
            ctx.exit(INTERRUPTED)
        confirmed, path = None, None
        if choice is not None and choice.changed:
            chosen = question.fixed | choice.changed
            confirmed = compare(recorded, span, chosen, steps, baseline=baseline)
            path = save_knobs(chosen, output)
    _print(found, question, choice, confirmed, path, as_json=as_json)
    if not as_json:
        for line in told_choice(found, question, choice):
            data().print(line, markup=False, soft_wrap=True)
        if confirmed is not None:
            data().print()
            print_comparison(confirmed)
    if path is not None:
        narrate(f"written to {path}; use it with GLASSGATE_CONFIG={path}")


def _goals(
    maximise: tuple[str, ...], minimise: tuple[str, ...], subject_to: tuple[str, ...]
) -> tuple[tuple[Aim, ...], tuple[Bound, ...]]:
    """What the search is to reach and to keep."""
    aims = [read_aim(name, maximise=True) for name in maximise] + [read_aim(name, maximise=False) for name in minimise]
    if len({aim.metric for aim in aims}) < len(aims):
        raise UsageError(f"a figure is a goal twice: {', '.join(aim.metric for aim in aims)}; name each once")
    return tuple(aims or [read_aim(DEFAULT_AIM, maximise=True)]), tuple(read_bound(text) for text in subject_to)


def _beside(database: Path | None, run: str) -> Path:
    """The database that a run's studies are kept beside: its own also where the record was read into a passing one."""
    return database or database_of(RunDirectory.find(run, load_settings().runs))


def _print(
    found: Found,
    question: Question,
    choice: Choice | None,
    confirmed: Comparison | None,
    path: Path | None,
    *,
    as_json: bool,
) -> None:
    """What was found, as data."""
    if as_json:
        print_json(found_dict(found, question, choice, confirmed, path))
    else:
        print_found(found, question)
