"""Requests of a record, and the workload that they make."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.engines.replay.workload import Workload, WorkloadRequest, blocks_covering

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from ui.whatif.recorded import Recorded

WHOLE_BLOCK_TOKENS: Final = 512
"""The largest block that a workload of tokens is cut into."""
LEAST_BLOCK_TOKENS: Final = 16
MOST_BLOCKS: Final = 2_000_000
"""Blocks of all requests together, above which they are made larger, so that memory and time are bounded."""
_OWNER_SHIFT: Final = 24
_DONE: Final = frozenset({"finish", "can_never"})

_REQUESTS: Final = """SELECT number, id, arrival_ns, prompt_tokens, output_tokens, generated_tokens, first_token_ns,
    admit_ns, end_ns, ended, device_hit_tokens, host_loaded_tokens, coalesce(like_request, -1),
    coalesce(shared_tokens, 0), known_tokens, coalesce(ignore_eos, 0)
FROM requests WHERE run = ? AND arrival_ns <= ? AND (arrival_ns >= ? OR end_ns IS NULL OR end_ns >= ?)
    AND prompt_tokens IS NOT NULL ORDER BY number"""
_PREFIXES: Final = """SELECT number, coalesce(like_request, -1), coalesce(shared_tokens, 0), known_tokens FROM requests
WHERE run = ? AND number < ? AND known_tokens IS NOT NULL ORDER BY number"""


class Asked(NamedTuple):
    """One recorded request. Times are ns of the run's clock; None where the record does not know."""

    number: int
    id: str
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    """What it may generate."""
    generated_tokens: int | None
    first_token_ns: int | None
    admit_ns: int | None
    end_ns: int | None
    ended: str | None
    device_hit_tokens: int | None
    host_loaded_tokens: int | None
    like: int
    shared_tokens: int
    known_tokens: int | None
    ignore_eos: int

    @property
    def gave_up(self) -> bool:
        """Whether its client left before it was done."""
        return self.end_ns is not None and self.ended not in _DONE


def read_requests(connection: sqlite3.Connection, run: int, from_ns: int, until_ns: int) -> list[Asked]:
    """The requests that arrived up to a time, but for those that had ended before another. Raises sqlite3.Error."""
    return [Asked(*row) for row in connection.execute(_REQUESTS, (run, until_ns, from_ns, from_ns))]


class Beginnings:
    """Which blocks of requests are the same, as (owner, index) numbers rebuilt from references.

    `block_tokens` is the size of a block; one that is shared in part is not the same.
    """

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._chains: dict[int, tuple[int, ...]] = {}

    def take(self, number: int, like: int, shared_tokens: int, known_tokens: int | None) -> tuple[int, ...]:
        """The blocks of a request; those it refers to were taken before, or blocks nobody else has stand for them."""
        if not known_tokens:
            return ()
        size = self.block_tokens
        shared = shared_tokens // size
        blocks = blocks_covering(known_tokens, size)
        begun: tuple[int, ...] = ()
        if like >= 0 and shared:
            chain = self._chains.get(like, ())
            begun = chain[:shared] + tuple(range((like << _OWNER_SHIFT) | len(chain), (like << _OWNER_SHIFT) | shared))
        own = number << _OWNER_SHIFT
        found = begun + tuple(range(own | len(begun), own | blocks))
        self._chains[number] = found
        return found[:blocks]


def block_tokens_of(requests: Sequence[Asked], page: int) -> int:
    """The block into which a workload of tokens is cut, a multiple of the page or a divisor of it.

    Prefixes are matched in whole blocks where two requests part, so it is the largest that loses nothing of what is
    shared, or the smallest that MOST_BLOCKS allow.
    """
    shared = [min(each.shared_tokens, each.prompt_tokens - 1) // page * page for each in requests if each.shared_tokens]
    size = page
    while size < LEAST_BLOCK_TOKENS:
        size *= 2
    while size * 2 <= WHOLE_BLOCK_TOKENS:
        loses = any(each % (2 * size) for each in shared)
        blocks = sum((each.known_tokens or 0) // size for each in requests)
        if loses and blocks <= MOST_BLOCKS:
            break
        size *= 2
    return size


def workload_of(
    recorded: Recorded, requests: Sequence[Asked], before: Sequence[tuple[int, int, int, int]], begin_ns: int, page: int
) -> Workload:
    """The workload that requests make when the clock begins at `begin_ns`; what arrived earlier arrives then.

    `before` are (number, like, shared tokens, known tokens) of requests that had ended by then, whose beginnings others
    refer to.
    """
    stated = recorded.words.get("block_tokens")
    size = int(stated) if stated is not None else block_tokens_of(requests, page)
    beginnings = Beginnings(size)
    for row in before:
        beginnings.take(*row)
    made = [
        WorkloadRequest(
            each.id,
            max(0, each.arrival_ns - begin_ns),
            each.prompt_tokens,
            each.output_tokens if recorded.role == "prefill" else generates(each),
            beginnings.take(each.number, each.like, each.shared_tokens, each.known_tokens),
            bool(each.ignore_eos),
            each.output_tokens,
            each.end_ns - begin_ns if not recorded.simulated and each.gave_up and each.end_ns is not None else None,
        )
        for each in requests
    ]
    made.sort(key=lambda each: each.arrival_ns)  # those that arrive together stay in order
    left, count = iter(made), max(1, len(made))
    return Workload(
        name=f"run {recorded.name}", block_tokens=size, requests=left,
        position=lambda: 1.0 - length_hint(left) / count,
    )  # fmt: skip


def read_beginnings(connection: sqlite3.Connection, run: int, number: int) -> list[tuple[int, int, int, int]]:
    """What is known of the beginnings of the requests before a number. Raises sqlite3.Error."""
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in connection.execute(_PREFIXES, (run, number))]


def generates(request: Asked) -> int:
    """The output tokens that a request generates: what it did where it is known, else what it may."""
    if request.ended == "finish" and request.generated_tokens:
        return max(1, min(request.generated_tokens, request.output_tokens))
    return max(1, request.output_tokens)
