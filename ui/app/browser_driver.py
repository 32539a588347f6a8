"""The browser the screen is drawn in, whose server may be gone at any moment."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from textual.drivers.web_driver import WebDriver

if TYPE_CHECKING:
    from textual.app import App


class BrowserDriver(WebDriver):
    """Textual's driver for a browser, which leaves the screen when nobody is there any more to send it keys."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._send = self._write
        self._sending = Lock()
        self._write = self._try  # type: ignore[assignment] # one of the kind that was there

    def run_input_thread(self) -> None:
        """Read keys until the screen is left, or the server has gone without a word."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.call_later(self._app.exit)

    def _try(self, packet: bytes) -> int:
        """Write all of a packet, or leave it where nobody reads any more.

        Two threads write: that of the keys sends files, the app draws. A full pipe takes a packet in parts, and another
        one must not come between them.
        """
        with self._sending, suppress(OSError):
            left = memoryview(packet)
            while left:
                left = left[self._send(left) :]
        return len(packet)
