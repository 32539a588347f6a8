"""Idle, engine gone, collector gone, ended and a bare recording look different; ages are of real time."""

import shutil

import pytest

from controller.run_directory import RunDirectory
from estimator.errors import RecordError
from tests.ui.view.showing import S, StillClock
from tests.ui.view.story import WALL_NS, Story
from ui.view.presence import IDLE_NS, LOOK_NS
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View

LATER = LOOK_NS + 1


@pytest.fixture
def live(tmp_path):
    """A live run with a collector, its story, and a clock five seconds into it."""

    class Live:
        def __init__(self):
            self.run = RunDirectory.create(tmp_path, engine="test", version="1", run_id="story")
            self.collector = self.run.hold_collector_lock()
            self.clock = StillClock(wall=WALL_NS + 5 * S)
            self.view = None

        def tell(self, **more):
            self.story = Story(self.run.path / "glassgate.db", **more)
            return self.story

        def head(self, **ask):
            if self.view is None:
                self.view = View(Source.open("story", tmp_path), self.clock)
            return self.view.answer(Ask(**ask)).head

    made = Live()
    yield made
    made.collector.release()
    made.run.release()
    if made.view is not None:
        made.view.close()


def test_a_run_with_a_queue_is_live_and_idle_without(live):
    """While somebody waits the run is live, however old its last pass; with nobody it is idle after two seconds."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    story.into()
    head = live.head()
    assert (head.presence, head.queue, head.last_pass_age_ns) == ("live", 1, 1 * S)
    live.clock.go_on(60 * S)
    assert (live.head().presence, live.head().last_pass_age_ns) == ("live", 61 * S)
    story.passed(66, enter=["a"])
    story.into()
    assert live.head().presence == "live"
    live.clock.go_on(IDLE_NS + 1 * S)
    head = live.head()
    assert (head.presence, head.queue) == ("idle", 0)


def test_a_past_moment_has_the_presence_of_the_engine(live):
    """Whatever moment is shown, the presence and the age of the last pass are those of the engine at this moment."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(1.5, enter=["a"])
    story.arrive("b", 2)
    story.passed(4, wait=["b"])
    story.into()
    head = live.head(at_ns=round(1.6 * S))
    assert (head.presence, head.last_pass_age_ns, head.queue) == ("live", 1 * S, 0)
    story.passed(5, enter=["b"])
    story.into()
    live.clock.go_on(IDLE_NS + 1 * S)
    head = live.head(at_ns=round(4.5 * S))
    assert (head.presence, head.queue) == ("idle", 1)


@pytest.mark.parametrize("state", ["live", "ended"])
def test_a_run_whose_folder_was_removed_is_not_live(live, state):
    """With its folder gone a run keeps what was shown, as no live one's, and says where the others are."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    story.into()
    if state == "ended":
        live.run.end()
    shown = live.head()
    assert shown.presence == state
    shutil.rmtree(live.run.path)
    live.clock.go_on(LATER)
    answer = live.view.answer(Ask(panels=frozenset({"waiting"})))
    assert answer.head.presence == ("ended" if state == "ended" else "recording")
    assert (answer.head.last_pass_age_ns, answer.head.queue) == (None, 1)
    assert "the folder of run story is gone" in answer.problem
    assert "`r` shows the other runs" in answer.problem
    with pytest.raises(RecordError):
        live.view.answer(Ask(folder=str(live.run.path)))


def test_a_run_whose_folder_alone_was_removed_is_a_recording(live, tmp_path):
    """A database elsewhere outlives its run's folder: it is read on as a recording, without knobs to turn."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    apart = story.into().rename(tmp_path / "apart.db")
    view = live.view = View(Source.open(str(apart), tmp_path), live.clock)
    assert (view.answer(Ask()).head.presence, view.answer(Ask()).problem) == ("live", "")
    shutil.rmtree(live.run.path)
    live.clock.go_on(LATER)
    answer = view.answer(Ask(panels=frozenset({"knobs"})))
    assert (answer.head.presence, answer.head.last_pass_age_ns) == ("recording", None)
    assert "is gone" in answer.problem
    assert "apart" in answer.knobs.why_not


def test_the_run_that_is_shown_is_offered_as_it_is(live):
    """From the first answer on the choice of the run that is shown has the presence of the headline."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    story.into()
    live.head()
    fresh = View(Source.open("story", live.run.path.parent), live.clock)
    assert [choice.presence for choice in fresh.answer(Ask()).runs] == ["live"]
    fresh.close()


def test_the_window_of_a_live_run_ends_at_this_moment(live):
    """An idle run's window goes on with the clock, until the passes have left it."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, enter=["a"])
    story.into()
    assert (live.head().at_ns, live.head().passes_in_window) == (5 * S, 1)
    live.clock.go_on(400 * S)
    head = live.head()
    assert (head.at_ns, head.passes_in_window, head.ttft.p50_ns) == (405 * S, 0, None)
    assert all(cell.gate is None for cell in head.strip)
    assert head.wall_ns == WALL_NS + 405 * S


def test_gone_engine_and_gone_collector_look_different(live):
    """A dead engine is gone and its moment stays the record's end; a dead collector is told apart from it."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    story.into()
    assert live.head().presence == "live"
    live.collector.release()
    live.clock.go_on(LATER)
    head = live.head()
    assert (head.presence, head.at_ns) == ("collector_gone", 4 * S)
    live.run.release()
    live.clock.go_on(LATER)
    head = live.head()
    assert (head.presence, head.at_ns, head.last_pass_age_ns) == ("engine_gone", 4 * S, 1 * S + 2 * LATER)


def test_an_ended_run_has_no_age(live):
    """A run that ended in good order says so with its reason; how long ago its last pass was is not told."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, enter=["a"])
    story.end(5)
    story.into()
    live.run.end()
    head = live.head()
    assert (head.presence, head.end_reason, head.last_pass_age_ns, head.lag_ns) == ("ended", "finished", None, None)
    assert live.head(at_ns=4 * S).end_reason is None


def test_a_run_that_failed_says_so_though_its_record_breaks_off(live):
    """Where the record has no end, its reason is that of run.json; a past moment is before it."""
    story = live.tell()
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    story.into()
    live.run.end("failed")
    head = live.head()
    assert (head.presence, head.end_reason) == ("ended", "failed")
    assert live.head(at_ns=2 * S).end_reason is None


def test_in_simulated_time_the_age_is_since_it_was_seen(live):
    """The clock of a replay is not the wall's: a pass found there has no age, one that comes has that since then."""
    story = live.tell(simulated=True)
    story.arrive("a", 1)
    story.arrive("b", 1)
    story.passed(4_000, enter=["a"])
    story.into()
    head = live.head()
    assert (head.presence, head.at_ns, head.last_pass_age_ns) == ("live", 4_000 * S, None)
    story.passed(5_000, wait=["b"])
    story.into()
    assert live.head().last_pass_age_ns == 0
    live.clock.go_on(3 * S)
    assert live.head().last_pass_age_ns == 3 * S


def test_a_database_alone_is_a_recording(story, open_view):
    """Of a database without its run's folder nobody can say more than what is in it."""
    story.arrive("a", 1)
    story.passed(4, wait=["a"])
    head = open_view(story.into()).answer(Ask()).head
    assert (head.presence, head.last_pass_age_ns, head.lag_ns) == ("recording", None, None)


def test_a_store_behind_its_journal_says_how_long(recording, growing, clock, open_view, tmp_path):
    """With the journal further than the store the lag is told once it was seen to grow, and the rest is missing."""
    copy = tmp_path / "recording"
    shutil.copytree(recording, copy)
    (copy / "glassgate.db").unlink()
    shutil.copyfile(growing(40), copy / "glassgate.db")
    answer = View(Source.open(str(copy), tmp_path), clock).answer(Ask())
    assert answer.head.presence == "ended"
    assert "not collected yet; `glassgate collect recording`" in answer.missing
    assert open_view().answer(Ask()).missing == ""
