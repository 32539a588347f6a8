"""Putting Glassgate beside SGLang's scheduler, in every process that loads the engine's plug-ins and has one."""

from __future__ import annotations

import multiprocessing
import sys
from typing import TYPE_CHECKING, Any, Final

from controller.engines.plugin import announce_run

if TYPE_CHECKING:
    from collections.abc import Callable

_MODULE: Final = "sglang.srt.managers.scheduler"


def install() -> None:
    """Let every scheduler that is made from here on be watched: weights, pool and graphs are in place by then."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415 - there when the engine loads us

    if multiprocessing.parent_process() is None:
        announce_run()  # the processes that are started from here share the run
    if _MODULE in sys.modules:  # the detokenizer's process has no scheduler
        HookRegistry.register(f"{_MODULE}.Scheduler.__init__", _made, HookType.AROUND)


def _made(make: Callable[..., None], scheduler: Any, *args: Any, **keywords: Any) -> None:
    make(scheduler, *args, **keywords)
    from controller.engines.sglang.start import begin_watch  # noqa: PLC0415 - as above

    begin_watch(scheduler)
