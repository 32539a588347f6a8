"""`glassgate replay`: a workload through the controller, with every decision kept."""

from pathlib import Path
from typing import Any

import click

from controller.engines.replay import DEFAULT_DEVICE_TOKENS, DEFAULT_HOST_TOKENS, DEFAULT_NEW_TOKEN_RATIO
from controller.engines.replay.exported import Exported
from controller.engines.replay.pace import FASTEST, SLOWEST
from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.step_time import DEFAULT_PRESET, PRESETS
from controller.engines.replay.traces import open_trace
from estimator.errors import UsageError
from ui.as_exported import AsExported, as_exported
from ui.cli import INTERRUPTED
from ui.options import UNBOUNDED_WORD, Finite, Size, json_option, knob_options
from ui.output import cell, narrate, print_json
from ui.replaying import DEFAULT_MODEL, ReplayOptions
from ui.replaying import replay as run_replay
from ui.settings import Settings, load_settings
from ui.summary import print_summary

REPLAY_KNOBS = {"page_size": 64}
"""What a replay begins with where the operator sets nothing else: pages as context-parallel engines use them."""


@click.command()
@click.argument("trace", required=False)
@click.option("--sessions", default=300, show_default=True, help="Agent sessions of the built-in workload.")
@click.option("--seed", default=0, show_default=True, help="Seed of the built-in workload.")
@click.option("--limit", type=click.IntRange(min=1), help="Replay at most this many of the trace's requests.")
@click.option("--speed", default=1.0, show_default=True, help="Play the trace's arrivals this many times faster.")
@click.option("--skip-bad-lines", is_flag=True, help="Count and report bad lines of a trace instead of stopping.")
@click.option(
    "--device-tokens", type=Size(), default=DEFAULT_DEVICE_TOKENS, show_default=True, help="Size of the KV pool."
)
@click.option(
    "--host-tokens", type=Size(), default=DEFAULT_HOST_TOKENS, show_default=True, help="Host cache; 0 is none."
)
@click.option("--slots", type=click.IntRange(min=1), default=2048, show_default=True, help="Request slots.")
@click.option(
    "--role",
    type=click.Choice(["unified", "prefill"]),
    default="unified",
    show_default=True,
    help="Prefill and decode, or a prefill node that holds KV until it is handed over.",
)
@click.option(
    "--write-policy",
    type=click.Choice(["write_through", "write_back"]),
    default="write_through",
    show_default=True,
    help="When KV is copied to the host: once computed, or once evicted.",
)
@click.option(
    "--new-token-ratio",
    type=click.FloatRange(0, 1),
    default=DEFAULT_NEW_TOKEN_RATIO,
    show_default=True,
    help="Share of its output that is held back for a running request.",
)
@click.option(
    "--context-parallel",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Ranks that share KV, one owner lane each; needs the role prefill.",
)
@click.option(
    "--data-parallel",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Ranks that chunked_prefill_size is divided by.",
)
@click.option(
    "--model",
    default=DEFAULT_MODEL,
    show_default=True,
    metavar="NAME|config.json|none",
    help="Whose buffers are estimated.",
)
@click.option("--kv-dtype", type=click.Choice(["bf16", "fp8"]), default="bf16", show_default=True, help="KV dtype.")
@click.option(
    "--step-time",
    type=click.Choice(sorted(PRESETS)),
    default=DEFAULT_PRESET,
    show_default=True,
    help="Step-time model, see docs/workloads.md.",
)
@click.option("--prefill-tokens-per-second", type=click.IntRange(min=1), help="A plain step-time model instead.")
@click.option(
    "--smoke",
    type=click.Choice(["off", "warn", "require"]),
    default="off",
    show_default=True,
    help="Allocate max_buffer_bytes for real first: warn goes on when it does not fit, require refuses the run.",
)
@click.option(
    "--smoke-device",
    default="cpu",
    show_default=True,
    metavar="DEVICE",
    help="Where: cuda:0, ... or cpu (host memory).",
)
@click.option(
    "--pace",
    type=Finite(min=SLOWEST, max=FASTEST),
    metavar="FACTOR",
    help="Simulated seconds a second, 1 is real time, so that the replay can be watched [default: as fast as it can].",
)
@click.option(
    "--pace-from",
    type=Finite(min=0, max=1e9),
    default=0.0,
    metavar="SECONDS",
    help="With --pace: replay so many simulated seconds at once first.",
)
@click.option("--database", type=click.Path(path_type=Path), help="Database to fill [default: in the run's folder].")
@knob_options
@json_option
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    *,
    trace: str | None,
    sessions: int,
    seed: int,
    limit: int | None,
    speed: float,
    skip_bad_lines: bool,
    knobs: dict[str, Any],
    as_json: bool,
    **options: Any,
) -> None:
    """Replay a workload through the controller, keep every decision, and print the summary.

    TRACE is a Mooncake JSONL or Azure CSV trace, gzip too; without one the built-in workload of multi-turn agent
    sessions is replayed, and - reads a trace from standard input. The record stands in a run folder that `why` and
    `query` read. The page size is 64 unless it is set. A trace that `glassgate trace export` wrote is served as its run
    was, but for what is set here.
    """
    _check_together(ctx, trace)
    settings = load_settings()
    if trace is None:
        workload = agent_sessions(seed=seed, sessions=sessions)
    else:
        workload = open_trace(
            "/dev/stdin" if trace == "-" else trace, skip_bad_lines=skip_bad_lines, limit=limit, speed=speed
        )
    if workload.exported is None:
        chosen = replay_options(options, base=settings.runs, knobs=settings.knobs(knobs, REPLAY_KNOBS))
    else:
        chosen = _as_exported(ctx, workload.exported, settings, knobs, {**options, "speed": speed})
    replayed = run_replay(workload, chosen)
    if as_json:
        print_json(replayed.summary)
    else:
        print_summary(replayed.summary)
    if replayed.summary["interrupted"]:
        ctx.exit(INTERRUPTED)


def _as_exported(
    ctx: click.Context, exported: Exported, settings: Settings, knobs: dict[str, Any], options: dict[str, Any]
) -> AsExported:
    """The options for a trace that Glassgate exported: the run's, but for what was given on the command line."""
    given = frozenset(
        name for name in options if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    )
    theirs = exported.started()
    chosen = settings.knobs(knobs, theirs.as_dict())
    differing = [name for name, value in chosen.as_dict().items() if value != theirs.as_dict()[name]]
    other = ", ".join([*(f"{name} {cell(getattr(chosen, name))}" for name in differing), *sorted(given - {"speed"})])
    narrate(
        f"served as run {exported.run} was ({exported.engine} {exported.version})"
        + (f", but for {other}" if other else "")
    )
    if not exported.whole:
        narrate("what its cache held where the trace begins is not known; it begins empty here")
    return AsExported(
        **read_options(as_exported(options, exported, given)),
        knobs=chosen,
        base=settings.runs,
        exported=exported,
        given=given,
        set_knobs=frozenset(differing),
    )


def _check_together(ctx: click.Context, trace: str | None) -> None:
    """Refuse options that the chosen workload would ignore."""
    ignored = ("limit", "speed", "skip_bad_lines") if trace is None else ("sessions", "seed")
    for name in ignored:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            goes_with = "a TRACE" if trace is None else "the built-in workload, without a TRACE"
            raise UsageError(f"--{name.replace('_', '-')} goes with {goes_with}")
    if ctx.params["pace"] is None and ctx.params["pace_from"]:
        raise UsageError("--pace-from goes with --pace, which says how fast it goes from there")


def replay_options(options: dict[str, Any], **more: Any) -> ReplayOptions:
    """A command's options as `ReplayOptions`."""
    return ReplayOptions(**read_options(options), **more)


def read_options(options: dict[str, Any]) -> dict[str, Any]:
    """A command's options by the names of `ReplayOptions`: `unbounded` and `none` are None there."""
    return {name: None if value in (UNBOUNDED_WORD, "none") else value for name, value in options.items()}
