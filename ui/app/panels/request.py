"""One request: found by its id, its life as a bar and in the words of `why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from ui.app.colours import DIM, STRONG, WARN
from ui.app.command import Command
from ui.app.copying import quoted
from ui.app.figures import lines, whole
from ui.app.moments import clock
from ui.app.panels.entry import Entry
from ui.app.panels.life import life_bar, life_legend
from ui.app.panels.messages import OpenPass, SearchRequest
from ui.app.panels.part import PartPanel
from ui.app.panels.sql import of_run
from ui.app.panels.table import Column, KeyedTable
from ui.app.panels.words import cell, plain

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ui.view.snapshot import Head, RequestLife, Snapshot
    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import RequestPanel as Found

_MATCHES: Final = (Column("request", "requests that begin so", 30, grows=True),)
_PASSES: Final = (Column("pass", "looked at", 11, right=True),)
_SQL: Final = """SELECT d.* FROM v_decisions d JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = :run AND q.id = {id} ORDER BY d.pass, d.position LIMIT :limit"""
_HINT: Final = "/ searches by the id of a request, or its beginning"
_NONE_YET: Final = "Enter on a request in another panel opens it here"


class RequestPanel(PartPanel):
    """A search and what it found."""

    PART: ClassVar[PanelName] = "request"
    TITLE = "Request"
    HELP = """One request, found by its id or the beginning of it. While you type, the ids that begin so are listed;
*Enter* takes the first, *↓* goes into the list.

* **The bar** is its life from arrival to end. A letter is the gate that held it, in the gate's colour; under it `━`
  where the request was looked at and held, `╌` where it stood behind one that was. █ computing, ▓ decoding, `·` until
  the next pass began, `?` what the record cannot tell. The line below says how long each was in all.
* **The words** are those of `glassgate why`.
* **looked at**: the passes that looked at it, repeats left out; *Enter* opens one."""
    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("search request", "slash,i", "search", "search", "Write the id of a request."),
        Command("open pass", "enter", "choose", "open", "Open the pass, or take the id, under the cursor."),
    )
    DEFAULT_CSS = """
    RequestPanel {
        & > .life { height: auto; margin-top: 1; display: none; }
        & > .marks { height: auto; max-height: 3; display: none; }
        & > Horizontal { height: 1fr; margin-top: 1; }
        & > Horizontal > VerticalScroll { width: 1fr; }
        & > Horizontal > #looks { width: 14; margin-left: 2; display: none; }
        & > Horizontal > #matches { width: 1fr; display: none; }
        & .words { height: auto; text-wrap: wrap; }
        & > Horizontal > #looks { dock: right; }
        &.found > .life, &.found > .marks, &.found > Horizontal > #looks { display: block; }
        &.several > Horizontal > #matches { display: block; }
        &.several > Horizontal > VerticalScroll { display: none; }
    }
    """

    def compose(self) -> ComposeResult:
        """The search above what it found."""
        yield Entry(_HINT)
        yield Static(classes="life")
        yield Static(classes="marks")
        with Horizontal():
            yield KeyedTable(_PASSES, id="looks")
            yield KeyedTable(_MATCHES, id="matches")
            with VerticalScroll():
                yield Static(classes="words")

    def part(self, snapshot: Snapshot) -> Any:
        """What was found."""
        return snapshot.request

    def draw(self, snapshot: Snapshot) -> None:
        """Tell it."""
        request = snapshot.request
        if request is None:
            return
        box = self.query_one(Entry)
        if not box.has_focus and box.value != plain(request.text):
            with self.prevent(Input.Changed):
                box.value = plain(request.text)
        found = request.found
        before = self.classes
        self.set_class(found is not None, "found")
        self.set_class(found is None and bool(request.matches), "several")
        self.border_title = Content(f"{self.TITLE}  {plain(found.request)}" if found else self.TITLE).markup
        self.query_one("#matches", KeyedTable).fill(request.matches, str, lambda each: {"request": cell(each)})
        if found is not None:
            self._draw_life(found, snapshot.head, later=request.later)
        else:
            self.query_one(".words", Static).update(_problem(request))
        if self.classes != before and self.has_focus_within and not box.has_focus:
            self._leave_search()

    def _draw_life(self, found: RequestLife, head: Head, *, later: bool) -> None:
        width = self.content_size.width
        told = [life_bar(found.spans, width)]
        if found.spans:
            first, to_ns = clock(head, found.spans[0].from_ns), found.spans[-1].to_ns
            last = "goes on" if to_ns is None else clock(head, to_ns)
            told.insert(0, cell(f"{first}{last:>{max(1, width - len(first))}}", DIM))
        self.query_one(".life", Static).update(lines(told))
        self.query_one(".marks", Static).update(life_legend(found.spans, width))
        words = [cell(each, STRONG if place == 0 else "") for place, each in enumerate(found.words)]
        if later:
            words.append(cell("its life goes on after the moment shown and is told whole", DIM))
        self.query_one(".words", Static).update(lines(words))
        self.query_one("#looks", KeyedTable).fill(found.passes, str, lambda each: {"pass": cell(whole(each))})

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what is typed."""
        event.stop()
        self.post_message(SearchRequest(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the first id that begins so."""
        event.stop()
        request = None if self.snapshot is None else self.snapshot.request
        if request is not None and request.found is None and request.matches and request.text == event.value.strip():
            self._take(request.matches[0])
        self._leave_search()

    def on_entry_left(self) -> None:
        """From the search into what it found."""
        self._leave_search()

    def action_search(self) -> None:
        """Go to the search."""
        self.query_one(Entry).enter()

    def _leave_search(self) -> None:
        """To what was found, whichever it is."""
        where = "#matches" if self.has_class("several") else "#looks" if self.has_class("found") else "VerticalScroll"
        self.query_one(where).focus()

    def on_lines_chosen(self) -> None:
        """A click on the row of the cursor."""
        self.action_choose()

    def action_choose(self) -> None:
        """Open the pass under the cursor, or take the id."""
        request = None if self.snapshot is None else self.snapshot.request
        matches, looks = self.query_one("#matches", KeyedTable), self.query_one("#looks", KeyedTable)
        if request is None:
            return
        if matches.active and matches.key_at is not None:
            self._take(matches.key_at)
        elif request.found is not None and looks.key_at is not None:
            self.post_message(OpenPass(int(looks.key_at)))

    def _take(self, request: str) -> None:
        with self.prevent(Input.Changed):
            self.query_one(Entry).value = plain(request)
        self.post_message(SearchRequest(request))

    def raw(self) -> str | None:
        """The record of the request."""
        request = None if self.snapshot is None else self.snapshot.request
        return None if request is None or request.found is None else request.found.raw

    def as_sql(self) -> str | None:
        """Every decision about the request."""
        request = None if self.snapshot is None else self.snapshot.request
        if self.snapshot is None or request is None or request.found is None:
            return None
        return of_run(_SQL, self.snapshot.head).replace("{id}", quoted(request.found.request))


def _problem(request: Found) -> Content:
    if request.problem:
        return cell(request.problem, WARN)
    if request.found is None and not request.matches:
        return cell(
            f"no request begins with {request.text!r}" if request.text else _NONE_YET, WARN if request.text else DIM
        )
    return Content("")
