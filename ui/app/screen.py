"""The app: what each key does, and what the panels ask for."""

from __future__ import annotations

from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.whole_file import write_whole
from estimator.errors import GlassgateError
from ui.app.colours import THEMES, theme_name
from ui.app.commands import APP_COMMANDS
from ui.app.jump import HINT, Jump, parse_jump
from ui.app.panel import error_words
from ui.app.panel_list import PLACE_OF
from ui.app.shell import Shell
from ui.app.time_control import place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.app.batches import BatchesPanel
    from ui.app.panels.messages import FilterLog, FilterWaiting, NextEvent, OpenPass, OpenRequest, SearchRequest
    from ui.app.prompt import Prompt
    from ui.app.timeline import TimeBar
    from ui.view.reader import SnapshotReader
    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import RunChoice, Seek
    from ui.view.source import Source

_SEEKS: Final[dict[str, Seek]] = {"knob": "knob", "fault": "fault", "pass": "pass"}
_FILTERS: Final[dict[PanelName, str]] = {"live": "pass_filter", "waiting": "waiting_filter", "log": "log_filter"}
"""The field of `Ask` that filters a panel."""


class Glassgate(Shell):
    """The operator's screen. `beside` are two runs to be shown beside each other at once."""

    def __init__(self, reader: SnapshotReader, *, beside: tuple[Source, Source] | None = None, **more: Any) -> None:
        super().__init__(reader, **more)
        self._beside_first = beside

    def on_ready(self) -> None:
        """Two runs were named: show them over the screen of the first."""
        if self._beside_first is not None:
            self.show_beside(*self._beside_first)

    def action_pause(self) -> None:
        """Rest, or go on."""
        self.looking.pause()
        self.show_snapshot()

    def action_play(self) -> None:
        """Play on."""
        self.looking.play()
        self.show_snapshot()

    def action_speed(self, by: int) -> None:
        """Faster or slower."""
        self.looking.change_speed(by)
        self.show_snapshot()

    def action_step(self, by: int) -> None:
        """To the pass before or after."""
        self.batches.go_to(None)
        self.looking.seek("pass", back=by < 0)

    def action_event(self, by: int) -> None:
        """To the previous or next stop by the gate of the pass under the cursor, or of any gate."""
        row = self.batches.row
        gate = row.closed.gate if row is not None and row.closed is not None else ""
        self.seek_stop(gate, back=by < 0)

    def seek_stop(self, gate: str, *, back: bool) -> None:
        """To the next stop of a gate."""
        self.batches.go_to(None)
        self.looking.seek("stop", back=back, gate=gate)

    def action_live(self) -> None:
        """To the end, and follow."""
        self.batches.go_to(None)
        self.looking.words = ""
        self.looking.follow()

    def on_time_bar_clicked(self, event: TimeBar.Clicked) -> None:
        """To the moment clicked."""
        if self.snapshot is not None:
            self.batches.go_to(None)
            self.looking.at(place(self.snapshot.head, event.part))

    # the pass under the cursor

    def on_batches_panel_cursor_at(self, event: BatchesPanel.CursorAt) -> None:
        """Open the pass under the cursor."""
        self.looking.open(event.number)

    def on_batches_panel_open(self) -> None:
        """Go into it."""
        self.opened.query_one("#decisions").focus()

    def on_batches_panel_more(self, event: BatchesPanel.More) -> None:
        """Passes beyond those known."""
        self.looking.more(older=event.older)

    def on_opened_pass_back(self) -> None:
        """Back to the batches."""
        self.batches.query_one("#passes").focus()

    # what panels ask for

    async def on_open_request(self, event: OpenRequest) -> None:
        """Show the life of a request."""
        await self.find_request(event.request)

    async def find_request(self, text: str) -> None:
        """Look for a request in its panel."""
        await self.action_show("request")
        self.looking.want(request=text)

    def on_search_request(self, event: SearchRequest) -> None:
        """Look for a request."""
        self.looking.want(request=event.text)

    async def on_open_pass(self, event: OpenPass) -> None:
        """Go to a pass."""
        await self.go_to_pass(event.number)

    async def go_to_pass(self, number: int) -> None:
        """To the moment of a pass, beside the batches."""
        self.batches.go_to(None)
        self.looking.to_pass(number)
        await self.action_show("live")

    async def on_next_event(self, event: NextEvent) -> None:
        """To the next stop of a gate; from the end of the record, the last one."""
        await self.action_show("live")
        self.seek_stop(event.gate, back=not self.looking.time.past)

    def on_filter_waiting(self, event: FilterWaiting) -> None:
        """Filter the queue."""
        self.looking.want(waiting_filter=event.text, waiting_offset=event.offset)

    def on_filter_log(self, event: FilterLog) -> None:
        """Filter the log."""
        self.looking.want(log_filter=event.text, faults_only=event.faults_only)

    # filters and orders

    def action_filter(self) -> None:
        """Type a filter for the panel, or the id of a request where that is what the panel shows."""
        field = _FILTERS.get(self.view)
        if self.view == "request":
            self.prompt.open("request", self.looking.ask.request, "id of a request, or the beginning of one")
        elif field is None:
            self.tell(f"the panel {self.view} has nothing to filter; batches, waiting room and log do")
        else:
            hint = "gate, reason or request id; !text for all others; empty for everything"
            self.prompt.open("filter", getattr(self.looking.ask, field), hint)

    def action_faults(self) -> None:
        """Faults alone, or everything."""
        if self.view not in ("live", "log"):
            self.tell(f"the panel {self.view} has no faults to show alone; batches and log do")
            return
        faults = not self.looking.ask.faults_only
        self.batches.faults_only = faults
        self.looking.want(faults_only=faults)
        self.show_snapshot()

    def action_jump(self) -> None:
        """Type where to go."""
        self.prompt.open("jump", "", HINT)

    def on_prompt_left(self) -> None:
        """Nothing was typed."""
        self._leave_prompt()

    def _leave_prompt(self) -> None:
        self.prompt.close()
        self.focus_panel()

    async def on_prompt_typed(self, event: Prompt.Typed) -> None:
        """Do what was typed; what cannot be done leaves the prompt open."""
        try:
            jump = parse_jump(event.text, self.all_commands()) if event.kind == "jump" else None
        except ValueError as error:
            self.tell(str(error))
            return
        self._leave_prompt()
        if jump is not None:
            await self.go(jump)
        elif event.kind == "request":
            await self.find_request(event.text)
        else:
            self.looking.want(**{_FILTERS[self.view]: event.text, "open_pass": None, "passes_before": None})

    async def go(self, jump: Jump) -> None:
        """Do an order of the `:` prompt."""
        back = jump.what == "prev"
        if jump.what == "pass":
            await self.go_to_pass(int(jump.number))
        elif jump.what == "at":
            self.go_to_time(jump.text)
        elif jump.what in ("next", "prev") and jump.text in _SEEKS:
            self.batches.go_to(None)
            self.looking.seek(_SEEKS[jump.text], back=back)
        elif jump.what in ("next", "prev"):
            self.seek_stop(jump.text, back=back)
        elif jump.what == "live":
            self.action_live()
        elif jump.what == "speed":
            self.looking.set_speed(jump.number)
            self.action_play()
        elif jump.what == "run":
            self._choose(jump.text)
        elif jump.what == "request":
            await self.find_request(jump.text)
        elif jump.what == "panel":
            await self.action_show(PLACE_OF[jump.text].name)
        else:
            await self.action_by_name(jump.text)

    def _choose(self, name: str) -> None:
        """The run whose id begins so."""
        runs = self.snapshot.runs if self.snapshot is not None else ()
        found = [each for each in runs if each.run.startswith(name)]
        if found:
            self.look_at(found[0])
        else:
            self.tell(f"no run begins with {name!r}; r lists them")

    # dialogs

    def action_runs(self) -> None:
        """Choose a run."""
        if self.snapshot is None:
            return
        head = self.snapshot.head
        from ui.app.dialogs import RunsDialog  # noqa: PLC0415 - dialogs are made when they are first wanted

        self.push_screen(RunsDialog(self.snapshot.runs, (head.run, head.rank)), self.look_at)

    def look_at(self, choice: RunChoice | None) -> None:
        """Look at another run."""
        if choice is not None:
            self.batches.go_to(None)
            self.looking.run(choice)

    def action_beside(self) -> None:
        """Choose a run to be shown beside this one."""
        if self.snapshot is None:
            return
        here = self.snapshot.choice
        others = tuple(each for each in self.snapshot.runs if each is not here)
        if here is None or not others:
            self.tell("there is no other run to show beside this one; glassgate whatif --keep makes one of it")
            return
        from ui.app.dialogs import RunsDialog  # noqa: PLC0415 - as above

        title = "Which run beside this one (started, UTC)"
        self.push_screen(RunsDialog(others, ("", 0), title), partial(self._put_beside, here))

    def _put_beside(self, here: RunChoice, other: RunChoice | None) -> None:
        from ui.view.beside_reader import source_of  # noqa: PLC0415 - as above

        if other is None:
            return
        try:
            self.show_beside(source_of(here), source_of(other))
        except GlassgateError as error:
            self.tell(str(error))

    def show_beside(self, left: Source, right: Source) -> None:
        """Two runs beside each other, over the screen."""
        from ui.app.beside import BesideScreen  # noqa: PLC0415 - as above
        from ui.view.beside_reader import BesideReader  # noqa: PLC0415 - as above

        self.push_screen(BesideScreen(BesideReader(left, right)))

    def action_raw(self) -> None:
        """Show the raw record."""
        raw = self._asked(self.panel.raw)
        if raw is None:
            self.tell("there is no raw record of what the cursor is on")
            return
        from ui.app.dialogs import RawDialog  # noqa: PLC0415 - as above

        self.push_screen(RawDialog(f"Raw record: {self.panel.border_title}", raw))

    def _asked(self, what: Callable[[], str | None]) -> str | None:
        """What a panel gives; a fault of the panel is told and gives nothing."""
        try:
            return what()
        except Exception as error:  # noqa: BLE001 - a fault of one panel must not take the screen from the operator
            self.tell(f"{self.panel.TITLE} failed: {error_words(error)}; the record is untouched, report this")
            return None

    def action_help(self) -> None:
        """What the panel shows, and every key."""
        from ui.app.dialogs import HelpDialog  # noqa: PLC0415 - as above

        panel = self.panel
        sections = ((f"Keys of {panel.TITLE}", panel.COMMANDS), ("Everywhere", APP_COMMANDS))
        self.push_screen(HelpDialog(f"Help: {panel.TITLE}", panel.HELP, sections))

    # copies

    def action_copy_json(self) -> None:
        """Copy the panel as JSON."""
        self._copy(self._asked(self.panel.as_json), "JSON")

    def action_copy_sql(self) -> None:
        """Copy the panel's question as SQL."""
        self._copy(self._asked(self.panel.as_sql), "SQL")

    def _copy(self, text: str | None, what: str) -> None:
        if not text:
            self.tell(f"{self.panel.TITLE} has no {what} to copy")
            return
        self.copy_to_clipboard(text)
        self.tell(f"{self.panel.TITLE} copied as {what}, where the terminal allows it (OSC 52)")

    def action_picture(self) -> None:
        """Write the screen to a file, or hand it to the browser that shows it."""
        head = self.snapshot.head if self.snapshot is not None else None
        name = f"glassgate-{head.run if head else 'screen'}-{self.clock.wall_ns() // 1_000_000}.svg"
        if self.is_web:
            self.deliver_text(StringIO(self.export_screenshot()), save_directory=".", save_filename=name)
            self.tell(f"handed to the browser as {name}")
            return
        path = Path.cwd() / name
        try:
            write_whole(path, self.export_screenshot().encode())
        except OSError as error:
            self.tell(f"{path}: {error.strerror}; start glassgate in a folder that can be written")
        else:
            self.tell(f"written to {path}")

    def action_next_theme(self) -> None:
        """The next theme."""
        names = [theme_name(each) for each in THEMES]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
