"""The segment files of a journal and what heads them."""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from controller.journal.frames import FORMAT, MAGIC, SEGMENT, parse_frames
from controller.whole_file import decode_json
from estimator.errors import RecordError

_SEGMENT_NAME = re.compile(r"(\d{8,})-([0-9a-f]{8})\.journal")
_HEAD_BYTES = 4096

Own = TypeVar("Own")
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number in a frame of the journal's own."""
Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
"""A time in such a frame."""


class SegmentFile(NamedTuple):
    """A segment on the disk: its number, its path, and the sync mark its file name spells."""

    number: int
    path: Path
    mark: bytes


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first frame of a segment says.

    `first_seq` is the sequence number of the first frame behind it; `monotonic_ns` (the writer's time base) and
    `wall_ns` (since the epoch) were read at one moment. `lost` counts, by reason, the frames the run's journal had
    stated as lost before this segment, so that no statement goes with an old segment.
    """

    format: Count
    run_id: str
    rank: Count
    segment: Count
    first_seq: Count
    monotonic_ns: Nanoseconds
    wall_ns: Nanoseconds
    lost: dict[str, Count]

    def encode(self) -> bytes:
        """Return the payload of a SEGMENT frame."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> "SegmentHeader":
        """Read the payload of a SEGMENT frame; raise RecordError if it is not one."""
        return own_frame(payload, cls, "segment header")

    def wall_time(self, monotonic_ns: int) -> int:
        """Return the wall-clock ns for a time in the writer's time base."""
        return self.wall_ns + monotonic_ns - self.monotonic_ns


def segment_name(number: int, mark: bytes) -> str:
    """Return the file name of a segment: its number and the random half of its sync mark."""
    return f"{number:08d}-{mark[len(MAGIC) :].hex()}.journal"


def list_segments(folder: Path, after: int = 0) -> list[SegmentFile]:
    """Return the segments in folder with a number above `after`, by number.

    Raises RecordError if the folder is missing or cannot be read.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - readers list hundreds of names at each poll, as text
    except FileNotFoundError:
        raise RecordError(f"no journal at {folder}: the folder does not exist; name a run's journal folder") from None
    except OSError as error:
        raise RecordError(f"no journal at {folder}: {error.strerror}; name a run's journal folder") from None
    return sorted(
        SegmentFile(number, folder / match[0], MAGIC + bytes.fromhex(match[2]))
        for match in map(_SEGMENT_NAME.fullmatch, names)
        if match and (number := int(match[1])) > after
    )


def read_header(segment: SegmentFile) -> SegmentHeader | None:
    """Read what heads a segment; None if its first frame is damaged or not there yet. Raises OSError, RecordError."""
    with segment.path.open("rb") as file:
        start = file.read(_HEAD_BYTES)
    frames = parse_frames(start, segment.mark, segment.number, 0, 0, at_end=False).frames
    if frames and frames[0].kind == SEGMENT and frames[0].offset == 0:
        return SegmentHeader.decode(frames[0].payload)
    return None


def own_frame(payload: bytes, kind: type[Own], what: str) -> Own:
    """Read the JSON payload of a journal's own frame; raise RecordError if it is not one of that kind."""
    try:
        return decode_json(payload, kind)
    except msgspec.DecodeError:
        raise RecordError(
            f"journal {what} frame of format version {FORMAT} is not readable: {payload[:60]!r}; "
            "read it with the Glassgate that wrote it"
        ) from None
