"""Host hits: what the host cache held, what of it was used, and why the rest was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ui.app.colours import DIM, LOADED, STRONG, WARN
from ui.app.command import Command
from ui.app.figures import lines, percent, short, whole
from ui.app.panels.messages import OpenPass, OpenRequest
from ui.app.panels.part import PartPanel, indented
from ui.app.panels.sql import named
from ui.app.panels.table import Column, KeyedTable
from ui.app.panels.words import cell, length, spark

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.view.snapshot import HostHits, Snapshot
    from ui.view.snapshot import Panel as PanelName

_COLUMNS: Final = (
    Column("pass", "pass", 9, right=True),
    Column("request", "skipped for request", 16, grows=True),
    Column("reason", "reason", 15),
    Column("tokens", "tokens", 11, right=True),
)
_LABEL: Final = 16
_BESIDE: Final = 54
"""Cells of a line that are not its bar."""
_NOTHING: Final = "no host hit in 5 min"


class HitsPanel(PartPanel):
    """The funnel, the skips, and the last of them."""

    PART: ClassVar[PanelName] = "hits"
    TITLE = "Host hits"
    HELP = """What the host cache was good for over the last five minutes, in tokens.

* **resident**: prefix tokens the host held when a request was looked at. **matched**: of those, the ones that extend
  its device hit. **asked**: those a load was asked for. **loaded**: those that arrived. **used**: those a batch reused.
  The share beside a bar is of what was resident.
* **skipped**: hits that were not loaded, by reason, with their tokens and at how many looks. *below_threshold*: shorter
  than the knob `load_back_threshold`; *quota*: no room on the device; *owner_lane*, *allocator*: the load found none;
  *in_flight*, *disabled*, *none_resident*: there was nothing to load.
* **computed again**: tokens that were computed although the host held them.
* **over time**: tokens loaded and skipped in each stretch of the window.

*Enter* on a skip opens its request, `o` the pass that skipped it."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("open request", "enter", "open_request", "request", "Show the request whose hit was skipped."),
        Command("open pass", "o", "open_pass", "pass", "Show the pass that skipped it."),
    )
    DEFAULT_CSS = """
    HitsPanel {
        & .told { height: auto; }
        &.small > .told { height: 3; }
        & > VerticalScroll { height: 1fr; }
        & > KeyedTable { dock: bottom; height: 6; }
        &.wide > KeyedTable { dock: right; width: 62; height: 100%; margin-left: 2; }
    }
    """

    def compose(self) -> ComposeResult:
        """A few lines; with the screen to itself, the last skips beside them, which have the focus first."""
        if self.small:
            yield Static(classes="told")
            return
        yield KeyedTable(_COLUMNS)
        with VerticalScroll():
            yield Static(classes="told")

    def part(self, snapshot: Snapshot) -> Any:
        """The hits."""
        return snapshot.hits

    def draw(self, snapshot: Snapshot) -> None:
        """Tell the funnel and what was skipped."""
        hits = snapshot.hits
        if hits is None:
            return
        if self.small:
            self.query_one(".told", Static).update(_few_lines(hits), layout=False)
            return
        self.set_class(self.size.width >= 130, "wide")
        room = self.size.width - 2 - (64 if self.has_class("wide") else 0)
        self.query_one(".told", Static).update(_told(hits, max(6, min(60, room - _BESIDE))))
        self.query_one(KeyedTable).fill(
            hits.recent,
            lambda skip: "newest" if skip is hits.recent[0] else f"{skip[0]} {skip[1]}",
            _cells,
        )

    def on_lines_chosen(self) -> None:
        """Enter, or a click on the row of the cursor."""
        self.action_open_request()

    def action_open_request(self) -> None:
        """Open the request whose hit was skipped."""
        recent = self._recent_at()
        if recent is not None:
            self.post_message(OpenRequest(recent[1]))

    def action_open_pass(self) -> None:
        """Open the pass that skipped it."""
        recent = self._recent_at()
        if recent is not None:
            self.post_message(OpenPass(recent[0]))

    def raw(self) -> str | None:
        """The skip under the cursor as JSON."""
        return indented(self._recent_at())

    def as_sql(self) -> str | None:
        """The named query `host-hit-skips`."""
        return None if self.snapshot is None else named("host-hit-skips", self.snapshot.head)

    def _recent_at(self) -> tuple[int, str, str, int] | None:
        hits = None if self.snapshot is None else self.snapshot.hits
        if hits is None or self.small:
            return None
        row = self.query_one(KeyedTable).place
        return hits.recent[row] if 0 <= row < len(hits.recent) else None


def _cells(skip: tuple[int, str, str, int]) -> dict[str, Content]:
    number, request, reason, tokens = skip
    return {
        "pass": cell(whole(number)),
        "request": cell(request),
        "reason": cell(reason, WARN),
        "tokens": cell(whole(tokens)),
    }


def _few_lines(hits: HostHits) -> Content:
    funnel = hits.funnel
    if not any((*_steps(hits).values(), hits.skips)):
        return cell(_NOTHING, DIM)
    skips = " · ".join(f"{reason} {short(tokens)}" for reason, tokens, _ in hits.skips) or "nothing"
    return lines(
        [
            cell(f"resident {short(funnel.resident)}  matched {short(funnel.matched)}  asked {short(funnel.asked)}"),
            cell(f"loaded {short(funnel.loaded)}  used {short(funnel.used)}  again {short(hits.recomputed)}"),
            cell(f"skipped: {skips}", WARN if hits.skips else DIM),
        ]
    )


def _told(hits: HostHits, cells: int) -> Content:
    steps = _steps(hits)
    most = max(steps.values())
    told = [cell(f"{'tokens in 5 min':<{_LABEL}}{'':<{cells}}{'':>15}  of resident", DIM)]
    for name, tokens in steps.items():
        told.append(_line(name, tokens, tokens / most if most else 0.0, cells, LOADED.style, _of(tokens, hits)))
    told += [Content(""), cell(f"{'skipped, by why':<{_LABEL}}{'':<{cells}}{'':>15}  of skipped     looks", DIM)]
    skipped = sum(tokens for _, tokens, _ in hits.skips)
    for reason, tokens, looks in hits.skips:
        beside = f"{percent(tokens / skipped if skipped else None):>10}  {whole(looks):>8}"
        told.append(_line(reason, tokens, tokens / most if most else 0.0, cells, WARN, beside))
    if not hits.skips:
        told.append(cell("nothing", DIM))
    again = cell(f"{whole(hits.recomputed)} tokens", STRONG if hits.recomputed else DIM)
    told.append(Content.assemble(cell("computed again although the host held them: "), again))
    told += [Content(""), *_trend(hits, cells)]
    return lines(told)


def _line(name: str, tokens: int, part: float, cells: int, style: str, beside: str) -> Content:
    return Content.assemble(
        cell(f"{name:<{_LABEL}}"), cell(length(part, cells), style), cell(f"{whole(tokens):>15}  {beside}")
    )


def _trend(hits: HostHits, cells: int) -> list[Content]:
    """Loaded and skipped over time, on one scale."""
    most = max((max(loaded, skipped) for _, loaded, skipped in hits.trend), default=0)
    told = []
    for name, place, style in (("loaded", 1, LOADED.style), ("skipped", 2, WARN)):
        drawn = spark([point[place] for point in hits.trend], float(most), cells, most_of=True)
        peak = max((point[place] for point in hits.trend), default=0)
        told.append(
            Content.assemble(
                cell(f"{name + ' over time':<{_LABEL + 3}}"), cell(drawn, style), cell(f"  at most {whole(peak)}", DIM)
            )
        )
    return told


def _of(tokens: int, hits: HostHits) -> str:
    resident = hits.funnel.resident
    return f"{percent(tokens / resident if resident else None):>11}"


def _steps(hits: HostHits) -> dict[str, int]:
    funnel = hits.funnel
    return {
        "resident": funnel.resident,
        "matched": funnel.matched,
        "asked": funnel.asked,
        "loaded": funnel.loaded,
        "used": funnel.used,
    }
