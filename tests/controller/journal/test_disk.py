"""The journal's writer on a disk that is full, failing or slow: what it could not keep is counted and stated."""

import errno
import os
import shutil
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
    JournalReader,
    JournalWriter,
    Loss,
)
from controller.journal.segments import list_segments
from estimator.errors import StorageError

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000


def writer(folder, **options):
    """Return a writer for run r."""
    return JournalWriter(folder, **{"run_id": "r", **options})


def read(folder):
    """Return (payloads by number, losses stated, the reader)."""
    reader = JournalReader(folder)
    frames = list(reader)
    payloads = {frame.seq: frame.payload for frame in frames if frame.kind == DATA}
    return payloads, [Loss.decode(frame.payload) for frame in frames if frame.kind == LOSS], reader


class Watch:
    """A stopwatch a test moves by hand, ns."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        """Return the time."""
        return self.now


class Disk:
    """Stands in for os.write: fails with `error`, or writes short by `short` bytes, or takes `slow` ns."""

    def __init__(self, journal, watch):
        self.journal, self.watch = journal, watch
        self.error, self.short, self.slow, self.calls = 0, 0, 0, 0
        journal._write = self

    def __call__(self, descriptor, data):
        """Write as the disk lets it."""
        self.calls += 1
        self.watch.now += self.slow
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return os.write(descriptor, data[: len(data) - self.short])


@contextmanager
def on_a_disk(folder, **options):
    """Begin a journal on a stand-in disk; yields (journal, disk, stopwatch)."""
    watch = Watch()
    with writer(folder, stopwatch=watch, **options) as journal:
        yield journal, Disk(journal, watch), watch


def test_one_write_for_each_append(tmp_path):
    """An append is one system call, with nothing held back in the process."""
    with on_a_disk(tmp_path) as (journal, disk, _):
        for number in range(5):
            journal.append(b"payload")
            assert disk.calls == number + 1
            assert len(read(tmp_path)[0]) == number + 1


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


def test_a_segment_that_could_not_be_begun_misleads_no_reader(tmp_path):
    """Where a full disk takes a new segment's file but not its header, whoever opened that file reads the next one."""
    with writer(tmp_path, segment_bytes=1024, max_bytes=1 << 20, retry_ns=0) as journal:
        journal.append(b"first" * 50)
        reader = JournalReader(tmp_path)
        found = reader.poll()
        refusing = True

        def write(descriptor, frame):
            if refusing and len(list_segments(tmp_path)) > 1:
                found.extend(reader.poll())
                raise OSError(errno.ENOSPC, "full")
            return os.write(descriptor, frame)

        journal._write = write
        assert journal.append(b"lost" * 200) == LOST
        refusing = False
        for number in range(2, 8):
            assert journal.append(b"later" * 50) == number
    found.extend(reader.poll())
    assert [frame.seq for frame in found if frame.kind == DATA] == [0, 2, 3, 4, 5, 6, 7]
    assert [Loss.decode(frame.payload).frames for frame in found if frame.kind == LOSS] == [1]
    assert (reader.skipped.missing, reader.skipped.stated) == (1, 1)
    reader.close()


def test_what_a_reader_may_have_taken_is_not_cut_off(tmp_path):
    """A loss that was stated stays stated where the frame behind it is only begun and cut off again."""
    with writer(tmp_path, retry_ns=0) as journal:
        journal.append(b"first")
        reader = JournalReader(tmp_path)
        found = reader.poll()
        mood = "full"

        def write(descriptor, frame):
            if mood == "full":
                raise OSError(errno.ENOSPC, "full")
            if mood == "short" and b"begun" in frame:
                written = os.write(descriptor, frame[:-3])
                found.extend(reader.poll())
                return written
            return os.write(descriptor, frame)

        journal._write = write
        assert journal.append(b"lost") == LOST
        mood = "short"
        assert journal.append(b"begun") == LOST
        mood = "well"
        assert journal.append(b"last") == 3
        assert journal.losses.frames == 2
    found.extend(reader.poll())
    assert [frame.payload for frame in found if frame.kind == DATA] == [b"first", b"last"]
    assert [Loss.decode(frame.payload).frames for frame in found if frame.kind == LOSS] == [1, 1]
    assert reader.skipped == (0, 0, 2, 2)
    reader.close()


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
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if not mount or not umount:
        pytest.skip("there is no mount command here")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False, capture_output=True, text=True
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
        subprocess.run([umount, "-l", disk], check=True)


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
