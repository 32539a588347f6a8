"""The screen in a browser, through textual-serve: each visitor gets a process of the screen of their own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import shlex
import signal
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web
from textual_serve.server import Server, to_int

from estimator.errors import UsageError
from ui.app.visitor import Visitor, bounded
from ui.stopping import run_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_PORT: Final = 8000
_CLOSE_SECONDS: Final = 2.0
"""How long a visitor's screen may take to close when the server ends."""
_MOST_VISITORS: Final = 16
"""Screens that are open at once; each is a process."""
_PAGE: Final = Path(__file__).with_name("web_page")
_OWN_ALONE: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser may fetch for the page: what this server has, and nothing of another host."""


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

    def __str__(self) -> str:
        """As it is written on a command line."""
        return self.url.partition("//")[2]

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class ScreenServer(Server):
    """A textual-serve server that answers pages of its own alone, and tells nothing on stdout."""

    def __init__(self, command: Sequence[str], address: Address) -> None:
        super().__init__(
            shlex.join(command),
            address.host,
            address.port,
            title="Glassgate",
            public_url=address.url,
            templates_path=_PAGE,
        )
        self._address = address
        self._places = asyncio.Semaphore(_MOST_VISITORS)

    def serve_until_interrupted(self, listening: Callable[[str], None]) -> None:
        """Serve until SIGINT or SIGTERM; `listening` gets the page's address once it answers.

        Raises UsageError where nobody can listen there, and KeyboardInterrupt for a SIGINT before it listened.
        """
        run_in_loop(partial(self._serve, listening))

    async def _serve(self, listening: Callable[[str], None]) -> None:
        runner = web.AppRunner(await self._make_app(), shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self.host, self.port).start()
            except OSError as error:
                raise UsageError(f"--web {self._address}: {_why(error)}") from None
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, ended.set)
            self._address = self._address._replace(port=runner.addresses[0][1])
            listening(self._address.url)
            await ended.wait()
        finally:
            await runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.router.add_get("/page.js", self.handle_script)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: the command tells the address."""

    async def handle_index(self, request: web.Request) -> Any:
        """The page, with links to the name under which it was asked for."""
        if not self._known(request.host):
            raise web.HTTPForbidden(text=f"glassgate ui is served as {self._address.url}, not as {request.host}\n")
        self.public_url = f"{request.headers.get('X-Forwarded-Proto', request.scheme)}://{request.host}"
        page = await super().handle_index(request)
        page.headers["Content-Security-Policy"] = _OWN_ALONE
        return page

    async def handle_script(self, request: web.Request) -> web.FileResponse:
        """What the page does beside textual-serve's own script."""
        del request
        return web.FileResponse(_PAGE / "page.js")

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """The screen itself. A page of another site is refused, since it could press keys here."""
        origin = request.headers.get("Origin")
        if not self._known(request.host) or (origin is not None and urlsplit(origin).netloc != request.host):
            raise web.HTTPForbidden(text="this page is not the one that glassgate ui serves\n")
        socket = web.WebSocketResponse(heartbeat=15)
        await socket.prepare(request)
        if self._places.locked():
            await socket.send_bytes(f"{_MOST_VISITORS} screens are open, the most there may be; close one.".encode())
            await socket.close()
            return socket
        visitor = Visitor(self.command, socket, self.download_manager)
        size = (to_int(request.query.get(name, ""), usual) for name, usual in (("width", 80), ("height", 24)))
        async with self._places:
            try:
                await visitor.start(*bounded(*size))
                async for message in socket:
                    if message.type == WSMsgType.TEXT:
                        await visitor.hear(message.data)
            finally:
                await visitor.stop()
                await socket.close()
        return socket

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


def _why(error: OSError) -> str:
    """Why nobody can listen at an address, and what to do."""
    if isinstance(error, socket.gaierror):
        return "there is no such host; name an address of this machine, such as 127.0.0.1"
    remedies = {
        errno.EADDRINUSE: "the port is taken; choose another port",
        errno.EADDRNOTAVAIL: "this machine has no such address; name one of its own, such as 127.0.0.1",
        errno.EACCES: "the port is not allowed to this user; choose another port, above 1023",
    }
    return remedies.get(error.errno or 0, f"{error.strerror or error}; choose another address")
