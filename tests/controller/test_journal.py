"""The journal's writer: what it returned a number for is kept, and what it could not keep is counted."""

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
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
from controller.segments import list_segments, read_header
from estimator.errors import KnobError, RecordError, StorageError

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000


def writer(folder, **options):
    return JournalWriter(folder, **{"run_id": "r", **options})


def read(folder):
    """Return (payloads by number, losses stated, the reader)."""
    reader = JournalReader(folder)
    frames = list(reader)
    payloads = {frame.seq: frame.payload for frame in frames if frame.kind == DATA}
    return payloads, [Loss.decode(frame.payload) for frame in frames if frame.kind == LOSS], reader


def size_of(folder):
    return sum(segment.path.stat().st_size for segment in list_segments(folder))


class Watch:
    """A stopwatch a test moves by hand, ns."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class Disk:
    """Stands in for os.write: fails with `error`, or writes short by `short` bytes, or takes `slow` ns."""

    def __init__(self, journal, watch):
        self.journal, self.watch = journal, watch
        self.error, self.short, self.slow, self.calls = 0, 0, 0, 0
        journal._write = self

    def __call__(self, descriptor, data):
        self.calls += 1
        self.watch.now += self.slow
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return os.write(descriptor, data[: len(data) - self.short])


@contextmanager
def on_a_disk(folder, **options):
    watch = Watch()
    with writer(folder, stopwatch=watch, **options) as journal:
        yield journal, Disk(journal, watch), watch


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


def test_one_write_for_each_append(tmp_path):
    """An append is one system call, with nothing held back in the process."""
    with on_a_disk(tmp_path) as (journal, disk, _):
        for number in range(5):
            journal.append(b"payload")
            assert disk.calls == number + 1
            assert len(read(tmp_path)[0]) == number + 1


def test_a_killed_writer_loses_nothing_it_returned_for(tmp_path):
    """Every append whose return the process told of before kill -9 is readable, and what follows a torn frame too."""
    program = (
        "import os, sys\n"
        "from controller.journal import JournalWriter\n"
        "journal = JournalWriter(sys.argv[1], run_id='r', max_bytes=1 << 24, segment_bytes=1 << 16)\n"
        "while True:\n"
        "    number = journal._next_seq\n"
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
    assert [frame.seq for frame in slow if frame.kind == DATA][0] == 5
    assert slow.skipped.stretches == 0


def test_a_stated_loss_does_not_go_with_its_segment(tmp_path):
    """The oldest header plus the loss frames there are tell the whole loss, also after a later writer took over."""
    for _ in range(2):
        with writer(tmp_path, max_bytes=20_000, segment_bytes=2000) as journal:
            assert journal.append(bytes(19_000)) == LOST
            for _ in range(300):
                journal.append(bytes(100))
    kept, losses, reader = read(tmp_path)
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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_costs_counted_frames(tmp_path, code):
    """By default the engine goes on; frames are counted, a try is made now and then, and the loss is stated at last."""
    times = count(1000)
    with on_a_disk(tmp_path, clock=lambda: next(times)) as (journal, disk, watch):
        assert [journal.append(b"before"), journal.append(b"before")] == [0, 1]
        disk.error = code
        assert [journal.append(b"lost") for _ in range(10)] == [LOST] * 10
        reason = "error" if code == errno.EIO else "full"
        assert journal.trouble == reason
        tries = disk.calls
        journal.append(b"lost")
        assert disk.calls == tries
        watch.now += SECOND
        assert journal.append(b"lost") == LOST
        assert disk.calls > tries
        totals = journal.losses
        assert (totals.frames, totals.lost_bytes, totals.by_reason) == (12, 12 * 36, {reason: 12})
        assert (totals.first_ns, totals.last_ns) == (1001, 1012)
        disk.error = 0
        assert journal.append(b"lost") == LOST
        watch.now += SECOND
        assert journal.append(b"after") == 15
        assert journal.append(b"after") == 16
        assert journal.trouble is None
        assert journal.losses.frames == 13
    kept, losses, reader = read(tmp_path)
    assert kept == {0: b"before", 1: b"before", 15: b"after", 16: b"after"}
    assert losses == [Loss(reason, 13, 13 * 36, 2, 14, 1001, 1013, {})]
    assert reader.skipped == (0, 0, 13, 13)


@given(st.lists(st.sampled_from(["ok", "short", "full", "wait"]), max_size=40))
@settings(max_examples=40)
def test_every_frame_is_kept_or_counted(tmp_path_factory, events):
    """However writes fail or fall short, kept and lost frames add up and no damage is left behind."""
    folder = tmp_path_factory.mktemp("journal")
    kept = {}
    with on_a_disk(folder, max_bytes=1 << 20, segment_bytes=1024) as (journal, disk, watch):
        for number, event in enumerate(events):
            disk.error = errno.ENOSPC if event == "full" else 0
            disk.short = 9 if event == "short" else 0
            watch.now += SECOND if event == "wait" else 0
            payload = b"%d" % number * 50
            if (seq := journal.append(payload)) != LOST:
                assert seq == number
                kept[seq] = payload
        disk.error = disk.short = 0
        lost = journal.losses.frames
    found, losses, reader = read(folder)
    assert found == kept
    assert len(kept) + lost == len(events)
    assert sum(loss.frames for loss in losses) == lost
    assert reader.skipped[:2] == (0, 0)
    assert reader.tail == "clean"


def test_a_part_that_cannot_be_cut_off_is_left_in_its_segment(tmp_path, monkeypatch):
    """When a short write cannot be taken back, a new segment begins and the part costs nothing but itself."""
    with on_a_disk(tmp_path) as (journal, disk, watch):
        journal.append(b"before")
        disk.short = 3
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
            assert journal.append(b"lost") in {1, LOST}
        disk.short = 0
        watch.now += SECOND
        journal.append(b"after")
    kept, _, reader = read(tmp_path)
    assert [kept[0], kept[max(kept)]] == [b"before", b"after"]
    assert len(list_segments(tmp_path)) == 2
    assert reader.skipped.stretches == 1
    assert reader.skipped.missing == reader.skipped.stated


def test_raise_policy_names_the_frame_and_keeps_those_before(tmp_path):
    """With on_full="raise" a full disk is a StorageError with its remedy, and appending can go on afterwards."""
    with on_a_disk(tmp_path, on_full="raise") as (journal, disk, _):
        journal.append(b"before")
        disk.error = errno.ENOSPC
        for _ in range(2):
            with pytest.raises(StorageError, match=r"cannot take frame 1 \(36 bytes\): No space left.*; free space"):
                journal.append(b"full")
        assert read(tmp_path)[0] == {0: b"before"}
        disk.error = 0
        assert journal.append(b"after") == 1
        assert journal.losses.frames == 0


def test_a_small_real_file_system_that_fills_up(tmp_path):
    """On a real disk without space nothing is damaged, and writing works again when there is space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {mounted.stderr.strip()}")
    try:
        (disk / "ballast").write_bytes(bytes(16_000))
        with writer(disk / "journal", retry_ns=0) as journal:
            numbers = [journal.append(b"%d" % number * 300) for number in range(100)]
            assert journal.trouble == "full"
            (disk / "ballast").unlink()
            assert journal.append(b"after") == 100
        kept, losses, reader = read(disk / "journal")
        assert set(kept) == {number for number in numbers if number != LOST} | {100}
        assert 0 < len(kept) < 101
        assert sum(loss.frames for loss in losses) == 101 - len(kept)
        assert reader.skipped[:2] == (0, 0)
        reader.close()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_size_limit_of_the_kernel(tmp_path):
    """A write the kernel cuts short is taken back whole: the frames before it are readable and the tail is clean."""
    program = (
        "import resource, sys\n"
        "from controller.journal import JournalWriter\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "journal = JournalWriter(sys.argv[1], run_id='r')\n"
        "print(sum(journal.append(bytes(700)) >= 0 for _ in range(50)), journal.losses.by_reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, check=True, capture_output=True, text=True
    )
    kept, _, reader = read(tmp_path)
    assert done.stdout == f"{len(kept)} {{'full': {50 - len(kept)}}}\n"
    assert len(kept) == (20_000 - 200) // 732
    assert (reader.tail, reader.skipped[:2]) == ("clean", (0, 0))


def test_appends_that_stay_slow_become_counted_losses(tmp_path):
    """After three appends over 5 ms running, frames are counted instead, but for a try every second."""
    with on_a_disk(tmp_path) as (journal, disk, watch):
        for slow in (6_000_000, 6_000_000, 1000, 6_000_000, 6_000_000, 6_000_000):
            assert journal.trouble is None
            disk.slow = slow
            assert journal.append(b"kept") >= 0
        assert journal.trouble == "stall"
        calls = disk.calls
        assert [journal.append(b"lost") for _ in range(4)] == [LOST] * 4
        assert disk.calls == calls
        watch.now += SECOND
        assert journal.append(b"a slow try") == 10
        assert journal.append(b"lost") == LOST
        watch.now += SECOND
        disk.slow = 1000
        assert journal.append(b"a fast try") == 12
        assert journal.append(b"kept") == 13
    kept, losses, reader = read(tmp_path)
    assert sorted(kept) == [0, 1, 2, 3, 4, 5, 10, 12, 13]
    assert [(loss.reason, loss.frames) for loss in losses] == [("stall", 4), ("stall", 1)]
    assert reader.skipped == (0, 0, 5, 5)


def test_a_writer_told_to_wait_loses_nothing_to_slowness(tmp_path):
    """With stall="wait" slow appends are all made."""
    with on_a_disk(tmp_path, stall="wait") as (journal, disk, _):
        disk.slow = 10 * SECOND
        assert [journal.append(b"kept") for _ in range(10)] == list(range(10))
        assert journal.trouble is None


def test_a_payload_above_the_limit_is_counted_or_refused(tmp_path):
    """A payload that cannot fit below the bound is a counted loss, or a StorageError that names both sizes."""
    with writer(tmp_path / "lose", max_bytes=10_000) as journal:
        assert journal.append(bytes(9000)) == LOST
        assert journal.append(bytes(5000)) == 1
    kept, losses, _ = read(tmp_path / "lose")
    assert list(kept) == [1]
    assert [(loss.reason, loss.frames) for loss in losses] == [("too_large", 1)]
    with writer(tmp_path / "raise", max_bytes=10_000, on_full="raise") as journal:
        with pytest.raises(StorageError, match="payload of 9000 bytes is above the limit of 5872"):
            journal.append(bytes(9000))
        assert journal.append(bytes(5872)) == 0


def test_a_loss_is_stated_at_the_close(tmp_path):
    """A writer that closes while frames are being lost states them if the disk lets it, and never fails."""
    with on_a_disk(tmp_path) as (journal, disk, _):
        disk.error = errno.ENOSPC
        journal.append(b"lost")
        disk.error = 0
    assert [loss.frames for loss in read(tmp_path)[1]] == [1]
    with on_a_disk(tmp_path / "still-full") as (journal, disk, _):
        disk.error = errno.ENOSPC
        journal.append(b"lost")
    assert read(tmp_path / "still-full")[1] == []
    journal.close()
    with pytest.raises(ValueError, match="closed"):
        journal.append(b"too late")


def test_an_exception_from_a_signal_never_gives_a_number_twice(tmp_path):
    """A KeyboardInterrupt around the write costs at most a gap in the numbers, never a frame."""
    with writer(tmp_path) as journal:

        def interrupted(descriptor, data):
            os.write(descriptor, data)
            raise KeyboardInterrupt

        journal.append(b"before")
        journal._write = interrupted
        with pytest.raises(KeyboardInterrupt):
            journal.append(b"written")
        journal._write = os.write
        assert journal.append(b"after") == 2
    assert read(tmp_path)[0] == {0: b"before", 1: b"written", 2: b"after"}


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
