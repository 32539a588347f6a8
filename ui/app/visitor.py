"""One visitor of the screen in a browser: the page speaks to a screen of its own, which draws on the page."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from textual_serve.app_service import AppService

from estimator.errors import one_line
from ui.output import narrate

if TYPE_CHECKING:
    from asyncio import StreamReader
    from asyncio.subprocess import Process

    from aiohttp.web import WebSocketResponse
    from textual_serve.download_manager import DownloadManager

_DRIVER: Final = "ui.app.browser_driver:BrowserDriver"
_BEGINNING: Final = b"__GANGLION__\n"
"""What Textual writes before its first packet."""
_MOST: Final = (1000, 400)
"""Columns and lines of the largest screen; a page may ask for any."""
_LEAVE_SECONDS: Final = 2.0
"""How long a screen whose visitor has gone may take to leave."""
_LAST_WORDS: Final = 20
"""Lines that are shown of what a screen said as it failed."""
_CLEAR: Final = "\x1b[0m\x1b[2J\x1b[H"


class Visitor(AppService):
    """The process of one visitor's screen, and the socket to the page."""

    def __init__(self, command: str, socket: WebSocketResponse, downloads: DownloadManager) -> None:
        super().__init__(
            command,
            write_bytes=socket.send_bytes,
            write_str=socket.send_str,
            close=self._close,
            download_manager=downloads,
        )
        self._socket = socket
        self._leaves = False
        """The screen was left, or its visitor has gone."""

    async def hear(self, text: str) -> None:
        """Do what the page says. What is no message of a page is passed over, and all of it once the screen failed."""
        said: Any = None
        with suppress(msgspec.DecodeError, RecursionError):
            said = msgspec.json.decode(text)
        if self._process is None or self._process.returncode is not None:
            return
        match said:
            case ["stdin", str(keys)]:
                await self.send_bytes(keys.encode())
            case ["resize", {"width": int(width), "height": int(height)}]:
                await self.set_terminal_size(*bounded(width, height))
            case ["ping", sent]:
                await self._socket.send_json(["pong", sent])
            case ["focus"]:
                await self.focus()
            case ["blur"]:
                await self.blur()

    async def stop(self) -> None:
        """Leave the screen, and end it where it does not leave in time."""
        self._leaves = True
        late = asyncio.get_running_loop().call_later(_LEAVE_SECONDS, self._end)
        try:
            await super().stop()
        finally:
            late.cancel()

    async def run(self) -> None:
        """Hand on what the screen draws until it ends; one that failed says why, on the page and on stderr."""
        process = cast("Process", self._process)
        drawn, told = cast("StreamReader", process.stdout), cast("StreamReader", process.stderr)
        words = asyncio.create_task(told.read())
        try:
            await drawn.readuntil(_BEGINNING)
            while True:
                kind = await drawn.readexactly(1)
                size = int.from_bytes(await drawn.readexactly(4), "big")
                await self._hand_on(kind, await drawn.readexactly(size))
        except asyncio.IncompleteReadError:
            pass  # it has ended
        except asyncio.LimitOverrunError:
            self._end()  # no screen writes so much before it begins
        await self._tell_end((await words).decode(errors="replace").strip(), await process.wait())

    async def on_meta(self, data: bytes) -> None:
        """A word of the screen to its server: that it was left, or that it has a file for the browser."""
        self._leaves = self._leaves or msgspec.json.decode(data)["type"] == "exit"
        await super().on_meta(data)

    async def _hand_on(self, kind: bytes, packet: bytes) -> None:
        """Where the page has gone the packet goes nowhere: a screen that nobody reads could not leave."""
        with suppress(ConnectionError):
            if kind == b"D":
                await self.on_data(packet)
            elif kind == b"M":
                await self.on_meta(packet)
            elif kind == b"P":
                await self.on_packed(packet)

    async def _tell_end(self, words: str, code: int) -> None:
        if words:
            narrate(words)
        if self._leaves:
            return
        lines = [one_line(each) for each in words.splitlines()[-_LAST_WORDS:]]
        lines = lines or [f"The process of this screen ended with {f'signal {-code}' if code < 0 else f'code {code}'}."]
        with suppress(ConnectionError):
            await self._socket.send_bytes(
                (_CLEAR + "\r\n".join([*lines, "", "Reload this page to try again."])).encode(errors="replace")
            )

    async def _close(self) -> None:
        await self._socket.close()

    def _end(self) -> None:
        """End the process while it runs; for one that has just ended, asyncio would lose its exit code."""
        with suppress(ProcessLookupError):
            if self._process is not None and self._process.returncode is None:
                self._process.kill()

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        return {**super()._build_environment(width, height), "TEXTUAL_DRIVER": _DRIVER}

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """The screen without a shell around it, so that to end the one is to end the other."""
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *shlex.split(self.command),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._build_environment(width, height),
        )
        self._stdin = process.stdin
        return process


def bounded(width: int, height: int) -> tuple[int, int]:
    """Columns and lines that a screen can have."""
    return min(max(width, 1), _MOST[0]), min(max(height, 1), _MOST[1])
