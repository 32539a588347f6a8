"""The bytes of a journal, damaged: its tail cut at every byte of a frame, and bits flipped anywhere."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from controller.engines.replay import ReplayEngine, agent_sessions, step_time_model
from controller.journal import JournalReader, JournalWriter
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.run_directory import RunDirectory
from store.collect import Collector, collect_run
from tests.faults import plan
from tests.faults.accounting import Journal, balance, read_journal, read_store


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of some 400 frames in several segments whose engine died without a word."""
    run = RunDirectory.create(tmp_path_factory.mktemp("runs"), engine="replay", version="1", run_id="run")
    with JournalWriter(run.journal, run_id="run", on_full="raise", stall="wait", segment_bytes=1 << 15) as writer:
        ReplayEngine(
            agent_sessions(seed=5, sessions=12), knobs=Knobs(page_size=64, max_extend_tokens=32_768),
            step_time=step_time_model(), recorder=Recorder(writer), device_tokens=150_000, host_tokens=400_000,
            run="run",
        ).run()  # fmt: skip
    run.release()
    # Up to the last frame with a decision, so that a cut costs one.
    last = last_segment(run)
    while not decides(read_journal(run.journal)):
        os.truncate(last, begin_of_last_frame(last))
    return run


def decides(journal: Journal) -> bool:
    """Whether the last frame of a journal has a decision."""
    return len(journal.decisions()) > len(journal.decisions(journal.end - 1))


def copied(run: RunDirectory, path: Path) -> RunDirectory:
    """The run once more, somewhere else."""
    shutil.copytree(run.path, path)
    return RunDirectory(path)


def last_segment(run: RunDirectory) -> Path:
    """The file that was written last."""
    return max(run.journal.glob("*.journal"))


def begin_of_last_frame(path: Path) -> int:
    """Where the last frame of a segment begins."""
    content = path.read_bytes()
    at = 0
    while (end := at + 32 + struct.unpack_from("<I", content, at + 12)[0]) < len(content):
        at = end
    return at


def test_a_tail_cut_at_every_byte(recorded, tmp_path):
    """Whatever is left of the last frame, all before it is kept, the rest is told, and the run can go on."""
    tally = plan.Tally(
        4, "the journal's tail cut", "a journal cut at every byte of its last frame, collected, and then continued by "
        "another engine process's writer", unit="cuts",
    )  # fmt: skip
    whole = read_journal(recorded.journal)
    segment = last_segment(recorded)
    begin, end = begin_of_last_frame(segment), segment.stat().st_size
    cut = copied(recorded, tmp_path / "cut")
    last = last_segment(cut)
    content = last.read_bytes()
    # What stands before the last frame is collected once, and taken along to each cut.
    last.write_bytes(content[:begin])
    collect_run(cut, tmp_path / "before.db")
    for place in range(begin, end + 1, 1 if plan.LONG else 7):
        last.write_bytes(content[:place])
        database = tmp_path / "cut.db"
        shutil.copyfile(tmp_path / "before.db", database)
        with Collector(cut, database) as collector:
            collector.poll()
            torn = begin < place < end
            assert bool(collector.damage) == torn
        journal, store = read_journal(cut.journal), read_store(database, "run")
        tally.add(balance(journal, store))
        assert journal.end == whole.end - (place < end)
        assert store.losses == ({"torn_end": 0} if torn else {})
        continued = copied(cut, tmp_path / "continued")
        with JournalWriter(continued.journal, run_id="run", segment_bytes=1 << 15) as writer:
            assert writer.next_seq == journal.end
            assert writer.append(whole.frames[whole.end - 1]) == journal.end
        if place < end:  # else the last frame would be told twice, which is another test's matter
            collect_run(continued, database)
            store = read_store(database, "run")
            assert (store.decisions, store.end) == (whole.decisions(), whole.end)
            assert store.losses == ({"torn_end": 0} if torn else {})
        shutil.rmtree(continued.path)
    tally.remark = "the frame that was cut is in none of them"
    tally.note()


def test_flipped_bits(recorded, tmp_path):
    """Damage costs the frames it hits, each is counted, and no frame is told otherwise than it was written."""
    draw = plan.draw("bits")
    tally = plan.Tally(
        5, "bits flipped in the journal", "1 to 8 random bits of a journal of several segments, headers included, then "
        "collected into a new database", unit="journals",
    )  # fmt: skip
    whole = read_journal(recorded.journal)
    decisions = whole.decisions()
    segments = sorted(each.name for each in recorded.journal.glob("*.journal"))
    bits = 0
    for number in plan.each_round(2 if plan.LONG else 5):
        hurt = copied(recorded, tmp_path / f"hurt-{number}")
        hit = draw.randint(1, 8)
        for _ in range(hit):
            flip(hurt.journal / draw.choice(segments), draw)
        bits += hit
        database = tmp_path / f"{number}.db"
        collect_run(hurt, database)
        journal, store = read_journal(hurt.journal), read_store(database, "run")
        found = balance(journal, store)
        tally.add(found)
        assert store.decisions == {key: decisions[key] for key in store.decisions}
        if journal.end < whole.end:
            tally.count("of them in the last frames, told as a damaged end", 1)
            assert store.losses.keys() & {"torn_end", "damaged_end"}, store.losses
        with JournalReader(hurt.journal) as reader:
            assert sum(frame.kind == 1 for frame in reader) == len(journal.frames)
        shutil.rmtree(hurt.path)
        database.unlink()
    tally.count("bits flipped", bits)
    tally.note()


def flip(path: Path, draw) -> None:
    """Flip one random bit of a file."""
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
