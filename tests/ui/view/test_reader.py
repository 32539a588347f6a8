"""The reader's thread: the newest ask is answered, errors are told beside what was shown, and it closes cleanly."""

import dataclasses
import json
import shutil
import sqlite3
import threading
import time
from contextlib import closing

import msgspec
import pytest

from estimator import model
from estimator.errors import RecordError
from store.pruning import prune
from store.schema import VERSION
from tests.ui.view.showing import S
from ui.view.reader import EVERY_S, Reader
from ui.view.snapshot import Ask
from ui.view.source import Source

WAIT_S = 60.0


class Heard:
    """Takes what a reader tells, and waits for what a test expects."""

    def __init__(self):
        self.snapshots = []
        self.news = threading.Condition()

    def tell(self, snapshot):
        """Take a snapshot."""
        with self.news:
            self.snapshots.append(snapshot)
            self.news.notify_all()

    def until(self, fits=bool, since=0):
        """The first snapshot that fits, of those after the first `since`."""
        deadline = time.monotonic() + WAIT_S
        with self.news:
            while not (found := [each for each in self.snapshots[since:] if fits(each)]):
                assert self.news.wait(max(0.0, deadline - time.monotonic())), self.snapshots[-1:]
            return found[0]


class Scripted:
    """Answers as a test says."""

    def __init__(self, snapshot):
        self.snapshot, self.asks, self.interrupted, self.closed = snapshot, [], False, False
        self.moves, self.looks = False, 0
        self.error = None
        self.hold = threading.Event()
        self.hold.set()

    def answer(self, ask):
        """Note the ask, wait while held, and answer."""
        self.asks.append(ask)
        assert self.hold.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return msgspec.structs.replace(self.snapshot, ask=ask)

    @property
    def changed(self):
        """Whether the run has moved on, as the test says; each look is counted."""
        self.looks += 1
        return self.moves

    def until(self, condition):
        """Wait until something is so."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def interrupt(self):
        """Note it, and let go."""
        self.interrupted = True
        self.hold.set()

    def close(self):
        """Note it."""
        self.closed = True


@pytest.fixture
def heard():
    """What the reader told."""
    return Heard()


@pytest.fixture
def read(heard):
    """A reader of a source, started; all are closed at the end."""
    started = []

    def start(source, view=None):
        reader = Reader(source, view)
        started.append(reader)
        reader.start(heard.tell)
        return reader

    yield start
    for reader in started:
        reader.close()


@pytest.fixture
def scripted(show, read):
    """A reader whose answers a test scripts."""
    script = Scripted(show(140))
    return script, read(None, lambda: script)


def test_the_recording_is_answered(read, heard, recording):
    """An ask is answered from another thread with what was asked for."""
    reader = read(Source.open(str(recording), recording.parent))
    reader.ask(Ask(at_ns=140 * S))
    assert heard.until(lambda each: each.complete).head.at_ns == 140 * S
    reader.ask(Ask(at_ns=200 * S, panels=frozenset({"log"})))
    assert heard.until(lambda each: each.head.at_ns == 200 * S).log.lines


def test_the_newest_ask_is_answered_and_older_ones_are_left_out(scripted, heard):
    """Asks that come while a read is under way are not queued: only the newest of them is answered."""
    script, reader = scripted
    script.hold.clear()
    for number in range(50):
        reader.ask(Ask(open_pass=number))
    script.hold.set()
    heard.until(lambda each: each.ask.open_pass == 49)
    assert script.asks[-1].open_pass == 49
    assert len(script.asks) <= 3


def test_nothing_is_read_when_nothing_changed(scripted, heard):
    """A run that ended is read once for an ask; one that has moved on is read again, in the reader's rhythm at most."""
    script, reader = scripted
    reader.ask(Ask())
    heard.until()
    script.until(lambda: script.looks >= 2)
    assert len(script.asks) == 1
    began = time.monotonic()
    script.moves = True
    script.until(lambda: len(script.asks) >= 4)
    assert time.monotonic() - began >= 2 * EVERY_S


def test_an_error_is_told_once_beside_what_was_shown(scripted, heard):
    """An error leaves the last snapshot on the screen with the problem; it is not told again and again, and ends."""
    script, reader = scripted
    reader.ask(Ask())
    shown = heard.until()
    script.error = RecordError("the database is gone; bring it back")
    script.moves = True
    problem = heard.until(lambda each: each.problem)
    assert problem.problem == "the database is gone; bring it back"
    assert problem.head == shown.head
    asks = len(script.asks)
    script.until(lambda: len(script.asks) >= asks + 2)
    assert sum(bool(each.problem) for each in heard.snapshots) == 1
    script.error = None
    count = len(heard.snapshots)
    heard.until(lambda each: not each.problem, since=count)


def test_an_error_before_anything_was_read_has_an_empty_head(read, heard, tmp_path):
    """A database that is none is a problem on an empty screen, not an exception."""
    (tmp_path / "no.db").write_text("this is no database" * 100)
    reader = read(Source.open(str(tmp_path / "no.db"), tmp_path))
    reader.ask(Ask())
    snapshot = heard.until(lambda each: each.problem)
    assert "is not a sound SQLite database" in snapshot.problem
    assert (snapshot.head.run, snapshot.head.queue) == ("", None)


def test_closing_interrupts_a_read_and_tells_no_more(scripted, heard):
    """Closing while a read goes on interrupts it, ends the thread, and hands over nothing afterwards."""
    script, reader = scripted
    script.hold.clear()
    reader.ask(Ask())
    script.until(lambda: script.asks)
    reader.close()
    assert script.interrupted
    assert script.closed
    assert heard.snapshots == []
    assert not any(thread.name == "glassgate-reader" and thread.is_alive() for thread in threading.enumerate())


def test_closing_twice_or_before_an_ask_does_nothing_more(scripted):
    """A reader that was never asked closes at once, and a second time without effect."""
    script, reader = scripted
    reader.close()
    reader.close()
    assert script.closed


def test_a_replaced_database_is_read_anew(read, heard, growing, recording, tmp_path):
    """When another file takes the database's place, the answers are of the new one."""
    path = tmp_path / "shown.db"
    shutil.copyfile(growing(40), path)
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask())
    before = heard.until(lambda each: each.complete)
    shutil.copyfile(recording / "glassgate.db", tmp_path / "new.db")
    (tmp_path / "new.db").rename(path)
    after = heard.until(lambda each: each.head.last_pass != before.head.last_pass)
    assert (after.problem, after.head.presence) == ("", "ended")


def test_a_database_that_goes_and_comes_back(read, heard, growing, tmp_path):
    """A database that vanishes is a problem with what was shown kept; when it is there again the problem is over."""
    path = tmp_path / "shown.db"
    shutil.copyfile(growing(40), path)
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask())
    before = heard.until(lambda each: each.complete)
    path.rename(tmp_path / "away.db")
    gone = heard.until(lambda each: each.problem)
    assert gone.head == before.head
    (tmp_path / "away.db").rename(path)
    count = len(heard.snapshots)
    back = heard.until(lambda each: not each.problem, since=count)
    assert back.head.last_pass == before.head.last_pass


def test_pruning_is_seen(read, heard, recording, tmp_path):
    """Passes that are pruned while they are shown are gone from the next answer, and the log says so."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask(rows=500, panels=frozenset({"live", "log"})))
    before = heard.until(lambda each: each.complete)
    prune(path, max_bytes=path.stat().st_size // 2)
    after = heard.until(lambda each: each.complete and len(each.passes) < len(before.passes))
    assert after.head.first_ns > before.head.first_ns
    assert any(line.kind == "prune" for line in after.log.lines)


def test_a_database_carried_to_a_newer_version_says_so(read, heard, recording, tmp_path):
    """A newer Glassgate that carries the database on makes the screen say so, with the last numbers kept."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask())
    before = heard.until(lambda each: each.complete)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    problem = heard.until(lambda each: each.problem)
    assert f"schema version {VERSION + 1}" in problem.problem
    assert problem.head == before.head


def test_a_record_of_another_making_is_a_problem(read, heard, recording, tmp_path):
    """A value that this Glassgate has no word for becomes a problem that names the database, not a dead thread."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("UPDATE passes SET closed_gate = 250, closed_reason = 250")
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask())
    assert "cannot show" in heard.until(lambda each: each.problem).problem


@pytest.mark.parametrize(
    "damage", ["DROP TABLE smoke", "UPDATE runs SET engine = CAST(x'ff80' AS TEXT)"], ids=["table", "text"]
)
def test_a_damaged_database_is_to_be_checked(read, heard, recording, tmp_path, damage):
    """A missing table and text that is no UTF-8 send to `glassgate db check`, not to the disk's permissions."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(damage)
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask())
    problem = heard.until(lambda each: each.problem).problem
    assert "`glassgate db check`" in problem
    assert "permissions" not in problem


def test_an_unexpected_failure_of_a_part_is_a_problem(read, heard, recording, monkeypatch):
    """A part that raises what nobody foresaw is told with a remedy beside the last content, and answers go on."""
    reader = read(Source.open(str(recording), recording.parent))
    reader.ask(Ask(at_ns=140 * S))
    shown = heard.until(lambda each: each.complete)
    with monkeypatch.context() as patch:
        patch.setattr("ui.view.parts.read_hits", lambda *_: [].no_such_word)
        reader.ask(Ask(at_ns=200 * S, panels=frozenset({"hits"})))
        problem = heard.until(lambda each: each.problem)
    assert problem.problem.startswith("reading hits failed (AttributeError: 'list' object has no attribute")
    assert "`glassgate db check`" in problem.problem
    assert (problem.head, problem.passes) == (shown.head, shown.passes)
    reader.ask(Ask(at_ns=200 * S, panels=frozenset({"hits"})))
    assert heard.until(lambda each: each.head.at_ns == 200 * S).problem == ""


def test_a_failing_look_for_news_is_answered(scripted, heard):
    """Where even the look for news raises, the run is read again rather than the thread lost."""
    script, reader = scripted
    reader.ask(Ask())
    heard.until()
    script.__class__ = type("Failing", (Scripted,), {"changed": property(lambda _: [].no_such_word)})
    script.error = AttributeError("no such word")
    assert "AttributeError" in heard.until(lambda each: each.problem).problem
    script.error = None
    reader.ask(Ask(at_ns=1))
    assert heard.until(lambda each: each.ask.at_ns == 1).problem == ""


def test_a_context_of_another_kind_costs_its_timeline_alone(read, heard, recording, tmp_path):
    """A run whose context is no object has its buffers shown without the timeline that would be worked out from it."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET context = '[]'")
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask(panels=frozenset({"buffers"})))
    snapshot = heard.until()
    assert snapshot.problem == ""
    assert snapshot.buffers.most
    assert snapshot.buffers.windows == ()


def test_a_model_that_is_served_under_a_name_of_its_own_has_its_timeline(read, heard, recording, tmp_path):
    """The model's shape is in the record, so that the name an engine gives it need not be known here."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    shape = json.dumps(dataclasses.asdict(model("deepseek-v3.2")))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET model = 'ours', setting = json_set(setting, '$.geometry', ?)", (shape,))
    reader = read(Source.open(str(path), tmp_path))
    reader.ask(Ask(panels=frozenset({"buffers"})))
    buffers = heard.until().buffers
    assert buffers.windows
    assert max(buffers.phase_bytes) == buffers.last


def test_a_locked_database_is_waited_for(read, heard, recording, tmp_path):
    """A database that is locked whole is a problem; once it is free it is shown."""
    path = tmp_path / "shown.db"
    shutil.copyfile(recording / "glassgate.db", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("BEGIN EXCLUSIVE")
        database.execute("UPDATE runs SET engine = engine")
        database.execute("COMMIT")
        reader = read(Source.open(str(path), tmp_path))
        reader.ask(Ask())
        assert "locked" in heard.until(lambda each: each.problem).problem
    count = len(heard.snapshots)
    heard.until(lambda each: not each.problem, since=count)
