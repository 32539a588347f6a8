"""Readers of public request traces: Mooncake JSON lines and Azure CSV, plain or gzip, told apart by their content."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from controller.engines.replay.azure import AZURE_BLOCK_TOKENS, AZURE_COLUMNS, Azure
from controller.engines.replay.exported import Exported, read_exported
from controller.engines.replay.mooncake import MOONCAKE_BLOCK_TOKENS, Mooncake
from controller.engines.replay.trace_lines import BadLineError, Lines, Numbered, numbered, shown_bytes
from controller.engines.replay.workload import SkippedLines, Workload, WorkloadRequest
from estimator.errors import InputError, UsageError

_SNIFFED_LINES: Final = 100

_Parse = Callable[[bytes, int], WorkloadRequest]


def open_trace(
    path: str | Path, *, skip_bad_lines: bool = False, limit: int | None = None, speed: float = 1.0
) -> Workload:
    """Open a trace as a workload; the requests are read as they are asked for.

    `limit` ends the workload after that many requests. `speed` divides every arrival time, so 2.0 offers the load
    twice as fast. Arrival times count from the first request. A request is called `r` and the number of its data line,
    from 0, unless the line has an `id` or `request_id`. A bad line raises `InputError` with file, line, field, value
    and what was expected; with `skip_bad_lines` it is counted in `Workload.skipped`, and so is the end of a damaged
    gzip file. A trace that Glassgate exported says in `Workload.exported` how its run was served. A file that cannot be
    read, is no trace or holds no request is an `InputError` either way; a limit or a speed that makes no sense is a
    `UsageError`.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit: {limit} is not a number of requests >= 1; leave it out to read the whole trace")
    if not 1e-6 <= speed <= 1e6:
        raise UsageError(f"speed: {speed} is not a factor from 0.000001 to 1000000; 1 is the trace's own pace")
    name = str(path)
    lines = Lines(name)
    try:
        kind = _choose_format(lines, speed)
    except BaseException:
        lines.close()
        raise
    skipped = SkippedLines()
    return Workload(
        name=Path(path).name,
        block_tokens=kind.block_tokens,
        requests=_requests(lines, kind.lines, kind.parse, skipped if skip_bad_lines else None, limit),
        position=lines.fraction_read if lines.size else None,
        release=lines.close,
        skipped=skipped,
        exported=kind.exported,
    )


class _Format(NamedTuple):
    parse: _Parse
    block_tokens: int
    lines: Iterator[Numbered]
    """All lines to be parsed."""
    exported: Exported | None = None


def _choose_format(lines: Lines, speed: float) -> _Format:
    """Tell the format by the first lines."""
    rest = numbered(lines)
    head: list[Numbered] = []
    for number, line in rest:
        head.append((number, line))
        if isinstance(line, BadLineError):
            continue
        if line.startswith(b"{"):
            try:
                exported = read_exported(line)
            except InputError as error:
                raise InputError(f"{lines.name}:{number}: {error}") from None
            grain = None if exported is None else exported.grain
            return _Format(Mooncake(speed, grain).parse, grain or MOONCAKE_BLOCK_TOKENS, chain(head, rest), exported)
        if len(head) == 1 and any(column.lower().encode() in line.lower() for column in AZURE_COLUMNS):
            try:
                return _Format(Azure(line, speed).parse, AZURE_BLOCK_TOKENS, rest)
            except BadLineError as bad:
                raise InputError(f"{lines.name}:{number}: {bad}") from None
        if len(head) == _SNIFFED_LINES:
            break
    if not head:
        raise InputError(f"{lines.name}: is empty; a trace holds at least one request")
    number, first = head[0]
    if isinstance(first, BadLineError):
        raise InputError(f"{lines.name}:{number}: {first}")
    raise InputError(
        f"{lines.name}:{number}: line: {shown_bytes(first)} begins no trace; expected Mooncake JSON, one object a"
        f" line, or an Azure CSV header {','.join(AZURE_COLUMNS)}"
    )


def _requests(
    lines: Lines, rest: Iterator[Numbered], parse: _Parse, skipped: SkippedLines | None, limit: int | None
) -> Iterator[WorkloadRequest]:
    """Parse line after line; raise on a bad one, or count it in `skipped`."""
    count = 0
    try:
        for index, (number, line) in enumerate(rest):
            try:
                if isinstance(line, BadLineError):
                    raise line
                request = parse(line, index)
            except BadLineError as bad:
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
