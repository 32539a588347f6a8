"""The knobs: what is set, what is in force, and a draft of what to turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from estimator.errors import GlassgateError
from ui.app.colours import BAD, DIM, GOOD, STRONG, WARN
from ui.app.command import Command
from ui.app.figures import lines, whole
from ui.app.panels.entry import Entry
from ui.app.panels.knob_asked import Asked, cannot_leave
from ui.app.panels.knob_confirm import ConfirmChange
from ui.app.panels.knob_draft import NO_KNOBS, Checked, check, effects, expected, in_force, told_change, typed
from ui.app.panels.knob_preview_box import PreviewBox
from ui.app.panels.knob_rows import CHANGES, COLUMNS, change_cells, knob_cells
from ui.app.panels.part import PartPanel, indented
from ui.app.panels.sql import named
from ui.app.panels.table import KeyedTable
from ui.app.panels.words import cell, state_style
from ui.turning import default_who

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.app.panels.knob_draft import Value
    from ui.view.snapshot import KnobPanel, Snapshot
    from ui.view.snapshot import Panel as PanelName

SHADOW: Final = "SHADOW: soft gates only record what they would do (enforce is off)"
READONLY: Final = "read-only: the screen was started with --readonly"
PAST: Final = "this is a moment of the past: go live (l) to turn knobs"
_HOW: Final = "Enter edits the knob under the cursor"
_HOW_DRAFT: Final = "v previews the draft, a asks the engine for it, x throws it away"
_HOW_ELSE: Final = "; v previews"
_SHORT: Final = 26
"""Lines of the panel under which a preview leaves room for three knobs alone."""
_MIDDLE: Final = 40
"""Under which it takes the place of the changes, and of some knobs."""
_TICK_SECONDS: Final = 0.25


class KnobsPanel(PartPanel):
    """Every knob, a row each; below it the draft, and the changes so far."""

    PART: ClassVar[PanelName] = "knobs"
    TITLE = "Knobs"
    HELP = """Every limit an operator may set, as it is in force at the moment shown.

* **set**, **effective**, **state**, **why**: the value as it was set, what is in force of it in this engine, and what
  made the two differ: *clamped*, *raised*, *derived*, *off*, *dead* (it does nothing here), *not binding* (something
  else is always reached first).
* **changed**, **by**: when the knob was last changed in this run, and by whom; `—` is since its beginning.
* **bounds**: what the knob limits.

*Enter* edits the knob under the cursor; while you type, the line below says what would be in force, or why the value
cannot be. A switch is turned over. What you enter is kept as a **draft**, marked `*`, until `a` asks for all of it at
once: you are shown before, after and effect, and say yes. The request is left in the run's folder, the engine takes it
between two passes and answers: *accepted as revision N* or *refused*, with the reason; both are in the record. `S` also
saves accepted values to the config. `x` throws the draft away.

`v` **previews** the draft: the last minutes before the moment shown are replayed from the record, as they were and
under the draft, in a process of its own at low priority; `w` looks further back, or less far. *recorded* is what
happened, *replayed* the same minutes under the knobs as they were, *what if* under the draft; *change* compares the
last two. The **fidelity** says how well the replay reproduces what happened; where that is too low nothing is
concluded. Nothing is turned, so it can be had of a recording and with --readonly too. It ends when the draft changes
and when this panel is left.

**enforce** off is shadow mode: soft gates record `would_refuse` and let requests pass. A change lives as long as the
run. On a narrow screen columns go in this order: why, bounds, by, changed."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("edit knob", "enter", "edit", "edit", "Edit the knob under the cursor; a switch is turned over."),
        Command("preview draft", "v", "preview", "preview", "What the draft would have done to the last minutes."),
        Command("apply draft", "a", "apply(False)", "apply", "Ask the engine for the drafted changes.", True),
        Command("apply and save", "S", "apply(True)", "", "Ask for them, and save what is accepted.", True),
        Command("discard draft", "x", "discard", "discard", "Throw the draft and its preview away."),
        Command("preview span", "w", "span", "", "How far back a preview looks: 1, 5, 15 min, 1 h, the whole run."),
    )
    DEFAULT_CSS = """
    KnobsPanel {
        & > .said { height: auto; max-height: 2; text-wrap: wrap; }
        & > .knobs { height: auto; }
        & > .knobs > Rows { height: auto; max-height: 11; }
        & > Horizontal { height: 1; margin-top: 1; display: none; }
        & > Horizontal > Static { width: auto; }
        & > Horizontal > Entry { width: 1fr; }
        & > .about { height: auto; max-height: 2; text-wrap: wrap; }
        &.editing > .about { display: none; }
        & > .draft { height: auto; max-height: 4; text-wrap: wrap; }
        & > .changes { height: 1fr; min-height: 2; margin-top: 1; }
        &.short > PreviewBox { margin-top: 0; }
        &.previewed > .changes { height: 5; }
        &.middle.previewed > .changes { display: none; }
        &.middle.previewed > .knobs > Rows { max-height: 7; }
        &.short.previewing > .about { display: none; }
        &.short.previewing > .knobs > Rows { max-height: 7; }
        &.short.previewed > .knobs > Rows { max-height: 3; }
        &.short.previewed > .said, &.short.previewed > .draft { max-height: 1; text-wrap: nowrap; }
        &.short.previewed > PreviewBox > .remarks { max-height: 1; text-wrap: nowrap; }
        &.editing > Horizontal { display: block; }
    }
    """

    def __init__(self, *, small: bool = False) -> None:
        super().__init__(small=small)
        self.draft_values: dict[str, Value] = {}
        """Knobs that were given another value and not asked for yet."""
        self.asked: Asked | None = None
        self.now = time.monotonic
        self._asked_at = 0.0
        self._editing: str | None = None
        self.preview = PreviewBox()

    def compose(self) -> ComposeResult:
        """What may be done, the knobs, the line that edits, the draft, the changes."""
        yield Static(classes="said")
        yield KeyedTable(COLUMNS, id="knobs").add_class("knobs")
        with Horizontal():
            yield Static(classes="name")
            yield Entry()
        yield Static(classes="about")
        yield Static(classes="draft")
        yield self.preview
        yield KeyedTable(CHANGES, id="changes").add_class("changes")

    def on_mount(self) -> None:
        """Look now and then whether an answer came."""
        self.set_interval(_TICK_SECONDS, self._tick)

    def on_resize(self) -> None:
        """Room for a preview is another."""
        self._make_room()
        super().on_resize()

    def on_hide(self) -> None:
        """Whoever leaves the panel waits for no preview."""
        self.preview.stop()

    def on_preview_box_changed(self) -> None:
        """Make room for it, or take it back."""
        self._make_room()

    def _make_room(self) -> None:
        """A low panel does not hold everything beside a preview."""
        self.set_class(self.preview.preview.shown, "previewing")
        self.set_class(self.preview.figured, "previewed")
        self.set_class(self.size.height < _SHORT, "short")
        self.set_class(self.size.height < _MIDDLE, "middle")

    def part(self, snapshot: Snapshot) -> Any:
        """The knobs, whose they are, and the moment that durations are told from."""
        head = snapshot.head
        return None if snapshot.knobs is None else (snapshot.knobs, head.run, head.rank, head.at_ns, head.following)

    def draw(self, snapshot: Snapshot) -> None:
        """Fill the tables and say what may be done."""
        panel = snapshot.knobs
        if panel is None:
            return
        if self.asked is not None:
            self.asked.look(panel)
            self._settle()
        self.preview.show_of(snapshot.head, named=not self.draft_values)
        rows = sorted(panel.knobs, key=lambda row: row.name != "enforce")
        coming = expected(panel, self.draft_values)
        self._knobs.fill(
            rows,
            lambda row: row.name,
            lambda row: knob_cells(
                row, self.draft_values.get(row.name, row.set_to), coming.get(row.name, row), snapshot.head.at_ns
            ),
        )
        self.query_one("#changes", KeyedTable).fill(
            panel.changes,
            lambda change: f"{change.at_ns} {change.request} {change.knob}",
            lambda change: change_cells(change, snapshot.head),
        )
        self._say()

    @property
    def _knobs(self) -> KeyedTable:
        return self.query_one("#knobs", KeyedTable)

    @property
    def _panel(self) -> KnobPanel | None:
        return None if self.snapshot is None else self.snapshot.knobs

    def why_not(self) -> str:
        """Why no knob can be turned here and at this moment; empty when they can."""
        panel, snapshot = self._panel, self.snapshot
        if getattr(self.app, "readonly", False):
            return READONLY
        if panel is None or snapshot is None:
            return "nothing is known yet"
        if not panel.may_change:
            return panel.why_not or "this run's knobs cannot be turned from here"
        if not snapshot.head.following:
            return PAST
        return cannot_leave(panel.folder)

    def why_no_draft(self) -> str:
        """Why nothing can be drafted; empty when it can, be it to preview it alone."""
        panel = self._panel
        if panel is None:
            return "nothing is known yet"
        return NO_KNOBS if in_force(panel) is None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Asking for a change is off where none can be made or none is drafted; a draft alone changes nothing."""
        if action == "apply" and self.is_mounted and (self.why_not() or not self.draft_values):
            return None
        if action in {"edit", "discard", "preview", "span"} and self.is_mounted and self.why_no_draft():
            return None
        return super().check_action(action, parameters)

    def on_lines_moved(self) -> None:
        """Say what the knob bounds that the cursor came to."""
        self._say()

    def on_lines_chosen(self) -> None:
        """A click on the row of the cursor."""
        if self._knobs.active:
            self.action_edit()

    def action_edit(self) -> None:
        """Edit the knob under the cursor."""
        panel, name = self._panel, self._knobs.key_at
        row = next((each for each in panel.knobs if each.name == name), None) if panel is not None else None
        if row is None or panel is None or self.why_no_draft() or (self.asked and self.asked.state == "asked"):
            return
        value = self.draft_values.get(row.name, row.set_to)
        if row.kind == "switch" and isinstance(value, bool):
            self._enter(row.name, typed(not value, row.unit))
            return
        self._editing = row.name
        self.add_class("editing")
        self.query_one(".name", Static).update(cell(f"{row.name} ({row.unit})  ", STRONG))
        box = self.query_one(Entry)
        box.value = typed(value, row.unit)
        box.enter()
        self._say()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say at once what it would do."""
        event.stop()
        self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it, if it can be."""
        event.stop()
        if self._editing is not None and self._enter(self._editing, event.value):
            self._leave_editing()

    def on_entry_left(self) -> None:
        """Leave the line that edits."""
        if self._editing is not None:
            self._leave_editing()

    def _leave_editing(self) -> None:
        self._editing = None
        self.remove_class("editing")
        self._knobs.focus()
        self._say()

    def _enter(self, name: str, text: str) -> bool:
        """Put a value into the draft; one that is set already leaves it. False when it cannot be."""
        panel = self._panel
        if panel is None:
            return False
        checked = check(panel, self.draft_values, name, text)
        if checked.problem:
            self._say(checked)
            return False
        self.asked = None
        self.preview.drop()
        self.draft_values.pop(name, None)
        if any(row.name == name and row.set_to != checked.value for row in panel.knobs):
            self.draft_values[name] = checked.value
        self.redraw()
        return True

    def action_discard(self) -> None:
        """Throw the draft away."""
        self.draft_values.clear()
        self.asked = None
        self.preview.drop()
        self.redraw()

    def action_preview(self) -> None:
        """Replay the last minutes under the draft."""
        if self.snapshot is not None and not self.why_no_draft():
            self.preview.ask(self.snapshot, self.draft_values)

    def action_span(self) -> None:
        """Let a preview look further back, or least far again."""
        if self.snapshot is not None:
            self.preview.next_span(self.snapshot, self.draft_values)

    def action_apply(self, save: bool = False) -> None:
        """Show what would change, and ask for it when the operator says yes."""
        panel, snapshot = self._panel, self.snapshot
        if panel is None or snapshot is None or not self.draft_values or self.why_not():
            return
        if self.asked is not None and self.asked.state == "asked":
            return
        who = default_who()
        self.app.push_screen(
            ConfirmChange(
                self._told_draft(panel),
                (*self._told_effects(panel), "", self.preview.preview.summary(self.draft_values, snapshot.head)),
                who,
                run=snapshot.head.run,
                saved=save,
            ),
            lambda yes: self._ask(who, save=save) if yes else None,
        )

    def _ask(self, who: str, *, save: bool) -> None:
        """Leave the request."""
        panel = self._panel
        if panel is None or not self.draft_values or self.why_not():
            return
        try:
            self.asked = Asked(panel.folder, self.draft_values, who, revision=panel.revision, save=save)
        except GlassgateError as error:
            self._say(Checked(problem=str(error)))
            return
        self._asked_at = self.now()
        self.redraw()

    def _tick(self) -> None:
        """Give up waiting for an answer after a while."""
        if self.asked is not None and self.asked.state == "asked":
            self.asked.wait(self.now() - self._asked_at)
            self._say()

    def _settle(self) -> None:
        """A draft that was accepted is no draft any more; one that was refused stays, to be mended."""
        if self.asked is not None and self.asked.state == "accepted":
            self.draft_values = {
                name: value for name, value in self.draft_values.items() if self.asked.changes.get(name, ...) != value
            }

    def _told_draft(self, panel: KnobPanel) -> list[str]:
        held = {row.name: row for row in panel.knobs}
        return [
            told_change(name, held[name].set_to, value, held[name].unit)
            for name, value in self.draft_values.items()
            if name in held
        ]

    def _told_effects(self, panel: KnobPanel) -> tuple[str, ...]:
        knobs = in_force(panel)
        try:
            return () if knobs is None else effects(knobs, knobs.changed(self.draft_values), panel.setting)
        except GlassgateError as error:
            return (str(error),)

    def _say(self, entered: Checked | None = None) -> None:
        """The line above the knobs and those below."""
        panel = self._panel
        if panel is None:
            return
        self.query_one(".said", Static).update(self._said(panel))
        self.query_one(".about", Static).update(self._about(panel))
        drafted = self._drafted(panel, entered)
        draft = self.query_one(".draft", Static)
        draft.update(drafted)
        draft.display = bool(drafted)

    def _said(self, panel: KnobPanel) -> Content:
        why_not = self.why_not()
        told = [Content(f"revision {whole(panel.revision)}")]
        how = _HOW_DRAFT if self.draft_values else _HOW
        told.append(cell(why_not + _HOW_ELSE, WARN) if why_not else cell(how, DIM))
        shadow = any(row.name == "enforce" and row.effective is False for row in panel.knobs)
        first = Content("   ").join(told)
        return lines([cell(SHADOW, f"reverse {BAD}"), first]) if shadow else first

    def _about(self, panel: KnobPanel) -> Content:
        """What the knob under the cursor bounds, and why it is in force as it is."""
        row = next((each for each in panel.knobs if each.name == self._knobs.key_at), None)
        if row is None:
            return Content("")
        why = f"  {row.state}: {row.why}" if row.why else ""
        return Content.assemble(cell(row.name, STRONG), cell(f": {row.bounds}", DIM), cell(why, state_style(row.state)))

    def _drafted(self, panel: KnobPanel, entered: Checked | None) -> Content:
        if self._editing is not None:
            entered = check(panel, self.draft_values, self._editing, self.query_one(Entry).value)
        if entered is not None and entered.problem:
            return cell(entered.problem, BAD)
        if entered is not None:
            return lines([cell(each) for each in entered.effects] or [cell("as it is", DIM)])
        told = []
        if self.draft_values:
            told.append(Content.assemble(cell("draft  ", WARN), cell(", ".join(self._told_draft(panel)))))
        if self.asked is not None:
            styles = {"asked": STRONG, "accepted": GOOD, "refused": BAD, "no answer": WARN}
            told.append(cell(self.asked.words, styles[self.asked.state]))
        elif self.draft_values:
            told += [cell(each, DIM) for each in self._told_effects(panel)]
        return lines(told)

    def raw(self) -> str | None:
        """The row under the cursor as JSON."""
        panel = self._panel
        if panel is None:
            return None
        changes = self.query_one("#changes", KeyedTable)
        if changes.active:
            place = changes.place
            return indented(panel.changes[place]) if 0 <= place < len(panel.changes) else None
        return indented(next((row for row in panel.knobs if row.name == self._knobs.key_at), None))

    def as_sql(self) -> str | None:
        """The named query `knobs`, or `knob-changes` while the cursor is in the history."""
        if self.snapshot is None:
            return None
        history = self.query_one("#changes", KeyedTable).active
        return named("knob-changes" if history else "knobs", self.snapshot.head)
