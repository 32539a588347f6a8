"""Every command of the batches, of the opened pass and of the dialogs, by every one of its keys."""

import pytest

from tests.ui.app.hand import Checks
from ui.app.batches import BatchesPanel
from ui.app.dialogs import CLOSE, HelpDialog, RawDialog, RunsDialog
from ui.app.opened_pass import OpenedPass

checks = Checks(
    batches=BatchesPanel.COMMANDS,
    opened=OpenedPass.COMMANDS,
    raw=RawDialog.KEYS,
    runs=RunsDialog.KEYS,
    help=HelpDialog.KEYS,
)

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


def test_close_is_the_same_everywhere():
    """Every dialog closes by the same command."""
    assert all(CLOSE in checks.commands[scope] for scope in ("raw", "runs", "help"))
