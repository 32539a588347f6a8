"""The browser the screen is drawn in, whose server may be gone at any moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual.drivers.web_driver import WebDriver

if TYPE_CHECKING:
    from textual.app import App


class BrowserDriver(WebDriver):
    """Textual's driver for a browser, which leaves the screen when nobody is there any more to send it keys."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._send = self._write
        self._write = self._try  # type: ignore[assignment] # one of the kind that was there

    def run_input_thread(self) -> None:
        """Read keys until the screen is left, or the server has gone without a word."""
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.call_later(self._app.exit)

    def _try(self, packet: bytes) -> int:
        """Write, or leave it where nobody reads any more."""
        with suppress(OSError):
            self._send(packet)
        return len(packet)
