"""Ending a run whose engine was stopped, by the process that started it.

vLLM kills an engine's process right after it has told it to stop, unless it was started with `--shutdown-timeout`, so
that the engine itself cannot say that the run ended in good order.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from controller.engines.plugin import read_settings
from controller.engines.vllm.start import FAULTS, run_id
from controller.run_directory import RunDirectory, default_base
from estimator.errors import GlassgateError

REASON: Final = "stopped"
_RUN: Final = "_glassgate_run"
_GONE_SECONDS: Final = 2.0


def keep_run(manager: Any, *args: Any, **keywords: Any) -> None:
    """Keep the id of the run whose processes a manager was made for, with those arguments. Never raises."""
    with FAULTS.contained("vllm.ending", "a run will look as if its engine had died when it is stopped"):
        config = keywords.get("vllm_config") or next(each for each in args if hasattr(each, "instance_id"))
        setattr(manager, _RUN, run_id(config))


def end_kept_run(manager: Any) -> None:
    """Mark the run of a manager's processes, which it has stopped, as ended in good order. Never raises."""
    with FAULTS.contained("vllm.ending", "the run will look as if its engine had died"):
        for process in manager.processes:  # killed, but perhaps not gone yet
            process.join(_GONE_SECONDS)
        end_run(getattr(manager, _RUN))


def end_run(name: str) -> None:
    """Mark every rank of a run on this machine as ended, unless it is already or its engine lives."""
    base = read_settings().runs or default_base()
    for path in sorted(base.glob(f"{name}*")):
        with suppress(GlassgateError):
            run = RunDirectory(path)
            if run.info.run_id == name and run.state == "engine_gone":
                run.end(REASON)
