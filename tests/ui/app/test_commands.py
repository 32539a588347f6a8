"""Every command of the screen, by every one of its keys."""

import json
from pathlib import Path

import pytest

from tests.ui.app.script import END, SECOND, Script, drive, screen, settle, text_of
from ui.app.batches import BatchesPanel
from ui.app.colours import theme_name
from ui.app.commands import APP_COMMANDS
from ui.app.dialogs import CLOSE, HelpDialog, RawDialog, RunsDialog
from ui.app.opened_pass import OpenedPass
from ui.app.panel_list import PLACES

CHECKS = {}


def checks(scope, *names):
    """Registers how commands of these names are checked, by a hand that can press their key."""

    def register(function):
        for name in names:
            CHECKS[scope, name] = function
        return function

    return register


# panels


@checks("app", *(place.name for place in PLACES))
async def shows_its_panel(hand):
    """The digit shows the panel and asks for its part alone."""
    await hand.keys("1" if hand.app.view != "live" else "2")
    await hand.press()
    name = hand.command.name
    assert hand.app.view == name
    assert hand.app.script.ask.panels == frozenset({name})
    assert all(panel.display for panel in hand.app.visible_panels())
    assert hand.app.query_one("#live").display is (name == "live")


# time


@checks("app", "pause")
async def rests_and_goes_on(hand):
    """Space rests at the moment shown; again follows the run."""
    await hand.press()
    assert hand.app.script.ask.at_ns == END
    assert "paused" in hand.text
    await hand.press()
    assert hand.app.script.ask.at_ns is None
    assert hand.app.looking.time.mode == "follow"


@checks("app", "earlier pass")
async def steps_back(hand):
    """Each step goes to the end of the pass before."""
    await hand.press()
    await hand.press()
    assert hand.app.script.ask.at_ns == 110 * SECOND + 10_000_000
    assert "Pass 11" in hand.text


@checks("app", "later pass")
async def steps_on(hand):
    """A step goes to the pass after; at the end it says that there is none."""
    await hand.keys("left_square_bracket", "left_square_bracket")
    await hand.press()
    assert hand.app.script.ask.at_ns == 120 * SECOND + 10_000_000
    await hand.press()
    assert "there is no such pass" in hand.text


@checks("app", "previous stop")
async def goes_to_the_previous_stop(hand):
    """The last pass is kv_capacity's; the previous such stop is pass 7."""
    await hand.press()
    await hand.press()
    assert "Pass 7 " in hand.text.replace("─", " ")


@checks("app", "next stop")
async def goes_to_the_next_stop(hand):
    """From pass 2, kv_capacity's, the next such stop is pass 7."""
    hand.app.looking.at(20 * SECOND + 10_000_000)
    await hand.press()
    assert hand.app.script.ask.at_ns == 70 * SECOND + 10_000_000


@checks("app", "play")
async def plays_on(hand):
    """From a moment of the past time goes on, a second a second."""
    hand.app.looking.at(50 * SECOND)
    await hand.press()
    hand.app.clock.now += 3 * SECOND
    hand.app.tick()
    assert hand.app.script.ask.at_ns == 53 * SECOND
    hand.app.tick()
    assert "playing 1x" in hand.text


@checks("app", "slower")
async def plays_slower(hand):
    """Half as fast."""
    hand.app.looking.at(50 * SECOND)
    await hand.keys("p")
    await hand.press()
    hand.app.clock.now += 4 * SECOND
    hand.app.tick()
    assert hand.app.script.ask.at_ns == 52 * SECOND


@checks("app", "faster")
async def plays_faster(hand):
    """Twice as fast."""
    hand.app.looking.at(50 * SECOND)
    await hand.keys("p")
    await hand.press()
    hand.app.clock.now += 4 * SECOND
    hand.app.tick()
    assert hand.app.script.ask.at_ns == 58 * SECOND


@checks("app", "go live")
async def follows_again(hand):
    """From the past back to the end."""
    await hand.keys("left_square_bracket", "left_square_bracket")
    await hand.press()
    assert hand.app.script.ask.at_ns is None
    assert hand.app.looking.time.mode == "follow"


@checks("app", "jump")
async def jumps(hand):
    """What is typed is where it goes."""
    await hand.press()
    await hand.keys(*"pass 5", "enter")
    assert hand.app.script.ask.at_ns == 50 * SECOND + 10_000_000
    assert "Pass 5 " in hand.text.replace("─", " ")


# looks


def filter_of(hand):
    """The filter of the passes."""
    return hand.app.script.ask.pass_filter


@checks("app", "filter")
async def filters(hand):
    """What is typed filters the passes; Escape leaves it as it was."""
    await hand.press()
    await hand.keys(*"!kv", "enter")
    assert filter_of(hand) == "!kv"
    assert "filter !kv" in hand.text
    await hand.press()
    await hand.keys(*"x", "escape")
    assert filter_of(hand) == "!kv"


@checks("app", "faults only")
async def shows_faults(hand):
    """Only passes that admitted nothing; again everything."""
    await hand.press()
    assert hand.app.script.ask.faults_only
    assert "only passes that admitted nothing" in hand.text
    await hand.press()
    assert not hand.app.script.ask.faults_only


@checks("app", "runs")
async def chooses_a_run(hand):
    """Another run of the list, at its end."""
    await hand.keys("space")
    await hand.press()
    assert isinstance(hand.app.screen, RunsDialog)
    assert "run2" in hand.text
    await hand.keys("down", "enter")
    assert hand.app.script.ask.run == 2
    assert hand.app.script.ask.at_ns is None


@checks("app", "raw record")
async def shows_the_raw_record(hand):
    """The record of the pass under the cursor."""
    await hand.press()
    assert isinstance(hand.app.screen, RawDialog)
    assert '{"number": 12}' in hand.text


@checks("app", "copy as JSON")
async def copies_json(hand):
    """The passes on the screen."""
    await hand.press()
    assert json.loads(hand.app.clipboard)[0]["number"] == 12


@checks("app", "copy as SQL")
async def copies_sql(hand):
    """A SELECT about the passes of this run."""
    await hand.press()
    assert "BETWEEN 1 AND 12" in hand.app.clipboard
    assert "'7f3a0000'" in hand.app.clipboard


@checks("app", "screenshot")
async def writes_a_picture(hand):
    """The file is named after run and time, and its name is told."""
    await hand.press()
    path = Path.cwd() / f"glassgate-7f3a0000-{hand.app.clock.wall_ns() // 1_000_000}.svg"
    assert path.read_text(encoding="utf-8").startswith("<svg")
    assert str(path) in [each.message.removeprefix("written to ") for each in hand.app._notifications]


@checks("app", "theme")
async def changes_the_theme(hand):
    """Dark, light, plain, dark."""
    seen = []
    for _ in range(3):
        await hand.press()
        seen.append(hand.app.theme)
    assert seen == [theme_name("light"), theme_name("plain"), theme_name("dark")]


@checks("app", "next part")
async def moves_the_focus(hand):
    """From the batches into the pass."""
    await hand.press()
    assert hand.app.panel is hand.app.opened


@checks("app", "previous part")
async def moves_the_focus_back(hand):
    """Back again."""
    await hand.keys("tab")
    await hand.press()
    assert hand.app.panel is hand.app.batches


@checks("app", "palette")
async def opens_the_palette(hand):
    """A command found by its name and run."""
    await hand.press()
    await hand.keys(*"go to the end")
    await hand.keys("escape")
    assert {each.title for each in hand.app.get_system_commands(hand.app.screen)} >= {"pause", "bar scale", "runs"}


@checks("app", "help")
async def helps(hand):
    """The panel's words and every key."""
    await hand.press()
    assert isinstance(hand.app.screen, HelpDialog)
    assert "Each line is one pass" in hand.text


@checks("app", "quit")
async def leaves(hand):
    """The app ends."""
    await hand.keys(hand.key)
    assert hand.app._exit


# batches


@checks("batches", "cursor down")
async def opens_the_pass_below(hand):
    """The pass under the cursor is opened."""
    await hand.press()
    assert hand.app.script.ask.open_pass == 11
    assert "Pass 11" in hand.text


@checks("batches", "cursor up")
async def follows_the_newest_at_the_top(hand):
    """At the top the cursor follows the newest pass."""
    await hand.keys("down")
    await hand.press()
    assert hand.app.script.ask.open_pass is None


@checks("batches", "page down", "last line")
async def goes_to_the_end(hand):
    """The last pass that is known."""
    await hand.press()
    assert hand.app.script.ask.open_pass == 1


@checks("batches", "page up", "first line")
async def goes_to_the_top(hand):
    """The newest."""
    await hand.keys("end")
    await hand.press()
    assert hand.app.script.ask.open_pass is None


@checks("batches", "open pass")
async def goes_into_the_pass(hand):
    """The focus is in the opened pass."""
    await hand.press()
    assert hand.app.panel is hand.app.opened


@checks("batches", "bar scale")
async def changes_the_scale(hand):
    """One scale for all tokens, or one each."""
    assert "computed 66k" in hand.text
    await hand.press()
    assert "a full bar is 120k" in hand.text


# the opened pass


async def _inside(hand, *keys):
    hand.app.opened.query_one("#decisions").focus()
    await hand.keys(*keys)


def _cursor(hand):
    return hand.app.opened.query_one("#decisions").cursor


@checks("opened", "cursor down")
async def moves_down_in_the_pass(hand):
    """A line down."""
    await _inside(hand)
    await hand.press()
    assert _cursor(hand) == 1


@checks("opened", "cursor up", "page up", "first line")
async def moves_up_in_the_pass(hand):
    """Up to the first line."""
    await _inside(hand, "down")
    await hand.press()
    assert _cursor(hand) == 0


@checks("opened", "page down", "last line")
async def moves_to_the_end_of_the_pass(hand):
    """Down to the last line."""
    await _inside(hand)
    await hand.press()
    assert _cursor(hand) == hand.app.opened.query_one("#decisions").count - 1


@checks("opened", "gates of a decision")
async def shows_the_gates(hand):
    """The ladder of the request that was kept out, in order, with what was not evaluated; again hides it."""
    await _inside(hand, "down", "down", "down", "down")
    await hand.press()
    text = hand.text
    assert "66,496      65,536         960  refuse" in text
    await hand.press()
    assert "refuse" not in hand.text


@checks("opened", "all gates")
async def shows_all_gates(hand):
    """The ladders of all decisions."""
    await _inside(hand)
    await hand.press()
    assert hand.app.opened._opened == {0, 1, 2}
    await hand.press()
    assert hand.app.opened._opened == set()


@checks("opened", "life of request")
async def shows_the_life(hand):
    """The request under the cursor in the request panel."""
    await _inside(hand, "down", "down")
    await hand.press()
    assert hand.app.view == "request"
    assert hand.app.script.ask.request == "a12"


@checks("opened", "back to batches")
async def goes_back(hand):
    """The focus is in the batches."""
    await _inside(hand)
    await hand.press()
    assert hand.app.panel is hand.app.batches


# dialogs


def dialog_check(scope, opened_by):
    """Checks of the keys that every dialog with lines has."""

    @checks(scope, "cursor down", "cursor up", "page down", "page up", "first line", "last line")
    async def moves(hand):
        """The cursor stays among the lines."""
        await hand.keys(opened_by)
        lines = hand.app.screen.lines
        down = hand.command.name in ("cursor down", "page down", "last line")
        if not down:
            await hand.keys("end")
        await hand.press()
        assert lines.cursor == (lines.count - 1 if down else 0)

    @checks(scope, "close")
    async def closes(hand):
        """The screen is there again."""
        await hand.keys(opened_by)
        await hand.press()
        assert len(hand.app.screen_stack) == 1
        assert not hand.app._exit


dialog_check("raw", "y")
dialog_check("runs", "r")


@checks("raw", "copy")
async def copies_the_record(hand):
    """The whole record."""
    await hand.keys("y")
    await hand.press()
    assert hand.app.clipboard == '{"number": 12}'


@checks("runs", "choose")
async def chooses(hand):
    """The run under the cursor."""
    await hand.keys("r")
    await hand.press()
    assert hand.app.script.ask.run == 1


@checks("help", "close")
async def closes_help(hand):
    """The screen is there again."""
    await hand.keys("question_mark")
    await hand.press()
    assert len(hand.app.screen_stack) == 1


COMMANDS = {
    "app": APP_COMMANDS,
    "batches": BatchesPanel.COMMANDS,
    "opened": OpenedPass.COMMANDS,
    "raw": RawDialog.KEYS,
    "runs": RunsDialog.KEYS,
    "help": HelpDialog.KEYS,
}
EVERY = [
    pytest.param(scope, command, key, id=f"{scope}-{command.name}-{key}")
    for scope, commands in COMMANDS.items()
    for command in commands
    for key in command.keys.split(",")
]


class Hand:
    """Presses keys: those of the command that is checked, and others."""

    def __init__(self, app, pilot, command, key):
        self.app, self.pilot, self.command, self.key = app, pilot, command, key

    async def press(self):
        """Press the command's key, and wait."""
        await self.keys(self.key)

    async def keys(self, *keys):
        """Press keys, and wait."""
        await self.pilot.press(*keys)
        if not self.app._exit:
            await settle(self.pilot)

    @property
    def text(self):
        """What is on the screen."""
        return text_of(self.app)


@pytest.mark.parametrize(("scope", "command", "key"), EVERY)
def test_every_key_does_what_its_command_says(scope, command, key, tmp_path, monkeypatch):
    """Each key of each command does what the command's help says; a command without a check here fails."""
    monkeypatch.chdir(tmp_path)
    app = screen(Script())

    async def do(pilot):
        await CHECKS[scope, command.name](Hand(app, pilot, command, key))

    drive(app, do)


def test_no_key_means_two_things():
    """Within a panel and within the screen each key is bound once."""
    for commands in COMMANDS.values():
        keys = [key for command in commands for key in command.keys.split(",")]
        assert len(keys) == len(set(keys))


def test_close_is_the_same_everywhere():
    """Every dialog closes by the same command."""
    assert all(CLOSE in COMMANDS[scope] for scope in ("raw", "runs", "help"))
