"""Azure traces: CSV with a header, without any prefix identity."""

import csv
import re
from datetime import date
from typing import Final

from controller.engines.replay.trace_lines import ArrivalClock, BadLineError, checked_id, shown, shown_bytes, whole
from controller.engines.replay.workload import WorkloadRequest

AZURE_BLOCK_TOKENS: Final = 64
"""Azure traces carry no prefix identity; their requests have no blocks, so this is a page size and nothing more."""

AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?\d{1,20}(?:\.0*)?", re.ASCII)


class Azure:
    """Parser of Azure CSV rows; the header says where each column stands."""

    def __init__(self, header: bytes, speed: float) -> None:
        names = [name.strip().lower() for name in _cells(header)]
        for column in AZURE_COLUMNS:
            if names.count(column.lower()) != 1:
                raise BadLineError(
                    f"{column}: the header {shown_bytes(header)} does not name this column once; expected "
                    + ",".join(AZURE_COLUMNS)
                )
        self._width = len(names)
        self._time, self._prompt, self._output = (names.index(column.lower()) for column in AZURE_COLUMNS)
        self._id = next((i for i, name in enumerate(names) if name in {"id", "request_id"}), None)
        self._id_column = "id" if self._id is None else names[self._id]
        self._clock = ArrivalClock("TIMESTAMP", speed)
        self._day = ("", 0)

    def parse(self, line: bytes, index: int) -> WorkloadRequest:
        """One request. Raises BadLineError."""
        cells = _cells(line)
        if len(cells) != self._width:
            raise BadLineError(f"line: has {len(cells)} columns, expected {self._width} as in the header")
        time_ns = self._time_ns(cells[self._time].strip())
        prompt = _whole_text("ContextTokens", cells[self._prompt].strip())
        output = _whole_text("GeneratedTokens", cells[self._output].strip())
        given = "" if self._id is None else cells[self._id].strip()
        name = checked_id(self._id_column, given) if given else f"r{index}"
        return WorkloadRequest(name, self._clock.arrival_ns(time_ns, cells[self._time].strip()), prompt, output)

    def _time_ns(self, text: str) -> int:
        """Return ns since year 1 in UTC; digits down to one ns are kept."""
        match = _STAMP.fullmatch(text)
        if match is None:
            raise BadLineError(f"TIMESTAMP: {shown(text)} is not a time like 2023-11-16 18:17:03.9799600")
        day, hour, minute, second, fraction, zone = match.groups()
        if day != self._day[0]:
            try:
                self._day = (day, date.fromisoformat(day).toordinal())
            except ValueError as error:
                raise BadLineError(f"TIMESTAMP: {shown(text)} is not a date ({error})") from None
        seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
        if hour > "23" or minute > "59" or second > "59":
            raise BadLineError(f"TIMESTAMP: {shown(text)} is not a time of day")
        if zone is not None and zone != "Z":
            offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
            seconds += offset if zone[0] == "-" else -offset
        return (self._day[1] * 86_400 + seconds) * 1_000_000_000 + int((fraction or "").ljust(9, "0"))


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()], strict=True))
    except UnicodeDecodeError as error:
        raise BadLineError(f"line: byte {error.start + 1} is not UTF-8") from None
    except (csv.Error, StopIteration) as error:
        raise BadLineError(f"line: {shown_bytes(line)} is not a CSV row ({error})") from None


def _whole_text(field: str, text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise BadLineError(f"{field}: {shown(text)} is not a whole number >= 1")
    return whole(field, int(text.partition(".")[0]), 1)
