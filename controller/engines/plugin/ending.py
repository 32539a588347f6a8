"""Ending a record with its process: at exit, after a worker's last line, and at a SIGTERM that nobody else handles."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def close_at_exit(close: Callable[[str], None]) -> None:
    """Have `close(reason)` called when the process ends, unless it is killed. It must bear to be called again."""
    atexit.register(close, "finished")
    # A forked worker of multiprocessing leaves without atexit.
    Finalize(None, close, ("finished",), exitpriority=10)
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: _close_and_die(close))


def _close_and_die(close: Callable[[str], None]) -> None:
    """Close in a thread, since the one that was interrupted may hold what closing needs; then die as one would have."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def end() -> None:
        try:
            close("SIGTERM")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, name="glassgate-end", daemon=True).start()
