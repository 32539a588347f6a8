"""Putting Glassgate's schedulers in the place of vLLM's, in every process that loads the engine's general plug-ins.

Only the process that makes a scheduler records; only the workers, which own the device, make the smoke allocation.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK: Final = "_glassgate_stock"


def install() -> None:
    """Let vLLM make Glassgate's schedulers from here on. A second time does nothing."""
    from vllm.config.scheduler import SchedulerConfig  # noqa: PLC0415 - the engine is there only when it loads us
    from vllm.v1.executor.abstract import Executor  # noqa: PLC0415 - as above

    _wrap(SchedulerConfig, "get_scheduler_cls", _choosing)
    _wrap(Executor, "compile_or_warm_up_model", _smoking)


def uninstall() -> None:
    """Let vLLM make its own schedulers again."""
    from vllm.config.scheduler import SchedulerConfig  # noqa: PLC0415 - as above
    from vllm.v1.executor.abstract import Executor  # noqa: PLC0415 - as above

    for owner, name in ((SchedulerConfig, "get_scheduler_cls"), (Executor, "compile_or_warm_up_model")):
        stock = getattr(getattr(owner, name), _MARK, None)
        if stock is not None:
            setattr(owner, name, stock)


def _wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
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
