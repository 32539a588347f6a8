"""Ranks compared by digest: a rank that decides otherwise is told of, whoever is collected first, and nothing else."""

import sqlite3
import threading
import time

import pytest

from controller.admission import AdmissionPass
from controller.digest import DIGEST_BYTES, DigestRecorder, digest_of_record
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.limits import Setting, effective
from controller.recorder import Recorder
from controller.records import Digest, Pass, RunStart, decode
from controller.request import Candidate, Capacity
from controller.run_directory import RunDirectory
from store.follow import Follower, Plan
from store.ingest import Ingest
from store.queries import run_query
from tests.waiting import wait_until
from ui.where import database_of

LIMITS = effective(Knobs(page_size=64), Setting(has_model=False))


class Rank:
    """One rank of a group of `ranks`; the first records whole, the others digests."""

    def __init__(self, tape, rank, ranks=2, group="dp0", run="run-1", first=0):
        self.rank, self.tape = rank, tape
        self.recorder = Recorder(tape) if rank == first else DigestRecorder(tape)
        words = {"lanes": 1, "ranks": ranks}
        self.recorder.note(RunStart(run, "test", "1", rank, group, "", 0, 1, False, 100_000, 0, 64, 99_000, words))
        self.recorder.flush()

    def step(self, at, queue, free=100_000, running=0):
        """One pass over prompts of these lengths."""
        waiting = [Candidate(number, prompt, 16) for number, prompt in queue]
        capacity = Capacity(pool_tokens=100_000, free_tokens=free, running=running)
        result = AdmissionPass(LIMITS, capacity).run(waiting, self, None)
        self.recorder.passed(
            capacity, result, start_ns=at, decide_ns=rank_time(self.rank), queue=len(waiting), queued_tokens=0
        )
        return result

    def commit(self, candidate, plan):
        """Nothing is held."""


def rank_time(rank):
    """Deciding time differs by rank, and makes no difference."""
    return 1000 + rank


@pytest.fixture
def tape(world):
    """Makes a journal in memory."""
    return type(world().tape)


def feed(database, *ranks, run="run-1"):
    """What each rank has recorded since the last time, in order."""
    for rank in ranks:
        with Ingest(database, run, rank.rank) as ingest:
            ingest.feed(rank.tape.frames[ingest.cursor.seq if ingest.cursor else 0 :])


def told(database):
    """(rank it is about, count, first and last pass, detail) of each alarm."""
    return run_query(
        database, "SELECT rank, count, first_pass, last_pass, detail FROM v_alarms ORDER BY number DESC"
    ).rows


def waiting_digests(database):
    """Digests that are still to be compared, by run."""
    with sqlite3.connect(database) as connection:
        return connection.execute("SELECT run, count(*) FROM digests GROUP BY run").fetchall()


def busy(*ranks, passes=20, odd=None, odd_rank=1):
    """Every rank admits the same request in each pass, but one of them refuses in pass `odd`."""
    for number in range(1, passes + 1):
        for rank in ranks:
            short = number == odd and rank.rank == odd_rank
            rank.step(number * 1_000_000, [(number, 1000)], free=100 if short else 100_000, running=1)


def test_the_digest_of_a_recorded_pass_is_the_one_a_rank_wrote(tape):
    """What the first rank records whole sums up to the 16 bytes that another rank appends for the same pass."""
    zero, one = Rank(tape(), 0), Rank(tape(), 1)
    busy(zero, one, odd=None)
    for rank in (zero, one):
        rank.step(50_000_000, [(90, 10**9), (91, 500)], free=640)
    whole = [r for frame in zero.tape.frames for r in decode(frame.payload) if isinstance(r, Pass)]
    digests = [r for frame in one.tape.frames for r in decode(frame.payload) if isinstance(r, Digest)]
    assert [(r.number, digest_of_record(r)) for r in whole] == [(r.passed, r.digest) for r in digests]
    assert {len(r.digest) for r in digests} == {DIGEST_BYTES}
    assert len({r.digest for r in digests}) == len(digests) == 21


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_that_agree_raise_nothing_and_leave_nothing_to_compare(database, tape, order):
    """Alike decisions raise no alarm, and no digest stays in the database."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    busy(*ranks)
    feed(database, *(ranks[at] for at in order))
    assert told(database) == []
    assert run_query(database, "rank-differences").rows == []
    assert waiting_digests(database) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_differs_is_told_of_with_its_pass(database, tape, order):
    """The first rank has the alarm, whoever came later, and the query names the pass and what the first rank did."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    busy(*ranks, odd=7)
    feed(database, *(ranks[at] for at in order))
    assert told(database) == [(0, 1, 7, 7, "ranks 0 and 1 decided differently in pass 7")]
    (row,) = run_query(database, "rank-differences").as_dicts()
    assert (row["pass"], row["rank"], row["other_rank"], row["members"], row["other_members"]) == (7, 0, 1, 1, None)
    assert waiting_digests(database) == []


@pytest.mark.parametrize("last", [0, 1])
def test_a_divergence_in_the_very_last_pass_is_seen(database, tape, last):
    """An engine that hangs in the pass in which its ranks part has both in the record: each append came first."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    busy(*ranks, passes=9, odd=9)
    feed(database, ranks[1 - last], ranks[last])
    assert told(database) == [(0, 1, 9, 9, "ranks 0 and 1 decided differently in pass 9")]


def test_frames_one_by_one_make_no_difference(database, tape):
    """Whatever comes of each rank in whatever pieces, the same passes are told, each once."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    for number in range(1, 31):
        for rank in ranks:
            short = rank.rank == 1 and number in (4, 5, 19)
            rank.step(number * 1_000_000, [(number, 1000)], free=100 if short else 100_000, running=1)
        if number % 3:
            feed(database, ranks[number % 2])
    feed(database, *ranks)
    assert told(database) == [(0, 3, 4, 19, "ranks 0 and 1 decided differently in pass 4")]
    assert [row["pass"] for row in run_query(database, "rank-differences").as_dicts()] == [4, 5, 19]
    assert waiting_digests(database) == []


def refuse(rank, at, times=1):
    """Passes that refuse the same head."""
    for more in range(times):
        rank.step(at + more, [(1, 5000)], free=640, running=1)


def test_a_refusal_that_repeats_has_no_digests_and_is_compared(database, tape):
    """Ranks that repeat a refusal together agree, although neither writes the repeats down one by one."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    for rank in ranks:
        refuse(rank, 1_000, times=50)
        rank.step(2_000_000, [(1, 5000)])
    digests = [r for frame in ranks[1].tape.frames for r in decode(frame.payload) if isinstance(r, Digest)]
    assert [r.passed for r in digests] == [1, 51]
    feed(database, *ranks)
    assert told(database) == []


def test_a_rank_that_goes_on_refusing_is_told_of(database, tape):
    """One rank admits in the pass in which the other repeats its refusal, and then nothing comes any more."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    for rank in ranks:
        refuse(rank, 1_000, times=5)
    ranks[0].step(9_000, [(1, 5000)])
    refuse(ranks[1], 9_000)
    ranks[1].recorder.settle(5_000_000_000)
    feed(database, *ranks)
    assert told(database) == [(0, 1, 6, 6, "ranks 0 and 1 decided differently in pass 6")]


def test_a_first_rank_that_goes_on_refusing_is_told_of(database, tape):
    """The same the other way about: the repeats that the first rank settles show that it went past the pass."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    for rank in ranks:
        refuse(rank, 1_000, times=5)
    ranks[1].step(9_000, [(1, 5000)])
    refuse(ranks[0], 9_000)
    ranks[0].recorder.settle(5_000_000_000)
    feed(database, ranks[1], ranks[0])
    assert told(database) == [(0, 1, 6, 6, "ranks 0 and 1 decided differently in pass 6")]


def test_other_groups_differ_rightly(database, tape):
    """Data-parallel groups decide each for itself: nothing is told, and each is compared within itself."""
    ranks = [
        Rank(tape(), 0),
        Rank(tape(), 1),
        Rank(tape(), 2, group="dp1", first=2),
        Rank(tape(), 3, group="dp1", first=2),
    ]
    busy(*ranks[:2], passes=10)
    busy(*ranks[2:], passes=14, odd=12, odd_rank=3)
    feed(database, *ranks)
    assert told(database) == [(2, 1, 12, 12, "ranks 2 and 3 decided differently in pass 12")]
    assert [
        (row["rank"], row["other_rank"]) for row in run_query(database, "rank-differences", run="run-1").as_dicts()
    ] == [(2, 3)]


def test_with_four_ranks_each_is_compared_with_the_first(database, tape):
    """Of four ranks the one that differs is named, and digests go once all were compared."""
    ranks = [Rank(tape(), rank, ranks=4) for rank in range(4)]
    busy(*ranks, odd=3, odd_rank=2)
    feed(database, *ranks[:3])
    assert waiting_digests(database) == [(1, 20)]
    feed(database, ranks[3])
    assert told(database) == [(0, 1, 3, 3, "ranks 0 and 2 decided differently in pass 3")]
    assert waiting_digests(database) == []


def test_a_lost_frame_is_no_difference(database, tape):
    """Where a rank's record has a loss, the passes it lacks are not told as different; those both have still are."""
    ranks = [Rank(tape(), 0), Rank(tape(), 1)]
    busy(*ranks, odd=15)
    del ranks[1].tape.frames[5]
    feed(database, *ranks)
    assert told(database) == [(0, 1, 15, 15, "ranks 0 and 1 decided differently in pass 15")]


def test_a_rank_alone_in_its_group_keeps_nothing_to_compare(database, tape):
    """Digests of a group of one, as of a pipeline stage, do not pile up."""
    alone = Rank(tape(), 1, ranks=1)
    busy(alone)
    feed(database, alone)
    assert waiting_digests(database) == []


class Watcher:
    """Keeps what a collector tells about once a second."""

    def __init__(self):
        self.alarms = {}

    def seen(self, standings):
        """Where sinks stand is not asked here."""

    def alarmed(self, alarms):
        """Keep the alarms of each run and rank."""
        self.alarms = {run: dict(found) for run, found in alarms.items()}


def test_a_collector_beside_an_engine_that_hangs_tells_of_it(tmp_path):
    """With both ranks live and nothing more coming, whoever watches the collector sees the alarm of the first rank."""
    runs, ranks = [], []
    for number in (0, 1):
        run = RunDirectory.create(
            tmp_path, engine="test", version="1", run_id="hang0001", rank=number,
            context={"database": str(tmp_path / "hang0001" / "glassgate.db")} if number else {},
        )  # fmt: skip
        runs.append(run)
        ranks.append(Rank(JournalWriter(run.journal, run_id="hang0001", rank=number), number, run="hang0001"))
    watcher = Watcher()
    follower = Follower(Plan(runs=runs[0], database=database_of), lambda _: None, watcher)
    thread = threading.Thread(target=follower.follow)
    thread.start()
    try:
        busy(*ranks, passes=5)
        wait_until(lambda: len(watcher.alarms) == 2)
        ranks[0].step(6_000_000, [(6, 1000)], running=1)
        time.sleep(1.2)  # the collector has all of the first rank, and of it nothing more will come
        ranks[1].step(6_000_000, [(6, 1000)], free=100, running=1)
        wait_until(lambda: watcher.alarms["hang0001", 0]["ranks_differ"] == (1, 1))
        assert watcher.alarms["hang0001", 1]["ranks_differ"] == (0, 0)
        assert told(runs[0].path / "glassgate.db")[0][4] == "ranks 0 and 1 decided differently in pass 6"
    finally:
        follower.stop()
        thread.join()
        for run in runs:
            run.release()
