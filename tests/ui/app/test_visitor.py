"""One visitor of the screen in a browser: their files, their mistakes, and how their screen ends."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.ui.app.serving import page, screens_of, served
from tests.waiting import wait_until
from ui.app.visitor import bounded


def test_a_picture_goes_to_the_browser(command, environment, recording, tmp_path):
    """`s` writes nothing on the server, where it would also be a stranger's to write, and the browser downloads it."""
    here = tmp_path / "here"
    here.mkdir()
    with served(command, environment, "--web=0", "--readonly", str(recording), cwd=here) as (_, _, url):

        async def look():
            async with page(url) as visitor:
                await visitor.draws("Batches")
                await visitor.press("s")
                return await visitor.download(await visitor.told("deliver_file_start"))

        headers, picture = asyncio.run(look())
    assert headers["Content-Type"] == "image/svg+xml; charset=utf-8"
    assert headers["Content-Disposition"].startswith("attachment; filename=glassgate-")
    assert picture.startswith("<svg")
    assert "Batches" in picture
    assert list(here.iterdir()) == []


def test_what_is_no_message_of_a_page_is_passed_over(command, environment, recording):
    """Broken, nested without end, of another shape: the screen goes on and nothing is told."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look():
            async with page(url) as visitor:
                for bad in ("", "{", "[" * 100_000, '["stdin", "\\ud800"]', '["stdin", 3]', "3", '["resize", {}]'):
                    await visitor._socket.send_str(bad)
                await visitor.draws("Batches")
                await visitor.press("3")
                await visitor.draws("headroom over time")

        asyncio.run(look())
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")


def test_a_screen_that_cannot_open_says_why(command, environment):
    """On the page, and once on stderr, where no run is recorded; stdout stays empty."""
    with served(command, environment, "--web=0") as (process, _, url):

        async def look():
            async with page(url) as visitor:
                await visitor.draws("Reload this page to try again.")
                for _ in range(10):
                    await visitor.press("1")
                return visitor.drawn

        drawn = asyncio.run(look())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert "glassgate: no run is recorded under " in drawn
    assert (out, err.count("\n")) == ("", 1)
    assert err.strip() in drawn


def test_a_screen_whose_process_was_killed_says_so(command, environment, recording):
    """Its last picture would look as if it were of now."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look():
            async with page(url) as visitor:
                await visitor.draws("Batches")
                for each in screens_of(process):
                    os.kill(each, signal.SIGKILL)
                await visitor.draws("The process of this screen ended with signal 9.")

        asyncio.run(look())


@pytest.mark.parametrize("who", ["page", "server"])
def test_a_screen_ends_with_its_page_and_with_its_server(command, environment, recording, who):
    """However they end: a page that is closed, a server that is killed."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look():
            async with page(url) as visitor:
                await visitor.draws("Batches")
                screens = screens_of(process)
                if who == "server":
                    process.kill()
            return screens

        (screen,) = asyncio.run(look())
        wait_until(lambda: not Path(f"/proc/{screen}").exists(), what="the end of the screen")


def test_a_page_may_ask_for_any_size():
    """It gets one that a screen can have."""
    assert bounded(120, 35) == (120, 35)
    assert bounded(10**9, -1) == (1000, 1)


def test_one_visitor_too_many_is_told(command, environment, recording):
    """No more screens are opened than there may be, and one that was closed makes room."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look():
            async with contextlib.AsyncExitStack() as others:
                for _ in range(16):
                    await others.enter_async_context(page(url))
                async with page(url) as visitor:
                    await visitor.draws("16 screens are open, the most there may be; close one.")
                assert len(screens_of(process)) <= 16
            await asyncio.to_thread(wait_until, lambda: not screens_of(process))
            async with page(url) as visitor:
                await visitor.draws("Batches")

        asyncio.run(look())


def test_a_key_typed_while_the_screen_opens_is_not_lost(command, environment, recording):
    """It waits until there is something for it to act on."""
    with served(command, environment, "--web=0", str(recording)) as (process, _, url):

        async def look():
            async with page(url) as visitor:
                await visitor.draws("")
                await visitor.press("q")
                await asyncio.to_thread(wait_until, lambda: not screens_of(process))

        asyncio.run(look())
