"""The byte format of the journal: what one frame looks like, and how frames are found again among damaged bytes.

A frame is a header of 28 bytes, the payload, and a payload checksum of 4 bytes; integers are little-endian:

    offset  bytes  field
         0      8  sync mark: 4 bytes of magic, then 4 random bytes that all frames of one segment share
         8      1  format version
         9      1  kind
        10      2  zero
        12      4  length of the payload, bytes
        16      8  sequence number
        24      4  header checksum: crc32 of bytes 0 to 23
        28      n  payload
      28+n      4  payload checksum: crc32 of the payload, begun from the header checksum
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, Literal, NamedTuple
from zlib import crc32

from estimator.errors import RecordError

FORMAT: Final = 1
MAGIC: Final = b"\xabGLJ"
MARK_BYTES: Final = 8
HEADER_BYTES: Final = 28
OVERHEAD_BYTES: Final = HEADER_BYTES + 4
MAX_PAYLOAD_BYTES: Final = 64 << 20

DATA: Final = 1
"""Kind of a frame that carries a payload made elsewhere."""
SEGMENT: Final = 2
"""Kind of the frame a segment begins with; reserved for the journal itself."""
LOSS: Final = 3
"""Kind of a frame that states what the writer could not keep; reserved for the journal itself."""

Tail = Literal["clean", "torn", "corrupt"]

_HEADER = Struct("<8sBBHIQI")
_NUMBERS = Struct("<IQ").pack
_CHECKSUM = Struct("<I")


class Cursor(NamedTuple):
    """A place in a journal: segment number, byte offset of the next frame, sequence number expected next."""

    segment: int
    offset: int
    seq: int


class Frame(NamedTuple):
    """One frame as read: sequence number, kind, payload, and the segment number and byte offset where it stands."""

    seq: int
    kind: int
    payload: bytes
    segment: int
    offset: int

    @property
    def cursor(self) -> Cursor:
        """The place just behind this frame."""
        end = self.offset + OVERHEAD_BYTES + len(self.payload)
        return Cursor(self.segment, end, self.seq + (self.kind == DATA))


class Parsed(NamedTuple):
    """What one stretch of bytes holds.

    `used` bytes are settled; what lies behind them (state in `tail`) is not all there yet, or is damaged up to the
    end. `expected` is the sequence number due next, `missing` counts numbers no frame carried, and
    `stretches`/`damaged` count damaged stretches and their bytes, all within the settled part.
    """

    frames: list[Frame]
    used: int
    tail: Tail
    expected: int
    missing: int
    stretches: int
    damaged: int


def frame_builder(mark: bytes, kind: int) -> Callable[[bytes, int], bytes]:
    """Return the function that makes one frame's bytes from (payload, sequence number)."""
    start = mark + bytes((FORMAT, kind, 0, 0))
    start_check = crc32(start)
    numbers, checksum, join = _NUMBERS, _CHECKSUM.pack, b"".join

    def build(payload: bytes, seq: int) -> bytes:
        body = numbers(len(payload), seq)
        check = crc32(body, start_check)
        return join((start, body, checksum(check), payload, checksum(crc32(payload, check))))

    return build


def parse_frames(buffer: bytes, mark: bytes, segment: int, base: int, expected: int, *, at_end: bool) -> Parsed:
    """Read every frame in buffer, which stands at byte offset `base` of the segment.

    `at_end` says that the segment holds no bytes behind the buffer. Behind damage, a frame counts as found when its
    mark, both checksums and a sequence number not yet passed agree. Raises RecordError for a newer format version.
    """
    frames: list[Frame] = []
    add, unpack, checksum_at = frames.append, _HEADER.unpack_from, _CHECKSUM.unpack_from
    size = len(buffer)
    position = used = missing = stretches = damaged = 0
    while 0 <= position < size:
        begin = position + HEADER_BYTES
        if begin <= size:
            frame_mark, version, kind, _zero, length, seq, check = unpack(buffer, position)
            end = begin + length + 4
            if (
                frame_mark == mark
                and crc32(buffer[position : begin - 4]) == check
                and (version == FORMAT or _refuse_version(version, segment))
                and length <= MAX_PAYLOAD_BYTES
                and end <= size
                and (seq >= expected or (kind == SEGMENT and base + position == 0))
            ):
                payload = buffer[begin : end - 4]
                if checksum_at(buffer, end - 4)[0] == crc32(payload, check):
                    stretches += position != used
                    damaged += position - used
                    missing += max(0, seq - expected)
                    add(Frame(seq, kind, payload, segment, base + position))
                    expected = seq + 1 if kind == DATA else seq
                    position = used = end
                    continue
        position = _seek(buffer, mark, position, expected, at_end=at_end)
    return Parsed(frames, used, _tail(buffer, mark, used), expected, missing, stretches, damaged)


def _header_at(buffer: bytes, mark: bytes, position: int) -> tuple[int, int] | None:
    """Return the payload length and sequence number of the sound header at position, None if there is none.

    One that states more than a frame may hold is none: nothing would be read on for so long.
    """
    if position + HEADER_BYTES > len(buffer):
        return None
    frame_mark, _version, _kind, _zero, length, seq, check = _HEADER.unpack_from(buffer, position)
    sound = (
        frame_mark == mark
        and length <= MAX_PAYLOAD_BYTES
        and crc32(buffer[position : position + HEADER_BYTES - 4]) == check
    )
    return (length, seq) if sound else None


def _seek(buffer: bytes, mark: bytes, position: int, expected: int, *, at_end: bool) -> int:
    """Return where to look on when no frame could be read at position, -1 if these bytes tell no more.

    A sound header whose length leads to the header of a later frame has lost only its payload, and is stepped over
    whole. Otherwise the next sync mark is the next place to look, inside the payload too: bytes may be missing there.
    """
    size = len(buffer)
    header = _header_at(buffer, mark, position)
    if header and header[1] >= expected:
        end = position + OVERHEAD_BYTES + header[0]
        follower = _header_at(buffer, mark, end)
        if follower and follower[1] >= header[1]:
            return end
        undecided = end + HEADER_BYTES > size
    else:
        undecided = position + HEADER_BYTES > size
    return -1 if undecided and not at_end else buffer.find(mark, position + 1)


def _tail(buffer: bytes, mark: bytes, start: int) -> Tail:
    """Tell a frame that is only not complete (torn) from bytes that no complete frame could begin with (corrupt)."""
    rest = len(buffer) - start
    if not rest:
        return "clean"
    if rest < HEADER_BYTES:
        head = buffer[start : start + MARK_BYTES]
        return "torn" if head == mark[: len(head)] else "corrupt"
    header = _header_at(buffer, mark, start)
    return "torn" if header and rest < OVERHEAD_BYTES + header[0] else "corrupt"


def _refuse_version(version: int, segment: int) -> bool:
    """Raise RecordError for a version above FORMAT; a version below it was never written, so it is damage."""
    if version > FORMAT:
        raise RecordError(
            f"journal segment {segment} has format version {version}, this Glassgate reads up to {FORMAT}; "
            "read it with the Glassgate that wrote it or a newer one"
        )
    return False
