"""What a screen writes to the server that serves it to a browser."""

import os
import threading
from functools import partial

from ui.app.browser_driver import BrowserDriver

TIMES = 40


def driver_onto(descriptor):
    """A driver that writes there, without a screen."""
    driver = BrowserDriver.__new__(BrowserDriver)
    driver._send, driver._sending = partial(os.write, descriptor), threading.Lock()
    driver._write = driver._try
    return driver


def test_packets_of_two_threads_come_whole():
    """A pipe takes a large packet in parts, and no other packet comes between them."""
    reads, writes = os.pipe()
    driver = driver_onto(writes)
    large, small = "p" * 150_000, "s" * 6_000

    def write(text):
        for _ in range(TIMES):
            driver.write(text)

    threads = [threading.Thread(target=write, args=(text,)) for text in (large, small)]
    for each in threads:
        each.start()
    came = []
    with os.fdopen(reads, "rb") as file:
        while len(came) < 2 * TIMES:
            assert file.read(1) == b"D"
            came.append(file.read(int.from_bytes(file.read(4), "big")).decode())
    for each in threads:
        each.join()
    os.close(writes)
    assert sorted(came) == [large] * TIMES + [small] * TIMES


def test_nothing_fails_where_nobody_reads():
    """The server may be gone at any moment."""
    reads, writes = os.pipe()
    os.close(reads)
    driver_onto(writes).write("drawn")
    os.close(writes)
