"""The collector: many runs, many sinks, each at its own pace, through crashes."""

import os
import shutil
import signal
import sqlite3
import threading
import time

import pytest

from controller.journal import Cursor, JournalReader, read_cursor, read_cursors, write_cursor
from controller.liveness import is_held
from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError, RecordError, StorageError
from store.collect import SqliteSink
from store.follow import Follower, Plan
from store.pipe import Pipe
from store.queries import run_query
from store.sinks import SinkStatus
from store.standing import read_standings
from tests.store.engines import recorded, start
from tests.store.following import collector, follow, in_database, in_journal, plan_for, seq
from tests.waiting import wait_until


class Told:
    """A sink that keeps what it is given; `stuck` makes it take nothing more, `broken` makes taking fail."""

    def __init__(self, run, name="told"):
        self.name, self.run = name, run.info.run_id
        self.frames = []
        self.stuck = self.broken = False
        self.closed = None
        self.place = read_cursor(run.journal, name)

    @property
    def cursor(self):
        """Behind the last frame taken."""
        return self.place

    @property
    def wants(self):
        """A hundred frames, or none."""
        return 0 if self.stuck else 100

    def take(self, frames):
        """Keep them."""
        if self.broken:
            raise StorageError("told is broken")
        assert len(frames) <= 100
        self.frames += frames
        self.place = frames[-1].cursor

    def settle(self, _seconds):
        """Whether all is delivered."""
        return not self.stuck

    def status(self):
        """Where it stands."""
        return SinkStatus(self.name, self.run, 0, self.cursor, len(self.frames), 0, 0, 0)

    def close(self, seconds):
        """Note the time it was given."""
        self.closed = seconds


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    """Followers in this process look ten times as often, for the test's sake."""
    monkeypatch.setattr("store.follow.STANDING_SECONDS", 0.1)


@pytest.fixture
def folder(tmp_path):
    """A folder for runs."""
    return tmp_path / "runs"


def test_a_run_that_has_ended_is_collected_whole(folder):
    """Every decision and repeat in the journal is in the database, and the follower ends by itself."""
    run = recorded(folder)
    follower = follow(run)
    assert in_database(run) == in_journal(run)
    (standing,) = follower.standings
    assert standing.status.cursor == read_cursor(run.journal, "sqlite")
    assert standing.behind == (0, 0, 0.0)
    assert (standing.state, standing.status.last_error) == ("ended", "")


def test_collectors_killed_in_the_middle_neither_lose_nor_double(folder):
    """With a live engine and collectors killed at any moment, the database ends up equal to the journal."""
    engine = start(folder, pause_ms=20)
    engine.send_signal(signal.SIGSTOP)  # it goes on only while somebody collects, however slow this machine is
    run = RunDirectory(folder / "r1")
    for _ in range(3):
        before = seq(run)
        with collector(run.path) as process:
            wait_until(lambda: is_held(run.path / "collector.lock"))
            engine.send_signal(signal.SIGCONT)
            wait_until(lambda: seq(run) > before)  # noqa: B023 - called in this turn alone
            process.send_signal(signal.SIGKILL)
            engine.send_signal(signal.SIGSTOP)
    assert engine.poll() is None, "the engine ended too early for this test"
    engine.send_signal(signal.SIGCONT)
    with collector(run.path) as process:
        assert engine.wait(timeout=120) == 0
        assert process.wait(timeout=120) == 0
    engine.stdout.close()
    assert in_database(run) == in_journal(run)
    assert run_query(run.path / "glassgate.db", "SELECT count(*) FROM losses").rows == [(0,)]


def test_an_engine_that_is_killed_is_collected_to_its_last_frame(folder):
    """When the engine is gone the follower takes what it left and ends."""
    engine = start(folder, sessions=60, pause_ms=20)
    run = RunDirectory(folder / "r1")
    follower = Follower(plan_for(run), lambda _: None)
    following = threading.Thread(target=follower.follow)
    following.start()
    wait_until(lambda: follower.standings and follower.standings[0].status.delivered > 50)
    assert following.is_alive()
    engine.kill()
    engine.wait()
    engine.stdout.close()
    following.join(10)
    assert not following.is_alive()
    assert in_database(run) == in_journal(run)
    assert follower.standings[0].state == "engine_gone"


def test_a_folder_of_runs_and_one_that_appears_later(folder):
    """All ranks in a folder are followed at once, and a run that begins later is picked up."""
    engines = [start(folder, rank=rank, sessions=30, pause_ms=30) for rank in (0, 1)]
    follower = Follower(plan_for(folder), lambda _: None)
    following = threading.Thread(target=follower.follow)
    following.start()
    wait_until(lambda: len(follower.standings) == 2)
    later = recorded(folder, "later", sessions=5)
    for engine in engines:
        assert engine.wait(timeout=120) == 0
        engine.stdout.close()
    following.join(20)
    assert not following.is_alive()
    for run in (RunDirectory(folder / "r1"), RunDirectory(folder / "r1-1"), later):
        assert in_database(run) == in_journal(run)
    assert {(each.status.run, each.status.rank) for each in follower.standings} == {
        ("r1", 0), ("r1", 1), ("later", 0)
    }  # fmt: skip


def test_many_runs_into_one_database(folder, tmp_path):
    """More runs than are caught up at once end in one database, each under its own number."""
    runs = [recorded(folder, f"run-{each}", sessions=1) for each in range(9)]
    one = tmp_path / "all.db"
    Follower(Plan(runs=folder, database=lambda _: one, once=True), lambda _: None).follow()
    found = dict(run_query(one, "SELECT r.name, count(*) FROM passes p JOIN runs r ON r.id = p.run GROUP BY 1").rows)
    assert found == {run.info.run_id: len(in_journal(run)[0]) for run in runs}


def test_each_sink_reads_at_its_own_place(folder):
    """A sink that takes nothing keeps SQLite from nothing, and is told of as behind."""
    run = recorded(folder)
    sinks = []

    def stuck(of):
        sinks.append(Told(of))
        sinks[0].stuck = True
        return sinks[0]

    with pytest.raises(GlassgateError, match=r"told of run r1 has 1,\d\d\d frames still to deliver"):
        follow(run, sinks={"told": stuck}, once=True, shutdown_seconds=1.0)
    assert in_database(run) == in_journal(run)
    assert sinks[0].frames == []
    # It was waited for already, and is not waited for as long again.
    assert sinks[0].closed <= 0.5


def test_a_sink_gets_every_frame_once_and_no_more_than_it_wants(folder):
    """Frames come in order, at most as many as were wanted, and a sink that failed is served again from its place."""
    run = recorded(folder)
    sinks = []

    def broken_at_first(of):
        sinks.append(Told(of))
        sinks[0].broken = True
        threading.Timer(0.4, lambda: setattr(sinks[0], "broken", False)).start()
        return sinks[0]

    said = []
    follow(run, sinks={"told": broken_at_first}, said=said)
    with JournalReader(run.journal) as reader:
        assert sinks[0].frames == list(reader)
    assert said == ["told of run r1: told is broken"]


def test_a_defect_in_one_sink_leaves_the_others_alone(folder):
    """A sink that raises what it must not is told of by name, and SQLite is complete."""
    run = recorded(folder, sessions=5)

    def defective(of):
        sink = Told(of)
        sink.take = lambda _: 1 / 0
        return sink

    with pytest.raises(GlassgateError, match="ZeroDivisionError"):
        follow(run, sinks={"told": defective}, once=True, shutdown_seconds=0.5)
    assert in_database(run) == in_journal(run)


def test_a_second_collector_is_told_who_is_there(folder):
    """Two collectors on one run: the second one says which process holds it, and changes nothing."""
    run = recorded(folder, sessions=5)
    with run.hold_collector_lock(), pytest.raises(StorageError, match=f"is held by process {os.getpid()}"):
        follow(run)
    assert not (run.path / "glassgate.db").exists()


def test_in_a_folder_the_other_runs_are_collected(folder):
    """A run that somebody else collects does not keep the rest of the folder from being collected."""
    mine, other = recorded(folder, "mine", sessions=5), recorded(folder, "other", sessions=5)
    said = []
    with other.hold_collector_lock(), pytest.raises(StorageError, match="is held by process"):
        follow(folder, said=said)
    assert in_database(mine) == in_journal(mine)
    assert not (other.path / "glassgate.db").exists()
    assert len(said) == 1


def test_a_locked_database_is_tried_again(folder, monkeypatch):
    """While another writer holds the database the follower says so and waits, and then loses nothing."""
    monkeypatch.setattr("store.follow._BUSY_MS", 10)
    engine = start(folder, sessions=30, pause_ms=15)
    run = RunDirectory(folder / "r1")
    said = []
    follower = Follower(plan_for(run), said.append)
    following = threading.Thread(target=follower.follow)
    following.start()
    wait_until(lambda: seq(run))
    other = sqlite3.connect(run.path / "glassgate.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    wait_until(lambda: said)
    assert "locked by another writer" in said[0]
    other.execute("ROLLBACK")
    other.close()
    following.join(20)
    assert engine.wait(timeout=120) == 0
    engine.stdout.close()
    assert in_database(run) == in_journal(run)


def test_a_database_that_is_none_ends_it(folder):
    """A file that is no database is a RecordError, and it is not changed."""
    run = recorded(folder, sessions=5)
    database = run.path / "glassgate.db"
    database.write_bytes(b"not a database, " * 400)
    with pytest.raises(RecordError, match="is not a sound SQLite database"):
        follow(run)
    assert database.read_bytes() == b"not a database, " * 400


def test_what_is_left_of_a_removed_folder_is_read(folder, tmp_path):
    """Where a run's folder is removed under a collector, the open segment is taken to its end, and then it is told."""
    run = recorded(folder, sessions=5)
    decided, database = in_journal(run), tmp_path / "elsewhere.db"
    pipe = Pipe(run, SqliteSink(run, database))
    reader = JournalReader(run.journal)
    pipe._reader = reader
    shutil.rmtree(run.path)
    while pipe.turn():
        pass
    assert in_database(run, database) == decided
    assert "the folder does not exist" in str(pipe.error)
    pipe.close(0)
    with pytest.raises(RecordError, match="somebody removed or moved the run's folder"):
        _ = run.info


def test_a_place_that_is_given_up_holds_nothing_back(folder):
    """A sink that is forgotten has no cursor any more; the others keep theirs."""
    run = recorded(folder, sessions=5)
    follow(run, sinks={"told": Told})
    write_cursor(run.journal, "told", Cursor(0, 0, 0))
    follow(run, forget=("told",))
    assert set(read_cursors(run.journal)) == {"sqlite"}


def test_where_sinks_stand_is_known_without_a_collector(folder):
    """Frames and bytes behind, places and counts are told by the run's folder, before, during and after."""
    engine = start(folder, sessions=30, pause_ms=20, hold=False)
    run = RunDirectory(folder / "r1")
    database = run.path / "glassgate.db"
    assert read_standings(run, database) == []
    follower = Follower(plan_for(run), lambda _: None)
    following = threading.Thread(target=follower.follow)
    following.start()
    wait_until(lambda: any(each.delivered for each in read_standings(run, database)))
    (during,) = read_standings(run, database)
    assert (during.engine, during.collected, during.sink) == ("live", True, "sqlite")
    follower.stop()
    following.join(10)
    assert engine.wait(timeout=120) == 0
    engine.stdout.close()
    (after,) = read_standings(run, database)
    with JournalReader(run.journal) as reader:
        end = list(reader)[-1].cursor.seq
    segments = {int(path.name[:8]): path.stat().st_size for path in run.journal.glob("*.journal")}
    unread = sum(size for number, size in segments.items() if number >= after.segment) - after.offset
    assert (after.engine, after.collected) == ("ended", False)
    assert after.frames_behind == end - after.seq > 0
    assert after.bytes_behind == unread > 0
    assert after.last_delivery_ns <= time.time_ns()


def test_once_ends_beside_an_engine_that_never_rests(tmp_path):
    """Catching up with a live engine that goes on writing comes to an end; what was there at its start is delivered."""
    with start(tmp_path, sessions=4000, pause_ms=1) as engine:
        try:
            run = RunDirectory(tmp_path / "r1")
            wait_until(lambda: len(in_journal(run)[0]) > 200)
            before = len(in_journal(run)[0])
            begun = time.monotonic()
            follow(run, once=True)
            assert time.monotonic() - begun < 10
            assert engine.poll() is None
            assert len(in_database(run)[0]) >= before
        finally:
            engine.kill()


def test_a_follower_keeps_its_databases_within_its_plan(tmp_path):
    """A bound on size in the plan holds for the database it fills: the oldest passes go, and that is noted."""
    run = recorded(tmp_path)
    follow(run)
    whole = (run.path / "glassgate.db").stat().st_size
    (run.path / "glassgate.db").unlink()
    (run.journal / "cursors" / "sqlite").unlink()
    follow(run, max_bytes=whole // 2)
    assert (run.path / "glassgate.db").stat().st_size <= whole // 2
    assert run_query(run.path / "glassgate.db", "SELECT sum(passes) > 0 FROM pruned").rows == [(1,)]
