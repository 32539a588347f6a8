"""Lines of a trace file, plain or gzip, and the checks that every format shares."""

import io
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from typing import Any, Final

from controller.engines.replay.workload import MAX_TOKENS
from estimator.errors import InputError

MAX_LINE_BYTES: Final = 16 << 20
MAX_ID_CHARACTERS: Final = 200
_GZIP: Final = 31  # what zlib calls a gzip file with its checksum
_PATIENCE: Final = 64  # how many times MAX_LINE_BYTES are passed over for the end of a line


class BadLineError(Exception):
    """What is wrong with one line: field, value and what was expected."""


class _Unpacked(io.RawIOBase):
    """What a gzip file holds, handed over as far as it can be unpacked before its damage is raised.

    GzipFile gathers a buffer first, and what it had of it is lost with the error.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(_GZIP)
        self._packed = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Put the next bytes into buffer; 0 at the end. Raises EOFError where the file is cut short, zlib.error."""
        while True:
            self._packed = self._packed or self._file.read1(1 << 16)
            if self._unpack.eof:  # several gzip files one behind the other are one; zeros fill up a tape
                self._packed = self._packed.lstrip(b"\0")
                if not self._packed:
                    return 0
                self._unpack = zlib.decompressobj(_GZIP)
            elif not self._packed:
                raise EOFError("it ends in the middle of what was packed")
            found = self._unpack.decompress(self._packed, len(buffer))
            self._packed = self._unpack.unconsumed_tail or self._unpack.unused_data
            if found:
                buffer[: len(found)] = found
                return len(found)


class Lines:
    """The lines of a file, unpacked where it is gzip, without their ends; blank ones are passed over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        try:
            self._file = io.BufferedReader(io.FileIO(name), 1 << 16)
            status = os.fstat(self._file.fileno())
            if stat.S_ISCHR(status.st_mode):  # one such as /dev/zero has no end
                self._file.close()
                raise InputError(f"{name}: is a device, not a trace; name a file or a pipe")
            self.size = status.st_size
            packed = self._file.peek(2)[:2] == b"\x1f\x8b"
        except ValueError as error:
            raise InputError(f"{name!a}: cannot be read ({error}); name a trace file") from None
        except OSError as error:
            raise InputError(f"{name}: cannot be read ({error.strerror}); name a readable trace file") from None
        self._stream: io.BufferedIOBase = self._file
        if packed:
            self._stream = io.BufferedReader(_Unpacked(self._file), 1 << 16)

    def fraction_read(self) -> float:
        """Which part of the file was read, from 0 to 1."""
        return 1.0 if self._file.closed else self._file.tell() / self.size

    def close(self) -> None:
        """Free the file."""
        self._stream.close()
        self._file.close()

    def next(self) -> bytes | None:
        """Return the next line that is not blank, or None at the end."""
        read = self._stream.readline
        while True:
            self.number += 1
            try:
                line = read(MAX_LINE_BYTES)
                if len(line) == MAX_LINE_BYTES and line[-1] != 0x0A:
                    for _ in range(_PATIENCE):
                        more = read(MAX_LINE_BYTES)
                        if not more or more[-1] == 0x0A:
                            break
                    else:
                        self._stream = io.BytesIO()  # it does not end; whatever this is, it is no trace
                    raise BadLineError(f"line: is longer than {MAX_LINE_BYTES} bytes; one request is one line")
            except (EOFError, zlib.error, OSError) as error:
                self._stream = io.BytesIO()
                raise BadLineError(f"line: cannot be read on ({error}); the file is damaged or cut short") from None
            if not line:
                return None
            if self.number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.strip()
            if line:
                return line


Numbered = tuple[int, bytes | BadLineError]


def numbered(lines: Lines) -> Iterator[Numbered]:
    """Yield each line with its number, from 1; a line that cannot be read comes as the error it caused."""
    while True:
        try:
            line = lines.next()
        except BadLineError as bad:
            yield lines.number, bad
        else:
            if line is None:
                return
            yield lines.number, line


class ArrivalClock:
    """Arrival times in ns at the chosen speed, from the first request's or as they stand; they never go back."""

    def __init__(self, field: str, speed: float, *, from_first: bool = True) -> None:
        self._field = field
        self._speed = speed
        self._first: int | None = None if from_first else 0
        self._last = 0

    def arrival_ns(self, time_ns: int, shown: str) -> int:
        """When a request arrives whose time is `time_ns`, `shown` in the trace. Raises BadLineError."""
        first = time_ns if self._first is None else self._first
        since = time_ns - first
        if since < self._last:
            raise BadLineError(
                f"{self._field}: {shown} is earlier than the request before it; sort the trace by arrival"
            )
        if since > MAX_TOKENS * 1_000_000:
            raise BadLineError(f"{self._field}: {shown} is more than {MAX_TOKENS} ms after the trace's first request")
        self._first = first
        self._last = since
        return since if self._speed == 1.0 else round(since / self._speed)


def present(found: dict[str, Any], field: str, expected: str) -> Any:
    """A field's value, whatever it is. Raises BadLineError where it is missing."""
    if field not in found:
        raise BadLineError(f"{field}: is missing; expected {expected}")
    return found[field]


def whole(field: str, value: Any, least: int, most: int = MAX_TOKENS) -> int:
    """A whole number in its bounds, also one written as 3.0. Raises BadLineError for anything else."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadLineError(f"{field}: {shown(value)} is not a whole number >= {least}")
    not_huge(field, value, most)
    return value


def not_huge(field: str, value: float, most: int = MAX_TOKENS) -> None:
    """Raise BadLineError for a number above its bound."""
    if value > most:
        raise BadLineError(f"{field}: {shown(value)} is above the limit of {most}")


def checked_id(field: str, value: Any) -> str:
    """A request's name. Raises BadLineError for one that cannot be."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_ID_CHARACTERS or not name.isprintable():
        raise BadLineError(f"{field}: {shown(value)} is not a name of 1 to {MAX_ID_CHARACTERS} printable characters")
    return name


def shown(value: Any) -> str:
    """Render a value in ASCII, cut to fit into one line of a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown_bytes(line: bytes) -> str:
    """Render the beginning of a line in ASCII."""
    return shown(line[:80].decode("utf-8", "replace"))
