"""The shell of the screen: it mounts the panels, shows each snapshot in those that are visible, and runs commands."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.app import SystemCommand
from textual.containers import Container, Horizontal, Vertical
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from ui.app.batches import BatchesPanel
from ui.app.colours import theme_name, themes
from ui.app.command import bindings
from ui.app.commands import APP_COMMANDS
from ui.app.driver import TerminalDriver
from ui.app.head import Headline, is_old
from ui.app.keys_bar import KeysBar
from ui.app.layout import BREAKPOINTS, CSS
from ui.app.looking import Looking
from ui.app.moments import moment_of_day, within
from ui.app.notice import Notice, notice_of
from ui.app.opened_pass import OpenedPass
from ui.app.ordered_keys import OrderedKeys
from ui.app.panel import Panel
from ui.app.panel_list import BESIDE, panel_class
from ui.app.prompt import Prompt
from ui.app.timeline import TimeBar
from ui.view.clock import SystemClock
from ui.view.snapshot import Ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.driver import Driver
    from textual.events import DescendantFocus
    from textual.screen import Screen

    from ui.app.colours import ThemeName
    from ui.app.command import Command
    from ui.view.clock import Clock
    from ui.view.reader import SnapshotReader
    from ui.view.snapshot import Panel as PanelName
    from ui.view.snapshot import Snapshot

TICK_SECONDS: Final = 0.25


class Arrived(Message):
    """The reader handed over a snapshot. One that nobody has taken yet gives way to the next."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Whether this says all that an earlier message would have."""
        return isinstance(message, Arrived)


class Shell(OrderedKeys):
    """The screen without what its keys do, over a reader of snapshots.

    `readonly` turns off every command that asks for a change. `at` is a time to go to once the run is known, as the
    `:` prompt takes it.
    """

    CSS = CSS
    TITLE = "Glassgate"
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP_COMMANDS)]

    def __init__(
        self,
        reader: SnapshotReader,
        *,
        theme: ThemeName = "dark",
        readonly: bool = False,
        ask: Ask | None = None,
        at: str = "",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(ansi_color=True if theme == "plain" else None)
        for each in themes():
            self.register_theme(each)
        self.theme = theme_name(theme)
        self.readonly = readonly
        self.view: PanelName = "live"
        self.snapshot: Snapshot | None = None
        self._reader = reader
        self.clock = clock or SystemClock()
        self.looking = Looking(reader.ask, self.clock, ask or Ask())
        self._at = at
        self._full: dict[PanelName, Panel] = {}
        self.batches = BatchesPanel()
        self.opened = OpenedPass()
        self._body = Container(id="body")
        self._headline = Headline()
        self._notice = Notice()
        self._time_bar = TimeBar()
        self.prompt = Prompt()
        self._keys = KeysBar(self.is_on)
        self._beside: list[Panel] = []
        self.complete = asyncio.Event()
        """Set once every part that the first picture needs is mounted."""

    def get_driver_class(self) -> type[Driver]:
        """Ours in a terminal, what textual-serve names in a browser."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def compose(self) -> ComposeResult:
        """Headline, panels, bar of time, and the footer."""
        yield self._headline
        yield self._notice
        with self._body, Horizontal(id="live"):
            with Vertical(id="left"):
                yield self.batches
                yield self.opened
            yield Vertical(id="right")
        yield self._time_bar
        yield self.prompt
        yield self._keys

    def on_mount(self) -> None:
        """Begin to ask; the small panels come with the first picture already there."""
        if not self.is_headless:
            self._leave_on_signals()
        self.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.batches.query_one("#passes").focus()
        self._reader.start(self._deliver)
        self.looking.want()
        self.set_interval(TICK_SECONDS, self.tick)
        self.call_after_refresh(self._mount_small)

    def _leave_on_signals(self) -> None:
        """Give the terminal back when the process is told to end, or its terminal has gone."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(each, partial(self.exit, None, 128 + each))

    def _deliver(self, snapshot: Snapshot) -> None:
        """Called by the reader, from any thread."""
        self.post_message(Arrived(snapshot))

    async def _mount_small(self) -> None:
        waiting = panel_class("waiting")(small=True)
        beside = [panel_class(name)(small=True) for name in BESIDE]
        self._beside = [waiting, *beside]
        left, right = self.query_one("#left"), self.query_one("#right")
        if not (left.is_attached and right.is_attached):  # the screen ends before all of it came up
            return
        await left.mount(waiting)
        await right.mount(*beside)
        self.show_snapshot()
        self.call_after_refresh(self.complete.set)

    def on_unmount(self) -> None:
        """End the reader."""
        self._reader.close()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """The screen as an SVG that fetches nothing: without a font of its own it falls back to a monospaced one."""
        svg = super().export_screenshot(title=title, simplify=simplify)
        return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)

    # what arrives

    def on_arrived(self, event: Arrived) -> None:
        """Take a snapshot and show it."""
        self.snapshot = event.snapshot
        self.looking.answered(event.snapshot)
        if self._at and event.snapshot.head.first_ns is not None:
            at, self._at = self._at, ""
            self.go_to_time(at)
        self.show_snapshot()

    def tick(self) -> None:
        """Let time go on, and what is said of ages."""
        self.looking.tick()
        if self.snapshot is not None:
            self._say()
            self._time_bar.show(self.snapshot.head, self.looking.time)

    def _say(self) -> None:
        """Say what is wrong or missing, or nothing."""
        self._notice.say(notice_of(self.snapshot, self.looking.words, self.clock.wall_ns()))

    def show_snapshot(self) -> None:
        """Draw the snapshot wherever it is visible."""
        snapshot = self.snapshot
        self._say()
        if snapshot is None or not self._body.is_attached:
            return
        self._headline.show(snapshot.head, past=not snapshot.head.following)
        self._time_bar.show(snapshot.head, self.looking.time)
        self._body.set_class(is_old(snapshot.head), "old")
        for panel in self.visible_panels():
            panel.present(snapshot)
        self._keys.show(self.view, self.panel.COMMANDS)

    def visible_panels(self) -> list[Panel]:
        """The panels on the screen."""
        if self.view == "live":
            return [self.batches, self.opened, *self._beside]
        return [self._full[self.view]] if self.view in self._full else []

    def _repaint(self) -> None:
        """Draw all of it anew, in the colours of another theme."""
        for panel in (*self._beside, *self._full.values()):
            redraw = getattr(panel, "redraw", None)
            if redraw is not None:
                redraw()
        self.refresh(layout=True)

    # commands

    @property
    def panel(self) -> Panel:
        """The panel that has the focus, or else the first that is visible."""
        focused = self.screen_stack[0].focused if self.screen_stack else None
        if focused is not None:
            for node in focused.ancestors_with_self:
                if isinstance(node, Panel):
                    return node
        return self.visible_panels()[0] if self.visible_panels() else self.batches

    def is_on(self, command: Command) -> bool:
        """Whether a command may be used."""
        if self.readonly and command.changes:
            return False
        name, action = self.view, command.action.split("(")[0]
        if action == "filter" and name not in ("live", "waiting", "log"):
            return False
        if action == "faults" and name not in ("live", "log"):
            return False
        panel = self.panel
        return command not in panel.COMMANDS or panel.check_action(action, ()) is not None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What asks for a change is off where the screen is read-only; the screen's own keys rest under a dialog."""
        del parameters
        if self.readonly and any(each.changes and each.action.split("(")[0] == action for each in APP_COMMANDS):
            return None
        return True

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """The footer tells the keys of the panel that has the focus."""
        del event
        self._keys.show(self.view, self.panel.COMMANDS)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every command, for the palette."""
        del screen
        panel = self.panel
        for command in panel.COMMANDS:
            if self.is_on(command):
                yield SystemCommand(command.name, command.help, partial(self._run, command, panel))
        for command in APP_COMMANDS:
            if self.is_on(command) and command.action != "command_palette":
                yield SystemCommand(command.name, command.help, partial(self._run, command, None))

    async def _run(self, command: Command, panel: Panel | None) -> None:
        if self.is_on(command):
            await self.run_action(command.action, default_namespace=panel or self)

    async def action_by_name(self, name: str) -> None:
        """Run a command by its name, of the focused panel first."""
        for panel, commands in ((self.panel, self.panel.COMMANDS), (None, APP_COMMANDS)):
            for command in commands:
                if command.name == name:
                    await self._run(command, panel)
                    return

    async def action_show(self, name: PanelName) -> None:
        """Show a panel; all but the batches have the screen to themselves."""
        self.view = name
        self.query_one("#live").display = name == "live"
        if name != "live" and name not in self._full:
            panel = self._full[name] = panel_class(name)()
            await self._body.mount(panel)
        for each, panel in self._full.items():
            panel.display = each == name
        self.focus_panel()
        self.show_snapshot()
        self.looking.show(frozenset({name}))

    def focus_panel(self) -> None:
        """Put the focus into the panel that is shown, where its keys are."""
        if self.view == "live":
            self.batches.query_one("#passes").focus()
            return
        shown = self._full[self.view]
        inside = next((each for each in shown.query("*") if each.focusable), None)
        if inside is not None:
            inside.focus()

    def all_commands(self) -> tuple[Command, ...]:
        """Every command that may be used, those of the focused panel first."""
        return tuple(each for each in (*self.panel.COMMANDS, *APP_COMMANDS) if self.is_on(each))

    def tell(self, words: str) -> None:
        """Say something for a few seconds."""
        self.notify(words, timeout=6, markup=False)

    def go_to_time(self, text: str) -> None:
        """Rest at the time that was written, as the `:` prompt takes it."""
        if self.snapshot is None:
            return
        head = self.snapshot.head
        try:
            at_ns, moved = within(head, moment_of_day(head, text))
        except ValueError as error:
            self.tell(str(error))
            return
        self.looking.at(at_ns)
        if moved:
            self.tell(f"{text} {moved}")
