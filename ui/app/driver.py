"""The terminal the screen is drawn on, which may stop, go on, or be gone."""

from __future__ import annotations

import io
import os
import signal
import sys
import termios
import tty
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from textual.app import App


class LastingFile(io.TextIOBase):
    """A terminal to write to: once it is gone that is told, and what is written goes nowhere.

    Textual's thread that writes would end with an error instead, and whoever has something for it wait for ever.
    """

    def __init__(self, file: IO[str], gone: Callable[[], object]) -> None:
        super().__init__()
        self._file = file
        self._gone = gone
        self._lost = False

    def fileno(self) -> int:
        """The descriptor of the terminal."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()

    def write(self, text: str) -> int:
        """Write, or leave it where nobody reads any more."""
        self._try(partial(self._file.write, text))
        return len(text)

    def flush(self) -> None:
        """Send what is pending."""
        self._try(self._file.flush)

    def _try(self, work: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            work()
        except OSError:
            self._lost = True
            self._gone()


class TerminalDriver(LinuxDriver):
    """Textual's driver for a terminal that others stop and continue, or that goes away with its connection."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        hang_up = partial(app.call_later, app.exit, None, 128 + signal.SIGHUP)
        self._file = cast("Any", LastingFile(cast("IO[str]", sys.__stderr__), hang_up))
        self._resting = True
        """The terminal is not ours yet, or is a shell's until the screen is resumed."""

    def suspend_application_mode(self) -> None:
        """Give the terminal to a shell for the time being."""
        super().suspend_application_mode()
        self._resting = True

    def start_application_mode(self) -> None:
        """Take the terminal, unless it is ours, or was and has been left.

        SIGCONT asks for this too, and it comes with every hang-up and from whoever stopped the process: another
        thread that reads keys would then outlive the screen. Meanwhile a shell may have written on the terminal and set
        it anew, so all is drawn once more.
        """
        if self._resting:
            super().start_application_mode()  # type: ignore[no-untyped-call] # Textual gives it no types
            self._resting = not self._reads_keys()  # in the background it is not ours yet
            return
        if not self._reads_keys():
            return
        if self._writer_thread is not None and self._is_ours():
            self._set_keys()
            self.write("\x1b[?25l")  # no cursor
            self._enable_bracketed_paste()
            self._enable_mouse_support()
        self._app.post_message(self.SignalResume())

    def _reads_keys(self) -> bool:
        return self._key_thread is not None and self._key_thread.is_alive()

    def _is_ours(self) -> bool:
        """Whether the terminal's keys come to us; whoever sets it without is stopped."""
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:
            return False

    def _set_keys(self) -> None:
        """Each key at once and unseen, as `start_application_mode` sets it."""
        with suppress(termios.error):
            now = termios.tcgetattr(self.fileno)
            now[tty.LFLAG] = self._patch_lflag(now[tty.LFLAG])
            now[tty.IFLAG] = self._patch_iflag(now[tty.IFLAG])
            now[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self.fileno, termios.TCSANOW, now)
