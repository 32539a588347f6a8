"""`glassgate demo`: the built-in workload through the controller, on the screen, or as a summary without a terminal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.workload import Workload
from controller.knobs import Knobs
from controller.run_directory import RunDirectory
from store.queries import run_query
from store.why import why
from ui.cli import INTERRUPTED
from ui.commands.ui import on_terminal
from ui.options import json_option
from ui.output import data, narrate, print_answer, print_json
from ui.replaying import Replayed, ReplayOptions, replay
from ui.settings import load_settings
from ui.summary import print_summary
from ui.watching import watch

KNOBS: Final = {
    "shared_kv_batching": True,
    "max_requests": 8,
    "max_extend_tokens": 32_768,
    "max_cached_tokens": 300_000,
    "max_buffer_bytes": "4GiB",
    "chunked_prefill_size": 32_768,
    "page_size": 64,
}
DEVICE_TOKENS: Final = 500_000
HOST_TOKENS: Final = 3_000_000
SESSIONS: Final = 300
SESSIONS_PER_SECOND: Final = 1.0
CONTEXT_PARALLEL: Final = 8

# On the screen sessions come for a minute, and then for a while none, for an hour: queues build up and go. The extend
# limit is half of what a pass may compute, so that raising it lets batches grow until another gate closes them.
SCREEN_KNOBS: Final = {**KNOBS, "max_extend_tokens": 16_384}
SCREEN_HOST_TOKENS: Final = 8_000_000
SCREEN_SESSIONS: Final = 2_400
SCREEN_SEED: Final = 1
SCREEN_SESSIONS_PER_SECOND: Final = 1.5
BUSY_SECONDS: Final = 60.0
CALM_SECONDS: Final = 80.0
SCREEN_FROM_SECONDS: Final = 290.0
"""Replayed at once before the screen opens, so that it shows a server that has been busy for a while."""


def demo_options(knobs: Knobs, *, host_tokens: int = HOST_TOKENS, **more: Any) -> ReplayOptions:
    """A prefill node of eight context-parallel ranks that share KV, its limits close enough that each one binds."""
    return ReplayOptions(
        knobs=knobs,
        role="prefill",
        context_parallel=CONTEXT_PARALLEL,
        device_tokens=DEVICE_TOKENS,
        host_tokens=host_tokens,
        kv_dtype="fp8",
        **more,
    )


def screen_workload(sessions: int = SCREEN_SESSIONS, seed: int = SCREEN_SEED) -> Workload:
    """What the demo serves on the screen."""
    return agent_sessions(
        seed=seed,
        sessions=sessions,
        sessions_per_second=SCREEN_SESSIONS_PER_SECOND,
        busy_seconds=BUSY_SECONDS,
        calm_seconds=CALM_SECONDS,
    )


def replay_for_screen(sessions: int, seed: int, over: Callable[[], bool]) -> Replayed:
    """Replay in real time what the screen shows, until `over` says so. Raises as `replay` does."""
    settings = load_settings()
    options = demo_options(
        settings.knobs({}, SCREEN_KNOBS),
        host_tokens=SCREEN_HOST_TOKENS,
        base=settings.runs,
        pace=1.0,
        pace_from=SCREEN_FROM_SECONDS,
        over=over,
    )
    return replay(screen_workload(sessions, seed), options)


@click.command()
@click.option(
    "--sessions",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Agent sessions to replay [default: {SCREEN_SESSIONS:,} on the screen, {SESSIONS} without].",
)
@click.option(
    "--seed", type=int, metavar="N", help=f"Seed of the workload [default: {SCREEN_SEED}, 0 without a screen]."
)
@click.option("--no-screen", is_flag=True, help="Replay as fast as it goes and print the summary.")
@click.option("--keep", is_flag=True, help="Let the replay go on when the screen is closed.")
@json_option
@click.pass_context
def demo(
    ctx: click.Context, /, *, sessions: int | None, seed: int | None, no_screen: bool, keep: bool, as_json: bool
) -> None:
    """Replay the built-in workload on a prefill node of eight context-parallel ranks, and look into it.

    In a terminal it opens the screen on a replay in real time, which ends when the screen is closed. Without a
    terminal, or with --no-screen or --json, it replays as fast as it can, and shows what stopped the batches, who
    waited longest, and the life of that request.
    """
    if on_terminal() and not (no_screen or as_json):
        _on_screen(sessions or SCREEN_SESSIONS, SCREEN_SEED if seed is None else seed, keep=keep)
        return
    settings = load_settings()
    workload = agent_sessions(seed=seed or 0, sessions=sessions or SESSIONS, sessions_per_second=SESSIONS_PER_SECOND)
    replayed = replay(workload, demo_options(settings.knobs({}, KNOBS), base=settings.runs))
    if as_json:
        print_json(replayed.summary)
    else:
        print_summary(replayed.summary)
        _look_into(replayed.summary)
    if replayed.summary["interrupted"]:
        ctx.exit(INTERRUPTED)


def _on_screen(sessions: int, seed: int, *, keep: bool) -> None:
    """The screen on a replay in real time, which ends with it."""
    settings = load_settings()
    settings.knobs({}, SCREEN_KNOBS)  # a setting that cannot be is told here, not in the engine's log
    narrate(f"replaying the first {SCREEN_FROM_SECONDS:g} s at once, then in real time")
    run = watch(
        [str(sessions), str(seed)],
        settings.runs,
        until_ns=int(SCREEN_FROM_SECONDS * 1e9),
        keep=keep,
        show=_show,
    )
    name = run.path.name
    narrate(f"run {name} is kept: glassgate ui {name}, glassgate query stops --run {name}, glassgate why REQUEST")


def _show(run: RunDirectory) -> None:
    from ui.app.main import run_screen  # noqa: PLC0415 - Textual is for those who look
    from ui.view.source import Source  # noqa: PLC0415 - as above

    run_screen(Source.open(str(run.path), run.path.parent))


def _look_into(summary: dict[str, Any]) -> None:
    """The questions an operator asks next, answered from the record."""
    out, database, run = data(), Path(summary["database"]), summary["run"]
    slowest = run_query(database, "slowest-waits", run=run, limit=3)
    out.print()
    print_answer(slowest, title="Who waited longest (glassgate query slowest-waits)")
    if slowest.rows:
        request = str(slowest.rows[0][0])
        out.print(f"\n[bold]glassgate why {request}[/bold]")
        for line in why(database, request, run=run).words():
            out.print(line, markup=False, soft_wrap=True)
    narrate("\nAsk further: glassgate query (lists the questions), glassgate why REQUEST, glassgate query 'SELECT ...'")
    narrate(f"Look at it: glassgate ui {run}. The screen on a live replay: glassgate demo, in a terminal.")
