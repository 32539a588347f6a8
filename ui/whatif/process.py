"""PreviewProcess: a comparison made in a process of its own, so that a screen never waits for it."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from estimator.errors import GlassgateError
from ui.whatif.comparison import Comparison, preview

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

NICE: Final = 10
"""How far the process stands back behind others."""
_JOIN_S: Final = 2.0


class PreviewProcess:
    """A comparison that is being made. `poll` never waits; `stop` ends it, as does the end of this process.

    Arguments are those of `comparison.preview`.
    """

    def __init__(
        self,
        database: Path,
        run: str | None,
        changes: Mapping[str, Any],
        since: str | int | None = None,
        until: str | int | None = None,
        **more: Any,
    ) -> None:
        # Not forked: a screen has threads, and locks that nobody would let go of in the child.
        context = multiprocessing.get_context("spawn")
        self._answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(theirs, database, run, dict(changes), since, until), kwargs=more, daemon=True,
            name="glassgate-preview",
        )  # fmt: skip
        self._process.start()
        theirs.close()
        self._found: Comparison | GlassgateError | None = None

    def poll(self) -> Comparison | GlassgateError | None:
        """The comparison, or why there is none; None while it is being made."""
        if self._found is None and self._answer.poll():
            try:
                self._found = self._answer.recv()
            except EOFError:
                self._found = GlassgateError("the preview ended without an answer; ask again")
            self._end()
        return self._found

    def stop(self) -> None:
        """End it, whatever it is at. What was found stays."""
        if self._found is None:
            self._found = GlassgateError("the preview was stopped")
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.join(_JOIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_JOIN_S)
        self._answer.close()


def _work(answer: Connection, *arguments: Any, **more: Any) -> None:
    with suppress(OSError):
        os.nice(NICE)
    found: Comparison | GlassgateError
    try:
        found = preview(*arguments, **more)
    except GlassgateError as error:
        found = error
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked is told
        found = GlassgateError(f"the preview failed: {type(error).__name__}: {error}")
    with suppress(BrokenPipeError):
        answer.send(found)
