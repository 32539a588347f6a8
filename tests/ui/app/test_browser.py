"""The screen in a real browser: Chromium without a window, told what to do through its debugging port."""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess

import aiohttp
import pytest

from tests.ui.app.serving import served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; it is the browser of this test")

FOCUSED = "document.activeElement.className === 'xterm-helper-textarea'"


class Tab:
    """A tab of a browser, and what its console said."""

    def __init__(self, socket):
        self._socket = socket
        self._sent = 0
        self.said = []

    async def do(self, method, **parameters):
        """Ask for something, and return the answer."""
        self._sent += 1
        await self._socket.send_json({"id": self._sent, "method": method, "params": parameters})
        async with asyncio.timeout(60):
            while (told := json.loads(await self._socket.receive_str())).get("id") != self._sent:
                if told["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                    self.said.append(json.dumps(told["params"]))
        return told["result"]

    async def asks(self, expression):
        """Whether an expression is true on the page."""
        return (await self.do("Runtime.evaluate", expression=f"!!({expression})"))["result"].get("value")

    async def comes(self, expression):
        """Wait until an expression is true on the page."""
        async with asyncio.timeout(60):
            while not await self.asks(expression):  # noqa: ASYNC110 - the page tells nobody
                await asyncio.sleep(0.1)

    async def press(self, key):
        """Press and release a key."""
        await self.do("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.do("Input.dispatchKeyEvent", type="keyUp", key=key)


@contextlib.contextmanager
def browser(folder):
    """A browser of its own: where its debugging port is."""
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run")
    process = subprocess.Popen(
        [CHROMIUM, *flags, f"--user-data-dir={folder}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        yield next(found[1] for line in process.stderr if (found := re.search(r"listening on ws://([^/]+)/", line)))
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextlib.asynccontextmanager
async def tab_at(url, folder):
    """A tab of a browser of its own, which shows this address."""
    with browser(folder) as at:
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://{at}/json/new?about:blank") as answer:
                socket = (await answer.json())["webSocketDebuggerUrl"]
            async with session.ws_connect(socket, max_msg_size=0) as debugging:
                tab = Tab(debugging)
                for each in ("Page", "Runtime", "Log"):
                    await tab.do(f"{each}.enable")
                await tab.do("Page.navigate", url=url)
                yield tab


def test_the_page_takes_keys_and_breaks_no_rule_of_its_own(command, environment, recording, tmp_path):
    """Without a click; the browser forbids it nothing, and once the screen was left Enter would open it again."""
    with served(command, environment, "--web=0", str(recording)) as (_, _, url):

        async def look():
            async with tab_at(url, tmp_path / "browser") as tab:
                await tab.comes("document.querySelector('body.-first-byte')")
                await tab.comes(FOCUSED)
                await tab.comes("document.fonts.check('16px \"Roboto Mono\"')")
                await tab.asks("document.activeElement.blur(), document.dispatchEvent(new MouseEvent('mouseup'))")
                await tab.comes(FOCUSED)
                assert not [each for each in tab.said if "error" in each], tab.said
                await tab.press("q")
                await tab.comes("document.querySelector('body.-closed')")
                await tab.comes("document.activeElement.textContent === 'Open it again'")

        asyncio.run(look())
