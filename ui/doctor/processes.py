"""The engines that run on this machine, whether Glassgate is in them or not, as far as this user may look at them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.engines.plugin import SUPPORTED, read_status, switched_on
from controller.run_directory import LIVE, list_runs
from estimator.errors import InputError
from ui.doctor.finding import OK, WARN, Finding, fail, ok, warn
from ui.doctor.installation import plugin_filter, working_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULES: Final = {"sglang.launch_server": "sglang", "vllm.entrypoints.": "vllm"}
_COMMANDS: Final = {"sglang", "vllm"}
_PARTS: Final = {"VLLM::EngineCore": "vllm"}
"""What processes call themselves that an engine's server starts, and that go on where it is killed."""
_PROC: Final = Path("/proc")
_CHECK: Final = "engine process"
_DEEP: Final = 16


class EngineProcess(NamedTuple):
    """A process that an operator started as an engine's server."""

    pid: int
    engine: str


def engine_processes() -> list[EngineProcess]:
    """The servers of engines that run here, the first started first; not the processes that those started."""
    found = {}
    for place in _PROC.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):
                engine = engine_of((place / "cmdline").read_bytes().decode(errors="replace").split("\0"))
                if engine is not None:
                    found[int(place.name)] = engine
    return [EngineProcess(pid, found[pid]) for pid in sorted(found) if not found.keys() & set(ancestors(pid))]


def left_behind() -> list[EngineProcess]:
    """Parts of engines that outlived the server that started them, as far as this user may look at them."""
    found = []
    for place in _PROC.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):
                title = (place / "cmdline").read_bytes().decode(errors="replace")
                engine = next((engine for part, engine in _PARTS.items() if title.startswith(part)), None)
                if engine is not None and _is_adopted(place):
                    found.append(EngineProcess(int(place.name), engine))
    return sorted(found)


def _is_adopted(place: Path) -> bool:
    """Whether the parent of a process is none that could have forked it: it runs another program, or is another user's.

    Raises OSError where the process itself may not be looked at.
    """
    program = (place / "exe").readlink()
    parent = _parent_of(int(place.name))
    try:
        return (_PROC / str(parent) / "exe").readlink() != program
    except OSError:
        return parent == 1


def engine_of(words: list[str]) -> str | None:
    """The engine that a command line starts; None if it starts none."""
    for at, word in enumerate(words):
        for module, engine in _MODULES.items():
            if word.startswith(module) and words[at - 1] == "-m":
                return engine
        name = Path(word).name
        if name in _COMMANDS and words[at + 1 : at + 2] == ["serve"]:
            return name
    return None


def ancestors(pid: int) -> list[int]:
    """The parents of a process, the nearest first."""
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        while len(found) < _DEEP:
            pid = _parent_of(pid)
            if pid <= 1:
                break
            found.append(pid)
    return found


def _parent_of(pid: int) -> int:
    """The parent of a process. Raises OSError, or ValueError or IndexError for what is no process's state."""
    return int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def environment_of(pid: int) -> dict[str, str] | None:
    """The environment that a process began with; None where this user may not see it, or the process wrote over it."""
    try:
        content = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (each.partition("=") for each in content.decode(errors="replace").split("\0") if "=" in each)
    found = {name: value for name, _, value in pairs}
    return found if "PATH" in found else None  # a process that shows a title of its own puts it there


def examine_processes(base: Path | None, *, one_run: bool = False) -> Iterator[Finding]:
    """Whether Glassgate is in each engine that runs here, and what keeps it out of those in which it is not.

    Where `one_run` was asked about, nothing of another engine is a failure.
    """
    in_force = _recorded(base)
    for process in engine_processes():
        title = SUPPORTED[process.engine].title
        run = next((run for pid, run in in_force.items() if process.pid in (pid, *ancestors(pid))), None)
        if run is not None:
            yield ok(_CHECK, f"{title}, process {process.pid}, is recorded in run {run}")
        else:
            for each in _kept_out(process, f"{title}, process {process.pid}, runs without Glassgate"):
                yield each._replace(state=WARN) if one_run else each
    for process in left_behind():
        what = f"a part of {SUPPORTED[process.engine].title}, process {process.pid}, outlived its server"
        yield warn(_CHECK, f"{what}: no request reaches it, and it keeps its memory", f"kill {process.pid}")


def _recorded(base: Path | None) -> dict[int, str]:
    """The processes of live runs, with the run of each."""
    found = {}
    for listed in list_runs(base) if base is None or base.exists() else []:
        status = read_status(listed.run.path) if listed.state in LIVE else None
        if status is not None and listed.info is not None:
            found[status.pid] = listed.info.run_id
    return found


def _kept_out(process: EngineProcess, what: str) -> Iterator[Finding]:
    environ = environment_of(process.pid)
    if environ is None:
        yield warn(_CHECK, f"{what}, and its environment cannot be read", "ask as the engine's user")
        return
    try:
        on = switched_on(environ)
    except InputError as error:
        yield fail(_CHECK, f"{what}: {error}", "start it with GLASSGATE=1")
        return
    if not on:
        yield warn(
            _CHECK, f"{what}: GLASSGATE was not set for it", "start it with GLASSGATE=1, if it should be recorded"
        )
        return
    folder = (_PROC / str(process.pid) / "cwd").resolve()
    reasons = [
        *plugin_filter(SUPPORTED[process.engine], environ, _CHECK),
        *working_folder(folder, _CHECK, environ.get("PYTHONPATH", "")),
    ]
    reasons = [each for each in reasons if each.state != OK]
    for each in reasons:
        yield fail(_CHECK, f"{what}: {each.found}", each.remedy)
    if not reasons:
        yield warn(
            _CHECK, f"{what}, although it was asked to, or keeps its runs elsewhere than this doctor looks",
            "look for 'glassgate' in its log; ask with its GLASSGATE_HOME, in its environment",
        )  # fmt: skip


def same_environment(python: str, here: str) -> bool:
    """Whether two interpreters are of one environment: `python` and `python3.11` of one folder are."""
    return not python or os.path.normpath(Path(python).parent) == os.path.normpath(Path(here).parent)
