"""What a draft of knobs would have done to the last minutes: asked for, being replayed, and told.

The replay is a process of its own at low priority (`ui.whatif.process`). Nothing here waits for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from textual.content import Content

from controller.knobs import SPEC_BY_NAME
from estimator.errors import GlassgateError
from store.words import duration
from ui.app.colours import BAD, DIM, GOOD, STRONG, WARN, gate_style
from ui.app.figures import lines
from ui.app.moments import SECOND, clock
from ui.app.panels.knob_draft import typed
from ui.app.panels.table import Column
from ui.app.panels.words import cell, value_of
from ui.whatif.fidelity import FLOOR
from ui.whatif.side_by_side import SideBySide, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ui.app.panels.knob_draft import Value
    from ui.view.snapshot import Head, Snapshot
    from ui.whatif.side_by_side import Row

SPANS: Final = (60 * SECOND, 300 * SECOND, 900 * SECOND, 3600 * SECOND, None)
"""How far back a preview looks, ns; None is all of the run. The second is what it begins with."""
NO_DRAFT: Final = "nothing is drafted yet: Enter edits the knob under the cursor, then v previews the draft"
NO_RECORD: Final = "this run's record cannot be found, so nothing can be replayed from it; r shows other runs"
COLUMNS: Final = (
    Column("figure", "figure", 25),
    Column("recorded", "recorded", 11, right=True, drop=1),
    Column("replayed", "replayed", 11, right=True),
    Column("changed", "what if", 11, right=True),
    Column("change", "change", 9, right=True),
)
_FIRST: Final = (
    "tokens a second", "batch size, mean", "TTFT, p50", "TTFT, p99", "queue, p50", "queue, p99", "refused for good",
    "peak of buffers",
)  # fmt: skip
"""Figures in the order in which they are looked for; the others follow behind the gates."""
_BAR: Final = 12


class Previewing(Protocol):
    """A preview that is being made; `ui.whatif.process.PreviewProcess` is one."""

    standing: Any

    def poll(self) -> Any:
        """What it came to; None while it is being made."""

    def stop(self) -> None:
        """End it."""


def begin_process(database: Path, run: str, changes: Mapping[str, Value], **more: Any) -> Previewing:
    """Begin a preview in a process of its own, answered in words."""
    from ui.whatif.process import PreviewProcess  # noqa: PLC0415 - for those who preview

    return PreviewProcess(database, run, changes, shown=side_by_side, **more)


class KnobPreview:
    """The preview of one draft. `found` is what it came to: figures side by side, or why there are none."""

    def __init__(self, begin: Callable[..., Previewing] = begin_process) -> None:
        self.begin = begin
        self.span = 1
        """The place in SPANS."""
        self.changes: dict[str, Value] = {}
        """The draft it is of."""
        self.named = False
        """Whether it tells the draft it is of, as where that was accepted and is no draft any more."""
        self.found: SideBySide | GlassgateError | None = None
        self._process: Previewing | None = None
        self._of: tuple[str, int] | None = None
        self._until_ns: int | None = None
        self._asked: dict[str, Any] | None = None
        """The span as it was asked for."""

    @property
    def working(self) -> bool:
        """Whether it is being made."""
        return self._process is not None

    @property
    def shown(self) -> bool:
        """Whether there is anything to say."""
        return self.working or self.found is not None

    def ask(self, snapshot: Snapshot, changes: Mapping[str, Value]) -> None:
        """Begin, in place of what was there before."""
        self.drop()
        head = snapshot.head
        self.changes, self._of = dict(changes), (head.run, head.rank)
        self._until_ns = head.at_ns if not head.following else head.last_ns
        choice = snapshot.choice
        if choice is None or not choice.database:
            self.found = GlassgateError(NO_RECORD)
            return
        self._asked = self._moments(head)
        try:
            self._process = self.begin(Path(choice.database), head.run, changes, rank=head.rank, **self._asked)
        except OSError as error:
            self.found = GlassgateError(f"no process could be started for the preview: {error.strerror or error}")

    def _moments(self, head: Head) -> dict[str, Any]:
        """The span: up to the moment shown, or to the end of the record for a run that is followed."""
        long = SPANS[self.span]
        if head.following:
            return {"since": None if long is None else f"{long // SECOND}s"}
        if head.at_ns is None or long is None:
            return {"until": head.at_ns}
        return {"since": max(head.first_ns or 0, head.at_ns - long), "until": head.at_ns}

    def look(self) -> bool:
        """Take what came of it; whether there is anything new to say."""
        if self._process is None:
            return False
        self.found = self._process.poll()
        if self.found is not None:
            self._process = None
        return True

    def stop(self) -> None:
        """End one that is being made. What was found stays."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def drop(self) -> None:
        """Neither makes nor says anything any more."""
        self.stop()
        self.found = None

    def belongs_to(self, head: Head) -> bool:
        """Whether it is of the run and rank on the screen."""
        return self._of is None or self._of == (head.run, head.rank)

    # what it says

    def span_words(self) -> str:
        """How far back it looks."""
        long = SPANS[self.span]
        return "the whole run" if long is None else _minutes(long)

    def words(self, head: Head) -> Content:
        """What it is at, its fidelity, or why there is nothing to see."""
        of = f" of {', '.join(map(self._told_change, self.changes.items()))}" if self.named else ""
        title = Content.assemble(cell(f"preview{of}  ", STRONG), cell(f"{self._told_span(head)}  ", DIM))
        if self._process is not None:
            standing = self._process.standing
            done = round(standing.fraction * _BAR)
            return title + Content.assemble(
                cell(f"{standing.words}  "), cell("━" * done), cell("─" * (_BAR - done), DIM),
                cell(f"  {standing.fraction:.0%}".replace("%", " %")),
            )  # fmt: skip
        if isinstance(self.found, SideBySide):
            return title + _fidelity(self.found)
        return title + cell(f"{self.found}  (w: another span)", BAD) if self.found is not None else Content("")

    @staticmethod
    def _told_change(change: tuple[str, Value]) -> str:
        name, value = change
        return f"{name} {value_of(value, SPEC_BY_NAME[name].unit)}"

    def _told_span(self, head: Head) -> str:
        if isinstance(self.found, SideBySide):
            return f"{_minutes(self.found.until_ns - self.found.since_ns)} before {clock(head, self.found.until_ns)}"
        return f"{self.span_words()} before {clock(head, self._until_ns)}"

    @property
    def rows(self) -> tuple[Row, ...]:
        """The figures, those looked for first at the top."""
        found = self.found
        if not isinstance(found, SideBySide):
            return ()
        by_words = {row.words: row for row in found.rows}
        first = [by_words[words] for words in _FIRST if words in by_words]
        rest = [row for row in found.rows if row.words not in _FIRST]
        stops = [row._replace(words=f"closed by {row.words}") for row in found.stops]
        return (*first, *found.limits, *stops, *rest) if found.rows else ()

    def remarks(self, head: Head) -> Content:
        """What the figures do not say, and how the what-if is kept to be looked into pass by pass."""
        if not isinstance(self.found, SideBySide):
            return Content("")
        told = [cell(each, DIM) for each in self.found.remarks]
        if self.found.holds and self._of is not None and not self._of[1]:  # the command takes the lowest rank
            told.append(cell(f"pass by pass: {self._command(head)}, then B here", DIM))
        return lines(told)

    def _command(self, head: Head) -> str:
        """The command that keeps the same what-if as a run of its own."""
        words = ["glassgate whatif", head.run]
        for name, moment in (self._asked or {}).items():
            if isinstance(moment, int):
                into = f"{(moment - (head.first_ns or 0)) / SECOND:.3f}".rstrip("0").rstrip(".")
                words.append(f"--{name} +{into}s")
            elif moment is not None:
                words.append(f"--{name} {moment}")
        sets = [f"--set {name}={typed(value, SPEC_BY_NAME[name].unit)}" for name, value in self.changes.items()]
        return " ".join([*words, *sets, "--keep"])

    def summary(self, changes: Mapping[str, Value], head: Head) -> str:
        """In one line what it says of a draft, for the question before it is asked for."""
        found = self.found
        if not isinstance(found, SideBySide) or self.changes != dict(changes):
            return "not previewed"
        if not found.holds:
            return f"previewed without a conclusion: its fidelity of {found.score:.2f} is below {FLOOR:.2f}"
        by_words = {row.words: row for row in found.rows}
        told = [
            f"{row.words} {row.replayed} -> {row.changed}" + (f" ({row.change})" if row.change else "")
            for row in (by_words.get(words) for words in ("tokens a second", "TTFT, p99")) if row is not None
        ]  # fmt: skip
        return f"previewed on {self._told_span(head)}, fidelity {found.score:.2f}: {', '.join(told)}"


def preview_cells(row: Row) -> dict[str, Content]:
    """One figure."""
    style = "" if row.better is None else GOOD if row.better else BAD
    gate = row.words.removeprefix("closed by ")
    name = cell(row.words) if gate == row.words else cell("closed by ", DIM) + cell(gate, gate_style(gate))
    moved = STRONG if row.change else ""
    return {
        "figure": name,
        "recorded": cell(row.recorded, DIM),
        "replayed": cell(row.replayed),
        "changed": cell(row.changed, moved),
        "change": cell(row.change, style),
    }


def _fidelity(found: SideBySide) -> Content:
    if not found.holds:
        words = f"fidelity {found.score:.2f} is below {FLOOR:.2f}, so nothing is concluded: {found.fidelity}"
        return cell(words, WARN) + cell(f"; {found.warmed}. w takes another span", DIM)
    return Content.assemble(cell(f"fidelity {found.score:.2f}: ", GOOD), cell(found.fidelity))


def _minutes(ns: int) -> str:
    """A duration, whole minutes and hours without what is nothing."""
    minutes, rest = divmod(ns, 60 * SECOND)
    if rest:
        return duration(ns)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
