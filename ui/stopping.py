"""Stopping in good order: what Ctrl-C and SIGTERM do to a command that works for long."""

import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def stopped_by_signals(
    stop: Callable[[], None] = lambda: None, at_once: Callable[[], None] = _interrupt
) -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM calls `stop`, a second one `at_once`, by default what raises KeyboardInterrupt.

    Yielded are the signals seen so far.
    Outside the main thread, where Python handles no signals, nothing changes.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handle(number: int, _frame: FrameType | None) -> None:
        if seen:
            at_once()
        seen.append(number)
        stop()

    held = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A SIGINT that comes within waits for the end of it. A process begun within never gets one.

    It holds for the calling thread: where others run, the system may hand them the signal, and then it comes at once.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_in_loop(work: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer:
    """Run `work` as `asyncio.run` does, but let a SIGINT through only while it runs.

    An event loop that is half made or half closed when KeyboardInterrupt comes tells a traceback on stderr.
    """
    import asyncio  # noqa: PLC0415 - for those alone who run a loop

    async def let_through() -> _Answer:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        try:
            return await work()
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))

    with interrupts_held():
        return asyncio.run(let_through())
