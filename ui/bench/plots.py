"""Plots: what was measured drawn as SVG, from the CSV files in a folder and into the same folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from estimator.errors import InputError, StorageError
from ui.bench.curves import Point
from ui.bench.data import read_rows
from ui.bench.growth import SNAPSHOT, WHY
from ui.bench.soak import Sample, rates

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000")
_MANY: Final = len(_COLOURS) - 2
"""Series that stand out; more than these are drawn in grey, without a name of their own."""
_MIB: Final = 1 << 20


class _Curve(NamedTuple):
    """How one curve is labelled."""

    title: str
    x: str
    y: str
    log_y: bool = False


CURVES: Final = {
    "queue": _Curve("A decision against the length of the queue", "waiting requests", "µs a decision"),
    "batch": _Curve("A decision against the size of the batch", "members of the batch", "µs a decision"),
    "running": _Curve("A decision against what runs already", "running requests", "µs a decision", log_y=True),
    "store": _Curve("Answers against the size of the store", "decisions in the store", "ms", log_y=True),
}
"""By the name of the CSV file that holds its points."""


class _Panel(NamedTuple):
    """One panel of the soak: columns of its samples as lines, each divided by `unit`."""

    y: str
    columns: tuple[tuple[str, str], ...]
    unit: float = 1.0
    of_rate: bool = False
    """What the column grew by a second."""
    log_y: bool = False


_SOAK: Final = (
    _Panel("MiB resident", (("engine", "engine_rss_bytes"), ("collector", "collector_rss_bytes")), _MIB),
    _Panel("MiB on disk", (("journal", "journal_bytes"), ("database", "database_bytes"), ("log", "wal_bytes")), _MIB),
    _Panel("s", (("lag of the database", "lag_s"), ("behind its schedule", "late_s")), log_y=True),
    _Panel("decisions a second", (("decisions", "decisions"),), of_rate=True),
    _Panel("cores", (("engine", "engine_cpu_s"), ("collector", "collector_cpu_s")), of_rate=True),
    _Panel("processes", (("that want to run, whole machine", "machine_load"),)),
)


def draw(folder: Path) -> list[Path]:
    """Draw every CSV file of a measurement there is in folder, and return the pictures.

    Raises InputError for a file that is none of ours, or when there is nothing to draw; StorageError for a folder that
    takes no picture.
    """
    drawn = []
    with mpl.rc_context():
        mpl.rc("svg", fonttype="none", hashsalt="glassgate")  # text stays text, and the same data gives the same file
        mpl.rc("font", family="sans-serif", size=9.0)
        for name, curve in CURVES.items():
            if rows := read_rows(folder / f"{name}.csv", Point):
                drawn.append(_save(_curve(curve, rows), folder / f"{name}.svg"))
        if rows := read_rows(folder / "soak.csv", Sample):
            drawn.append(_save(_soak(rows), folder / "soak.svg"))
    if not drawn:
        raise InputError(f"{folder} holds no measurement to draw; make one with: glassgate bench --plot {folder}")
    return drawn


def _curve(curve: _Curve, rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    series = list(dict.fromkeys(row["series"] for row in rows))
    # With more series than colours the slowest stand out.
    heights = {name: max(row["median"] for row in rows if row["series"] == name) for name in series}
    named = {*sorted(series, key=lambda name: heights[name], reverse=True)[:_MANY], WHY, SNAPSHOT}
    colours = iter(_COLOURS * 2)
    for name in series:
        points = sorted((row for row in rows if row["series"] == name), key=lambda row: row["x"])
        x = [row["x"] for row in points]
        known = name in named
        colour = next(colours) if known else "#c8c8c8"
        axes.plot(x, [row["median"] for row in points], marker="o", markersize=3, color=colour, linewidth=1.4 if known
                  else 0.7, label=name if known else None, zorder=2 if known else 1)  # fmt: skip
        if known:
            lower, upper = ([row[edge] for row in points] for edge in ("lower", "upper"))
            axes.fill_between(x, lower, upper, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    if curve.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set(title=curve.title, xlabel=curve.x, ylabel=curve.y)
    _finish(axes)
    return figure


def _soak(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(7.2, 10.5), layout="constrained")
    panels = figure.subplots(len(_SOAK), 1, sharex=True)
    seconds = [row["at_s"] for row in rows]
    for axes, panel in zip(panels, _SOAK, strict=True):
        for (label, column), colour in zip(panel.columns, _COLOURS, strict=False):
            values = [row[column] / panel.unit for row in rows]
            if panel.of_rate:
                values = rates(list(zip(seconds, values, strict=True)))
            minutes = [second / 60 for second in seconds[len(seconds) - len(values) :]]  # no rate ends at the first
            axes.plot(minutes, values, color=colour, linewidth=1.0, label=label)
        if panel.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        axes.set_ylabel(panel.y)
        _finish(axes)
    panels[-1].set_xlabel("minutes")
    return figure


def _finish(axes: Axes) -> None:
    axes.grid(visible=True, color="#e5e5e5", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _save(figure: Figure, path: Path) -> Path:
    try:
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "glassgate bench --plot"})
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}; name a writable folder") from None
    return path
