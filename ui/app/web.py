"""The screen in a browser, through textual-serve: each visitor gets a process of the screen of their own."""

from __future__ import annotations

import ipaddress
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

from estimator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT = 8000


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class ScreenServer(Server):
    """A textual-serve server that answers pages of its own alone, and tells nothing on stdout."""

    def __init__(self, command: Sequence[str], address: Address) -> None:
        super().__init__(shlex.join(command), address.host, address.port, title="Glassgate", public_url=address.url)
        self._address = address

    def initialize_logging(self) -> None:
        """Leave logging as it is."""

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: the command has told the address."""

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with links to the name under which it was asked for."""
        if not self._known(request.host):
            raise web.HTTPForbidden(text=f"glassgate ui is served as {self._address.url}, not as {request.host}\n")
        self.public_url = f"{request.headers.get('X-Forwarded-Proto', request.scheme)}://{request.host}"
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """The screen itself. A page of another site is refused, since it could press keys here."""
        origin = request.headers.get("Origin")
        if not self._known(request.host) or (origin is not None and urlsplit(origin).netloc != request.host):
            raise web.HTTPForbidden(text="this page is not the one that glassgate ui serves\n")
        return await super().handle_websocket(request)

    def _known(self, host: str) -> bool:
        """On a loopback address only its own names are known, so that a name made to point here is not."""
        if not self._address.loopback:
            return True
        name = urlsplit(f"//{host}").hostname or ""
        return Address(name, 0).loopback


def parse_web_address(text: str) -> Address:
    """`HOST:PORT`, `PORT`, `HOST` or `[IPV6]:PORT`. Raises UsageError for what is none."""
    try:
        parts = urlsplit(f"//{text}" if not text.isdecimal() else f"//127.0.0.1:{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path or parts.username or any(each.isspace() for each in text):
        raise UsageError(f"--web {text!r} is no address; write --web=HOST:PORT, such as --web=127.0.0.1:8000")
    return Address(host, DEFAULT_PORT if port is None else port)
