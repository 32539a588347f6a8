"""A workload: requests in the order they arrive, with what is known of the content they share."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

if TYPE_CHECKING:
    from controller.engines.replay.exported import Exported

MAX_TOKENS: Final = 1 << 40
"""The largest token count or number of milliseconds a reader accepts; what is above it is taken for a mistake."""

KEPT_PROBLEMS: Final = 20
"""How many messages of skipped lines are kept; the rest are counted, so that memory does not grow with the trace."""


class WorkloadRequest(msgspec.Struct, frozen=True, gc=False):
    """One request of a workload, whole before it is served.

    `arrival_ns` is simulated time in ns from the workload's start. `prompt_tokens` and `output_tokens` are at least 1;
    the request generates exactly `output_tokens`, of `max_new_tokens` that it may (0: of just as many). A request that
    is not done at `leaves_ns` leaves then, as when its client gives up. `blocks` holds the ids of successive
    token blocks: block i covers tokens [i * block_tokens, (i + 1) * block_tokens) of prompt and output taken together.
    It covers the whole prompt, or is empty, which means that nothing is known to be shared; where it goes on past the
    prompt, the output's content is known too. The last block may be partly filled. Where two requests hold the same id
    at the same position behind the same chain of ids, they agree on every token that both of them have in that block.
    """

    id: str
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_new_tokens: int = 0
    leaves_ns: int | None = None


class SkippedLines:
    """The lines a reader left out: how many, and what was wrong with the first of them."""

    __slots__ = ("count", "problems")

    def __init__(self) -> None:
        self.count = 0
        self.problems: list[str] = []

    def add(self, problem: str) -> None:
        """Count one line; keep `problem` while fewer than KEPT_PROBLEMS are kept."""
        self.count += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(problem)


class Workload:
    """Requests in arrival order, read once, one at a time, so that memory does not grow with the workload.

    `block_tokens` is the size of one block of `WorkloadRequest.blocks`, in tokens. Iterating it yields the requests
    and may raise `InputError`. `position` says which part of the workload has been read, from 0 to 1, for a progress
    bar. `skipped` fills while it is read. Close it, or use it in a `with`, to free the file behind it; `release` frees
    it even where no request was asked for. `exported` says how the run was served that it comes from, None where it
    comes from none.
    """

    __slots__ = ("_position", "_release", "block_tokens", "exported", "name", "requests", "skipped")

    def __init__(
        self,
        *,
        name: str,
        block_tokens: int,
        requests: Iterator[WorkloadRequest],
        position: Callable[[], float] | None = None,
        release: Callable[[], None] | None = None,
        skipped: SkippedLines | None = None,
        exported: "Exported | None" = None,
    ) -> None:
        self.name = name
        self.block_tokens = block_tokens
        self.exported = exported
        self.requests = requests
        self.skipped = SkippedLines() if skipped is None else skipped
        self._position = position
        self._release = release

    def position(self) -> float | None:
        """Return the fraction read so far, from 0 to 1, or None where the length is not known."""
        return None if self._position is None else min(1.0, self._position())

    def close(self) -> None:
        """Free what the workload reads from; it yields nothing after that."""
        close = getattr(self.requests, "close", None)
        if close is not None:
            close()
        if self._release is not None:
            self._release()

    def __iter__(self) -> Iterator[WorkloadRequest]:
        return self.requests

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def blocks_covering(tokens: int, block_tokens: int) -> int:
    """Return how many blocks of `block_tokens` tokens hold `tokens` tokens, the last perhaps partly filled."""
    return -(-tokens // block_tokens)
