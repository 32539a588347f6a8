"""The screen as a whole: layouts, focus, mouse, themes, read-only, the palette, and what panels ask for."""

import pytest
from textual.color import Color

from tests.ui.app.script import SECOND, Script, drive, line_with, pass_row, screen, settle, text_of
from ui.app.batches import BatchesPanel
from ui.app.command import Command, bindings
from ui.app.commands import APP_COMMANDS
from ui.app.opened_pass import OpenedPass
from ui.app.panels.messages import FilterLog, FilterWaiting, NextEvent, OpenPass, OpenRequest, SearchRequest
from ui.app.shell import Arrived
from ui.view.snapshot import Ask


@pytest.mark.parametrize(
    ("size", "right"), [((80, 24), False), ((99, 30), False), ((100, 30), True), ((160, 50), True)]
)
def test_the_right_column_is_there_when_there_is_room(size, right):
    """At 80x24 the left column stands alone; from 100 columns on the small panels are beside it."""
    text = drive(screen(), size=size)
    assert ("Gates" in text) == right
    assert ("Host hits" in text) == right
    for title in ("Batches", "Pass 12", "Waiting room"):
        assert title in text


def test_a_resize_changes_the_layout():
    """The columns follow the terminal while it runs."""
    app = screen()
    seen = []

    async def do(pilot):
        for width in (160, 80, 120):
            await pilot.resize_terminal(width, 30)
            await settle(pilot)
            seen.append("Host hits" in text_of(app))

    drive(app, do)
    assert seen == [True, False, True]


@pytest.mark.parametrize("size", [(20, 10), (40, 12), (80, 24), (300, 100)])
def test_no_size_is_too_small_or_too_large(size):
    """The batches are there at any size, without an error."""
    assert "12   2" in drive(screen(), size=size)


def test_the_cursor_keeps_to_its_pass_while_new_ones_come():
    """A pass that is looked at stays under the cursor; the newest is followed only from the top."""
    script = Script()
    app = screen(script)
    seen = []

    async def do(pilot):
        await pilot.press("down", "down")
        await settle(pilot)
        script.rows = [pass_row(13), *script.rows]
        app.reader.again()
        await settle(pilot)
        seen.append((app.batches.row.number, script.ask.open_pass))
        await pilot.press("home")
        await settle(pilot)
        script.rows = [pass_row(14), *script.rows]
        app.reader.again()
        await settle(pilot)
        seen.append((app.batches.row.number, script.ask.open_pass))

    drive(app, do)
    assert seen == [(10, 10), (14, None)]


def test_a_click_opens_a_pass_and_another_goes_into_it():
    """The mouse does what the keys do."""
    app = screen()
    seen = []

    async def do(pilot):
        lines = app.query_one("#passes")
        await pilot.click(lines, offset=(5, 3))
        await settle(pilot)
        seen.append(app.script.ask.open_pass)
        await pilot.click(lines, offset=(5, 3))
        await settle(pilot)
        seen.append(app.panel is app.opened)

    drive(app, do)
    assert seen == [9, True]


def test_a_click_on_the_footer_does_what_the_key_does():
    """The word `gates` in the footer shows the gates."""
    app = screen()

    async def do(pilot):
        at = line_with(text_of(app), "3 gates").index("gates")
        await pilot.click(app._keys, offset=(at, 0))
        await settle(pilot)

    drive(app, do)
    assert app.view == "gates"


def test_the_footer_tells_the_keys_of_the_focused_panel():
    """They change with the focus."""
    app = screen()
    seen = []

    async def do(pilot):
        seen.append(text_of(app).splitlines()[-1])
        await pilot.press("tab")
        await settle(pilot)
        seen.append(text_of(app).splitlines()[-1])

    drive(app, do, size=(160, 40))
    assert "Enter open" in seen[0]
    assert "Esc back" in seen[1]


def test_the_footer_follows_what_can_be_done_now():
    """What stops being possible goes from the footer with the next picture, without a move of the focus."""
    app = screen()
    app.batches.check_action = lambda action, _: None if action == "open" and app.looking.time.past else True
    seen = []

    async def do(pilot):
        for key in ("space", "l"):
            seen.append("Enter open" in text_of(app).splitlines()[-1])
            await pilot.press(key)
            await settle(pilot)
        seen.append("Enter open" in text_of(app).splitlines()[-1])

    drive(app, do, size=(160, 40))
    assert seen == [True, False, True]


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_the_footer_always_has_the_panels_help_and_the_way_out(width):
    """Whatever else fits; a narrow one names the panel that is shown alone."""
    last = drive(screen(), size=(width, 30)).splitlines()[-1]
    for number, word in enumerate(("live", "waiting", "gates", "hits", "buffers", "knobs", "request", "log"), 1):
        assert (f"{number} {word}" if width >= 100 or number == 1 else f" {number} ") in last
    assert "?" in last
    assert last.rstrip().endswith(("q", "quit"))
    assert len(last) <= width


@pytest.mark.parametrize("theme", ["dark", "light", "plain"])
def test_every_theme_draws_the_same_text(theme):
    """Nothing is told by colour alone."""
    assert drive(screen(theme=theme)) == drive(screen())


def test_without_colour_no_cell_has_one():
    """The plain theme leaves every cell in the terminal's own colours."""
    app = screen(theme="plain")
    coloured = []

    async def do(pilot):
        lines = pilot.app.screen._compositor.render_strips(pilot.app.screen.size)
        styles = {segment.style for line in lines for segment in line if segment.style is not None}
        colours = {colour for style in styles for colour in (style.color, style.bgcolor) if colour is not None}
        coloured.extend(colour for colour in colours if Color.from_rich_color(colour).ansi != -1)

    drive(app, do)
    assert coloured == []


def test_without_colour_the_cursor_is_reversed():
    """The line under the cursor stands out in any theme."""
    app = screen(theme="plain")
    seen = []

    async def do(pilot):
        strip = pilot.app.query_one("#passes").render_line(0)
        seen.append(all(segment.style.reverse for segment in strip))

    drive(app, do)
    assert seen == [True]


def test_the_palette_has_every_command_of_the_screen_and_of_the_focused_panel():
    """One definition gives key, footer, help and palette."""
    app = screen()
    seen = []

    async def do(pilot):
        seen.extend((each.title, each.help) for each in app.get_system_commands(pilot.app.screen))

    drive(app, do)
    wanted = [*BatchesPanel.COMMANDS, *(each for each in APP_COMMANDS if each.name != "palette")]
    assert seen == [(each.name, each.help) for each in wanted]


def test_a_command_is_run_from_the_palette():
    """What it finds by a name it does."""
    app = screen()

    async def do(pilot):
        await pilot.press("ctrl+p")
        await settle(pilot)
        await pilot.press(*"bar scale")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await pilot.pause(0.1)

    assert "a full bar is" in drive(app, do)


class Turning(OpenedPass):
    """A panel with a command that asks for a change."""

    COMMANDS = (*OpenedPass.COMMANDS, Command("turn", "x", "turn", "turn", "Turn a knob.", changes=True))
    turned = 0

    def action_turn(self):
        """Count."""
        self.turned += 1


@pytest.mark.parametrize("readonly", [True, False])
def test_readonly_turns_off_whatever_asks_for_a_change(readonly):
    """Its key does nothing, it is not in the palette, and it is shown as off; everything else works."""
    app = screen(readonly=readonly)
    app.opened = Turning()
    seen = []

    async def do(pilot):
        await pilot.press("tab", "x")
        await settle(pilot)
        seen.append(app.opened.turned)
        seen.append("turn" in [each.title for each in app.get_system_commands(app.screen)])
        seen.append(app.opened.check_action("turn", ()))
        await app.action_by_name("turn")
        seen.append(app.opened.turned)

    drive(app, do)
    assert seen == ([0, False, None, 0] if readonly else [1, True, True, 2])


def test_bindings_come_from_commands():
    """A command without keys is bound to none."""
    made = bindings((Command("a", "x,y", "do", "word", "Help."), Command("b", "", "other", "", "Palette alone.")))
    assert [(each.key, each.action, each.description, each.show) for each in made] == [("x,y", "do", "Help.", True)]


@pytest.mark.parametrize(("message", "check"), [
    (OpenRequest("a91c"), lambda app: (app.view, app.script.ask.request) == ("request", "a91c")),
    (SearchRequest("a9"), lambda app: app.script.ask.request == "a9"),
    (OpenPass(5), lambda app: app.script.ask.at_ns == 50 * SECOND + 10_000_000 and app.view == "live"),
    (NextEvent("kv_capacity"), lambda app: app.script.ask.at_ns == 120 * SECOND + 10_000_000),
    (FilterWaiting("kv", 9), lambda app: (app.script.ask.waiting_filter, app.script.ask.waiting_offset) == ("kv", 9)),
    (FilterLog("x", faults_only=True), lambda app: app.script.ask.log_filter == "x" and app.script.ask.faults_only),
])  # fmt: skip
def test_what_a_panel_asks_for_is_done(message, check):
    """A request, a pass, an event or a filter, wherever a panel posts it."""
    app = screen()

    async def do(pilot):
        app.opened.post_message(message)
        await settle(pilot)

    drive(app, do)
    assert check(app)


def test_the_reader_is_closed_when_the_screen_ends():
    """Nothing is left open."""
    app = screen()
    drive(app)
    assert app.script.closed


def test_a_snapshot_that_comes_while_the_screen_ends_is_let_be():
    """The reader may hand over one more, and a picture that was put off may be due."""
    app = screen()
    drive(app)
    shown = app.snapshot
    app.script.rows = []
    app.on_arrived(Arrived(app.script.answer(Ask(rows=7))))
    assert app.batches.snapshot is shown


def test_it_begins_where_it_was_asked_to():
    """`--at` goes to its moment once the run is known; an ask names another run."""
    app = screen(at="+60", ask=Ask(run=7))
    drive(app)
    assert (app.script.ask.at_ns, app.script.ask.run) == (60 * SECOND, 7)


def test_a_run_without_passes_says_what_to_do():
    """An empty record is no empty screen."""
    assert "no pass yet: the engine lives and has admitted nothing" in drive(screen(Script(rows=[])))
    over = Script(rows=[], presence="ended")
    assert "this record holds no pass at this moment" in drive(screen(over))


def test_a_filter_that_nothing_fits_says_so():
    """And how to be rid of it."""
    filtered = {"pass_filter": "zzz"}
    assert "no pass fits the filter" in drive(screen(Script(rows=[]), ask=Ask(**filtered)))


def test_nothing_is_drawn_again_when_nothing_changed():
    """The same snapshot twice refreshes neither the headline nor the passes."""
    app = screen()
    drawn = []

    async def do(pilot):
        widgets = (app._headline, app.query_one("#passes"), app.query_one("#decisions"), app._keys)
        for widget in widgets:
            widget.refresh = lambda *_, name=widget, **__: drawn.append(name)
        app.reader.again()
        await settle(pilot)
        assert drawn == []

    drive(app, do)
