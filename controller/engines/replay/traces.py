"""Readers of public request traces: Mooncake JSON lines and Azure CSV, plain or gzip, told apart by their content."""

import csv
import gzip
import io
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from controller.engines.replay.workload import MAX_TOKENS, SkippedLines, Workload, WorkloadRequest, blocks_covering
from estimator.errors import InputError, UsageError

MOONCAKE_BLOCK_TOKENS: Final = 512
"""Tokens of one `hash_ids` block, as the Mooncake trace release (FAST25-release/traces) states it."""

AZURE_BLOCK_TOKENS: Final = 64
"""Azure traces carry no prefix identity; their requests have no blocks, so this is a page size and nothing more."""

MAX_LINE_BYTES: Final = 16 << 20
MAX_ID_CHARACTERS: Final = 200
_MAX_MS: Final = 1 << 53  # milliseconds since 1970 are well below it
_MAX_BLOCK_ID: Final = (1 << 63) - 1
_PATIENCE: Final = 64  # how many times MAX_LINE_BYTES are passed over for the end of a line
_SNIFFED_LINES: Final = 100
_AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?\d{1,20}(?:\.0*)?", re.ASCII)

_Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
_BlockId = Annotated[int, msgspec.Meta(ge=0, le=_MAX_BLOCK_ID)]


class _Row(msgspec.Struct):
    """One Mooncake line whose fields have the right types; other fields are ignored."""

    timestamp: Annotated[int, msgspec.Meta(ge=0, le=_MAX_MS)] | Annotated[float, msgspec.Meta(ge=0, le=_MAX_MS)]
    input_length: _Count
    output_length: _Count
    hash_ids: tuple[_BlockId, ...]
    id: str | int | None = None
    request_id: str | int | None = None


class _BadLineError(Exception):
    """What is wrong with one line: field, value and what was expected."""


_Parse = Callable[[bytes, int], WorkloadRequest]


def open_trace(
    path: str | Path, *, skip_bad_lines: bool = False, limit: int | None = None, speed: float = 1.0
) -> Workload:
    """Open a trace as a workload; the requests are read as they are asked for.

    `limit` ends the workload after that many requests. `speed` divides every arrival time, so 2.0 offers the load
    twice as fast. Arrival times count from the first request. A request is called `r` and the number of its data line,
    from 0, unless the line has an `id` or `request_id`. A bad line raises `InputError` with file, line, field, value
    and what was expected; with `skip_bad_lines` it is counted in `Workload.skipped`, and so is the end of a damaged
    gzip file. A file that cannot be read, is no trace or holds no request is an `InputError` either way; a limit or a
    speed that makes no sense is a `UsageError`.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit: {limit} is not a number of requests >= 1; leave it out to read the whole trace")
    if not 1e-6 <= speed <= 1e6:
        raise UsageError(f"speed: {speed} is not a factor from 0.000001 to 1000000; 1 is the trace's own pace")
    name = str(path)
    lines = _Lines(name)
    try:
        parse, block_tokens, rest = _choose_format(lines, speed)
    except BaseException:
        lines.close()
        raise
    skipped = SkippedLines()
    return Workload(
        name=Path(path).name,
        block_tokens=block_tokens,
        requests=_requests(lines, rest, parse, skipped if skip_bad_lines else None, limit),
        position=lines.fraction_read if lines.size else None,
        release=lines.close,
        skipped=skipped,
    )


class _Lines:
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
            self._stream = io.BufferedReader(gzip.GzipFile(fileobj=self._file), 1 << 16)

    def fraction_read(self) -> float:
        return 1.0 if self._file.closed else self._file.tell() / self.size

    def close(self) -> None:
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
                    raise _BadLineError(f"line: is longer than {MAX_LINE_BYTES} bytes; one request is one line")
            except (EOFError, zlib.error, OSError) as error:
                self._stream = io.BytesIO()
                raise _BadLineError(f"line: cannot be read on ({error}); the file is damaged or cut short") from None
            if not line:
                return None
            if self.number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.strip()
            if line:
                return line


_Numbered = tuple[int, bytes | _BadLineError]


def _numbered(lines: _Lines) -> Iterator[_Numbered]:
    """Yield each line with its number, from 1; a line that cannot be read comes as the error it caused."""
    while True:
        try:
            line = lines.next()
        except _BadLineError as bad:
            yield lines.number, bad
        else:
            if line is None:
                return
            yield lines.number, line


def _choose_format(lines: _Lines, speed: float) -> tuple[_Parse, int, Iterator[_Numbered]]:
    """Tell the format by the first lines; return its parser, its block size and all lines to be parsed."""
    numbered = _numbered(lines)
    head: list[_Numbered] = []
    for number, line in numbered:
        head.append((number, line))
        if isinstance(line, _BadLineError):
            continue
        if line.startswith(b"{"):
            return _Mooncake(speed).parse, MOONCAKE_BLOCK_TOKENS, chain(head, numbered)
        if len(head) == 1 and any(column.lower().encode() in line.lower() for column in _AZURE_COLUMNS):
            try:
                return _Azure(line, speed).parse, AZURE_BLOCK_TOKENS, numbered
            except _BadLineError as bad:
                raise InputError(f"{lines.name}:{number}: {bad}") from None
        if len(head) == _SNIFFED_LINES:
            break
    if not head:
        raise InputError(f"{lines.name}: is empty; a trace holds at least one request")
    number, first = head[0]
    if isinstance(first, _BadLineError):
        raise InputError(f"{lines.name}:{number}: {first}")
    raise InputError(
        f"{lines.name}:{number}: line: {_shown_bytes(first)} begins no trace; expected Mooncake JSON, one object a"
        f" line, or an Azure CSV header {','.join(_AZURE_COLUMNS)}"
    )


def _requests(
    lines: _Lines, numbered: Iterator[_Numbered], parse: _Parse, skipped: SkippedLines | None, limit: int | None
) -> Iterator[WorkloadRequest]:
    """Parse line after line; raise on a bad one, or count it in `skipped`."""
    count = 0
    try:
        for index, (number, line) in enumerate(numbered):
            try:
                if isinstance(line, _BadLineError):
                    raise line
                request = parse(line, index)
            except _BadLineError as bad:
                problem = f"{lines.name}:{number}: {bad}"
                if skipped is None:
                    raise InputError(problem) from None
                skipped.add(problem)
            else:
                yield request
                count += 1
                if count == limit:
                    return
    finally:
        lines.close()
    if not count:
        first = (
            f"; the first of {skipped.count} bad lines is {skipped.problems[0]}" if skipped and skipped.count else ""
        )
        raise InputError(f"{lines.name}: holds no request{first}")


class _Clock:
    """Arrival times in ns from the first request's, at the chosen speed; they never go back."""

    def __init__(self, field: str, speed: float) -> None:
        self._field = field
        self._speed = speed
        self._first: int | None = None
        self._last = 0

    def arrival_ns(self, time_ns: int, shown: str) -> int:
        first = time_ns if self._first is None else self._first
        since = time_ns - first
        if since < self._last:
            raise _BadLineError(
                f"{self._field}: {shown} is earlier than the request before it; sort the trace by arrival"
            )
        if since > MAX_TOKENS * 1_000_000:
            raise _BadLineError(f"{self._field}: {shown} is more than {MAX_TOKENS} ms after the trace's first request")
        self._first = first
        self._last = since
        return since if self._speed == 1.0 else round(since / self._speed)


class _Mooncake:
    """Parser of Mooncake lines: a typed decoder for good ones, a slower look at each field for the others."""

    def __init__(self, speed: float) -> None:
        self._decode = msgspec.json.Decoder(_Row).decode
        self._clock = _Clock("timestamp", speed)

    def parse(self, line: bytes, index: int) -> WorkloadRequest:
        try:
            if not line.isascii():
                line.decode()
            row = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            row = _read_slowly(line)
        prompt, output = row.input_length, row.output_length
        blocks = row.hash_ids
        least = blocks_covering(prompt, MOONCAKE_BLOCK_TOKENS)
        if len(blocks) != least:
            most = blocks_covering(prompt + output, MOONCAKE_BLOCK_TOKENS)
            if not least <= len(blocks) <= most:
                count = f"{least}" if least == most else f"{least} to {most}"
                raise _BadLineError(
                    f"hash_ids: {len(blocks)} ids do not cover input_length {prompt}; expected {count} of"
                    f" {MOONCAKE_BLOCK_TOKENS} tokens each"
                )
        given = row.id if row.id is not None else row.request_id
        name = f"r{index}" if given is None else _checked_id("id" if row.id is not None else "request_id", given)
        time = row.timestamp
        time_ns = time * 1_000_000 if type(time) is int else round(time * 1_000_000)
        return WorkloadRequest(name, self._clock.arrival_ns(time_ns, f"{time}"), prompt, output, blocks)


def _read_slowly(line: bytes) -> _Row:
    """Read a line the typed decoder refused: whole floats are taken, anything else is named."""
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise _BadLineError(f"line: byte {error.start + 1} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise _BadLineError(f"line: {_shown_bytes(line)} is not JSON ({reason}); expected one object a line") from None
    if not isinstance(found, dict):
        raise _BadLineError(f"line: {_shown(found)} is not a JSON object")
    time = _present(found, "timestamp", "milliseconds >= 0")
    if isinstance(time, bool) or not isinstance(time, int | float) or not time >= 0:
        raise _BadLineError(f"timestamp: {_shown(time)} is not a number of milliseconds >= 0")
    _not_huge("timestamp", time, _MAX_MS)
    prompt = _whole("input_length", _present(found, "input_length", "a whole number >= 1"), 1)
    output = _whole("output_length", _present(found, "output_length", "a whole number >= 1"), 1)
    ids = _present(found, "hash_ids", "a list of block ids")
    if not isinstance(ids, list):
        raise _BadLineError(f"hash_ids: {_shown(ids)} is not a list of block ids")
    blocks = tuple(_whole(f"hash_ids[{i}]", value, 0, _MAX_BLOCK_ID) for i, value in enumerate(ids))
    names = {key: _checked_id(key, found[key]) for key in ("id", "request_id") if found.get(key) is not None}
    return _Row(time, prompt, output, blocks, names.get("id"), names.get("request_id"))


class _Azure:
    """Parser of Azure CSV rows; the header says where each column stands."""

    def __init__(self, header: bytes, speed: float) -> None:
        names = [name.strip().lower() for name in _cells(header)]
        for column in _AZURE_COLUMNS:
            if names.count(column.lower()) != 1:
                raise _BadLineError(
                    f"{column}: the header {_shown_bytes(header)} does not name this column once; expected "
                    + ",".join(_AZURE_COLUMNS)
                )
        self._width = len(names)
        self._time, self._prompt, self._output = (names.index(column.lower()) for column in _AZURE_COLUMNS)
        self._id = next((i for i, name in enumerate(names) if name in {"id", "request_id"}), None)
        self._id_column = "id" if self._id is None else names[self._id]
        self._clock = _Clock("TIMESTAMP", speed)
        self._day = ("", 0)

    def parse(self, line: bytes, index: int) -> WorkloadRequest:
        cells = _cells(line)
        if len(cells) != self._width:
            raise _BadLineError(f"line: has {len(cells)} columns, expected {self._width} as in the header")
        time_ns = self._time_ns(cells[self._time].strip())
        prompt = _whole_text("ContextTokens", cells[self._prompt].strip())
        output = _whole_text("GeneratedTokens", cells[self._output].strip())
        given = "" if self._id is None else cells[self._id].strip()
        name = _checked_id(self._id_column, given) if given else f"r{index}"
        return WorkloadRequest(name, self._clock.arrival_ns(time_ns, cells[self._time].strip()), prompt, output)

    def _time_ns(self, text: str) -> int:
        """Return ns since year 1 in UTC; digits down to one ns are kept."""
        match = _STAMP.fullmatch(text)
        if match is None:
            raise _BadLineError(f"TIMESTAMP: {_shown(text)} is not a time like 2023-11-16 18:17:03.9799600")
        day, hour, minute, second, fraction, zone = match.groups()
        if day != self._day[0]:
            try:
                self._day = (day, date.fromisoformat(day).toordinal())
            except ValueError as error:
                raise _BadLineError(f"TIMESTAMP: {_shown(text)} is not a date ({error})") from None
        seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
        if hour > "23" or minute > "59" or second > "59":
            raise _BadLineError(f"TIMESTAMP: {_shown(text)} is not a time of day")
        if zone is not None and zone != "Z":
            offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
            seconds += offset if zone[0] == "-" else -offset
        return (self._day[1] * 86_400 + seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()], strict=True))
    except UnicodeDecodeError as error:
        raise _BadLineError(f"line: byte {error.start + 1} is not UTF-8") from None
    except (csv.Error, StopIteration) as error:
        raise _BadLineError(f"line: {_shown_bytes(line)} is not a CSV row ({error})") from None


def _whole_text(field: str, text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise _BadLineError(f"{field}: {_shown(text)} is not a whole number >= 1")
    return _whole(field, int(text.partition(".")[0]), 1)


def _present(found: dict[str, Any], field: str, expected: str) -> Any:
    if field not in found:
        raise _BadLineError(f"{field}: is missing; expected {expected}")
    return found[field]


def _whole(field: str, value: Any, least: int, most: int = MAX_TOKENS) -> int:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _BadLineError(f"{field}: {_shown(value)} is not a whole number >= {least}")
    _not_huge(field, value, most)
    return value


def _not_huge(field: str, value: float, most: int = MAX_TOKENS) -> None:
    if value > most:
        raise _BadLineError(f"{field}: {_shown(value)} is above the limit of {most}")


def _checked_id(field: str, value: Any) -> str:
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_ID_CHARACTERS or not name.isprintable():
        raise _BadLineError(f"{field}: {_shown(value)} is not a name of 1 to {MAX_ID_CHARACTERS} printable characters")
    return name


def _shown(value: Any) -> str:
    """Render a value in ASCII, cut to fit into one line of a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _shown_bytes(line: bytes) -> str:
    return _shown(line[:80].decode("utf-8", "replace"))
