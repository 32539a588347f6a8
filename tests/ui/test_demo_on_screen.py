"""`glassgate demo` in a terminal: an engine in a process of its own, the screen in front of it, and what it serves."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from controller.engines.replay import ReplayEngine
from controller.journal import DATA, JournalReader
from controller.knob_requests import KnobRequest
from controller.knob_turning import asked_change
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.records import Pass, RunEnd, decode
from controller.run_directory import RunDirectory, list_runs
from controller.vocabulary import Gate
from ui.commands.demo import SCREEN_FROM_SECONDS, SCREEN_HOST_TOKENS, SCREEN_KNOBS, demo_options, screen_workload
from ui.watching import LOG, Engine, EngineFailedError

SECOND = 1_000_000_000


class Tape:
    """A journal in memory that keeps the passes."""

    def __init__(self):
        self.passes = []

    def append(self, payload):
        """Keep what is a pass."""
        self.passes += [record for record in decode(payload) if isinstance(record, Pass)]
        return 0


def served(until_s, change=None, at_s=0.0):
    """The passes of the screen's workload up to a simulated time, with a knob turned on the way if asked."""
    knobs = Knobs.parse(SCREEN_KNOBS)
    options = demo_options(knobs, host_tokens=SCREEN_HOST_TOKENS)
    tape = Tape()
    engine = ReplayEngine(
        screen_workload(), knobs=knobs, step_time=options.step_time_model(), recorder=Recorder(tape),
        setting=options.setting(), device_tokens=options.device_tokens, host_tokens=options.host_tokens,
        role=options.role, estimator=options.estimator(),
    )  # fmt: skip
    left = [] if change is None else [KnobRequest("1.json", asked_change(change, "test"), None)]

    def progress(standing):
        if left and standing.simulated_ns >= at_s * SECOND:
            assert engine.turn(left.pop()).accepted
        if standing.simulated_ns >= until_s * SECOND:
            engine.stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
        engine.run(progress)
    return [each for each in tape.passes if SCREEN_FROM_SECONDS <= each.start_ns / SECOND < until_s]


def stopped(passes):
    """The passes that a gate closed: how many by each, and the mean of members and of extend tokens."""
    closed = [each for each in passes if each.closed_gate >= 0]
    by_gate = {gate: sum(each.closed_gate == gate for each in closed) for gate in Gate}
    members = sum(len(each.batch) for each in closed) / len(closed)
    extend = sum(member[2] for each in closed for member in each.batch) / len(closed)
    return {gate: count for gate, count in by_gate.items() if count}, members, extend


def test_what_the_screen_shows_is_busy_and_can_be_turned():
    """From its first minute several gates close batches, and raising the extend limit lets batches grow visibly."""
    gates, members, extend = stopped(served(350))
    assert len(gates) >= 4
    assert gates[Gate.EXTEND_TOKENS] == max(gates.values())
    raised, more_members, more_extend = stopped(served(350, {"max_extend_tokens": 32_768}, SCREEN_FROM_SECONDS))
    assert raised[Gate.EXTEND_TOKENS] < gates[Gate.EXTEND_TOKENS] / 2
    assert more_members > 1.2 * members
    assert more_extend > 1.3 * extend


def test_the_screen_has_something_to_show_for_long():
    """The workload goes on for more than 20 minutes behind the part that is replayed at once, without a long gap."""
    arrivals = [request.arrival_ns / SECOND for request in screen_workload()]
    assert arrivals[-1] > SCREEN_FROM_SECONDS + 20 * 60
    shown = [at for at in arrivals if at >= SCREEN_FROM_SECONDS]
    assert max(later - sooner for sooner, later in pairwise(shown) if later < 3_000) < 30


def wait_for(found: Callable[[], object], what: str, seconds: float = 40) -> object:
    """The first true thing that is found."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def only_run(environment: dict[str, str]) -> RunDirectory | None:
    """The one run that was begun, None while there is none."""
    base = Path(environment["GLASSGATE_HOME"]) / "runs"
    listed = list_runs(base) if base.exists() else []
    return listed[0].run if len(listed) == 1 else None


def end_of(run: RunDirectory) -> RunEnd:
    """The last record of a run."""
    with JournalReader(run.journal) as reader:
        last = [frame for frame in reader if frame.kind == DATA][-1]
    return decode(last.payload)[-1]


def test_in_a_terminal_the_screen_opens_and_ends_its_replay(command: tuple[str, ...], environment: dict[str, str]):
    """The demo draws the screen on a live run; `q` closes it, the replay ends in good order, and no process is left."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*command, "demo", "--sessions", "30"], env={**environment, "TERM": "xterm-256color"},
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    drawn = bytearray()

    def look() -> bytes:
        while select.select([master], [], [], 0)[0]:
            try:
                drawn.extend(os.read(master, 65_536))
            except OSError:  # its last holder is gone
                break
        return bytes(drawn)

    try:
        wait_for(lambda: b"Glassgate" in look() and b"Batches" in look(), "the screen")
        run = only_run(environment)
        assert run is not None
        assert run.state == "live"
        assert run.info.pid != process.pid
        os.write(master, b"q")
        wait_for(lambda: look() is not None and process.poll() is not None, "the end")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        look()
        os.close(master)
    assert process.returncode == 0
    assert (run.state, run.info.end_reason, end_of(run).reason) == ("ended", "interrupted", "interrupted")
    assert f"run {run.path.name} is kept" in drawn.decode(errors="replace")
    with pytest.raises(ProcessLookupError):
        os.kill(run.info.pid, 0)
    assert (run.path / LOG).stat().st_mode & 0o077 == 0
    assert "What stopped the batches" in (run.path / LOG).read_text()


WATCHER = """
import sys, time
from ui.watching import watch
watch(["30", "1"], None, until_ns=5_000_000_000, keep=sys.argv[1] == "keep", show=lambda run: {show})
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_however_the_screen_ends_its_replay_ends_with_it(how: signal.Signals, environment: dict[str, str]):
    """A screen that is killed, or whose terminal goes, leaves a run that ended in good order and no process."""
    process = subprocess.Popen([sys.executable, "-c", WATCHER.format(show="time.sleep(600)"), ""], env=environment)
    run = wait_for(lambda: (found := only_run(environment)) and (found.path / LOG).exists() and found, "the run")
    os.kill(process.pid, how)
    process.wait()
    wait_for(lambda: run.state == "ended", "the end of the replay")
    assert end_of(run).reason == "interrupted"


def test_a_replay_that_is_kept_goes_on(environment: dict[str, str]):
    """With --keep the replay outlives the screen, and is ended by its process id, as was said."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHER.format(show="None"), "keep"], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    run = only_run(environment)
    assert run is not None
    assert run.state == "live"
    assert f"run {run.path.name} goes on in process {run.info.pid}; kill -INT {run.info.pid} ends it" in done.stderr
    os.kill(run.info.pid, signal.SIGINT)
    wait_for(lambda: run.state == "ended", "the end of the replay")


def test_an_engine_that_fails_is_told_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the engine ends without a run, its exit code and last line are the error, and nothing is left behind."""
    engine = Engine([sys.executable, "-c", "import sys; print('boom'); sys.exit(6)"], tmp_path / "runs", kept=False)
    with pytest.raises(EngineFailedError, match="ended with exit code 6: boom"):
        engine.begin(0)
    engine.end()
    assert list((tmp_path / "runs").iterdir()) == []
    monkeypatch.setattr("ui.watching.BEGIN_SECONDS", 0.2)
    engine = Engine([sys.executable, "-c", "input()"], tmp_path / "runs", kept=False)
    with pytest.raises(EngineFailedError, match=r"did not begin within 0\.2 s: it printed nothing"):
        engine.begin(0)
    engine.end()
    assert engine._process.returncode == 1


def test_without_a_terminal_it_is_said_how_to_get_the_screen(glassgate):
    """Into a pipe the demo prints its summary, and tells on stderr of the screen."""
    done = glassgate("demo", "--sessions", "10")
    assert done.returncode == 0
    assert "What stopped the batches" in done.stdout
    assert "The screen on a live replay: glassgate demo, in a terminal" in done.stderr
