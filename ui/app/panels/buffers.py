"""Buffers: the estimate of temporary device memory over time, against its limit and what start-up reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from estimator.buffers import PARTS
from store.words import size
from ui.app.colours import BAD, COMPUTED, DEVICE, DIM, GOOD, LOADED, STRONG, WARN, gate_style
from ui.app.figures import ABSENT, lines, percent, whole_items, with_unit
from ui.app.panels.part import PartPanel
from ui.app.panels.sql import named
from ui.app.panels.words import cell, flow, spark
from ui.timeline import STREAM_MARKS

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.app.panels.chart import Chart
    from ui.view.snapshot import BufferPoint, Buffers, Snapshot
    from ui.view.snapshot import Panel as PanelName

_LETTERS: Final = {
    "metadata": "d",
    "scores": "s",
    "index_gather": "x",
    "topk": "t",
    "attention": "a",
    "mlp": "m",
    "logits": "l",
    "transfer": "r",
}
_GATE: Final = gate_style("buffer_bytes")
_STREAM_STYLES: Final = {
    "compute": COMPUTED.style,
    "transfer": LOADED.style,
    "gather": DEVICE.style,
    "prefetch": DIM,
}
_NO_BATCH: Final = "no batch with an estimate in 5 min"
_NO_WINDOWS: Final = "no windows: the record does not hold the shape of the model and how the engine runs it"


class BuffersPanel(PartPanel):
    """The estimate over time and by part, and the last batch's windows."""

    PART: ClassVar[PanelName] = "buffers"
    TITLE = "Buffers"
    HELP = """The estimated peak of temporary device buffers of each batch, over the last five minutes. It is worked out
from the batch's lengths; nothing is measured while the engine runs.

* **The chart**: the largest estimate of each stretch of time, stacked by part; a letter is a part. The line under it
  says which, with its bytes in the largest estimate of the window. A stretch without a batch is blank. Lines across:
  the *limit* in force (`max_buffer_bytes`) and *smoke*, what the allocation at start-up really took on its tightest
  device. One request alone may go over the limit: the first member of a batch passes it.
* **safety**: what the estimate is multiplied by for what it does not cover.
* **Windows**: the buffers of the last batch, the largest first; a mark under each phase in which a buffer is alive,
  its shape the stream: █ compute, ▒ transfer, ▓ gather, ░ prefetch. The row *held* is the sum of each phase; the peak
  is the largest of them. What requests that decode in the same step take (vLLM) is in the estimate, not in these."""
    DEFAULT_CSS = """
    BuffersPanel {
        & > .said { height: auto; max-height: 2; }
        &.small > .said { height: 3; max-height: 3; }
        & > Chart { height: 1fr; min-height: 5; max-height: 18; }
        & > .parts { height: auto; max-height: 2; }
        & > VerticalScroll { height: 1fr; min-height: 4; margin-top: 1; }
        & > VerticalScroll > Static { height: auto; }
    }
    """

    def compose(self) -> ComposeResult:
        """A few lines; with the screen to itself, the chart and the windows."""
        yield Static(classes="said")
        if not self.small:
            from ui.app.panels.chart import Chart  # noqa: PLC0415 - plotext is not wanted for the first paint

            yield Chart()
            yield Static(classes="parts")
            with VerticalScroll():
                yield Static(classes="windows")

    def part(self, snapshot: Snapshot) -> Any:
        """The buffers."""
        return snapshot.buffers

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the estimate."""
        buffers = snapshot.buffers
        if buffers is None:
            return
        said = self.query_one(".said", Static)
        if self.small:
            said.update(_few_lines(buffers, self.content_size.width), layout=False)
            return
        said.update(_told(buffers))
        from ui.app.panels.chart import Chart  # noqa: PLC0415 - as above

        _draw(self.query_one(Chart), buffers)
        self.query_one(".parts", Static).update(_parts(buffers, self.content_size.width))
        self.query_one(".windows", Static).update(_windows(buffers))

    def as_sql(self) -> str | None:
        """The named query `estimate-vs-smoke`."""
        return None if self.snapshot is None else named("estimate-vs-smoke", self.snapshot.head)


def _few_lines(buffers: Buffers, width: int) -> Content:
    points = [each.peak for each in buffers.points]
    most = max((each for each in (*points, buffers.limit) if each is not None), default=0)
    told = f"  {with_unit(buffers.last, 'bytes')} est"
    drawn = spark(points, float(most), max(4, min(len(points), width - len(told))), most_of=True)
    first = Content.assemble(cell(drawn, _GATE), cell(told))
    if all(each is None for each in points):
        first = cell(_NO_BATCH, DIM)
    parts = (cell(f"  {name} {size(held)}", DIM) for name, held in _most_parts(buffers))
    return lines(
        [
            first,
            cell(f"limit {_limit(buffers)}  smoke {_smoke(buffers)}"),
            whole_items([cell(f"most {with_unit(buffers.most, 'bytes')}", DIM), *parts], width),
        ]
    )


def _limit(buffers: Buffers) -> str:
    return "off" if buffers.limit is None else size(buffers.limit)


def _smoke(buffers: Buffers) -> str:
    return "not run" if buffers.smoke_passed is None else with_unit(buffers.smoke_peak, "bytes")


def _told(buffers: Buffers) -> Content:
    """One or two lines of numbers."""
    part = None if buffers.last is None or not buffers.limit else buffers.last / buffers.limit
    of = "" if part is None else f" ({percent(part)})"
    over = part is not None and part > 1
    first = Content.assemble(
        "last ",
        cell(with_unit(buffers.last, "bytes"), BAD if over else STRONG),
        cell(f" of limit {_limit(buffers)}{of}  most {with_unit(buffers.most, 'bytes')} in 5 min"),
        cell(f"  safety {ABSENT if buffers.safety_percent is None else f'{buffers.safety_percent:,} %'}"),
    )
    if buffers.smoke_passed is None:
        return lines([first, cell("no smoke allocation was made at start-up", DIM)])
    verdict = cell("passed", GOOD) if buffers.smoke_passed else cell("did not fit", BAD)
    smoke = cell(
        f"smoke at start-up on {buffers.smoke_device or ABSENT}: asked {with_unit(buffers.smoke_asked, 'bytes')},"
        f" took {with_unit(buffers.smoke_peak, 'bytes')}, "
    )
    return lines([first, Content.assemble(smoke, verdict)])


def _most_parts(buffers: Buffers) -> tuple[tuple[str, int], ...]:
    """The parts of the largest estimate of the window, the largest part first."""
    most = max(buffers.points, key=lambda point: -1 if point.peak is None else point.peak, default=None)
    parts = () if most is None else most.parts
    return tuple(sorted(((name, held) for name, held in parts if held), key=lambda part: -part[1]))


def _order(points: tuple[BufferPoint, ...]) -> list[str]:
    """Every part there is, in the estimator's order."""
    names = {name for point in points for name, held in point.parts if held}
    return [*(name for name in PARTS if name in names), *sorted(names - set(PARTS))]


def _style(place: int) -> str:
    """The colour of the gate for every part, full and faint in turn, so that neighbours differ."""
    return f"{_GATE} 50%" if place % 2 else _GATE


def _draw(chart: Chart, buffers: Buffers) -> None:
    """Stack the parts: the whole at the back, each part in front of those above it."""
    from ui.app.panels.chart import Level, Series  # noqa: PLC0415 - as above

    names = _order(buffers.points)
    series = []
    if not names:
        points = tuple((each.at_ns, each.peak) for each in buffers.points)
        series.append(Series("estimate", _GATE, points, "b"))
    for place in reversed(range(len(names))):
        below = frozenset(names[: place + 1])
        points = tuple(
            (each.at_ns, None if each.peak is None else sum(held for name, held in each.parts if name in below))
            for each in buffers.points
        )
        series.append(Series(names[place], _style(place), points, _LETTERS.get(names[place], "o")))
    levels = [
        Level(name, style, value)
        for name, style, value in (("smoke", WARN, buffers.smoke_peak), ("limit", BAD, buffers.limit))
        if value
    ]
    most = max([*(each.value for each in levels), *(each.peak or 0 for each in buffers.points)], default=0)
    chart.show_series(series, levels, most=most, told=lambda value: size(round(value)))


def _parts(buffers: Buffers, width: int) -> Content:
    """Which letter is which part, with its bytes in the largest estimate of the window."""
    order = _order(buffers.points)
    most = dict(_most_parts(buffers))
    if not order:
        return cell(_NO_BATCH if all(each.peak is None for each in buffers.points) else "b the estimate", DIM)
    told = [
        Content.assemble(
            cell(_LETTERS.get(name, "o"), f"bold {_style(place)}"),
            cell(f" {name} {size(most.get(name, 0))}"),
        )
        for place, name in enumerate(order)
    ]
    return flow([cell(f"most {with_unit(buffers.most, 'bytes')}:", DIM), *told], width, 2)


def _windows(buffers: Buffers) -> Content:
    """The windows of the last batch against its phases, the sum of each phase, and the phases' names."""
    if not buffers.windows:
        return cell(_NO_WINDOWS, DIM)
    width = max(len("held"), *(len(each.name) for each in buffers.windows))
    phases = tuple(zip(buffers.phases, buffers.phase_bytes, strict=False))
    peak = max(phases, key=lambda phase: phase[1], default=(ABSENT, 0))[0]
    told = [
        Content.assemble(
            cell(f"windows of the batch of pass {with_unit(buffers.of_pass, '')}, peak in "),
            cell(peak, STRONG),
            "  ",
            *(Content.assemble(cell(mark, _STREAM_STYLES[name]), f" {name} ") for name, mark in STREAM_MARKS.items()),
        )
    ]
    for window in buffers.windows:
        mark, style = STREAM_MARKS.get(window.stream, "?"), _STREAM_STYLES.get(window.stream, "")
        marks = [cell(f"{mark} ", style) if alive else cell("· ", DIM) for alive in window.phases]
        told.append(Content.assemble(cell(f"{window.name:<{width}} "), *marks, cell(f"{size(window.bytes):>11}")))
    told.append(
        Content.assemble(cell(f"{'held':<{width}} "), cell(" ".join(spark([held for _, held in phases])), _GATE))
    )
    for place, (name, held) in reversed(tuple(enumerate(phases))):
        line = f"{' ' * (width + 1)}{'│ ' * place}└ {name} {size(held)}"
        told.append(cell(line, STRONG if name == peak else DIM))
    return lines(told)
