"""Starting the collector beside an engine: a process that outlives a killed engine, and then ends by itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from controller.settings import CONFIG, ENGINE_KEY, SWITCH
from controller.whole_file import FILE_MODE
from estimator.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from controller.engines.plugin.settings import PluginSettings
    from controller.run_directory import RunDirectory

LOG: Final = "collector.log"
NICENESS: Final = 10
_SECONDS: Final = 10.0
# The shell leaves at once, so that the collector is nobody's child: an engine that kills its process tree spares it,
# and what it had not delivered yet arrives.
_DETACH: Final = '"$@" >&2 & echo $!'


def start_collector(run: RunDirectory, settings: PluginSettings, engine_key: str | None = None) -> int:
    """Start `glassgate collect` for a run and its other ranks, and return its process id.

    It has its own session, low priority, every CPU the machine lets it have, and writes to collector.log in the run's
    folder. `engine_key` is given to it alone. Raises StorageError if it cannot be started.
    """
    log = run.path / LOG
    command = [sys.executable, "-P", "-m", "estimator.launch", "collect", str(run.path.resolve())]
    if settings.database is not None:
        command += ["--database", str(settings.database.resolve())]
    if settings.prometheus is not None:
        command += ["--prometheus", settings.prometheus]
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, FILE_MODE)
        try:
            started = subprocess.run(  # noqa: S603 - our own interpreter and module
                ["/bin/sh", "-c", _DETACH, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=descriptor,
                start_new_session=True,
                cwd=run.path,  # not the engine's: a folder called store there would stand in for ours
                env=_environment(engine_key),
                timeout=_SECONDS,
                check=True,
            )
        finally:
            os.close(descriptor)
        pid = int(started.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise StorageError(
            f"no collector can be started for run {run.path.name}: {error}; start one: glassgate collect {run.path}"
        ) from None
    _stand_back(pid)
    return pid


def _environment(engine_key: str | None) -> dict[str, str]:
    """Ours, with the plug-in off, and with paths that do not depend on the working folder."""
    environ = {name: value for name, value in os.environ.items() if name not in (SWITCH, ENGINE_KEY)}
    if environ.get(CONFIG):
        environ[CONFIG] = os.path.realpath(environ[CONFIG])
    if engine_key is not None:
        environ[ENGINE_KEY] = engine_key
    return environ


def _stand_back(pid: int) -> None:
    """Leave the engine its cores: an engine may be bound to one, and what it starts would share it."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(pid, range(os.cpu_count() or 1))


def collector_log(run: Path) -> Path:
    """Where the collector of a run's folder writes what it has to say."""
    return run / LOG
