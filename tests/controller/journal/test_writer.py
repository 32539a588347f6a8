"""The journal's writer: what it returned a number for is kept, within its bound, for its sinks."""

import os
import re
import signal
import stat
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.journal import (
    DATA,
    LOSS,
    LOST,
    SEGMENT,
    Cursor,
    JournalReader,
    JournalWriter,
    Loss,
    read_cursor,
    read_cursors,
    remove_cursor,
    write_cursor,
)
from controller.journal.segments import list_segments, read_header
from estimator.errors import KnobError, RecordError, StorageError

ROOT = Path(__file__).resolve().parents[2]

ROOT = Path(__file__).resolve().parents[2]


def writer(folder, **options):
    """Return a writer for run r."""
    return JournalWriter(folder, **{"run_id": "r", **options})


def read(folder):
    """Return (payloads by number, losses stated, the reader)."""
    reader = JournalReader(folder)
    frames = list(reader)
    payloads = {frame.seq: frame.payload for frame in frames if frame.kind == DATA}
    return payloads, [Loss.decode(frame.payload) for frame in frames if frame.kind == LOSS], reader


def size_of(folder):
    """Return the bytes of all segments together."""
    return sum(segment.path.stat().st_size for segment in list_segments(folder))


@given(st.lists(st.binary(max_size=600), max_size=40))
@settings(max_examples=30)
def test_appended_is_read_back(tmp_path_factory, payloads):
    """Payloads come back in order under the numbers append returned, across segments."""
    folder = tmp_path_factory.mktemp("journal")
    with writer(folder, max_bytes=1 << 20, segment_bytes=1024) as journal:
        numbers = [journal.append(payload) for payload in payloads]
    kept, losses, reader = read(folder)
    assert numbers == list(range(len(payloads)))
    assert list(kept.values()) == payloads
    assert losses == []
    assert reader.skipped == (0, 0, 0, 0)


def test_a_killed_writer_loses_nothing_it_returned_for(tmp_path):
    """Every append whose return the process told of before kill -9 is readable, and what follows a torn frame too."""
    program = (
        "import os, sys\n"
        "from controller.journal import JournalWriter\n"
        "journal = JournalWriter(sys.argv[1], run_id='r', max_bytes=1 << 24, segment_bytes=1 << 16)\n"
        "while True:\n"
        "    number = journal.next_seq\n"
        "    assert journal.append(b'%d.' % number * 80) == number\n"
        "    os.write(1, b'%d\\n' % number)\n"
    )
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", program, folder], cwd=ROOT, stdout=subprocess.PIPE)
        with process:
            told = process.stdout.read(20_000 + 13 * attempt)
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read()
        assert process.returncode == -signal.SIGKILL
        last = int(told[: told.rindex(b"\n")].split()[-1])
        kept, _, reader = read(folder)
        assert set(range(last + 1)) <= set(kept)
        assert all(payload == b"%d." % number * 80 for number, payload in kept.items())
        assert reader.skipped == (0, 0, 0, 0)
        with writer(folder) as journal:
            assert journal.append(b"after") == max(kept) + 1
        assert read(folder)[0] == {**kept, max(kept) + 1: b"after"}


@pytest.mark.parametrize("sizes", [[100], [1, 900, 30], [1500, 10], [5000]])
def test_the_bound_holds_and_what_goes_unread_is_counted(tmp_path, sizes):
    """The segments never hold more than max_bytes; without a sink, frames that went are counted and stated."""
    with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal:
        appended = 0
        for number in range(300):
            appended += journal.append(bytes(sizes[number % len(sizes)])) >= 0
            assert size_of(tmp_path) <= 20_000
        totals = journal.losses
    kept, losses, reader = read(tmp_path)
    assert appended == 300
    assert max(kept) == 299
    assert set(totals.by_reason) == {"bound"}
    assert len(kept) + totals.frames == 300
    assert {loss.reason for loss in losses} == {"bound"}
    assert losses[-1].last_seq == min(kept) - 1
    assert reader.skipped.missing == 0


def test_segments_every_sink_has_passed_go_without_loss(tmp_path):
    """With sinks that keep up, the journal stays small and loses nothing."""
    write_cursor(tmp_path, "sqlite", Cursor(0, 0, 0))
    write_cursor(tmp_path, "otlp", Cursor(0, 0, 0))
    seen = 0
    with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal, JournalReader(tmp_path) as reader:
        for number in range(500):
            journal.append(b"%d" % number * 20)
            seen += sum(frame.kind == DATA for frame in reader.poll())
            for sink in ("sqlite", "otlp"):
                write_cursor(tmp_path, sink, reader.cursor)
        assert journal.losses.frames == 0
        assert len(list_segments(tmp_path)) <= 2
    assert seen == 500
    assert reader.skipped == (0, 0, 0, 0)


def test_the_sink_that_lags_is_named(tmp_path):
    """A loss at the bound says how many frames each sink had not passed, and counts those of the slowest."""
    with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal, JournalReader(tmp_path) as fast:
        for _ in range(10):
            journal.append(bytes(100))
        slow = JournalReader(tmp_path)
        slow.poll(6)
        write_cursor(tmp_path, "slow", slow.cursor)
        for _ in range(290):
            journal.append(bytes(100))
            fast.poll()
            write_cursor(tmp_path, "fast", fast.cursor)
        totals = journal.losses
    kept, losses, _ = read(tmp_path)
    assert slow.cursor.seq == 5
    assert totals.by_reason == {"bound": min(kept) - 5}
    assert {sink for loss in losses for sink in loss.sinks} == {"slow"}
    assert next(frame.seq for frame in slow if frame.kind == DATA) == 5
    assert slow.skipped.stretches == 0


def test_making_room_for_a_long_frame_loses_nothing_that_was_passed(tmp_path):
    """A segment that has to go at the bound costs nothing when every sink has read it to its end."""
    with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal, JournalReader(tmp_path) as reader:
        for _ in range(5):
            journal.append(bytes(100))
        reader.poll()
        write_cursor(tmp_path, "sqlite", reader.cursor)
        assert journal.append(bytes(15_800)) == 5
        assert size_of(tmp_path) <= 20_000
        assert journal.append(bytes(15_800)) == 6
        assert journal.losses.by_reason == {"bound": 1}


def test_a_stated_loss_does_not_go_with_its_segment(tmp_path):
    """The oldest header plus the loss frames there are tell the whole loss, also after a later writer took over."""
    for _ in range(2):
        with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal:
            assert journal.append(bytes(19_000)) == LOST
            for _ in range(300):
                journal.append(bytes(100))
    kept, losses, _ = read(tmp_path)
    stated = dict(read_header(list_segments(tmp_path)[0]).lost)
    for loss in losses:
        stated[loss.reason] += loss.frames
    assert len(losses) < 20
    assert stated["too_large"] == 2
    assert stated["bound"] == min(kept)


def test_garbage_is_collected_only_behind_every_sink(tmp_path):
    """A segment stays while one sink, or a file that is no cursor, has not passed it, and when there is no sink."""
    with writer(tmp_path, max_bytes=1 << 20, segment_bytes=1024) as journal:
        for _ in range(50):
            journal.append(bytes(100))
        newest = list_segments(tmp_path)[-1].number
        assert journal.collect_garbage() == 0
        write_cursor(tmp_path, "first", Cursor(newest, 0, 50))
        (tmp_path / "cursors" / "second").write_text("not a cursor")
        assert journal.collect_garbage() == 0
        write_cursor(tmp_path, "second", Cursor(3, 0, 20))
        assert journal.collect_garbage() == 2
        assert list_segments(tmp_path)[0].number == 3
        remove_cursor(tmp_path, "second")
        assert journal.collect_garbage() == newest - 3
        assert journal.losses.frames == 0


def test_segments_begin_with_a_header_that_anchors_time(tmp_path):
    """Each segment says run, rank, its number, its first frame's number, and one moment on both clocks."""
    times = count(100)
    with writer(
        tmp_path, run_id="1a2b3c4d", rank=3, max_bytes=1 << 20, segment_bytes=1024, clock=lambda: next(times),
        wall_clock=lambda: 5000,
    ) as journal:  # fmt: skip
        for _ in range(20):
            journal.append(bytes(100))
    assert len(list_segments(tmp_path)) == 4
    reader = JournalReader(tmp_path)
    following = None
    headers = []
    for frame in reader:
        if following is not None:
            assert frame.seq == following
        following = None
        if frame.kind == SEGMENT:
            assert frame.offset == 0
            headers.append(reader.header)
            following = reader.header.first_seq
    assert [header.segment for header in headers] == [1, 2, 3, 4]
    assert [(header.run_id, header.rank, header.format) for header in headers] == [("1a2b3c4d", 3, 1)] * 4
    assert [header.monotonic_ns for header in headers] == [100, 101, 102, 103]
    assert headers[2].wall_time(112) == 5010


def test_a_later_writer_of_the_same_run_goes_on(tmp_path):
    """Numbers and the bound carry on in a new segment; another run's journal is not touched."""
    with writer(tmp_path, max_bytes=8000, segment_bytes=2000) as journal:
        for _ in range(30):
            journal.append(bytes(100))
    with list_segments(tmp_path)[-1].path.open("ab") as torn:
        torn.write(b"\xabGLJ")
    with writer(tmp_path, max_bytes=8000, segment_bytes=2000) as journal:
        assert [journal.append(bytes(100)) for _ in range(100)] == list(range(30, 130))
        assert size_of(tmp_path) <= 8000
    assert max(read(tmp_path)[0]) == 129
    with pytest.raises(RecordError, match=r"is of run r rank 0, not of run other rank 0; give this run a folder"):
        writer(tmp_path, run_id="other")


@pytest.mark.parametrize("left", [0, 1, 20, 100])
def test_a_writer_killed_at_a_change_of_segment_is_continued(tmp_path, left):
    """A last segment without a whole header, at any byte, neither stops a later writer nor makes it reuse numbers."""
    with writer(tmp_path) as journal:
        for _ in range(3):
            journal.append(b"before")
    with writer(tmp_path):
        pass
    os.truncate(list_segments(tmp_path)[1].path, left)
    with writer(tmp_path) as journal:
        assert journal.append(b"after") == 3
    kept, _, reader = read(tmp_path)
    assert list(kept) == [0, 1, 2, 3]
    assert reader.skipped == (left, int(left > 0), 0, 0)


def test_only_the_owner_may_look(tmp_path):
    """Folders are 0700 and files 0600 whatever the umask."""
    before = os.umask(0)
    try:
        with writer(tmp_path / "run" / "journal") as journal:
            journal.append(b"payload")
            write_cursor(journal.folder, "sqlite", Cursor(1, 0, 0))
    finally:
        os.umask(before)
    modes = {
        path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    }
    assert modes == {True: 0o700, False: 0o600}


def test_a_journal_that_cannot_be_begun_says_why(tmp_path):
    """A path that cannot be a folder is one clear line, a StorageError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/journal cannot be begun: .*; free space or name a writable folder"):
        writer(tmp_path / "file" / "journal")


@pytest.mark.parametrize(
    "sizes", [{"max_bytes": 4000}, {"segment_bytes": 100}, {"max_bytes": 8192, "segment_bytes": 5000}]
)
def test_sizes_that_cannot_be_are_named(tmp_path, sizes):
    """A bound or segment size out of its limits is a KnobError that names value and limit."""
    with pytest.raises(KnobError, match=rf"{list(sizes)[-1]} is {list(sizes.values())[-1]}, .*\d+.*; "):
        writer(tmp_path, **sizes)


def test_cursors_are_kept_whole_and_by_name(tmp_path):
    """A cursor is read back as written, a missing one is None, a damaged one an error, a bad name refused."""
    write_cursor(tmp_path, "sqlite", Cursor(3, 500, 77))
    assert read_cursor(tmp_path, "sqlite") == Cursor(3, 500, 77)
    assert read_cursor(tmp_path, "otlp") is None
    assert read_cursors(tmp_path) == {"sqlite": Cursor(3, 500, 77)}
    assert [path.name for path in (tmp_path / "cursors").iterdir()] == ["sqlite"]
    for content in ("", "[]", '{"segment": 1}', '{"segment": -1, "offset": 0, "seq": 0}', "\xff"):
        (tmp_path / "cursors" / "sqlite").write_text(content)
        with pytest.raises(RecordError, match="is not a cursor; remove it"):
            read_cursor(tmp_path, "sqlite")
    with pytest.raises(ValueError, match=re.escape("sink name '../x'")):
        write_cursor(tmp_path, "../x", Cursor(0, 0, 0))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cursor .* cannot be written: "):
        write_cursor(tmp_path / "file", "sqlite", Cursor(0, 0, 0))
