"""The headline: presence, the verdict and what it rests on, and what gives way when there is no room."""

import pytest

from tests.ui.app.script import END, NONE, SECOND, Script, ScriptedClock, drive, head, line_with, screen, stop, text_of
from ui.app.colours import PRESENCES
from ui.app.head import head_lines, spread
from ui.app.moments import age
from ui.view.snapshot import Binding


def text_of_head(width=140, past=False, **more):
    """The three lines."""
    return [line.plain for line in head_lines(head(**more), width, past=past)]


def test_one_glance_tells_who_what_binds_and_on_how_much_that_rests():
    """Engine, run, knobs, presence, age, queue, percentiles; the gate with its numbers, share and number of passes."""
    who, binds, strip = text_of_head()
    for word in ("Glassgate", "sglang glm-5", "rank 0", "run 7f3a0000", "knobs r12", "● live", "pass 12", "0.1 s ago"):
        assert word in who
    assert "q 37" in who
    assert "TTFT p50 1.9 s p95 7.4 s" in who
    assert binds.startswith("binds now  extend_tokens  66,496 of 65,536, 960 short  4f02 waits")
    assert binds.endswith("for 25.0 s  62 % of the last 5 min, from 2,113 passes")
    assert strip.startswith("5 min      ")


def test_a_long_id_is_cut_with_a_mark():
    """Of an id that has no room the beginning and the end are left, and it does not pass for a whole one."""
    held = Binding(stop(request="cmpl-95cd6504f31c47fd-0"), 0, 1.0, 40)
    assert "cmpl-95c…c47fd-0 waits" in text_of_head(binding=held)[1]


def test_an_end_that_was_not_regular_has_its_reason():
    """A run that failed or was interrupted does not read as one that finished."""
    assert "■ ended: failed" in text_of_head(presence="ended", end_reason="failed")[0]
    assert "■ ended: failed" in text_of_head(40, presence="ended", end_reason="failed")[0]
    assert "ended:" not in text_of_head(presence="ended", end_reason="finished")[0]


@pytest.mark.parametrize("presence", PRESENCES)
def test_every_presence_has_a_shape_and_a_word_of_its_own(presence):
    """Live, idle, ended, engine gone, collector gone and a recording differ without any colour."""
    mark = PRESENCES[presence]
    assert f"{mark.sign} {mark.word}" in text_of_head(presence=presence)[0]
    others = [each for name, each in PRESENCES.items() if name != presence]
    assert mark.sign not in {each.sign for each in others}
    assert mark.word not in {each.word for each in others}


@pytest.mark.parametrize(("presence", "past", "words"), [
    ("live", False, "binds now"), ("live", True, "bound then"), ("idle", False, "bound last"),
    ("engine_gone", False, "bound last"), ("collector_gone", False, "bound last"), ("ended", False, "bound last"),
])  # fmt: skip
def test_only_a_live_run_is_said_to_bind_now(presence, past, words):
    """What a run did last, or at a moment of the past, is not told as what it does."""
    assert text_of_head(presence=presence, past=past)[1].startswith(words)


def test_a_verdict_that_rests_on_few_passes_says_so():
    """Under thirty passes a share is too little to go by."""
    told = text_of_head(binding=Binding(stop(), 0, 1.0, 4))[1]
    assert "from 4 passes, too few to tell" in told


def test_what_is_not_known_is_absent_and_never_zero():
    """Without percentiles, queue, revision or passes there is a dash or nothing."""
    who, binds, _ = text_of_head(
        ttft=NONE, queue_time=NONE, queue=None, revision=None, last_pass=None, binding=None, passes_in_window=0
    )
    assert "TTFT —" in who
    assert "q —" in who
    assert "knobs" not in who
    assert binds.split() == ["binds", "now", "nothing", "no", "pass", "in", "the", "last", "5", "min"]


def test_nothing_binds_when_the_last_pass_took_the_whole_queue():
    """That is told, with the passes it rests on."""
    assert "nothing  the last pass took the whole queue" in text_of_head(binding=None)[1]


@pytest.mark.parametrize("width", [40, 80, 100, 140, 200])
def test_every_line_fits_and_the_gate_and_presence_stay(width):
    """Whatever the width, no line is longer, and what matters most is there."""
    lines = text_of_head(width)
    assert all(len(line) <= width for line in lines)
    assert "● live" in lines[0]
    assert "extend_tokens" in lines[1]


def test_what_is_least_wanted_goes_first():
    """Segments go by their number, the highest first, until the rest fits."""
    groups = ([(0, "kept"), (9, "first to go")], [(5, "second")])
    assert spread(groups, 40).plain == "kept  first to go" + " " * 17 + "second"
    assert spread(groups, 16).plain == "kept      second"
    assert spread(groups, 8).plain == "kept"


def test_a_past_moment_is_told_in_place_of_an_age():
    """Paused, the headline says when it is."""
    assert "at 00:02:05" in text_of_head(past=True)[0]
    assert "ago" not in text_of_head(past=True)[0]


@pytest.mark.parametrize(("ns", "words"), [
    (0, "0.0 s ago"), (149_000_000, "0.1 s ago"), (9_990_000_000, "10.0 s ago"), (12 * SECOND, "12 s ago"),
    (200 * SECOND, "3 min 20 s ago"), (3 * 86_400 * SECOND, "3 d ago"), (None, "—"),
])  # fmt: skip
def test_an_age_is_calm(ns, words):
    """Tenths only below ten seconds."""
    assert age(ns) == words


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
@pytest.mark.parametrize(("presence", "words"), [
    ("engine_gone", "its process died without an end; what stands here is the last of 00:02:05, 3 min 0 s ago"),
    ("collector_gone", "nothing feeds this record; what stands here is the last of 00:02:05, 3 min 0 s ago"),
])  # fmt: skip
def test_old_numbers_are_marked_with_their_age(presence, words, size):
    """When the engine or the collector is gone a line says of when the numbers are; they are dimmed besides."""
    clock = ScriptedClock()
    clock.now += 180 * SECOND
    app = screen(Script(presence=presence, last_pass_age_ns=None), clock)
    seen = []

    async def do(pilot):
        seen.append(pilot.app.query_one("#body").has_class("old"))

    text = drive(app, do, size=size)
    assert words in " ".join(text.replace("\n", " ").split())
    assert seen == [True]


def test_the_dead_are_not_dimmed_where_one_looks_into_their_past():
    """After an incident a moment of the run is read as any other."""
    app = screen(Script(presence="engine_gone"), at="+60")
    seen = []

    async def do(pilot):
        seen.append(pilot.app.query_one("#body").has_class("old"))
        seen.append("then:" in text_of(pilot.app))

    drive(app, do)
    assert seen == [False, False]


def test_the_line_of_what_is_wrong_takes_no_room_while_nothing_is():
    """A live run without trouble has its batches right under the headline."""
    assert "Batches" in drive(screen()).splitlines()[3]


def test_a_problem_is_told_and_what_was_shown_stays():
    """What cannot be read is a line; the passes remain."""
    script = Script()
    app = screen(script)

    async def do(pilot):
        script.parts = {"problem": "database is locked; stop the other writer"}
        app.reader.again()
        await pilot.pause()

    text = drive(app, do)
    assert "cannot read: database is locked; stop the other writer" in text
    assert line_with(text, " 12   2  ")


@pytest.mark.parametrize("width", [40, 80])
def test_words_that_take_more_than_four_lines_end_with_a_mark(width):
    """The line of what is wrong leaves the screen to the batches, and shows that there is more to say."""
    script = Script()
    script.parts = {"problem": "what stands in the way is told at length " * 20}
    lines = drive(screen(script), size=(width, 30)).splitlines()
    told = lines[3:7]
    assert told[0].startswith(" cannot read: what stands")
    assert told[-1].endswith("…")
    assert not any(line.endswith("…") for line in told[:-1])
    assert "Batches" in lines[7]
    script.parts = {"problem": "in short"}
    lines = drive(screen(script), size=(width, 30)).splitlines()
    assert (lines[3], "Batches" in lines[4]) == (" cannot read: in short", True)


def test_what_is_not_there_yet_says_what_to_do():
    """A run that is not collected names the command."""
    script = Script(rows=[])
    script.parts = {"missing": "nothing of run x is in the database yet; `glassgate collect x` takes its journal in"}
    assert "`glassgate collect x` takes its journal in" in drive(screen(script))


def test_losses_are_told():
    """Frames that the record does not hold are counted on the screen."""
    assert "1,204 frames of this record are lost" in drive(screen(Script(losses=1_204)))


def test_a_seek_that_finds_nothing_says_so_until_the_next_move():
    """The words go with the next jump."""
    app = screen()
    seen = []

    async def do(pilot):
        app.looking.at(END)
        await pilot.press("right_square_bracket")
        await pilot.pause()
        seen.append(drive_text(app))
        await pilot.press("l")
        await pilot.pause()
        seen.append(drive_text(app))

    drive(app, do)
    assert "there is no such pass" in seen[0]
    assert "there is no such pass" not in seen[1]


def drive_text(app):
    """What the line says."""
    return str(app._notice.words)
