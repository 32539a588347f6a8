"""Putting Glassgate's schedulers in the place of vLLM's, in every process that loads the engine's general plug-ins.

Only the process that makes a scheduler records; only the workers, which own the device, make the smoke allocation.
"""

from __future__ import annotations

import functools
import multiprocessing
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Around = Callable[[Callable[..., Any]], Callable[..., Any]]

_MARK: Final = "_glassgate_stock"


def install() -> None:
    """Let vLLM make Glassgate's schedulers from here on. A second time does nothing."""
    for owner, name, around in _places():
        _wrap(owner, name, around)


def uninstall() -> None:
    """Let vLLM make its own schedulers again."""
    for owner, name, _ in _places():
        stock = getattr(getattr(owner, name), _MARK, None)
        if stock is not None:
            setattr(owner, name, stock)


def _places() -> list[tuple[Any, str, Around]]:
    """The engine's methods that Glassgate stands around in this process."""
    # The engine is there only when it loads us.
    from vllm.config.scheduler import SchedulerConfig  # noqa: PLC0415 - as above
    from vllm.v1.executor.abstract import Executor  # noqa: PLC0415 - as above

    places: list[tuple[Any, str, Around]] = [
        (SchedulerConfig, "get_scheduler_cls", _choosing),
        (Executor, "compile_or_warm_up_model", _smoking),
    ]
    if multiprocessing.parent_process() is None:
        from vllm.v1.engine.utils import CoreEngineProcManager  # noqa: PLC0415 - as above

        places += [(CoreEngineProcManager, "__init__", _beginning), (CoreEngineProcManager, "shutdown", _stopping)]
    return places


def _wrap(owner: Any, name: str, around: Around) -> None:
    stock = getattr(owner, name)
    if not hasattr(stock, _MARK):
        ours = around(stock)
        setattr(ours, _MARK, stock)
        setattr(owner, name, ours)


def _choosing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`SchedulerConfig.get_scheduler_cls`, with Glassgate put into the class that it names."""

    @functools.wraps(stock)
    def get_scheduler_cls(self: Any) -> Any:
        chosen = stock(self)
        # Only where an engine is made: the frontend and the workers ask for no class.
        from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415 - as above

        from controller.engines.vllm.start import FAULTS  # noqa: PLC0415 - as above

        ours = chosen
        with FAULTS.contained("vllm.install", "the stock scheduler decides, and nothing is recorded"):
            if not issubclass(chosen, Scheduler):
                raise TypeError(f"{chosen.__name__} is no subclass of vLLM's Scheduler, so Glassgate stays out")
            from controller.engines.vllm.scheduler import with_glassgate  # noqa: PLC0415 - as above

            ours = with_glassgate(chosen)
        return ours  # noqa: RET504 - what is contained above may have failed

    return get_scheduler_cls


def _smoking(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`Executor.compile_or_warm_up_model`, after which weights, KV pool and graphs stand, with the smoke allocation."""

    @functools.wraps(stock)
    def compile_or_warm_up_model(self: Any) -> Any:
        done = stock(self)
        from controller.engines.vllm.start import FAULTS  # noqa: PLC0415 - as above

        with FAULTS.contained("vllm.smoke", "the smoke allocation was not made"):
            from controller.engines.vllm.smoke import smoke_workers  # noqa: PLC0415 - as above

            smoke_workers(self)
        return done

    return compile_or_warm_up_model


def _beginning(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`CoreEngineProcManager.__init__`, in the process that starts an engine's others."""

    @functools.wraps(stock)
    def begin(self: Any, *args: Any, **keywords: Any) -> None:
        stock(self, *args, **keywords)
        from controller.engines.vllm.ending import keep_run  # noqa: PLC0415 - as above

        keep_run(self, *args, **keywords)

    return begin


def _stopping(stock: Callable[..., Any]) -> Callable[..., Any]:
    """`CoreEngineProcManager.shutdown`, with the word that the run ended; not for an engine that died before."""

    @functools.wraps(stock)
    def shutdown(self: Any, *args: Any, **keywords: Any) -> None:
        # As vLLM itself hears of a death; a process that was killed may still count as alive for a while.
        dead = connection.wait([process.sentinel for process in self.processes], 0)
        stock(self, *args, **keywords)
        if not dead:
            from controller.engines.vllm.ending import end_kept_run  # noqa: PLC0415 - as above

            end_kept_run(self)

    return shutdown
