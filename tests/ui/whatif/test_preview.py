"""A preview made in a process of its own, and a comparison in words, side by side."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from estimator.errors import GlassgateError, NotFoundError
from tests.ui.whatif.records import database_of
from tests.waiting import wait_until
from ui.whatif.comparison import preview
from ui.whatif.process import READING, PreviewProcess
from ui.whatif.side_by_side import side_by_side


def waited(process):
    """What a preview process comes to, asked again and again as a screen would."""

    def answered():
        began = time.perf_counter()
        found = process.poll()
        assert time.perf_counter() - began < 5  # never for the length of a replay
        return found is not None

    wait_until(answered)
    return process.poll()


def wait_for_end(pid):
    """Wait until a process has ended; one that nobody has waited for yet has."""

    def ended():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    wait_until(ended)


def test_a_preview_is_made_in_a_process_of_its_own(sessions):
    """It never waits, gives what `preview` gives, and the process is gone afterwards."""
    process = PreviewProcess(database_of(sessions), None, {"max_requests": 1}, "+150s")
    found = waited(process)
    wanted = preview(database_of(sessions), None, {"max_requests": 1}, "+150s")
    assert found.changed == wanted.changed
    assert found.fidelity == wanted.fidelity
    assert process.poll() is found
    wait_for_end(process._process.pid)


def test_a_preview_that_cannot_be_says_why(sessions):
    """Errors come back as what they are, whatever process they were raised in."""
    assert isinstance(waited(PreviewProcess(database_of(sessions), "nobody", {})), NotFoundError)
    assert "max_requests is 0" in str(waited(PreviewProcess(database_of(sessions), None, {"max_requests": 0})))


def test_a_preview_may_be_stopped(sessions):
    """Stopped at once, or killed from outside, it ends without an answer and says so."""
    process = PreviewProcess(database_of(sessions), None, {"max_requests": 1})
    process.stop()
    assert str(process.poll()) == "the preview was stopped"
    wait_for_end(process._process.pid)
    killed = PreviewProcess(database_of(sessions), None, {"max_requests": 1})
    os.kill(killed._process.pid, 9)
    found = waited(killed)
    assert isinstance(found, GlassgateError)
    assert "ended without an answer" in str(found)


def test_a_preview_tells_how_far_it_is(sessions):
    """Before its answer it says what it is at and which part is done, which only grows."""
    process = PreviewProcess(database_of(sessions), None, {"max_requests": 1})
    assert process.standing == READING
    told = [process.standing]
    while process.poll() is None:
        told.append(process.standing)
        time.sleep(0.005)
    assert not isinstance(process.poll(), GlassgateError)
    assert [each.fraction for each in told] == sorted(each.fraction for each in told)
    assert {each.words for each in told} <= {READING.words, "replaying as recorded", "replaying what if"}
    assert all(0 <= each.fraction <= 1 for each in told)


def test_a_preview_is_made_into_words_over_there(sessions):
    """With `shown` the answer is what that makes of the comparison, so that the one who asks imports no engine."""
    found = waited(PreviewProcess(database_of(sessions), None, {"max_requests": 1}, "+150s", shown=side_by_side))
    wanted = side_by_side(preview(database_of(sessions), None, {"max_requests": 1}, "+150s"))
    assert found._replace(wall_s=0) == wanted._replace(wall_s=0)
    code = "import sys; import ui.whatif.process, ui.whatif.side_by_side; print('controller.engines' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_preview_can_be_asked_for_where_streams_are_not_files(sessions, monkeypatch, stream):
    """A screen has put something else in place of stdout and stderr, that has no descriptor; a preview begins."""
    monkeypatch.setattr(sys, stream, type("Taken", (), {"fileno": lambda _: -1, "write": lambda *_: 0})())
    process = PreviewProcess(database_of(sessions), None, {"max_requests": 1})
    process.stop()
    wait_for_end(process._process.pid)


def test_a_preview_of_a_rank_is_of_that_rank(sessions):
    """Another rank than the lowest may be named; one that the database does not hold is an error that names it."""
    assert preview(database_of(sessions), None, {}, rank=0).fidelity.exact
    with pytest.raises(NotFoundError, match="does not hold its rank 3"):
        preview(database_of(sessions), None, {}, rank=3)


KILLED = """
import os, sys, time
from pathlib import Path
from ui.whatif.process import PreviewProcess, READING

if __name__ == "__main__":
    process = PreviewProcess(Path(sys.argv[1]), None, {"max_requests": 1})
    print(process._process.pid, flush=True)
    time.sleep(60)
"""


def test_a_preview_ends_with_whoever_asked_for_it_however_that_ends(sessions, tmp_path):
    """SIGKILL of the process that asked ends the one that replays: nothing is left behind at work."""
    script = tmp_path / "asks.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, script, database_of(sessions)], stdout=subprocess.PIPE) as asking:
        pid = int(asking.stdout.readline())
        os.kill(asking.pid, 9)
        asking.wait()
        wait_for_end(pid)


def test_side_by_side_says_what_is_better_and_what_the_peak_is_held_against(run):
    """Each figure has its change and whether that is to the good; the peak stands beside limit and smoke."""
    found = preview(database_of(run), None, {"max_requests": "off"})
    told = side_by_side(found)
    rows = {row.words: row for row in (*told.rows, *told.stops, *told.limits)}
    queue = rows["queue, p50"]
    assert queue.better is True
    assert found.changed.queue_p50 < found.replayed.queue_p50
    assert queue.change.endswith(" %")
    assert rows["batches"].better is None
    assert rows["request_count"].recorded == f"{found.recorded.stops['request_count']:,}"
    assert rows["its limit"][1:4] == ("off", "off", "off")
    assert rows["smoke reached"].changed == "none"
    assert told.holds
    assert told.remarks


def test_side_by_side_below_the_floor_concludes_nothing(run):
    """Where the fidelity is too low there are no figures to be misled by."""
    told = side_by_side(preview(database_of(run), None, {"max_requests": 1}, model="preset"))
    assert not told.holds
    assert told.rows == told.stops == told.limits == told.remarks == ()
    assert told.fidelity
