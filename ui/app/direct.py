"""A reader without a thread: it answers at once, for a single picture and for a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.snapshot import Ask, Snapshot
    from ui.view.view import View


class Answers(Protocol):
    """What is asked: `ui.view.view.View`, or a script."""

    def answer(self, ask: Ask) -> Snapshot:
        """A snapshot."""

    def close(self) -> None:
        """Let go of everything."""


class DirectReader:
    """A `ui.view.reader.SnapshotReader` on the caller's own thread."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._ask: Ask | None = None
        self._tell: Callable[[Snapshot], None] | None = None

    def start(self, tell: Callable[[Snapshot], None]) -> None:
        """From here on, hand every snapshot to `tell`."""
        self._tell = tell

    def ask(self, ask: Ask) -> None:
        """Answer at once. Raises what the answer raises."""
        self._ask = ask
        self._answer()

    def again(self) -> None:
        """Answer the same once more, as time does."""
        self._answer()

    def _answer(self) -> None:
        if self._tell is not None and self._ask is not None:
            self._tell(self._answers.answer(self._ask))

    def close(self) -> None:
        """Hand over no more."""
        self._tell = None
        self._answers.close()


class WholeView:
    """A view that reads to the end of the window, however long that takes."""

    def __init__(self, view: View) -> None:
        self._view = view

    def answer(self, ask: Ask) -> Snapshot:
        """A snapshot."""
        return self._view.answer(ask, whole=True)

    def close(self) -> None:
        """Close the database."""
        self._view.close()
