"""The journal's reader: it follows a live writer, keeps its place, and tells damage from what is not there yet."""

import os
import struct
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.journal import DATA, SEGMENT, Cursor, JournalReader, JournalWriter
from controller.journal import reader as journal_reader
from controller.journal.frames import FORMAT, HEADER_BYTES, OVERHEAD_BYTES
from controller.journal.segments import list_segments
from estimator.errors import RecordError


def write(folder, payloads, **options):
    """Write a journal of run r."""
    with JournalWriter(folder, run_id="r", **options) as journal:
        for payload in payloads:
            journal.append(payload)


def data(frames):
    """Return the payloads of the DATA frames."""
    return [frame.payload for frame in frames if frame.kind == DATA]


def overwrite(path, offset, content):
    """Change bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.fixture
def narrow_window(monkeypatch):
    """Read in windows of 64 bytes, so that every frame straddles one."""
    monkeypatch.setattr(journal_reader, "WINDOW_BYTES", 64)


def test_it_follows_a_live_writer(tmp_path):
    """Each poll returns what was appended since the last one, across segments, and nothing twice."""
    with JournalWriter(tmp_path, run_id="r", max_bytes=1 << 20, segment_bytes=1024) as journal:
        reader = JournalReader(tmp_path)
        assert [frame.kind for frame in reader.poll()] == [SEGMENT]
        assert reader.poll() == []
        for number in range(200):
            payloads = [b"%d-%d" % (number, each) for each in range(number % 4)]
            for payload in payloads:
                journal.append(payload)
            assert data(reader.poll()) == payloads
        assert len(list_segments(tmp_path)) > 5
        assert reader.skipped == (0, 0, 0, 0)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.data())
@settings(max_examples=30)
def test_reading_goes_on_from_any_frame(tmp_path_factory, payloads, draw):
    """A reader started from any frame's cursor, or from a reader's own, hands over exactly the frames behind it."""
    folder = tmp_path_factory.mktemp("journal")
    write(folder, payloads, max_bytes=1 << 20, segment_bytes=1024)
    frames = list(JournalReader(folder))
    taken = draw.draw(st.integers(1, len(frames)))
    reader = JournalReader(folder)
    assert reader.poll(taken) == frames[:taken]
    for cursor in (reader.cursor, frames[taken - 1].cursor):
        resumed = JournalReader(folder, start=cursor)
        assert list(resumed) == frames[taken:]
        assert resumed.skipped.missing == 0
        assert resumed.header.run_id == "r"


def test_iteration_can_be_left_and_taken_up(tmp_path):
    """Frames not handed over when an iteration is left come with the next one; the cursor stands before them."""
    write(tmp_path, [b"%d" % number for number in range(10)])
    reader = JournalReader(tmp_path)
    for frame in reader:
        if frame.payload == b"4":
            assert reader.cursor == frame.cursor
            break
    assert data(reader) == [b"5", b"6", b"7", b"8", b"9"]
    assert data(reader.poll()) == []


@pytest.mark.usefixtures("narrow_window")
def test_frames_larger_than_the_window_are_read(tmp_path):
    """The size of the reading window shows in nothing, not with long frames nor with long damage."""
    payloads = [b"%d" % number * 100 for number in range(30)]
    write(tmp_path, payloads, max_bytes=1 << 20, segment_bytes=2048)
    first = list_segments(tmp_path)[0].path
    frames = [frame for frame in JournalReader(tmp_path) if frame.kind == DATA]
    overwrite(first, frames[3].offset, bytes(frames[6].offset - frames[3].offset))
    reader = JournalReader(tmp_path)
    assert data(reader) == payloads[:3] + payloads[6:]
    assert reader.skipped == (frames[6].offset - frames[3].offset, 1, 3, 0)


@pytest.mark.usefixtures("narrow_window")
def test_a_tail_not_complete_is_not_there_yet(tmp_path):
    """At every byte of a frame being written the reader waits, counts nothing, and takes the frame once it is whole."""
    write(tmp_path / "whole", [b"first", b"the second"])
    source = list_segments(tmp_path / "whole")[0].path
    content = source.read_bytes()
    begin = len(content) - OVERHEAD_BYTES - len(b"the second")
    live = tmp_path / "live"
    live.mkdir()
    path = live / source.name
    path.write_bytes(content[:begin])
    reader = JournalReader(live)
    assert data(reader.poll()) == [b"first"]
    for size in range(begin + 1, len(content)):
        path.write_bytes(content[:size])
        assert reader.poll() == []
        assert (reader.tail, reader.tail_bytes) == ("torn", size - begin)
    path.write_bytes(content)
    assert data(reader.poll()) == [b"the second"]
    assert (reader.tail, reader.tail_bytes) == ("clean", 0)
    assert reader.skipped == (0, 0, 0, 0)


def test_a_part_taken_back_by_the_writer_is_forgotten(tmp_path):
    """A reader that saw the beginning of a frame the writer then cut off reads what stands there afterwards."""
    write(tmp_path, [b"first", b"taken back"])
    path = list_segments(tmp_path)[0].path
    content = path.read_bytes()
    begin = len(content) - OVERHEAD_BYTES - len(b"taken back")
    path.write_bytes(content[: begin + 35])
    reader = JournalReader(tmp_path)
    assert data(reader.poll()) == [b"first"]
    path.write_bytes(content[:begin])
    write(tmp_path, [b"second", b"third"])
    assert data(reader.poll()) == [b"second", b"third"]
    assert reader.skipped == (0, 0, 0, 0)


def test_a_torn_tail_becomes_damage_once_another_segment_follows(tmp_path):
    """What a killed writer left half-written is a torn tail, and one counted stretch when the run goes on."""
    write(tmp_path, [b"first", b"torn"])
    path = list_segments(tmp_path)[0].path
    os.truncate(path, path.stat().st_size - 1)
    reader = JournalReader(tmp_path)
    assert data(reader) == [b"first"]
    assert (reader.tail, reader.tail_bytes) == ("torn", OVERHEAD_BYTES + 3)
    assert reader.skipped == (0, 0, 0, 0)
    write(tmp_path, [b"second"])
    assert data(reader) == [b"second"]
    assert (reader.tail, reader.skipped) == ("clean", (OVERHEAD_BYTES + 3, 1, 0, 0))


def test_a_corrupt_tail_is_told_from_a_torn_one(tmp_path):
    """A last frame that is whole but bad shows as a corrupt tail, and as damage once a frame stands behind it."""
    with JournalWriter(tmp_path, run_id="r") as journal:
        journal.append(b"first")
        journal.append(b"second")
        path = list_segments(tmp_path)[0].path
        overwrite(path, path.stat().st_size - 1, b"\x00\x00")
        os.truncate(path, path.stat().st_size - 1)
        reader = JournalReader(tmp_path)
        assert data(reader.poll()) == [b"first"]
        assert (reader.tail, reader.skipped.stretches) == ("corrupt", 0)
        journal.append(b"third")
        assert data(reader.poll()) == [b"third"]
        assert reader.skipped == (OVERHEAD_BYTES + 6, 1, 1, 0)


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=6))
@settings(max_examples=60)
def test_only_frames_that_were_hit_are_lost(tmp_path_factory, hits):
    """Whatever bytes of whatever segments change, headers too, every frame not touched is handed over."""
    folder = tmp_path_factory.mktemp("journal")
    payloads = [b"%d" % number * (number % 90) for number in range(60)]
    write(folder, payloads, max_bytes=1 << 20, segment_bytes=1024)
    frames = list(JournalReader(folder))
    paths = {segment.number: segment.path for segment in list_segments(folder)}
    changed = set()
    for at, flip in hits:
        frame = frames[at % len(frames)]
        if (frame.segment, frame.offset) not in changed:
            place = frame.offset + at % (OVERHEAD_BYTES + len(frame.payload))
            overwrite(paths[frame.segment], place, bytes([paths[frame.segment].read_bytes()[place] ^ flip]))
            changed.add((frame.segment, frame.offset))
    reader = JournalReader(folder)
    assert set(reader) >= {frame for frame in frames if (frame.segment, frame.offset) not in changed}


def test_a_segment_that_goes_while_it_is_read_is_read_to_its_end(tmp_path):
    """A reader inside a segment dropped at the bound finishes it; only what went unopened is missing."""
    with JournalWriter(tmp_path, run_id="r", max_bytes=8192, segment_bytes=1024) as journal:
        reader = JournalReader(tmp_path)
        for _ in range(200):
            journal.append(bytes(100))
        numbers = [frame.seq for frame in reader.poll() if frame.kind == DATA]
    gaps = [(one, two) for one, two in pairwise(numbers) if two != one + 1]
    assert numbers[0] == 0
    assert numbers[-1] == 199
    assert len(gaps) == 1
    assert reader.skipped == (0, 0, gaps[0][1] - gaps[0][0] - 1, 0)
    later = JournalReader(tmp_path, start=Cursor(1, 500, 3))
    assert next(frame.seq for frame in later if frame.kind == DATA) == gaps[0][1]
    assert later.skipped.missing == gaps[0][1] - 3


def test_a_damaged_first_header_hides_no_frame_and_invents_no_gap(tmp_path):
    """Without the oldest segment's header its frames are read, and what came before is not called missing."""
    with JournalWriter(tmp_path, run_id="r", max_bytes=8192, segment_bytes=1024) as journal:
        for _ in range(200):
            journal.append(bytes(100))
    oldest = list_segments(tmp_path)[0]
    whole = list(JournalReader(tmp_path))
    overwrite(oldest.path, 20, b"\xff")
    reader = JournalReader(tmp_path)
    assert list(reader) == whole[1:]
    assert reader.skipped == (whole[1].offset, 1, 0, 0)


def test_what_is_not_a_journal_says_so(tmp_path):
    """A missing folder, an empty one, a file and another program's folder are each a RecordError with the remedy."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "00000001.journal").write_text("")
    for name in ("missing", "empty", "file", "other"):
        with pytest.raises(RecordError, match=rf"no journal at .*{name}: .*; name a run's journal folder"):
            JournalReader(tmp_path / name)


def of_a_newer_format(path):
    """Make the first frame of a segment one of a newer format version."""
    header = bytearray(path.read_bytes()[:HEADER_BYTES])
    header[8] = FORMAT + 1
    header[24:] = struct.pack("<I", crc32(bytes(header[:24])))
    overwrite(path, 0, bytes(header))


def test_a_newer_journal_is_refused(tmp_path):
    """A journal of a newer format version is a RecordError that names both versions and the remedy."""
    write(tmp_path, [b"payload"])
    of_a_newer_format(list_segments(tmp_path)[0].path)
    with pytest.raises(RecordError, match=rf"segment 1 has format version {FORMAT + 1}, .*{FORMAT}; read it with"):
        JournalReader(tmp_path)


def test_a_segment_that_is_refused_is_not_held_open(tmp_path):
    """A follower that meets a segment it cannot read holds what it was reading, however often it polls."""
    write(tmp_path, [b"payload"])
    reader = JournalReader(tmp_path)
    reader.poll()
    before = len(list(Path("/proc/self/fd").iterdir()))
    write(tmp_path, [bytes(100)] * 20, segment_bytes=1024)
    of_a_newer_format(list_segments(tmp_path, 1)[0].path)
    for _ in range(3):
        with pytest.raises(RecordError, match=rf"format version {FORMAT + 1}"):
            reader.poll()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("start", [Cursor(9, 0, 0), Cursor(1, 1 << 40, 3)])
def test_a_cursor_of_another_journal_is_refused(tmp_path, start):
    """A place the journal does not have is a RecordError, not a reader that waits for ever."""
    write(tmp_path, [b"payload"])
    with pytest.raises(RecordError, match="the cursor is another journal's: remove it"):
        JournalReader(tmp_path, start=start)


def test_a_reader_holds_no_file_open_once_closed(tmp_path):
    """Closing, leaving a with block, or being dropped gives the descriptor back."""
    write(tmp_path, [b"payload"])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with JournalReader(tmp_path) as reader:
        reader.poll()
    assert reader.poll() == []
    assert data(JournalReader(tmp_path)) == [b"payload"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
