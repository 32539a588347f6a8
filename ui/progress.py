"""How far a long command is, told on stderr."""

import time
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

from controller.engines.replay import Progress as Standing
from ui.output import narrate, narration, printable


class LongProgress:
    """The progress of a long command on stderr: a bar on a terminal, a line now and then elsewhere.

    `columns` stand in the bar before its words and the time it took, `total` is what `completed` counts up to.
    """

    LINE_EVERY_S: Final = 5.0

    def __init__(self, *columns: ProgressColumn, begins: str, total: float) -> None:
        console = narration()
        self._bar: Progress | None = None
        self._told = time.perf_counter()
        if console.is_terminal:
            self._bar = Progress(
                *columns, TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
            )
            self._task = self._bar.add_task(begins, total=total)

    def tell(self, completed: float, words: str, line: str) -> None:
        """Tell how far it is: `words` beside the bar, or `line` where there is none and it is time for one."""
        if self._bar is not None:
            self._bar.update(self._task, completed=completed, description=words)
        elif time.perf_counter() - self._told >= self.LINE_EVERY_S:
            self._told = time.perf_counter()
            narrate(line)

    def say(self, text: str) -> None:
        """One remark, above the bar where there is one."""
        if self._bar is None:
            narrate(text)
        else:
            self._bar.console.print(printable(text), markup=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class ReplayProgress(LongProgress):
    """The progress of a replay."""

    def __init__(self) -> None:
        super().__init__(SpinnerColumn(), BarColumn(bar_width=24), begins="starting", total=1.0)

    def show(self, standing: Standing) -> None:
        """Tell how far the replay is."""
        words = (
            f"{standing.simulated_ns / 1e9:,.0f} s simulated, {standing.requests:,} requests, "
            f"{standing.passes:,} passes, {standing.waiting:,} waiting, {standing.running:,} running"
        )
        self.tell(standing.fraction or 0.0, words, words)
