"""A span as a trace: Mooncake JSON lines, with what a plain trace lacks in keys that its readers pass over."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from controller.engines.replay.exported import FORMAT, KEY, Exported, ExportedChange
from controller.engines.replay.inflight import known_tokens
from controller.engines.replay.mooncake import MOONCAKE_BLOCK_TOKENS
from controller.engines.replay.workload import blocks_covering
from controller.prefixes import BlockPrefixes
from ui.whatif.played import begun_with, turned, values_of
from ui.whatif.requests import workload_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.engines.replay.step_time import StepTimeModel
    from controller.engines.replay.workload import WorkloadRequest
    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span

_MS: Final = 1_000_000
_NO_SALT: Final = b""


def trace_lines(
    recorded: Recorded,
    span: Span,
    step_time: StepTimeModel | None,
    *,
    ids: bool = False,
    new_token_ratio: float | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[bytes]:
    """The lines of a span's trace, warm-up included, each with its line end.

    Lengths, times and numbered blocks stand in them, and how the run was served; request ids only where `ids` asks for
    them. `step_time` says how long steps took, `new_token_ratio` how much output was held back, by default as recorded.
    With `changes` the trace is that of the span under knobs set anew. Raises KnobError where they cannot be.
    """
    values = values_of(recorded, span, changes or {})
    knobs = begun_with(recorded, span, values)
    workload = workload_of(recorded, span.requests, span.before, span.begin_ns, knobs.page_size)
    grain = workload.block_tokens
    turns = tuple(ExportedChange(each.at_ns, each.values, each.after_passes) for each in turned(recorded, span, values))
    head = msgspec.structs.replace(
        _head(recorded, span, step_time, new_token_ratio), knobs=knobs.as_dict(), changes=turns, grain=grain
    )
    blocks = _Blocks(grain)
    encode = msgspec.json.encode
    for line, request in enumerate(workload):
        row = _row(request, line, blocks, ids=ids)
        if not line:
            row[KEY] = head
        yield encode(row) + b"\n"


def _head(recorded: Recorded, span: Span, step_time: StepTimeModel | None, ratio: float | None) -> Exported:
    """How the run was served, its knobs aside, without the names of people and places."""
    shape = recorded.words.get("geometry")
    return Exported(
        format=FORMAT,
        engine=recorded.engine,
        version=recorded.version,
        run=recorded.name,
        knobs={},
        setting=asdict(recorded.setting),
        device_tokens=recorded.pool_tokens,
        host_tokens=recorded.host_tokens,
        role=recorded.role,
        write_policy=recorded.write_policy,
        new_token_ratio=recorded.new_token_ratio if ratio is None else ratio,
        stretch_ns=recorded.stretch_ns,
        model=Path(recorded.model).name,
        geometry=json.loads(shape) if isinstance(shape, str) else None,
        context=json.loads(recorded.context) if recorded.context else None,
        step_time=None if step_time is None else asdict(step_time),
        since_ns=max(0, span.since_ns - span.begin_ns),
        whole=span.whole,
        smoke_bytes=recorded.smoke_bytes,
    )


def _row(request: WorkloadRequest, line: int, blocks: _Blocks, *, ids: bool) -> dict[str, Any]:
    """One line: Mooncake's four keys, then what differs from what a reader would take for granted."""
    prompt, output = request.prompt_tokens, request.output_tokens
    known = known_tokens(request, blocks.grain)
    numbers = blocks.numbered(request, line, known)
    least = blocks_covering(prompt, MOONCAKE_BLOCK_TOKENS)
    row: dict[str, Any] = {
        "timestamp": request.arrival_ns // _MS,
        "input_length": prompt,
        "output_length": output,
        "hash_ids": numbers[:least],
    }
    if ids:
        row["id"] = request.id
    if request.arrival_ns % _MS:
        row["arrival_ns"] = request.arrival_ns
    if numbers[least:]:
        row["output_hash_ids"] = numbers[least:]
    if known != prompt:
        row["known_length"] = known
    if request.max_new_tokens and request.max_new_tokens != output:
        row["max_output_length"] = request.max_new_tokens
    if request.ignore_eos:
        row["ignore_eos"] = True
    if request.leaves_ns is not None:
        row["leaves_ns"] = max(0, request.leaves_ns)
    if blocks.grain != MOONCAKE_BLOCK_TOKENS:
        like, shared, _ = blocks.shared(request, line)
        if like >= 0:
            row["like"], row["shared_length"] = like, shared
    return row


class _Blocks:
    """Blocks of `grain` tokens as numbered blocks of Mooncake's size, and who shares them."""

    def __init__(self, grain: int) -> None:
        self.grain = grain
        self._numbers: dict[tuple[int, int], int] = {}
        self._prefixes = BlockPrefixes(_NO_SALT, grain, kept=1 << 62)

    def numbered(self, request: WorkloadRequest, line: int, known: int) -> list[int]:
        """The numbers of a request's blocks, of at least its prompt; what is not known is like nobody else's."""
        size, grain, own = MOONCAKE_BLOCK_TOKENS, self.grain, request.blocks
        numbers = self._numbers
        found = []
        for block in range(blocks_covering(max(known, request.prompt_tokens), size)):
            last = ((block + 1) * size - 1) // grain  # a block's number stands for all before it too
            if block * size >= known:
                key = (-1 - line, block)
            else:
                last = min(last, len(own) - 1)
                key = (own[last], block * size - last * grain)
            found.append(numbers.setdefault(key, len(numbers)))
        return found

    def shared(self, request: WorkloadRequest, line: int) -> tuple[int, int, tuple[int, ...]]:
        """The earlier line whose beginning a request shares longest, and how far."""
        return self._prefixes.look(line, request.blocks)
