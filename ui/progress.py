"""How far a replay is, told on stderr."""

import time
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from controller.engines.replay import Progress as Standing
from ui.output import narrate, narration, printable


class ReplayProgress:
    """The progress of a replay on stderr: a bar on a terminal, a line now and then elsewhere."""

    LINE_EVERY_S: Final = 5.0

    def __init__(self) -> None:
        console = narration()
        self._bar: Progress | None = None
        self._told = time.perf_counter()
        if console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=1.0)

    def show(self, standing: Standing) -> None:
        """Tell how far the replay is."""
        words = (
            f"{standing.simulated_ns / 1e9:,.0f} s simulated, {standing.requests:,} requests, "
            f"{standing.passes:,} passes, {standing.waiting:,} waiting, {standing.running:,} running"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=standing.fraction or 0.0, description=words)
        elif time.perf_counter() - self._told >= self.LINE_EVERY_S:
            self._told = time.perf_counter()
            narrate(words)

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
