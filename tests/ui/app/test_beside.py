"""Two runs beside each other on the screen: a scripted reader, the keys, the mouse, pictures, and the command."""

import json

import msgspec
import pytest

from controller.vocabulary import LADDER_GATES
from tests.ui.app.script import (
    FIRST_WALL,
    SECOND,
    check,
    decision,
    detail_of,
    drive,
    line_with,
    pass_row,
    run_choice,
    screen,
    settle,
    still,
    stop,
    text_of,
)
from ui.app.beside import HELP, BesideScreen
from ui.app.beside_lines import PARTED
from ui.app.beside_summary import MOST_TOLD, beside_summary
from ui.view.alignment import Batch, rows_of
from ui.view.beside import Beside, Opening, Side


def batch(number, seconds, members, gate="extend_tokens", of=None, **more):
    """A batch of so many members at a second, named after its number or that of another."""
    values = {"device": 4_096 * members, "loaded": 1_024, "computed": 5_000 * members, "reason": "limit"}
    names = tuple(f"r{of or number}.{each}" for each in range(members))
    return Batch(number, int(seconds * SECOND), names, gate=gate, **{**values, **more})


SAME = [batch(number, number, 2) for number in range(1, 11)]
LEFT = [*SAME, batch(11, 11, 3), batch(12, 12, 2), batch(13, 40, 1)]
RIGHT = [
    *SAME,
    batch(11, 11, 3, "kv_capacity", reason="pool"),
    batch(12, 12, 1),
    batch(13, 12.4, 1, ""),
    batch(14, 40, 1, of=13),
]


def beside(left=LEFT, right=RIGHT, **more):
    """Two runs of these batches."""
    rows = rows_of(left, right)
    values = {
        "left": Side("7f3a0000", 0, "sglang", "agent sessions", len(left)),
        "right": Side("91bc0000", 0, "replay", "what if 7f3a0000", len(right)),
        "rows": rows,
        "parting": tuple(place for place, row in enumerate(rows) if row.parts),
        "knobs": (("max_extend_tokens", 65_536, 131_072, "tokens"), ("max_requests", None, 4, "requests")),
        "until_ns": 40 * SECOND,
        "wall_ns": FIRST_WALL,
        "shared": 57,
    }
    return Beside(**{**values, **more})


def detail(of, *, waits=None):
    """A pass opened as the record would: its members, and one that waits."""
    row = pass_row(of.number, of.gate or "extend_tokens")
    member = row.members[0]
    members = tuple(msgspec.structs.replace(member, request=each, outcome="admit") for each in of.members)
    row = msgspec.structs.replace(row, members=members, start_ns=of.start_ns)
    found = detail_of(row)
    decisions = tuple(decision(each) for each in of.members)
    if waits is not None:
        refused = check(LADDER_GATES[4], "refuse", 66_496, 65_536, 960)
        ladder = (*(check(gate) for gate in LADDER_GATES[:4]), refused)
        decisions += (decision("next", "wait", stop(waits), checks=ladder),)
    return msgspec.structs.replace(found, decisions=decisions)


class Reading:
    """A reader that says what a test gives it, and opens rows at once."""

    def __init__(self, *told):
        self.told = list(told)
        self.opened = []
        self.closed = False
        self._tell = None

    def start(self, tell):
        """Say it."""
        self._tell = tell
        for each in self.told:
            tell(each)

    def say(self, told):
        """Say one thing more."""
        self.told.append(told)
        self._tell(told)

    def open(self, place):
        """Both passes of the row."""
        self.opened.append(place)
        rows = [each for each in self.told if isinstance(each, Beside)][-1].rows
        if place < len(rows):
            row = rows[place]
            left = None if row.left is None else detail(row.left, waits="extend_tokens")
            right = None if row.right is None else detail(row.right)
            self._tell(Opening(place, left, right))

    def close(self):
        """The screen has ended."""
        self.closed = True


def on_screen(*told, **more):
    """The app with two runs beside each other over it, and what reads them."""
    app = screen(**more)
    app.beside_reader = Reading(*(told or (beside(),)))

    async def show(pilot):
        await app.push_screen(BesideScreen(app.beside_reader))
        await settle(pilot)

    return app, show


def shown(*keys, told=(), size=(120, 35)):
    """What stands there after these keys, and the app."""
    app, show = on_screen(*told)

    async def do(pilot):
        await show(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)

    return drive(app, do, size=size), app


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
def test_the_first_row_that_parts_is_under_the_cursor(size):
    """Both runs have their side of a row; where they part stands a mark, and the row is opened with both ladders."""
    text, app = shown(size=size)
    assert "7f3a0000  agent sessions" in text
    assert "beside  91bc0000  what if 7f3a0000" in text
    assert "max_extend_tokens 65,536 tok | 131,072 tok" in text
    assert "11 rows are the same, 3 rows part, first at 00:00:11 (+11.0 s)" in " ".join(text.split())
    same, parted = line_with(text, " 00:00:10 "), line_with(text, " 00:00:11  ")
    assert PARTED not in same
    assert PARTED in parted
    assert "extend_tokens" in parted.split(PARTED)[0]
    assert "kv_capacity" in parted.split(PARTED)[1]
    assert "parts in gate" in text
    assert app.beside_reader.opened == [10]
    assert app.beside_reader.closed


def test_keys_go_from_parting_to_parting():
    """`n` and `N` go to the next and the previous row that parts, and say so where there is none."""
    app, show = on_screen()

    async def do(pilot):
        await show(pilot)
        rows = app.screen.rows
        seen = [rows.cursor]
        for key in ("n", "n", "N", "home", "n", "end", "N", "up"):
            await pilot.press(key)
            await settle(pilot)
            seen.append(rows.cursor)
        assert seen == [10, 11, 12, 11, 0, 10, 13, 12, 11]
        await pilot.press("end", "n")
        await settle(pilot)
        assert "no row parts after this one" in {each.message for each in app._notifications}

    drive(app, do)


def test_a_batch_without_one_beside_it_says_so():
    """Where one side has no batch there is a blank with words, and the opened row has one ladder."""
    text, _ = shown("n", "n")
    row = line_with(text, "no batch╌")
    assert PARTED in row
    assert row.index("no batch") < row.index(PARTED)
    assert "only one side has a batch here" in text


def test_the_opened_row_shows_both_ladders():
    """Enter goes in, and shows the gates of a request of both sides, `a` everybody's; Escape goes back, then out."""
    app, show = on_screen()

    async def do(pilot):
        await show(pilot)
        await pilot.press("enter", "down", "down", "down", "down", "enter")
        await settle(pilot)
        text = text_of(app)
        assert "next" in line_with(text, "extend_tokens limit 960 short")
        assert "not looked at" in line_with(text, "extend_tokens limit 960 short")
        assert "✗ 66,496 of 65,536  refuse" in text
        await pilot.press("a")
        await settle(pilot)
        both = [line for line in text_of(app).splitlines() if line.strip().startswith("kv_capacity")]
        assert any(line.count("✓ 11,200 of 65,536") == 2 for line in both)
        await pilot.press("a")
        await settle(pilot)
        assert "✓ 11,200" not in text_of(app)
        await pilot.press("escape")
        assert isinstance(app.screen, BesideScreen)
        assert app.screen.rows.has_focus
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, BesideScreen)
        assert app.beside_reader.closed

    drive(app, do, size=(120, 45))


def test_the_mouse_does_what_the_keys_do():
    """A click on a row moves the cursor of both, a second one goes in, a click in the footer presses its key."""
    app, show = on_screen()

    async def do(pilot):
        await show(pilot)
        rows = app.screen.rows
        line = next(at for at, text in enumerate(text_of(app).splitlines()) if "00:00:09" in text)
        await pilot.click(offset=(20, line))
        await settle(pilot)
        assert rows.cursor == 8
        await pilot.click(offset=(20, line))
        await settle(pilot)
        assert app.screen.lines.has_focus
        footer = text_of(app).splitlines()[-1]
        await pilot.click(offset=(footer.index("n N parting"), 34))
        await settle(pilot)
        assert rows.cursor == 10

    drive(app, do)


def test_progress_and_problems_stand_above():
    """While both records are read it says how far it is; what cannot be read is told, and what was read stays."""
    empty = beside([], [], fraction=0.4)
    text, _ = shown(told=(empty,))
    assert "reading both records  40 %" in text
    text, _ = shown(told=(beside([], []),))
    assert "no batch lies where both have a record" in text
    text, _ = shown(told=(beside(), beside(problem="database glassgate.db has schema version 99")))
    assert "cannot read: database glassgate.db has schema version 99" in text
    assert "00:00:11" in text
    text, _ = shown(told=(beside(shared=0),))
    assert "the two have no request in common" in " ".join(text.split())


def test_a_run_that_goes_on_keeps_the_cursor_on_its_row():
    """When more is read, earlier rows included, the cursor stays at the batch it was on."""
    app, show = on_screen()

    async def do(pilot):
        await show(pilot)
        await pilot.press("n")
        await settle(pilot)
        early = [batch(0, 0.2, 1)]
        app.beside_reader.say(beside([*early, *LEFT, batch(14, 50, 1)], [*early, *RIGHT]))
        await settle(pilot)
        screen_ = app.screen
        assert screen_.beside.rows[screen_.rows.cursor].left.number == 12

    drive(app, do)


def test_help_and_copy_and_theme():
    """Help tells what stands there; the row is copied as JSON; the theme changes under it."""
    app, show = on_screen()
    copied = []
    app.copy_to_clipboard = copied.append

    async def do(pilot):
        await show(pilot)
        await pilot.press("c", "t", "question_mark")
        await settle(pilot)
        assert "Go to the next row that parts." in text_of(app)
        assert json.loads(copied[0])["parts"] == ["gate"]
        assert app.theme == "glassgate-light"

    drive(app, do, size=(120, 60))
    assert "What differs is bold" in HELP


def test_another_run_is_chosen_on_the_screen(monkeypatch):
    """`B` lists the other runs, and Enter shows the one under the cursor beside this one; without any it says so."""
    app = screen()
    asked = []
    monkeypatch.setattr(app, "show_beside", lambda *sources: asked.append(sources))

    async def do(pilot):
        await pilot.press("B")
        await settle(pilot)
        text = text_of(app)
        assert "run2" in text
        assert "Which run beside this one" in text
        await pilot.press("enter")
        await settle(pilot)

    drive(app, do)
    ((left, right),) = asked
    assert (left.place.run, right.place.run) == ("7f3a0000", "run2")


def test_without_another_run_it_says_how_to_make_one():
    """Where there is one run alone, `B` names the command that makes a what-if of it."""
    app = screen()
    answer = app.script.answer
    only = (run_choice(1, run="7f3a0000"),)
    app.script.answer = lambda ask: msgspec.structs.replace(answer(ask), runs=only)

    async def do(pilot):
        await pilot.press("B")
        await settle(pilot)
        assert any("glassgate whatif --keep" in each.message for each in app._notifications)

    drive(app, do)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (160, 50)], ids=["80x24", "120x35", "160x50"])
def test_two_runs_in_pictures(snap_compare, size):
    """Two runs at the first row that parts, opened."""
    app, show = on_screen()

    async def run(pilot):
        await still(pilot)
        await show(pilot)
        await still(pilot)

    assert snap_compare(app, terminal_size=size, run_before=run)


def test_in_words_where_there_is_no_screen():
    """Who is beside whom, what differs, and the rows that part, as many as a page holds."""
    told = list(beside_summary(beside()))
    assert told[:2] == [
        "run 7f3a0000 (agent sessions): 13 batches",
        "beside run 91bc0000 (what if 7f3a0000): 14 batches",
    ]
    assert "max_requests: off | 4 req" in told
    assert "11 rows are the same, 3 rows part" in told
    assert "  +12.4 s: no batch | pass 13 with 1 member: alone" in told
    one, other = batch(1, 1, 2, "extend_tokens", reason="limit"), batch(1, 1, 2, "extend_tokens", reason="chunk_budget")
    assert list(beside_summary(beside([one], [other])))[-1].endswith(
        "closed by extend_tokens (limit) | pass 1 with 2 members, closed by extend_tokens (chunk_budget): gate"
    )
    many = beside([batch(each, each * 30, 1) for each in range(100)], [])
    assert list(beside_summary(many))[-1] == f"  and {100 - MOST_TOLD} more; --json has them all"
