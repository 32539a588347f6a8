"""A chart of values over time, drawn by plotext in the colours of the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from textual.color import Color
from textual.style import Style
from textual_plotext import PlotextPlot

from ui.app.colours import theme_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SECOND: Final = 1_000_000_000
_TICKS: Final = 6
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600)
"""Seconds between two marks of the axis of time."""
_HEADROOM: Final = 1.05
"""The top of the chart, as a part of the largest value."""

Colour = tuple[int, int, int] | str


class Series(msgspec.Struct, frozen=True):
    """Values at moments in ns of the run's clock; None where there is none. Drawn as an area in letters, or a line."""

    name: str
    style: str
    points: tuple[tuple[int, float | None], ...]
    letter: str = ""
    """What the area is made of; empty draws a line."""


class Level(msgspec.Struct, frozen=True):
    """A value that does not change, as a line across."""

    name: str
    style: str
    value: float


class Chart(PlotextPlot):
    """Draws series over the same stretch of time, the first at the back, and levels across them."""

    def show_series(
        self, series: Sequence[Series], levels: Sequence[Level] = (), *, most: float, told: Callable[[float], str]
    ) -> None:
        """Draw anew. `most` is the top of the chart, `told` says a value in words for the axis."""
        plt = self.plt
        plt.clear_figure()
        moments = [at for each in series for at, _ in each.points]
        if not moments or most <= 0:
            self.refresh()
            return
        first, last = min(moments), max(moments)
        for each in series:
            for xs, ys in _unbroken(each.points, last, most):
                plt.plot(
                    xs, ys, color=self._colour(each.style), marker=each.letter or "braille", fillx=bool(each.letter)
                )
        begin = min(-1.0, (first - last) / _SECOND)
        for level in levels:
            if not 0 <= level.value <= most:
                continue
            colour = self._colour(level.style)
            plt.hline(level.value, colour)
            plt.text(f" {level.name} ", begin * 0.96, level.value, color=colour, background=self._background)
        plt.xlim(begin, 0)
        plt.ylim(0, most * _HEADROOM)
        step = next((each for each in _STEPS if -begin / each <= _TICKS), -begin)
        ticks = [-step * each for each in range(int(-begin / step), -1, -1)]
        plt.xticks(ticks, [_before(each) for each in ticks])
        plt.yticks([0, most / 2, most], [told(0), told(most / 2), told(most)])
        plt.xaxes(lower=True, upper=False)
        plt.yaxes(left=True, right=False)
        self.refresh()

    def on_mount(self) -> None:
        """Without colour there is no background either."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._choose())
        self._choose()

    def _choose(self) -> None:
        self.theme = "clear" if self.app.theme == theme_name("plain") else "auto"

    def _colour(self, style: str) -> Colour:
        """The colour of a style as plotext takes it."""
        colour = Style.parse(style).foreground
        if colour is None or colour.ansi is not None:
            return "default"
        return (Color.parse(self.app.theme_variables["surface"]) + colour).rgb

    @property
    def _background(self) -> Colour:
        """What a word in the chart stands on."""
        colour = Color.parse(self.app.theme_variables["surface"])
        return "default" if colour.ansi is not None else colour.rgb


def _before(seconds: float) -> str:
    """A moment of the axis of time: now, -30 s, -4 min."""
    if seconds == 0:
        return "now"
    return f"{seconds / 60:g} min" if seconds % 60 == 0 else f"{seconds:g} s"


def _unbroken(
    points: Sequence[tuple[int, float | None]], last: int, most: float
) -> list[tuple[list[float], list[float]]]:
    """Stretches of points without a gap, as seconds before the last moment and values.

    Values are kept within the chart, since plotext fills whatever lies beyond it, cell by cell.
    """
    found: list[tuple[list[float], list[float]]] = []
    open_stretch = False
    for at, value in points:
        if value is None:
            open_stretch = False
            continue
        if not open_stretch:
            found.append(([], []))
            open_stretch = True
        found[-1][0].append((at - last) / _SECOND)
        found[-1][1].append(min(most, max(0.0, value)))
    return found
