"""`glassgate demo`: the built-in workload through the controller, and what can be asked of its record."""

from pathlib import Path
from typing import Any, Final

import click

from controller.engines.replay.sessions import agent_sessions
from controller.knobs import Knobs
from store.queries import run_query
from store.why import why
from ui.cli import INTERRUPTED
from ui.options import json_option
from ui.output import data, narrate, print_answer, print_json
from ui.replaying import ReplayOptions, replay
from ui.settings import load_settings
from ui.summary import print_summary

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
SESSIONS_PER_SECOND: Final = 1.0
CONTEXT_PARALLEL: Final = 8


def demo_options(knobs: Knobs, **more: Any) -> ReplayOptions:
    """A prefill node of eight context-parallel ranks that share KV, its limits close enough that each one binds."""
    return ReplayOptions(
        knobs=knobs,
        role="prefill",
        context_parallel=CONTEXT_PARALLEL,
        device_tokens=DEVICE_TOKENS,
        host_tokens=HOST_TOKENS,
        kv_dtype="fp8",
        **more,
    )


@click.command()
@click.option("--sessions", default=300, show_default=True, help="Agent sessions to replay.")
@click.option("--seed", default=0, show_default=True, help="Seed of the workload.")
@json_option
@click.pass_context
def demo(ctx: click.Context, /, *, sessions: int, seed: int, as_json: bool) -> None:
    """Replay the built-in workload on a prefill node of eight context-parallel ranks, and look into the record.

    Shows what stopped the batches, who waited longest, and the life of that request.
    """
    settings = load_settings()
    workload = agent_sessions(seed=seed, sessions=sessions, sessions_per_second=SESSIONS_PER_SECOND)
    replayed = replay(workload, demo_options(settings.knobs({}, KNOBS), base=settings.runs))
    if as_json:
        print_json(replayed.summary)
    else:
        print_summary(replayed.summary)
        _look_into(replayed.summary)
    if replayed.summary["interrupted"]:
        ctx.exit(INTERRUPTED)


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
