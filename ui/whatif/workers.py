"""Workers: processes that replay one span under many knobs."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from estimator.errors import GlassgateError
from ui.stopping import interrupts_held
from ui.whatif.figures import Figures, figures_of
from ui.whatif.played import play

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span
    from ui.whatif.steps import Steps


class Tried(NamedTuple):
    """What one set of knobs did: its figures, or why there are none."""

    figures: Figures | None
    why: str


class Workers:
    """So many processes, each with the span; `with` ends them. Ctrl-C is left to the process that has them."""

    def __init__(self, recorded: Recorded, span: Span, steps: Steps, processes: int) -> None:
        self._pool = ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(recorded, span, steps)
        )

    def submit(self, values: Mapping[str, Any]) -> Future[Tried]:
        """Replay the span with knobs set anew. The processes begin with the first, and none of them hears Ctrl-C."""
        with interrupts_held():
            return self._pool.submit(_try, dict(values))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list((self._pool._processes or {}).values()) if error is not None else ():  # noqa: SLF001
            process.terminate()  # a pool cannot be told to end what it is at
        self._pool.shutdown(wait=True, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise GlassgateError(
                "a process that replays was ended from outside, perhaps for want of memory; what was tried is kept, "
                "run it again with fewer --jobs"
            ) from None


_held: list[tuple[Recorded, Span, Steps]] = []


def _begin(recorded: Recorded, span: Span, steps: Steps) -> None:
    os.nice(5)
    _held.append((recorded, span, steps))


def _try(values: dict[str, Any]) -> Tried:
    recorded, span, steps = _held[0]
    return attempt(recorded, span, steps, values)


def attempt(recorded: Recorded, span: Span, steps: Steps, values: Mapping[str, Any]) -> Tried:
    """Replay a span with knobs set anew, in this process."""
    try:
        played = play(recorded, span, steps, values)
    except GlassgateError as error:
        return Tried(None, str(error))
    return Tried(figures_of(played, span), "")
