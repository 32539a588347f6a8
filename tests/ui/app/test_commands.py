"""Every command that works everywhere on the screen, by every one of its keys."""

import json
from pathlib import Path

import pytest

from tests.ui.app.hand import Checks
from tests.ui.app.script import END, SECOND
from ui.app.colours import theme_name
from ui.app.commands import APP_COMMANDS
from ui.app.dialogs import HelpDialog, RawDialog, RunsDialog
from ui.app.panel_list import PLACES

checks = Checks(app=APP_COMMANDS)

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


@checks("app", "beside")
async def chooses_a_run_beside_this_one(hand):
    """The other runs are listed; what comes of one is in test_beside."""
    await hand.press()
    assert isinstance(hand.app.screen, RunsDialog)
    assert [each.run for each in hand.app.screen.run_lines.rows] == ["run2"]


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


@checks("app", "suspend")
async def rests_in_the_shell(hand):
    """The app is asked to rest; tests/ui/app/test_terminal.py does so in a terminal."""
    asked = []
    hand.app.action_suspend_process = lambda: asked.append("rest")
    await hand.press()
    assert asked == ["rest"]


@checks("app", "quit")
async def leaves(hand):
    """The app ends."""
    await hand.keys(hand.key)
    assert hand.app._exit


@pytest.mark.parametrize(("scope", "command", "key"), checks.every)
def test_every_key_does_what_its_command_says(scope, command, key, tmp_path, monkeypatch):
    """Each key of each command does what the command's help says; a command without a check here fails."""
    monkeypatch.chdir(tmp_path)
    checks.run(scope, command, key)


def test_no_key_means_two_things():
    """Each key is bound once where it works."""
    for commands in checks.commands.values():
        keys = [key for command in commands for key in command.keys.split(",")]
        assert len(keys) == len(set(keys))
