"""Mooncake traces: one JSON object a line, with what a Glassgate export adds to it."""

import json
from typing import Annotated, Any, Final

import msgspec

from controller.engines.replay.trace_lines import (
    ArrivalClock,
    BadLineError,
    checked_id,
    not_huge,
    present,
    shown,
    shown_bytes,
    whole,
)
from controller.engines.replay.workload import MAX_TOKENS, WorkloadRequest, blocks_covering

MOONCAKE_BLOCK_TOKENS: Final = 512
"""Tokens of one `hash_ids` block, as the Mooncake trace release (FAST25-release/traces) states it."""

_MAX_MS: Final = 1 << 53  # milliseconds since 1970 are well below it
_MAX_BLOCK_ID: Final = (1 << 63) - 1
_MOST_BLOCKS: Final = 1 << 22

_Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
_BlockId = Annotated[int, msgspec.Meta(ge=0, le=_MAX_BLOCK_ID)]
_Length = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
_Ns = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS * 1_000_000)]


_OURS: Final = {
    "arrival_ns": (0, MAX_TOKENS * 1_000_000),
    "leaves_ns": (0, MAX_TOKENS * 1_000_000),
    "max_output_length": (1, MAX_TOKENS),
    "known_length": (0, MAX_TOKENS),
    "like": (0, MAX_TOKENS),
    "shared_length": (0, MAX_TOKENS),
}
"""Whole numbers that a Glassgate export adds to a line, with the least and the greatest they may be."""


class Row(msgspec.Struct):
    """One Mooncake line whose fields have the right types; other fields are ignored."""

    timestamp: Annotated[int, msgspec.Meta(ge=0, le=_MAX_MS)] | Annotated[float, msgspec.Meta(ge=0, le=_MAX_MS)]
    input_length: _Count
    output_length: _Count
    hash_ids: tuple[_BlockId, ...]
    id: str | int | None = None
    request_id: str | int | None = None


class ExportedRow(Row):
    """One line of a trace that Glassgate exported.

    `arrival_ns` and `leaves_ns` count from where the trace begins. `known_length` is how many tokens the ids tell of,
    those of the output in `output_hash_ids` included. `like` is an earlier line, by its number from 0.
    """

    arrival_ns: _Ns | None = None
    leaves_ns: _Ns | None = None
    max_output_length: _Count | None = None
    known_length: _Length | None = None
    output_hash_ids: tuple[_BlockId, ...] = ()
    like: _Length | None = None
    shared_length: _Length = 0
    ignore_eos: bool = False


class Mooncake:
    """Parser of Mooncake lines: a typed decoder for good ones, a slower look at each field for the others.

    `grain` is the block in which a trace of ours tells what requests share, None for a plain trace.
    """

    def __init__(self, speed: float, grain: int | None = None) -> None:
        self._row = row = Row if grain is None else ExportedRow
        self._decode = msgspec.json.Decoder(row).decode
        self._clock = ArrivalClock("timestamp", speed, from_first=grain is None)
        self._speed = speed
        self._chains = None if grain is None or grain == MOONCAKE_BLOCK_TOKENS else Chains(grain)

    def parse(self, line: bytes, index: int) -> WorkloadRequest:
        """One request. Raises BadLineError."""
        try:
            if not line.isascii():
                line.decode()
            row = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            row = read_slowly(line, self._row)
        prompt, output = row.input_length, row.output_length
        blocks = row.hash_ids
        least = blocks_covering(prompt, MOONCAKE_BLOCK_TOKENS)
        if len(blocks) != least:
            most = blocks_covering(prompt + output, MOONCAKE_BLOCK_TOKENS)
            if not least <= len(blocks) <= most:
                count = f"{least}" if least == most else f"{least} to {most}"
                raise BadLineError(
                    f"hash_ids: {len(blocks)} ids do not cover input_length {prompt}; expected {count} of"
                    f" {MOONCAKE_BLOCK_TOKENS} tokens each"
                )
        given = row.id if row.id is not None else row.request_id
        name = f"r{index}" if given is None else checked_id("id" if row.id is not None else "request_id", given)
        time = row.timestamp
        time_ns = time * 1_000_000 if type(time) is int else round(time * 1_000_000)
        if isinstance(row, ExportedRow):
            return self._exported(row, name, time_ns, index)
        return WorkloadRequest(name, self._clock.arrival_ns(time_ns, f"{time}"), prompt, output, blocks)

    def _exported(self, row: ExportedRow, name: str, time_ns: int, index: int) -> WorkloadRequest:
        """A request of a trace of ours."""
        prompt, output = row.input_length, row.output_length
        known = prompt if row.known_length is None else row.known_length
        allowed = row.max_output_length or output
        if allowed < output:
            raise BadLineError(f"max_output_length: {allowed} is below output_length {output}")
        if known > prompt + output:
            raise BadLineError(f"known_length: {known} is above input_length and output_length together")
        if self._chains is not None:
            blocks = self._chains.take(index, row.like, row.shared_length, known)
        else:
            covering = blocks_covering(known, MOONCAKE_BLOCK_TOKENS)
            blocks = (row.hash_ids + row.output_hash_ids)[:covering]
            if len(blocks) < covering:
                raise BadLineError(f"output_hash_ids: {len(blocks)} ids do not cover known_length {known}")
        arrival_ns = self._clock.arrival_ns(time_ns if row.arrival_ns is None else row.arrival_ns, f"{row.timestamp}")
        leaves_ns = row.leaves_ns
        if leaves_ns is not None and self._speed != 1.0:
            leaves_ns = round(leaves_ns / self._speed)
        return WorkloadRequest(name, arrival_ns, prompt, output, blocks, row.ignore_eos, allowed, leaves_ns)


class Chains:
    """Blocks smaller than Mooncake's, rebuilt from what each line shares with an earlier one. All lines are kept."""

    def __init__(self, grain: int) -> None:
        self._grain = grain
        self._chains: dict[int, tuple[int, ...]] = {}
        self._next = 0

    def take(self, line: int, like: int | None, shared_length: int, known_length: int) -> tuple[int, ...]:
        """The blocks of a line. Raises BadLineError where it refers to one that is not there."""
        begun: tuple[int, ...] = ()
        if like is not None:
            if like not in self._chains:
                raise BadLineError(f"like: {like} is no earlier line")
            begun = self._chains[like][: shared_length // self._grain]
        blocks = blocks_covering(known_length, self._grain)
        if blocks > _MOST_BLOCKS:
            raise BadLineError(
                f"known_length: {known_length} is more than {_MOST_BLOCKS} blocks of {self._grain} tokens"
            )
        own = range(self._next, self._next + max(0, blocks - len(begun)))
        self._next = own.stop
        found = self._chains[line] = (*begun, *own)[:blocks]
        return found


def read_slowly(line: bytes, kind: type[Row] = Row) -> Row:
    """Read a line the typed decoder refused: whole floats are taken, anything else is named in a BadLineError."""
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadLineError(f"line: byte {error.start + 1} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise BadLineError(f"line: {shown_bytes(line)} is not JSON ({reason}); expected one object a line") from None
    if not isinstance(found, dict):
        raise BadLineError(f"line: {shown(found)} is not a JSON object")
    time = present(found, "timestamp", "milliseconds >= 0")
    if isinstance(time, bool) or not isinstance(time, int | float) or not time >= 0:
        raise BadLineError(f"timestamp: {shown(time)} is not a number of milliseconds >= 0")
    not_huge("timestamp", time, _MAX_MS)
    prompt = whole("input_length", present(found, "input_length", "a whole number >= 1"), 1)
    output = whole("output_length", present(found, "output_length", "a whole number >= 1"), 1)
    blocks = _ids("hash_ids", present(found, "hash_ids", "a list of block ids"))
    others: dict[str, Any] = {
        key: checked_id(key, found[key]) for key in ("id", "request_id") if found.get(key) is not None
    }
    if kind is ExportedRow:
        others |= _read_ours(found)
    return kind(time, prompt, output, blocks, **others)


def _read_ours(found: dict[str, Any]) -> dict[str, Any]:
    """The fields that an export adds, as far as they are there."""
    ours: dict[str, Any] = {
        key: whole(key, found[key], least, most) for key, (least, most) in _OURS.items() if found.get(key) is not None
    }
    if "output_hash_ids" in found:
        ours["output_hash_ids"] = _ids("output_hash_ids", found["output_hash_ids"])
    if "ignore_eos" in found:
        if not isinstance(found["ignore_eos"], bool):
            raise BadLineError(f"ignore_eos: {shown(found['ignore_eos'])} is not true or false")
        ours["ignore_eos"] = found["ignore_eos"]
    return ours


def _ids(field: str, ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, list):
        raise BadLineError(f"{field}: {shown(ids)} is not a list of block ids")
    return tuple(whole(f"{field}[{i}]", value, 0, _MAX_BLOCK_ID) for i, value in enumerate(ids))
