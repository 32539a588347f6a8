"""ReplayStuck: nothing runs, and no event can ever change what waits."""

from __future__ import annotations

from controller.decision import Decision
from estimator.errors import GlassgateError


class ReplayStuck(GlassgateError):  # noqa: N818 - it says what became of the replay, the base class that it is an error
    """Nothing runs, and the queue's head or the continuing chunk gets nothing: no event can ever change that."""

    @classmethod
    def over(cls, waiting: int, refused: tuple[int, ...]) -> ReplayStuck:
        """The error for so many waiting requests, with the last decision that refused one, or nothing."""
        read = Decision.read(refused) if refused else None
        if read is None or read.gate is None:
            return cls(f"{waiting} requests wait with nothing running, and no pass refused any; report this")
        return cls(
            f"request {read.number} waits with nothing running: {read.gate.word} observed {read.observed} "
            f"{read.unit} against a limit of {read.limit}; raise what sets that limit, or report this"
        )
