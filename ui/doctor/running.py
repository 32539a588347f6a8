"""Is it in force, moving, arriving? A run beside an engine, from what its processes left in its folder."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.engines.plugin import SUPPORTED, Http, NoWay, read_faults, read_status
from controller.engines.plugin.broadcast import list_forwarded
from controller.engines.plugin.collector import collector_log
from controller.knobs import SHARED_KV_CAUTION
from controller.liveness import is_held
from controller.run_directory import LIVE, RunDirectory, list_runs, ranks_of
from estimator.errors import GlassgateError, RecordError
from store.knob_state import knobs_of
from store.standing import read_alarms, read_standings
from store.words import counted, duration
from ui.doctor.finding import Finding, examine, fail, ok, warn
from ui.doctor.installation import disk_room, endpoints, working_folder
from ui.doctor.processes import environment_of, same_environment
from ui.where import database_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.engines.plugin import PluginStatus
    from controller.run_directory import RunState

_QUIET_NS: Final = 10_000_000_000
"""A clerk says once a second that it lives; after so long something is wrong with its process."""
_BEHIND_NS: Final = 15_000_000_000
_UNANSWERED_SECONDS: Final = 30.0


def newest_run(base: Path | None) -> RunDirectory | None:
    """The first rank of the run of a real engine that began last; None if there is none."""
    for listed in list_runs(base) if base is None or base.exists() else []:
        if listed.info is not None and listed.info.engine in SUPPORTED:
            return ranks_of(listed.run)[0]
    return None


def examine_run(run: RunDirectory) -> list[Finding]:
    """What is to be said of a run, all its ranks together."""
    findings: list[Finding] = []
    ranks = ranks_of(run)
    findings += examine("run", lambda: _state(run))
    for rank in ranks:
        findings += examine("plug-in", lambda rank=rank: _plugin(rank))  # type: ignore[misc]
    checks = (
        ("ranks", lambda: _ranks(ranks)), ("faults", lambda: _faults(ranks)), ("engine process", lambda: _process(run)),
        ("collector", lambda: _collector(run)), ("sinks", lambda: _sinks(ranks)), ("alarms", lambda: _alarms(ranks)),
        ("knobs", lambda: _knobs(run)), ("disk", lambda: disk_room(run.path, f"run {run.path.name}")),
    )  # fmt: skip
    return findings + [finding for name, look in checks for finding in examine(name, look)]


def _state(run: RunDirectory) -> Iterator[Finding]:
    info, state = run.info, run.state
    what = f"{run.path.name}: {info.engine} {info.version}, model {info.model or 'unknown'}, began {info.started}"
    if state in LIVE:
        yield ok("run", f"{what}, live")
    elif state == "ended":
        yield ok("run", f"{what}, ended ({info.end_reason})")
    else:
        yield warn(
            "run", f"{what}; its engine is gone without an end", "the record up to there can be read: glassgate why"
        )


def _plugin(run: RunDirectory) -> Iterator[Finding]:
    status = read_status(run.path)
    if status is None:
        if run.info.engine in SUPPORTED:
            yield fail("plug-in", f"{run.path.name} has no plugin.json: nothing proves that the plug-in is in force",
                       "look for 'glassgate' in the engine's log")  # fmt: skip
        return
    who = f"rank {status.rank}" + (f" of {status.group}" if status.group else "")
    if not status.in_force:
        yield fail("plug-in", f"{who} has stepped aside: {status.why_not}", "see the faults below; restart the engine")
        return
    what = f"{who}: {', '.join(status.replaced)} replaced"
    if run.state in LIVE:
        what += f" for {duration(time.time_ns() - status.since_ns)}"
    yield ok("plug-in", f"{what}, {counted(status.passes, 'pass', 'passes')}")
    yield from _moving(run.state, status, who)
    if status.losses:
        lost = ", ".join(f"{frames} {reason}" for reason, frames in sorted(status.losses.items()))
        yield warn("journal", f"{who} could not keep frames: {lost}", "give the run's disk room, or a faster one")
    for caution in status.cautions:
        yield warn("caution", caution, "see docs/engines.md")


def _moving(state: RunState, status: PluginStatus, who: str) -> Iterator[Finding]:
    if state not in LIVE:
        return
    now = time.time_ns()
    if now - status.at_ns > _QUIET_NS:
        yield warn(
            "journal", f"{who}, process {status.pid}, has said nothing for {duration(now - status.at_ns)}",
            "the engine hangs or is stopped: look at its log, and at glassgate query rank-differences",
        )  # fmt: skip
    elif not status.passes:
        yield warn("journal", f"{who} has made no pass yet", "send the engine a request and ask again")
    else:
        yield ok("journal", f"{who} made its last pass {duration(now - status.last_pass_ns)} ago")


def _ranks(ranks: list[RunDirectory]) -> Iterator[Finding]:
    statuses = [status for status in (read_status(run.path) for run in ranks) if status is not None]
    groups: dict[str, list[PluginStatus]] = {}
    for status in statuses:
        groups.setdefault(status.group, []).append(status)
    for group, members in groups.items():
        wanted, name = members[0].ranks, f"group {group}" if group else "the engine"
        if len(members) < wanted:
            yield warn(
                "ranks", f"{name} has {wanted} ranks, {len(members)} of them recorded here",
                "ranks on another machine are recorded there; else look for 'glassgate' in their logs",
            )  # fmt: skip
        elif wanted > 1:
            yield ok("ranks", f"{name}: {wanted} ranks recorded, of which rank {members[0].rank} whole")


def _faults(ranks: list[RunDirectory]) -> Iterator[Finding]:
    found = [(run, fault) for run in ranks for fault in read_faults(run.path)]
    for run, fault in found:
        what = f"{run.path.name}: {fault.what} failed {counted(fault.count, 'time')}: {fault.error}; {fault.lost}"
        yield fail(
            "faults", what,
            f"the first one's trace is in {run.path / 'faults.json'}",
        )  # fmt: skip
    if not found:
        yield ok("faults", "nothing in the plug-in has failed")


def _process(run: RunDirectory) -> Iterator[Finding]:
    """The engine's own process: its working folder and its environment of packages."""
    status = read_status(run.path)
    if status is None or run.state not in LIVE:
        return
    folder = Path(f"/proc/{status.pid}/cwd")
    if not os.access(folder, os.X_OK):
        yield warn("engine process", f"process {status.pid} cannot be looked at", "ask as the engine's user")
    else:
        yield from working_folder(folder.resolve(), "engine process")
    if not same_environment(status.python, sys.executable):
        yield warn(
            "engine process", f"the engine runs in another environment: {status.python}",
            f"ask there what is said of the environment: {Path(status.python).parent / 'glassgate'} doctor",
        )  # fmt: skip


def _collector(run: RunDirectory) -> Iterator[Finding]:
    status, lock = read_status(run.path), run.path / "collector.lock"
    held = is_held(lock)
    said = _last_line(collector_log(run.path))
    if held:
        pid = lock.read_text(encoding="ascii", errors="replace").strip()
        yield ok("collector", f"process {pid} collects" + (f"; it last said: {said}" if said else ""))
        if pid.isdecimal():
            yield from endpoints(environment_of(int(pid)) or {}, "collector")
    elif run.state in LIVE:
        why = f"; the last one said: {said}" if said else ""
        begun = (
            "nobody collects the journal" if status is None or not status.collector_pid else "the collector has ended"
        )
        yield fail("collector", begun + why, f"glassgate collect {run.path}")
    else:
        yield ok("collector", "none runs, and none is needed: commands read what is left themselves")


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def _sinks(ranks: list[RunDirectory]) -> Iterator[Finding]:
    now = time.time_ns()
    for run in ranks:
        for each in read_standings(run, database_of(run)):
            what = f"{each.sink} of {run.path.name}: {counted(each.frames_behind, 'frame')} behind"
            lost = each.lost + sum(each.losses.values())
            if each.last_error:
                yield fail("sinks", f"{what}; {each.last_error}", "mend what it names: it goes on by itself")
            elif each.collected and each.frames_behind and now - each.last_delivery_ns > _BEHIND_NS:
                late = duration(now - each.last_delivery_ns)
                yield warn(
                    "sinks", f"{what}, nothing delivered for {late}", "give the collector a core, or look at its log"
                )
            elif lost:
                yield warn("sinks", f"{what}; {counted(lost, 'frame')} lost", "glassgate query losses says why")
            else:
                yield ok("sinks", what)


def _alarms(ranks: list[RunDirectory]) -> Iterator[Finding]:
    found = False
    for run in ranks:
        for name, (raised, standing) in read_alarms(database_of(run), run.info.run_id, run.info.rank).items():
            if name == "ranks_differ" and raised:
                found = True
                yield fail("alarms", f"ranks decided differently ({counted(raised, 'alarm')})",
                           "glassgate query rank-differences names passes and ranks; restart the engine")  # fmt: skip
            elif standing:
                found = True
                yield warn("alarms", f"{name} stands in {run.path.name} ({standing})", "glassgate query alarms")
    if not found:
        yield ok("alarms", "none stands")


def _knobs(run: RunDirectory) -> Iterator[Finding]:
    status = read_status(run.path)
    if _shares_kv(run):
        yield warn("shared KV", "shared_kv_batching is on in this run", SHARED_KV_CAUTION)
    if status is None or run.state not in LIVE:
        return
    if isinstance(status.way, NoWay):
        yield warn("knobs", f"they cannot be turned while this engine runs: {status.way.why}", "restart it with others")
        return
    old = [path for path in run.requests.glob("[!.]*.json") if time.time() - path.stat().st_mtime > _UNANSWERED_SECONDS]
    waiting = len(old) + len(list_forwarded(run.requests))
    if waiting:
        yield warn(
            "knobs", f"{counted(waiting, 'request')} without an answer", "is a collector there, and the engine busy?"
        )
        return
    how = f"through {status.way.url}" if isinstance(status.way, Http) else "by the engine's own process"
    yield ok("knobs", f"they are turned {how}")


def _shares_kv(run: RunDirectory) -> bool:
    """Whether shared_kv_batching is on, as far as the record goes; without a record, whether the run began with it."""
    with suppress(GlassgateError):
        for knob in knobs_of(database_of(run), run.info.run_id, run.journal).knobs:
            if knob.name == "shared_kv_batching":
                return bool(knob.set_to)
    return bool(run.info.knobs.get("shared_kv_batching"))


def find_run(name: str | None, base: Path | None) -> RunDirectory | None:
    """The run that was asked for, all ranks of it being meant; without a name the newest of a real engine.

    Raises NotFoundError, UsageError or RecordError for a name that fits no run.
    """
    if name is None:
        return newest_run(base)
    run = RunDirectory.find(name, base)
    try:
        return ranks_of(run)[0]
    except RecordError:
        return run
