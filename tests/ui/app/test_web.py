"""`glassgate ui --web`: the screen in a browser, on this machine alone unless told otherwise."""

import asyncio
import contextlib
import re
import signal
import socket
import subprocess

import aiohttp
import pytest

from estimator.errors import UsageError
from ui.app.web import Address, parse_web_address


@pytest.fixture
def port():
    """A port that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def served(command, environment, *arguments):
    """`glassgate ui` with these arguments, until it has told its address; ended at the end."""
    process = subprocess.Popen(
        [*command, "ui", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    told = []
    try:
        for line in process.stderr:
            told.append(line)
            if "the screen is at" in line:
                break
        yield process, "".join(told)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


async def _ask(url, path="/", **headers):
    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                async with session.get(url + path, headers=headers) as answer:
                    return answer.status, await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
    raise AssertionError(f"nothing answers at {url}")


async def _screen(url, wanted):
    """What the screen draws until a word of it comes."""
    drawn = ""
    async with aiohttp.ClientSession() as session, session.ws_connect(url + "/ws?width=120&height=35") as screen:
        async with asyncio.timeout(30):
            async for message in screen:
                if message.type == aiohttp.WSMsgType.BINARY:
                    drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", message.data.decode(errors="replace"))
                if wanted in drawn:
                    return True
    return False


def test_a_browser_on_this_machine_sees_the_screen(command, environment, recording, port):
    """The address is told on stderr; the page is there, the screen draws, and another site's page is refused."""
    url = f"http://127.0.0.1:{port}"
    with served(command, environment, f"--web=127.0.0.1:{port}", str(recording)) as (_, told):
        assert f"the screen is at {url}; Ctrl-C ends it" in told

        async def look():
            status, page = await _ask(url)
            assert status == 200
            assert f"ws://127.0.0.1:{port}/ws" in page
            assert (await _ask(url, "/ws", Origin="http://elsewhere.example"))[0] == 403
            assert (await _ask(url, Host=f"elsewhere.example:{port}"))[0] == 403
            assert await _screen(url, "Batches")

        asyncio.run(look())


def test_the_end_is_quiet(command, environment, recording, port):
    """Ctrl-C ends the server without a traceback."""
    with served(command, environment, f"--web={port}", str(recording)) as (process, _):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert "Traceback" not in out + err
    assert process.returncode == 0


def test_an_address_that_others_reach_is_warned_of_and_reads_only(command, environment, recording, port):
    """Nobody is asked who they are, so changes are off there unless they were allowed."""
    with served(command, environment, f"--web=0.0.0.0:{port}", str(recording)) as (_, told):
        assert "0.0.0.0 is not a loopback address and nobody is asked who they are" in told
        assert "who reaches it sees every run; --allow-changes lets them turn knobs" in told
    with served(command, environment, f"--web=0.0.0.0:{port}", "--allow-changes", str(recording)) as (_, told):
        assert "who reaches it can turn the knobs of a live run" in told


def test_a_port_that_is_taken_is_one_line(command, environment, recording, port):
    """With another to choose."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        told = subprocess.run(
            [*command, "ui", f"--web={port}", str(recording)],
            env=environment, capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
    assert told.returncode == 2
    assert "choose another port" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_missing_extra_is_one_line_with_the_remedy(glassgate, recording, tmp_path):
    """Without textual-serve the command says what to install."""
    (tmp_path / "textual_serve.py").write_text("raise ImportError('no module', name='textual_serve')\n")
    told = glassgate("ui", "--web", PYTHONPATH=str(tmp_path))
    assert told.returncode == 2
    assert "--web needs textual_serve; install it with: pip install 'glassgate[web]'" in told.stderr
    assert recording.exists()


@pytest.mark.parametrize(("text", "address", "loopback"), [
    ("127.0.0.1:8000", ("127.0.0.1", 8000), True), ("9000", ("127.0.0.1", 9000), True),
    ("localhost", ("localhost", 8000), True), ("[::1]:81", ("::1", 81), True), ("0.0.0.0:80", ("0.0.0.0", 80), False),  # noqa: S104
    ("box.example:1", ("box.example", 1), False),
])  # fmt: skip
def test_addresses_are_read_and_loopback_is_known(text, address, loopback):
    """Host and port, either of them, and whether only this machine reaches it."""
    found = parse_web_address(text)
    assert (found.host, found.port) == address
    assert found.loopback is loopback


@pytest.mark.parametrize("text", ["", "a b", "host:port", "host:99999", "user@host", "host/path", "::1:x"])
def test_what_is_no_address_is_refused(text):
    """With how to write one."""
    with pytest.raises(UsageError, match="is no address"):
        parse_web_address(text)


def test_the_url_of_an_ipv6_address_has_brackets():
    """So that a browser can open it."""
    assert Address("::1", 8000).url == "http://[::1]:8000"
