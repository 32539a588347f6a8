"""`glassgate ui --web` for a test, and a page that speaks to it as a browser's does."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
from pathlib import Path

import aiohttp


@contextlib.contextmanager
def served(command, environment, *arguments, **more):
    """`glassgate ui` with these arguments, once it has told its address: the process, what it told, and the address."""
    process = subprocess.Popen(
        [*command, "ui", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )
    told = []
    try:
        for line in process.stderr:
            told.append(line)
            if "the screen is at" in line:
                break
        yield process, "".join(told), re.search(r"the screen is at (\S+); Ctrl-C ends it", told[-1])[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def screens_of(process):
    """The processes of the screens that a server has."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


class Page:
    """What a browser's page does: it sends keys, and gets what the screen draws and files to fetch."""

    def __init__(self, url, socket):
        self._url, self._socket = url, socket
        self.drawn = ""

    async def say(self, *words):
        """Send a message as textual-serve's script does."""
        await self._socket.send_str(json.dumps(words))

    async def press(self, keys):
        """Type keys."""
        await self.say("stdin", keys)

    async def draws(self, wanted):
        """Wait until a word was drawn."""
        await self._until(lambda _: wanted in self.drawn)

    async def told(self, kind):
        """Wait until the server says something of this kind, and return it."""
        return (await self._until(lambda told: told is not None and told[0] == kind))[1]

    async def download(self, key):
        """Fetch a file that the screen has for the browser: the answer's headers, and its text."""
        async with aiohttp.ClientSession() as session, session.get(f"{self._url}/download/{key}") as answer:
            assert answer.status == 200
            return answer.headers, await answer.text()

    async def _until(self, found):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                async for message in self._socket:
                    told = None
                    if message.type == aiohttp.WSMsgType.BINARY:
                        self.drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", message.data.decode(errors="replace"))
                    elif message.type == aiohttp.WSMsgType.TEXT:
                        told = json.loads(message.data)
                    if found(told):
                        return told
        raise AssertionError(f"the server said no more of it than this: {self.drawn[-2000:]}")


@contextlib.asynccontextmanager
async def page(url, width=120, height=35):
    """A page that was opened there."""
    at = f"{url}/ws?width={width}&height={height}"
    async with aiohttp.ClientSession() as session, session.ws_connect(at) as socket:
        yield Page(url, socket)
