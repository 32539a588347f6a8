"""Ctrl-C at an unlucky moment: the command ends with one line at most, the documented code, and no traceback."""

import contextlib
import signal
import subprocess
import sys

import pytest

from ui.stopping import interrupts_held

AT_CALL = """
import os, signal, sys

def look(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == {function!r} and {module!r} == frame.f_globals.get("__name__"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(look)
"""
"""A sitecustomize that sends SIGINT to its own process when a function is called for the first time."""


@pytest.fixture
def interrupted_at(glassgate, tmp_path):
    """Run a command that gets SIGINT at the first call of a function, `module:function`."""

    def run(moment, *arguments):
        module, _, function = moment.partition(":")
        (tmp_path / "sitecustomize.py").write_text(AT_CALL.format(module=module, function=function))
        return glassgate(*arguments, PYTHONPATH=str(tmp_path))

    return run


def ended_quietly(told):
    """The last line says it, after an empty one behind the terminal's ^C, and the code is that of the table."""
    assert (told.returncode, told.stdout) == (130, ""), told.stderr
    assert told.stderr.splitlines()[-1] == "glassgate: interrupted"
    assert "Traceback" not in told.stderr
    assert "ignored" not in told.stderr


@pytest.mark.parametrize("moment", [
    "estimator.launch:find_shadow", "ui.cli:get_command", "asyncio.base_events:__init__",
    "asyncio.base_events:create_server", "asyncio.base_events:close",
])  # fmt: skip
def test_serving_the_screen_is_given_up_quietly(interrupted_at, recording, moment):
    """While modules are imported, while the event loop is made, before it listens, and while the loop is closed."""
    ended_quietly(interrupted_at(moment, "ui", "--web=192.0.2.1:1", str(recording)))  # nobody can listen there


@pytest.mark.parametrize("moment", ["asyncio.base_events:__init__", "ui.view.view:answer"])
def test_a_picture_is_given_up_quietly(interrupted_at, recording, tmp_path, moment):
    """The same while the screen is drawn to a file; none is left that is half written."""
    ended_quietly(interrupted_at(moment, "ui", "--screenshot", "screen.svg", str(recording)))
    assert not (tmp_path / "screen.svg").exists()


@pytest.mark.parametrize(("moment", "arguments"), [
    ("dataclasses:_create_fn", ("demo", "--no-screen")), ("ui.replaying:_serve", ("demo", "--no-screen")),
    ("store.follow:__init__", ("collect", "{runs}")), ("ui.whatif.recorded:read_recorded", ("whatif", "{run}")),
    ("ui.whatif.span:read_span", ("tune", "{run}")),
])  # fmt: skip
def test_long_commands_are_given_up_quietly_before_their_work_begins(interrupted_at, recording, moment, arguments):
    """Where no work is in hand yet that could be brought to an end; also out of code that is made as text."""
    named = [each.format(runs=recording.parent, run=recording) for each in arguments]
    ended_quietly(interrupted_at(moment, *named))


def test_an_ignored_interrupt_stays_ignored(interrupted_at):
    """A job in the background, whose shell told it to ignore SIGINT, is not ended by it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is started inherits it
    try:
        told = interrupted_at("ui.cli:get_command", "db", "--help")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (told.returncode, told.stderr) == (0, "")


def test_a_process_begun_while_interrupts_are_held_gets_none():
    """The workers of a search are left to the process that has them, from their first moment on."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    with interrupts_held():
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "alive\n", "")


def test_an_interrupt_that_was_held_comes_at_the_end():
    """It is late, not lost."""
    came = []
    with contextlib.suppress(KeyboardInterrupt):
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            came.append("held")
        came.append("lost")
    assert came == ["held"]
