"""Stopping in good order: what Ctrl-C and SIGTERM do to a command that works for long."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(
    stop: Callable[[], None] = lambda: None, at_once: Callable[[], None] | None = None
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
        if seen and at_once is None:
            raise KeyboardInterrupt
        if seen and at_once is not None:
            at_once()
        seen.append(number)
        stop()

    held = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
