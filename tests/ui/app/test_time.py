"""Time: moments as they are written and typed, pausing, playing, seeking, and what is asked for then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui.app.script import END, SECOND, Script, ScriptedClock, drive, head, pass_row, run_choice, screen, settle
from ui.app.commands import APP_COMMANDS
from ui.app.jump import parse_jump
from ui.app.looking import Looking
from ui.app.moments import clock, day_and_clock, into_run, moment_of_day, within
from ui.app.time_control import SPEEDS, TimeControl, part_of, place
from ui.app.timeline import bar_of_time
from ui.view.snapshot import MOST_ROWS, Ask

FILTER = {"pass_filter": "kv"}

# moments


@pytest.mark.parametrize(("text", "at_ns"), [
    ("00:01:30", 90 * SECOND), ("00:01", 60 * SECOND), ("+90", 90 * SECOND), ("+1.5m", 90 * SECOND),
    ("+1h", 3_600 * SECOND), ("-30", END - 30 * SECOND), ("-1m", END - 60 * SECOND),
])  # fmt: skip
def test_a_time_is_one_of_day_or_counted_from_an_end(text, at_ns):
    """UTC times of day, seconds or minutes into the run, or back from what was recorded last."""
    assert moment_of_day(head(), text) == at_ns


@pytest.mark.parametrize("text", ["noon", "25:00", "+x", "-", "+-5", "12:99:00", "", "+nan", "+1e99"])
def test_what_is_no_time_says_how_to_write_one(text):
    """The words name what was typed and show what is possible."""
    with pytest.raises(ValueError, match=r"is no time; write"):
        moment_of_day(head(), text)


def test_a_time_outside_the_run_is_moved_into_it_and_told():
    """Before the beginning the beginning is shown, after the end the end; a run that goes on has none yet."""
    assert within(head(), 90 * SECOND) == (90 * SECOND, "")
    assert within(head(), -SECOND) == (0, "is before the run began, at 00:00:00; its beginning is shown")
    at_ns, told = within(head(presence="ended"), END + 1)
    assert (at_ns, told[:25]) == (END, "is after the run's end, a")
    assert within(head(presence="live"), END + 1)[1].startswith("is after what was recorded last, at ")


def test_a_time_of_day_before_the_beginning_is_of_the_next_day():
    """A run over midnight: 00:10 is after 23:50."""
    late = head(wall_ns=1_767_225_600 * SECOND - 600 * SECOND + END)
    assert moment_of_day(late, "00:10") == 20 * 60 * SECOND


def test_without_an_anchor_a_time_of_day_cannot_be_meant():
    """A record that does not say what time it was is asked in seconds into the run, and is told so."""
    bare = head(wall_ns=None)
    with pytest.raises(ValueError, match=r"write \+SECONDS"):
        moment_of_day(bare, "12:00")
    assert moment_of_day(bare, "+5") == 5 * SECOND
    assert clock(bare, 65 * SECOND) == "+1 min 5 s"


def test_moments_are_utc_and_absent_where_unknown():
    """Times of day, the date of a run, and how far into it."""
    assert clock(head(), 90 * SECOND) == "00:01:30"
    assert day_and_clock(1_767_225_600 * SECOND) == "2026-01-01 00:00:00"
    assert into_run(head(), 90 * SECOND) == "+1 min 30 s"
    assert day_and_clock(None) == into_run(head(), None) == "—"


@given(st.floats(0, 1))
def test_a_part_of_a_run_and_its_moment_are_each_others_inverse(part):
    """A click on the bar of time goes where it was clicked."""
    at_ns = place(head(), part)
    assert part_of(head(), at_ns) == pytest.approx(part, abs=1e-6)


# the time control


def test_it_follows_until_it_is_paused():
    """A run that is followed has no moment of its own."""
    time = TimeControl()
    assert (time.mode, time.at_ns, time.past) == ("follow", None, False)
    time.pause(5)
    assert (time.mode, time.at_ns, time.past) == ("paused", 5, True)
    time.follow()
    assert (time.mode, time.at_ns) == ("follow", None)


def test_playing_goes_on_at_its_speed_and_then_follows_a_run_that_lives():
    """Seconds of the run a second; at the end of what is recorded it follows."""
    time = TimeControl()
    time.at_ns = 100 * SECOND
    time.play(head(), 0)
    time.set_speed(10, 0)
    assert time.tick(head(), SECOND)
    assert time.at_ns == 110 * SECOND
    assert time.tick(head(), 2 * SECOND)
    assert time.tick(head(), 3 * SECOND)
    assert time.mode == "follow"
    assert not time.tick(head(), 4 * SECOND)


def test_playing_an_ended_run_from_its_end_begins_anew_and_rests_at_its_end():
    """There is nothing to follow in a run that is over."""
    over = head(presence="ended")
    time = TimeControl()
    time.play(over, 0)
    assert time.at_ns == 0
    time.set_speed(300, 0)
    time.tick(over, SECOND)
    assert (time.mode, time.at_ns) == ("paused", END)


def test_a_change_of_speed_does_not_move_the_moment():
    """Time goes on from where it is, faster or slower, within bounds."""
    time = TimeControl()
    time.at_ns = 10 * SECOND
    time.play(head(), 0)
    time.tick(head(), 5 * SECOND)
    time.change_speed(1, 5 * SECOND)
    time.tick(head(), 6 * SECOND)
    assert time.at_ns == 17 * SECOND
    for _ in range(50):
        time.change_speed(1, 6 * SECOND)
    assert time.speed == SPEEDS[-1]


# what is asked for


class Asking:
    """A `Looking` on a script without a screen."""

    def __init__(self, script=None):
        self.script = script or Script()
        self.clock = ScriptedClock()
        self.waiting = []
        self.looking = Looking(self.waiting.append, self.clock, Ask())
        self.looking.want()
        self.go()

    def go(self):
        """Answer until nothing more is asked."""
        while self.waiting:
            self.looking.answered(self.script.answer(self.waiting.pop(0)))
        return self.script.ask


def test_space_goes_on_as_it_went_before():
    """Paused while following it follows again, paused while playing it plays on."""
    asking = Asking()
    asking.looking.pause()
    assert asking.go().at_ns == END
    asking.looking.pause()
    assert asking.go().at_ns is None
    asking.looking.at(50 * SECOND)
    asking.looking.play()
    asking.looking.pause()
    assert asking.looking.time.mode == "paused"
    asking.looking.pause()
    assert asking.looking.time.mode == "playing"


def test_space_in_a_run_that_is_over_plays():
    """Nothing is there to follow, so the second press plays."""
    asking = Asking(Script(presence="ended"))
    asking.looking.pause()
    asking.looking.pause()
    assert asking.looking.time.mode == "playing"


def test_a_seek_rests_at_what_it_found():
    """The moment of the answer is asked for from then on, and the seek is not repeated."""
    asking = Asking()
    asking.looking.seek("stop", back=True, gate="kv_capacity")
    ask = asking.go()
    assert (ask.seek, ask.at_ns) == ("", 120 * SECOND + 10_000_000)
    assert asking.looking.time.mode == "paused"


def test_a_seek_that_finds_nothing_stays_where_it_is():
    """And says so."""
    asking = Asking()
    asking.looking.at(120 * SECOND + 20_000_000)
    asking.looking.seek("pass", back=False)
    assert asking.go().at_ns == 120 * SECOND + 20_000_000
    assert asking.looking.words == "there is no such pass"


def test_steps_pressed_faster_than_they_are_answered_are_all_taken():
    """A key held down goes as many passes back as it was pressed."""
    asking = Asking()
    for _ in range(4):
        asking.looking.seek("pass", back=True)
    assert asking.go().at_ns == 90 * SECOND + 10_000_000


def test_space_after_a_step_goes_on():
    """However the screen came to rest, the next press moves it."""
    asking = Asking()
    asking.looking.seek("pass", back=True)
    asking.go()
    asking.looking.pause()
    assert asking.looking.time.mode == "follow"


def test_an_answer_to_an_older_ask_does_not_end_a_seek():
    """The reader may still hand over what was asked for before."""
    asking = Asking()
    old = asking.script.answer(Ask())
    asking.looking.seek("pass", back=True)
    asking.looking.answered(old)
    assert asking.looking.ask.seek == "pass"


def test_a_pass_is_gone_to_by_number():
    """The screen rests at the moment at which it was over."""
    asking = Asking()
    asking.looking.to_pass(5)
    ask = asking.go()
    assert (ask.at_ns, ask.open_pass, ask.passes_before) == (50 * SECOND + 10_000_000, None, None)


def test_a_pass_that_repeats_a_refusal_is_found_with_the_first():
    """Repeats have no line of their own."""
    asking = Asking(Script(rows=[pass_row(40), pass_row(5, repeats=30)]))
    asking.looking.to_pass(20)
    assert asking.go().at_ns == 50 * SECOND + 10_000_000


def test_a_pass_that_is_not_there_is_told_with_the_last():
    """And the screen follows as before."""
    asking = Asking()
    asking.looking.to_pass(99)
    assert asking.go().at_ns is None
    assert asking.looking.words == "pass 99 is not in this record; its last is 12"


def test_a_moment_is_kept_within_the_run():
    """Beyond its ends there is nothing to see."""
    asking = Asking()
    asking.looking.at(10**18)
    assert asking.go().at_ns == END
    asking.looking.at(-5)
    assert asking.go().at_ns == 0


def test_more_passes_are_asked_for_up_to_five_hundred_and_then_the_window_moves():
    """Never more than 500 rows, however far back one goes."""
    asking = Asking(Script(rows=[pass_row(each) for each in range(2_000, 0, -1)]))
    for _ in range(12):
        asking.looking.more(older=True)
        asking.go()
        assert len(asking.looking.snapshot.passes) <= MOST_ROWS
    assert asking.script.ask.passes_before is not None
    assert asking.looking.snapshot.passes[-1].number < 1_000
    asking.looking.more(older=False)
    assert asking.go().passes_before is None


def test_another_run_is_shown_at_its_end_with_the_filters_kept():
    """Moment, open pass and paging belong to the run before."""
    asking = Asking()
    asking.looking.want(**FILTER, open_pass=3)
    asking.looking.pause()
    asking.looking.run(run_choice(2))
    ask = asking.go()
    assert (ask.run, ask.at_ns, ask.open_pass, ask.pass_filter) == (2, None, None, "kv")


# what is typed


@pytest.mark.parametrize(("text", "jump"), [
    ("pass 18204", ("pass", "", 18_204)), ("18,204", ("pass", "", 18_204)), ("at 12:03:10", ("at", "12:03:10", 0)),
    ("next extend_tokens", ("next", "extend_tokens", 0)), ("prev kv", ("prev", "kv_capacity", 0)),
    ("next", ("next", "", 0)), ("next knob", ("next", "knob", 0)), ("live", ("live", "", 0)),
    ("speed 10x", ("speed", "", 10)),
    ("run 7f3a", ("run", "7f3a", 0)), ("request a91c", ("request", "a91c", 0)), ("gates", ("panel", "gates", 0)),
    ("request", ("panel", "request", 0)), ("copy as json", ("command", "copy as JSON", 0)),
    ("THEME", ("command", "theme", 0)),
])  # fmt: skip
def test_an_order_is_understood(text, jump):
    """Passes, times, events, speeds, runs, requests, panels, and every command by its name."""
    found = parse_jump(text, APP_COMMANDS)
    assert (found.what, found.text, found.number) == jump


@pytest.mark.parametrize(("text", "words"), [
    ("", "write where to go"), ("dance", "'dance' is no order; write pass"), ("pass x", "'x' is no pass"),
    ("next b", "'b' is no gate; gates are batch_mode"), ("speed -1", "'-1' is no speed"), ("at", "write the time"),
    ("run", "write the id of the run"), ("speed nan", "'nan' is no speed"), ("pass " + "9" * 30, "is no pass"),
])  # fmt: skip
def test_what_is_no_order_is_answered_with_what_can_be_written(text, words):
    """The words name what was typed."""
    with pytest.raises(ValueError, match=words):
        parse_jump(text, APP_COMMANDS)


@pytest.mark.parametrize(("typed", "at_ns"), [
    ("at 00:01:00", 60 * SECOND), ("at -5", 120 * SECOND), ("12", 120 * SECOND + 10_000_000),
    ("prev kv", 120 * SECOND + 10_000_000), ("prev pass", 120 * SECOND + 10_000_000),
])  # fmt: skip
def test_what_is_typed_is_done(typed, at_ns):
    """From the prompt to the moment that is asked for."""
    app = screen()

    async def do(pilot):
        await pilot.press("colon", *typed, "enter")
        await settle(pilot)

    drive(app, do)
    assert app.script.ask.at_ns == at_ns


@pytest.mark.parametrize(("typed", "check"), [
    ("speed 10", lambda app: app.looking.time.speed == 10 and app.looking.time.mode == "playing"),
    ("live", lambda app: app.looking.time.mode == "follow"),
    ("run run2", lambda app: app.script.ask.run == 2),
    ("request a91c", lambda app: (app.view, app.script.ask.request) == ("request", "a91c")),
    ("gates", lambda app: app.view == "gates"),
    ("theme", lambda app: app.theme == "glassgate-light"),
])  # fmt: skip
def test_orders_that_are_no_moments_are_done(typed, check):
    """Speeds, runs, requests, panels and commands."""
    app = screen()

    async def do(pilot):
        await pilot.press("g", *typed, "enter")
        await settle(pilot)

    drive(app, do)
    assert check(app)


def test_what_cannot_be_done_leaves_the_prompt_open():
    """The operator mends it instead of typing it anew."""
    app = screen()
    seen = []

    async def do(pilot):
        await pilot.press("colon", *"dance", "enter")
        await settle(pilot)
        seen.append((app.prompt.has_class("shown"), [each.message for each in app._notifications]))

    drive(app, do)
    ((shown, told),) = seen
    assert shown
    assert told[0].startswith("'dance' is no order")


# the bar of time


def test_the_bar_marks_the_moment_and_the_changes_of_knobs():
    """What has passed is heavy, what is to come light; a change half-way stands half-way."""
    drawn = bar_of_time(head(at_ns=END // 4, changes_ns=(END // 2,)), 41).plain
    assert drawn == "━" * 10 + "●" + "─" * 9 + "◆" + "─" * 20


def test_the_bar_is_there_when_paused_or_over_and_takes_no_room_while_live():
    """A live run that is followed has no use for it."""
    app = screen()
    seen = []

    async def do(pilot):
        seen.append(app._time_bar.has_class("shown"))
        await pilot.press("space")
        await settle(pilot)
        seen.append(app._time_bar.has_class("shown"))

    drive(app, do)
    assert seen == [False, True]
    over = screen(Script(presence="ended", last_pass_age_ns=None))
    assert "at the end  00:02:05 UTC" in drive(over)


def test_a_click_on_the_bar_goes_there():
    """Three quarters along is three quarters of the run."""
    app = screen(Script(presence="ended"))

    async def do(pilot):
        start, cells = app._time_bar._bar
        await pilot.click(app._time_bar, offset=(1 + start + round((cells - 1) * 0.75), 0))
        await settle(pilot)

    drive(app, do)
    assert app.script.ask.at_ns == pytest.approx(0.75 * END, rel=0.02)
