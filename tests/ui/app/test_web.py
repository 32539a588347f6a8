"""`glassgate ui --web`: the screen in a browser, on this machine alone unless told otherwise."""

import asyncio
import re
import signal
import socket
from urllib.parse import urljoin

import aiohttp
import pytest

from estimator.errors import UsageError
from tests.ui.app.serving import page, served
from ui.app.web import Address, parse_web_address


async def _ask(url, path="/", **headers):
    async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as answer:
        return answer.status, await answer.text()


def test_a_browser_on_this_machine_sees_the_screen(command, environment, recording):
    """The address is told on stderr; the page is there, the screen draws, and another site's page is refused."""
    with served(command, environment, "--web=0", str(recording)) as (_, told, url):
        assert told.splitlines() == [f"the screen is at {url}; Ctrl-C ends it"]

        async def look():
            status, html = await _ask(url)
            assert status == 200
            assert f"{url.replace('http', 'ws')}/ws" in html
            assert (await _ask(url, "/ws", Origin="http://elsewhere.example"))[0] == 403
            strange = url.replace("http://127.0.0.1", "elsewhere.example")
            assert await _ask(url, Host=strange) == (403, f"glassgate ui is served as {url}, not as {strange}\n")
            async with page(url) as visitor:
                await visitor.draws("Batches")

        asyncio.run(look())


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_end_is_quiet(command, environment, recording, sent):
    """Ctrl-C ends the server without a traceback, also while somebody looks."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look_and_end():
            at = f"{url}/ws?width=80&height=24"
            async with aiohttp.ClientSession() as session, session.ws_connect(at) as screen:
                await screen.receive()
                process.send_signal(sent)
                async for _ in screen:
                    pass

        asyncio.run(look_and_end())
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize(("address", "words"), [
    ("nosuch.invalid:8000", "--web nosuch.invalid:8000: there is no such host; name an address of this machine"),
    ("192.0.2.1:8000", "--web 192.0.2.1:8000: this machine has no such address; name one of its own"),
])  # fmt: skip
def test_an_address_where_nobody_can_listen_is_refused_before_it_is_told(glassgate, recording, address, words):
    """With what to name instead; nobody is sent to a screen that is not there."""
    told = glassgate("ui", f"--web={address}", str(recording))
    assert told.returncode == 2
    assert words in told.stderr
    assert "the screen is at" not in told.stderr
    assert "Traceback" not in told.stderr


FOREIGN = re.compile(r"""(?:https?:)?//(?!127\.0\.0\.1)[\w.-]+\.[a-z]{2,}""")


def test_nothing_of_another_host_is_asked_for(command, environment, recording):
    """The page, its style and its script name files of this server alone, which are there; a browser is held to it."""
    with served(command, environment, "--web=0", str(recording)) as (_, _, url):

        async def look():
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as answer:
                    html = await answer.text()
                    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert not FOREIGN.search(html), FOREIGN.search(html)
                named = set(re.findall(r"""(?:src|href)=["']([^"']+)|url\(["']([^"')]+)""", html))
                files = {a or b for a, b in named} - {"data:,"}
                assert {each.rpartition(".")[2] for each in files} == {"css", "js", "ttf"}
                for each in files:
                    async with session.get(urljoin(url, each)) as answer:
                        assert answer.status == 200, each
                        content = await answer.read()
                    text = re.sub(r"/\*.*?\*/", "", content.decode(errors="ignore"), flags=re.DOTALL)
                    if not each.endswith("ttf"):
                        assert not FOREIGN.search(text), FOREIGN.search(text)
                    assert not each.endswith("css") or "@import" not in text

        asyncio.run(look())


def test_an_address_that_others_reach_is_warned_of_and_reads_only(command, environment, recording):
    """Nobody is asked who they are, so changes are off there unless they were allowed."""
    with served(command, environment, "--web=0.0.0.0:0", str(recording)) as (_, told, _):
        assert "0.0.0.0 is not a loopback address and nobody is asked who they are" in told
        assert "who reaches it sees every run; --allow-changes lets them turn knobs" in told
    with served(command, environment, "--web=0.0.0.0:0", "--allow-changes", str(recording)) as (_, told, _):
        assert "who reaches it can turn the knobs of a live run" in told


def test_a_port_that_is_taken_is_one_line(glassgate, recording):
    """With another to choose."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = glassgate("ui", f"--web={port}", str(recording))
    assert told.returncode == 2
    assert told.stderr == f"glassgate: --web 127.0.0.1:{port}: the port is taken; choose another port\n"


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
