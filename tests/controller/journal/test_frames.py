"""The byte format: damage costs the frames it touches, nothing else, and is counted."""

import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.journal.frames import (
    DATA,
    FORMAT,
    HEADER_BYTES,
    LOSS,
    MAGIC,
    OVERHEAD_BYTES,
    Cursor,
    frame_builder,
    parse_frames,
)
from estimator.errors import RecordError

MARK = MAGIC + b"\x01\x02\x03\x04"
BUILD = frame_builder(MARK, DATA)
OTHER_SEGMENT = frame_builder(MAGIC + b"\x09\x09\x09\x09", DATA)(b"elsewhere", 7)

# Payloads with sync marks, halves of marks and whole frames of another segment in them.
PAYLOADS = st.lists(
    st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from([MARK, MARK[:5], MAGIC, OTHER_SEGMENT])), max_size=4
    ).map(b"".join),
    min_size=1,
    max_size=8,
)


def chain(payloads):
    """Return the bytes of each payload's frame."""
    return [BUILD(payload, seq) for seq, payload in enumerate(payloads)]


def parse(data, *, at_end=True):
    """Parse bytes that stand at the beginning of segment 1."""
    return parse_frames(data, MARK, 1, 0, 0, at_end=at_end)


def payloads_of(parsed):
    """Return the payloads that were read."""
    return [frame.payload for frame in parsed.frames]


@given(PAYLOADS)
def test_round_trip(payloads):
    """What was written is read back whole, in order, with its numbers and places."""
    parsed = parse(b"".join(chain(payloads)))
    assert payloads_of(parsed) == payloads
    assert [frame.seq for frame in parsed.frames] == list(range(len(payloads)))
    assert (parsed.tail, parsed.missing, parsed.stretches, parsed.damaged) == ("clean", 0, 0, 0)
    assert parsed.frames[-1].cursor == Cursor(1, parsed.used, len(payloads))


def test_documented_layout():
    """A frame has the bytes the module and docs/journal.md describe, so that others can read a journal."""
    frame = BUILD(b"payload", 300)
    header = MARK + struct.pack("<BBHIQ", FORMAT, DATA, 0, 7, 300)
    check = crc32(header)
    assert frame == header + struct.pack("<I", check) + b"payload" + struct.pack("<I", crc32(b"payload", check))
    assert len(frame) == OVERHEAD_BYTES + 7


@given(PAYLOADS, st.data())
@settings(max_examples=200)
def test_flipped_bits_cost_their_frame_only(payloads, data):
    """Any change of one byte, the length field's too, costs that frame and no other."""
    frames = chain(payloads)
    victim = data.draw(st.integers(0, len(frames) - 1))
    where = data.draw(st.integers(0, len(frames[victim]) - 1))
    damaged = bytearray(frames[victim])
    damaged[where] ^= data.draw(st.integers(1, 255))
    parsed = parse(b"".join([*frames[:victim], bytes(damaged), *frames[victim + 1 :]]))
    assert payloads_of(parsed) == payloads[:victim] + payloads[victim + 1 :]
    if victim == len(frames) - 1:
        assert parsed.used == sum(map(len, frames[:victim]))
        assert parsed.tail in {"torn", "corrupt"}
    else:
        assert (parsed.missing, parsed.stretches, parsed.damaged) == (1, 1, len(damaged))
        assert parsed.tail == "clean"


@pytest.mark.parametrize("gone", [1, 7, 30])
def test_bytes_missing_in_the_middle_cost_their_frame_only(gone):
    """Wherever bytes go missing from a frame, the frames around it are read."""
    frames = chain([b"first", b"the victim " + MARK + b" of the cut", b"third", b"fourth"])
    victim = frames[1]
    for cut in range(len(victim) - gone + 1):
        left = victim[:cut] + victim[cut + gone :]
        parsed = parse(b"".join([frames[0], left, *frames[2:]]))
        assert payloads_of(parsed) == [b"first", b"third", b"fourth"], cut
        assert (parsed.missing, parsed.stretches, parsed.damaged) == (1, 1, len(left)), cut


def test_truncation_at_every_byte_is_a_torn_tail():
    """A journal cut anywhere within its last frame holds all frames before, and the cut is told from damage."""
    frames = chain([b"first", b"second", b"the last " + MARK + b" one"])
    before = frames[0] + frames[1]
    assert parse(before).tail == "clean"
    for cut in range(1, len(frames[2])):
        for at_end in (True, False):
            parsed = parse(before + frames[2][:cut], at_end=at_end)
            assert payloads_of(parsed) == [b"first", b"second"], cut
            assert (parsed.tail, parsed.used, parsed.stretches) == ("torn", len(before), 0), cut


def test_a_damaged_end_is_not_taken_for_a_torn_one():
    """A last frame that is all there but bad, or bytes that begin no frame, are a corrupt tail."""
    first, whole = BUILD(b"first", 0), BUILD(b"payload", 1)
    for tail in (whole[:-1] + b"\x00", b"\x00" + whole[1:], b"\x00" * 100, b"\x00"):
        parsed = parse(first + tail)
        assert (parsed.tail, parsed.used) == ("corrupt", len(first)), tail


@given(PAYLOADS, st.binary(max_size=60), st.data())
def test_strange_bytes_between_frames_cost_no_frame(payloads, strange, data):
    """Bytes that belong to no frame are stepped over and counted."""
    frames = chain(payloads)
    at = data.draw(st.integers(0, len(frames) - 1))
    parsed = parse(b"".join([*frames[:at], strange, *frames[at:]]))
    assert payloads_of(parsed) == payloads
    assert (parsed.missing, parsed.damaged, parsed.stretches) == (0, len(strange), int(bool(strange)))


@given(PAYLOADS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=30), st.booleans())
@settings(max_examples=200)
def test_heavy_damage_never_invents_or_reorders(payloads, hits, at_end):
    """However bytes are overwritten, what is read is a subsequence of what was written."""
    data = bytearray(b"".join(chain(payloads)))
    for place, value in hits:
        data[place % len(data)] = value
    parsed = parse(bytes(data), at_end=at_end)
    assert all(frame.payload == payloads[frame.seq] for frame in parsed.frames)
    seqs = [frame.seq for frame in parsed.frames]
    assert seqs == sorted(set(seqs))
    assert parsed.expected - len(seqs) == parsed.missing
    assert sum(OVERHEAD_BYTES + len(frame.payload) for frame in parsed.frames) + parsed.damaged == parsed.used


def test_older_frames_inside_a_damaged_payload_are_not_read_again():
    """A payload that holds whole frames of its own segment does not fool a reader that lost the frame around them."""
    first = BUILD(b"first", 0)
    second = BUILD(first + first, 1)
    third = BUILD(b"third", 2)
    for place in range(HEADER_BYTES):
        damaged = bytearray(second)
        damaged[place] ^= 0x40
        parsed = parse(first + bytes(damaged) + third)
        assert payloads_of(parsed) == [b"first", b"third"]
        assert parsed.damaged == len(second)


def test_later_frames_inside_a_damaged_payload_are_not_read():
    """Where only the payload is bad, its length leads to the next frame and nothing inside it is believed."""
    inside = BUILD(b"never written", 1)
    outer = bytearray(BUILD(b"xx" + inside, 0))
    outer[HEADER_BYTES] ^= 1
    parsed = parse(bytes(outer) + BUILD(b"second", 1))
    assert payloads_of(parsed) == [b"second"]


def test_a_frame_still_being_written_is_not_searched():
    """While the rest of a long payload may follow, whole frames inside it are not believed."""
    outer = BUILD(BUILD(b"never written", 1) + bytes(100), 0)
    parsed = parse(outer[:-50], at_end=False)
    assert (parsed.frames, parsed.used, parsed.tail) == ([], 0, "torn")


def test_the_journals_own_frames_use_up_no_number():
    """A loss frame carries the number of the frame behind it, so that gaps are counted in payloads."""
    loss = frame_builder(MARK, LOSS)(b"{}", 5)
    parsed = parse(BUILD(b"first", 0) + loss + BUILD(b"second", 5))
    assert [(frame.kind, frame.seq) for frame in parsed.frames] == [(DATA, 0), (LOSS, 5), (DATA, 5)]
    assert (parsed.missing, parsed.expected) == (4, 6)
    assert parsed.frames[1].cursor.seq == 5


def test_a_newer_format_is_refused_by_name():
    """A frame of a newer version raises RecordError with both versions and the remedy; damage to the field does not."""
    frame = bytearray(BUILD(b"payload", 0))
    frame[8] = FORMAT + 1
    assert parse(bytes(frame)).frames == []
    frame[24:28] = struct.pack("<I", crc32(bytes(frame[:24])))
    with pytest.raises(RecordError, match=rf"version {FORMAT + 1}, .* up to {FORMAT}; read it with"):
        parse(bytes(frame))


def test_a_part_that_may_go_on_is_left_undecided():
    """While more bytes may follow, damage is not settled before a sound frame stands behind it."""
    frames = chain([b"first", b"second", b"third"])
    bad = b"\x00" + frames[1][1:]
    parsed = parse(frames[0] + bad, at_end=False)
    assert (parsed.used, parsed.stretches) == (len(frames[0]), 0)
    assert parse(frames[0] + bad + frames[2], at_end=False).stretches == 1
