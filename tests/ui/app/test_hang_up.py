"""The screen on a terminal that is stopped, continued, or gone."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading

import pytest
from textual.drivers.linux_driver import LinuxDriver

from ui.app.driver import LastingFile, TerminalDriver

ENDS_WITHIN = 120
"""Seconds; a screen that hangs never ends, one on a busy machine takes its time."""


class Line:
    """A process on a pseudo-terminal of its own, as over SSH; its output is read all the while."""

    def __init__(self, command, environment, *, ignoring=""):
        self._terminal, inside = pty.openpty()
        # A session of its own, whose terminal this is; `nohup` is a trap that does nothing.
        words = ["sh", "-c", f'{ignoring} exec "$@"', "sh", *command]
        setsid = [sys.executable, "-c", _SETSID, *words]
        self.process = subprocess.Popen(setsid, env=environment, stdin=inside, stdout=inside, stderr=inside)
        self._name = os.ttyname(inside)
        os.close(inside)
        self._drawn = b""
        self._told = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        while not self._over:
            if not select.select([self._terminal], [], [], 0.05)[0]:
                continue
            try:
                some = os.read(self._terminal, 1 << 16)
            except OSError:  # nobody writes any more
                return
            with self._told:
                self._drawn += some
                self._told.notify_all()

    def wait_for(self, text):
        """Until it was drawn since the last call."""
        with self._told:
            assert self._told.wait_for(lambda: text in self._drawn, ENDS_WITHIN), self._drawn[-2000:]
            self._drawn = b""

    def settle(self):
        """Until nothing was drawn for a second."""
        with self._told:
            for _ in range(10 * ENDS_WITHIN):
                if not self._told.wait(1):
                    return
        raise AssertionError(f"it went on drawing: {self._drawn[-2000:]!r}")

    def press(self, key):
        """Send a key."""
        os.write(self._terminal, key)

    def set_by_shell(self):
        """Keys come by lines, as a shell leaves it that has got the terminal back."""
        attributes = termios.tcgetattr(self._terminal)
        attributes[3] |= termios.ICANON | termios.ECHO | termios.ISIG
        termios.tcsetattr(self._terminal, termios.TCSANOW, attributes)

    def write_beside(self, text):
        """Another process, such as a shell, writes on the same terminal."""
        beside = os.open(self._name, os.O_WRONLY | os.O_NOCTTY)
        os.write(beside, text)
        os.close(beside)

    def hang_up(self):
        """The connection breaks."""
        self._over = True
        self._reader.join()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


_SETSID = """
import fcntl, os, sys, termios
if os.getpid() != os.getsid(0):
    os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
fcntl.ioctl(0, termios.TIOCSWINSZ, (35).to_bytes(2, "little") + (120).to_bytes(2, "little") + bytes(4))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def on_a_line(command, environment, **how):
    """A process on a line that is ended, whatever happens."""
    line = Line(command, {**environment, "TERM": "xterm-256color"}, **how)
    try:
        yield line
    finally:
        line.hang_up()
        if line.process.poll() is None:
            line.process.kill()
        line.process.wait()


@pytest.mark.parametrize("ignoring", ["", "trap '' HUP;"])
def test_a_connection_that_breaks_ends_the_screen(command, environment, recording, ignoring):
    """By SIGHUP, and by the terminal that nobody reads where the signal is ignored, as under nohup."""
    with on_a_line([*command, "ui", str(recording)], environment, ignoring=ignoring) as line:
        line.wait_for(b"Waiting room")
        line.hang_up()
        assert line.process.wait(timeout=ENDS_WITHIN) == 129


def test_a_screen_that_was_stopped_and_goes_on_leaves_as_ever(command, environment, recording):
    """A SIGSTOP and SIGCONT of somebody else leave one reader of keys, and q ends it."""
    with on_a_line([*command, "ui", str(recording)], environment) as line:
        line.wait_for(b"Waiting room")
        line.process.send_signal(signal.SIGSTOP)
        line.process.send_signal(signal.SIGCONT)
        line.press(b"3")
        line.wait_for(b"headroom")
        line.press(b"q")
        assert line.process.wait(timeout=ENDS_WITHIN) == 0


def test_a_screen_that_was_stopped_and_goes_on_is_drawn_anew(command, environment, recording):
    """All of it, also what has not changed: the shell that had the terminal meanwhile may have written over it."""
    with on_a_line([*command, "ui", str(recording)], environment) as line:
        line.wait_for(b"Waiting room")
        line.settle()
        line.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, line.process.pid, os.WSTOPPED | os.WNOWAIT)
        line.set_by_shell()
        line.write_beside(b"jobs")
        line.wait_for(b"jobs")  # comes after all that was drawn before
        line.process.send_signal(signal.SIGCONT)
        line.wait_for(b"Waiting room")
        line.press(b"q")
        assert line.process.wait(timeout=ENDS_WITHIN) == 0


def test_a_screen_that_has_left_its_terminal_does_not_take_it_again(monkeypatch):
    """SIGCONT may come while the process ends: no thread begins then that would keep it."""
    begun = []

    class Thread:
        def is_alive(self):
            return begun[-1] == "reads"

    class Stub(TerminalDriver):
        def __init__(self):
            self._resting = True
            self._key_thread = Thread()

    monkeypatch.setattr(LinuxDriver, "start_application_mode", lambda _: begun.append("reads"))
    monkeypatch.setattr(LinuxDriver, "suspend_application_mode", lambda _: begun.append("rests"))
    driver = Stub()
    driver.start_application_mode()
    driver.suspend_application_mode()
    driver.start_application_mode()
    assert begun == ["reads", "rests", "reads"]
    begun.append("left")
    driver.start_application_mode()
    assert begun[-1] == "left"


def test_what_is_written_to_a_lost_terminal_goes_nowhere():
    """The first write that fails tells it, once; none raises."""
    terminal, inside = pty.openpty()
    told = []
    with os.fdopen(inside, "w", encoding="utf-8") as file:
        lasting = LastingFile(file, lambda: told.append("gone"))
        assert lasting.isatty()
        assert lasting.fileno() == inside
        assert lasting.write("drawn") == 5
        lasting.flush()
        assert os.read(terminal, 5) == b"drawn"
        assert told == []
        os.close(terminal)
        for _ in range(3):
            assert lasting.write("lost") == 4
            lasting.flush()
        assert told == ["gone"]
        with contextlib.suppress(OSError):
            file.close()
