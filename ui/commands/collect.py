"""`glassgate collect`: the journals of running engines into SQLite and to OpenTelemetry."""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from controller.run_directory import RunDirectory, list_runs
from estimator.errors import GlassgateError, RecordError, UsageError
from store.follow import SHUTDOWN_SECONDS, Follower, Plan
from store.otel_environment import check_environment
from store.retention import DEFAULT_MAX_BYTES, LEAST_MAX_BYTES
from store.standing import SinkStanding, read_standings
from store.words import counted, size
from ui.cli import INTERRUPTED
from ui.options import Bytes, Finite, json_option
from ui.output import narrate, print_json, print_table
from ui.settings import load_settings
from ui.stopping import stopped_by_signals
from ui.where import database_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.metrics import Metrics
    from store.sinks import Sink


def max_size_option(default: int, words: str) -> Callable[[Any], Any]:
    """What a collector keeps a database below, in bytes."""
    return click.option(
        "--max-size",
        type=Bytes(least=LEAST_MAX_BYTES),
        metavar="SIZE",
        default=default,
        help=f"{words} [default: {size(default)}].",
    )


@click.command()
@click.argument("runs", metavar="RUN|DIR")
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="One database for all runs [default: the one in each run's folder].",
)
@click.option("--once", is_flag=True, help="Catch up and stop, whether the engines live or not.")
@click.option("--status", is_flag=True, help="Say where each sink of each run stands, and collect nothing.")
@click.option("--no-otlp", is_flag=True, help="Send nothing to OTLP, whatever the environment says.")
@click.option(
    "--prometheus", metavar="[HOST:]PORT", help="Serve metrics for Prometheus there, on 127.0.0.1 unless HOST is given."
)
@max_size_option(DEFAULT_MAX_BYTES, "Keep each database below this size by dropping the oldest")
@click.option(
    "--keep-days",
    type=Finite(min=0, max=36_500),
    metavar="N",
    help="Drop what ended more than N days ago [default: nothing goes by age].",
)
@click.option(
    "--forget",
    type=click.Choice(["otlp", "metrics"]),
    multiple=True,
    help="Give up the place of a sink that is not used any more, so that it holds no journal back.",
)
@click.option(
    "--shutdown-seconds",
    type=Finite(min=0.1, max=3_600),
    default=SHUTDOWN_SECONDS,
    show_default=True,
    help="Stopping takes no longer, whatever does not answer.",
)
@json_option
@click.pass_context
def collect(
    ctx: click.Context,
    /,
    *,
    runs: str,
    database: Path | None,
    once: bool,
    status: bool,
    no_otlp: bool,
    prometheus: str | None,
    max_size: int,
    keep_days: float | None,
    forget: tuple[str, ...],
    shutdown_seconds: float,
    as_json: bool,
) -> None:
    """Take the journal of RUN, or of every run in DIR, into SQLite and, as the OTEL_ variables say, to OTLP.

    It goes on until its runs have ended and everything is delivered, or until SIGTERM or Ctrl-C. It can be killed and
    started again at any time. See docs/collect.md.
    """
    found = _find(runs)
    if isinstance(found, Path) and not status and not list_runs(found):
        if (found / "runs").is_dir():
            raise RecordError(f"{found} holds no run, but its folder runs may: name {found / 'runs'}")
        narrate(f"no run in {found}" + ("; nothing to collect" if once else " yet; waiting for the first one"))

    def database_for(run: RunDirectory) -> Path:
        return database_of(run) if database is None else database

    if status:
        standings, unread = _standings(found, database_for)
        _show(standings, as_json=as_json)
        if unread:
            raise RecordError(f"{counted(len(unread), 'run')} cannot be told of: {unread[0]}")
        return
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # failures are counted and told by us
    logging.getLogger("opentelemetry").propagate = False
    check_environment()
    no_otlp |= "otlp" in forget  # what is given up is not begun again
    metrics = _metrics(prometheus, otlp=not no_otlp)
    sinks: dict[str, Callable[[RunDirectory], Sink]] = {} if no_otlp else _otlp()
    if metrics is not None:
        sinks["metrics"] = metrics.sink
    plan = Plan(
        runs=found,
        database=database_for,
        sinks=sinks,
        forget=tuple({*forget} if metrics is not None else {*forget, "metrics"}),
        once=once,
        shutdown_seconds=shutdown_seconds,
        max_bytes=max_size,
        keep_days=keep_days,
    )
    follower = Follower(plan, _say, metrics)
    # A second signal ends it at once: what is in SQLite is there whole, and the rest is taken again.
    with stopped_by_signals(follower.stop, lambda: os._exit(INTERRUPTED)) as seen:
        try:
            follower.follow()
        finally:
            if metrics is not None:
                metrics.shutdown(max(0.1, follower.seconds_left))
    if as_json:
        print_json(msgspec.to_builtins(_standings(found, database_for)[0]))
    if signal.SIGINT in seen:
        ctx.exit(INTERRUPTED)


def _find(runs: str) -> RunDirectory | Path:
    """The run, or the folder of runs, that a name stands for. Raises what finding a run raises."""
    if not runs:
        raise UsageError("no run is named; name a run, or a folder of runs")
    path = Path(runs)
    if path.is_dir() and not (path / "run.json").exists():
        return path
    return RunDirectory.find(runs, load_settings().runs)


def _otlp() -> dict[str, Callable[[RunDirectory], Sink]]:
    """The OTLP sink of spans, if the environment asks for one."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return {}
    from store.delivery import otlp_wanted  # noqa: PLC0415 - the SDK takes 0.3 s to import
    from store.otlp import OtlpSink  # noqa: PLC0415 - the same

    return {"otlp": OtlpSink} if otlp_wanted() else {}


def _metrics(prometheus: str | None, *, otlp: bool) -> Metrics | None:
    if prometheus is None and not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from store.metrics import Metrics as Made  # noqa: PLC0415 - the SDK takes 0.3 s to import
    from store.scrape import parse_address  # noqa: PLC0415 - the same

    address = None if prometheus is None else parse_address(prometheus)
    metrics = Made.wanted(otlp=otlp, prometheus=address, environ=os.environ)
    if metrics is not None and metrics.endpoint is not None:
        narrate(f"metrics at {metrics.endpoint.address}")
    return metrics


def _say(line: str) -> None:
    click.echo(f"glassgate: {line}", err=True)


def _standings(
    found: RunDirectory | Path, database_for: Callable[[RunDirectory], Path]
) -> tuple[list[SinkStanding], list[GlassgateError]]:
    """Where each sink of each run stands, and why the rest cannot be read. Raises RecordError for one run alone."""
    if isinstance(found, RunDirectory):
        return read_standings(found, database_for(found)), []
    standings: list[SinkStanding] = []
    unread: list[GlassgateError] = []
    for listed in list_runs(found):
        try:
            standings += read_standings(listed.run, database_for(listed.run))
        except GlassgateError as error:
            unread.append(error)
    return standings, unread


def _show(standings: list[SinkStanding], *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(standings))
        return
    rows: list[tuple[Any, ...]] = []
    for each in standings:
        lost = each.lost + sum(each.losses.values())
        rows.append((
            f"{each.run}/{each.rank}", each.engine, "running" if each.collected else "none", each.sink,
            f"{each.segment}:{each.offset}", each.frames_behind, each.bytes_behind, each.delivered, each.left_out,
            lost, each.failures, _when(each.last_delivery_ns), each.last_error or "-",
        ))  # fmt: skip
    print_table(
        (
            "run", "engine", "collector", "sink", "cursor", "frames behind", "bytes behind", "delivered", "left out",
            "lost", "failures", "last delivery", "last error",
        ),
        rows,
    )  # fmt: skip


def _when(at_ns: int) -> str:
    """A Unix time in ISO 8601, or a dash."""
    if not at_ns:
        return "-"
    return dt.datetime.fromtimestamp(at_ns / 1e9, tz=dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
