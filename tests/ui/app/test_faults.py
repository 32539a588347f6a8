"""What a fault of the screen's own code takes with it: one panel, and never the screen."""

from tests.ui.app.script import Script, drive, head, pass_row, screen, settle, text_of
from ui.app.batches import BatchesPanel, PassLines
from ui.app.head import head_lines
from ui.app.jump import Jump, parse_jump
from ui.app.opened_pass import OpenedPass
from ui.app.panels.gates import GatesPanel


def _fails(*_):
    raise KeyError("a word nobody expected")


def test_a_panel_that_cannot_be_drawn_says_so_and_the_others_go_on(monkeypatch):
    """The fault is named in its own panel; the rest of the screen is there and takes keys."""
    monkeypatch.setattr(GatesPanel, "part", _fails)
    monkeypatch.setattr(OpenedPass, "show", _fails)
    app = screen()
    seen = []

    async def do(pilot):
        seen.append(text_of(app))
        await pilot.press("3")
        await settle(pilot)
        seen.append(text_of(app))
        await pilot.press("y", "c", "C", "2")
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, do, size=(140, 45))
    assert seen[0].count("could not be drawn: KeyError") == 2
    assert "Batches" in seen[0]
    assert "Host hits" in seen[0]
    assert "a word nobody expected" in seen[1]
    assert "the record is untouched, report this" in " ".join(seen[1].split())
    assert "could not be drawn" not in seen[2]


def test_a_panel_is_drawn_again_once_it_can_be(monkeypatch):
    """The words go with the fault, though the snapshot is the same."""
    app = screen()
    seen = []

    async def do(pilot):
        with monkeypatch.context() as patch:
            patch.setattr(BatchesPanel, "show", _fails)
            app.show_snapshot()
            await settle(pilot)
            seen.append(text_of(app))
        app.show_snapshot()
        await settle(pilot)
        seen.append(text_of(app))

    drive(app, do)
    assert "could not be drawn" in seen[0]
    assert "could not be drawn" not in seen[1]
    assert "12   2" in seen[1]


def test_a_line_that_cannot_be_drawn_says_so_in_its_place(monkeypatch):
    """Lines are drawn when they come into view; one that fails leaves the others."""
    drawn = PassLines.line

    def line(self, index, width):
        return _fails() if index == 1 else drawn(self, index, width)

    monkeypatch.setattr(PassLines, "line", line)
    text = drive(screen(Script([pass_row(14), pass_row(13), pass_row(12)])))
    assert text.count("could not be drawn: KeyError") == 1


def test_a_fault_in_what_is_copied_is_told(monkeypatch):
    """Raw record and copies come from the panel; a fault there is a message."""
    monkeypatch.setattr(GatesPanel, "as_json", _fails)
    app = screen()
    told = []
    app.tell = told.append

    async def do(pilot):
        await pilot.press("3", "c")
        await settle(pilot)

    drive(app, do)
    assert told[0].startswith("Gates failed: KeyError")


def test_a_pass_that_is_not_there_leaves_the_moment_as_it_was():
    """The operator rests where they were, and is told."""
    app = screen()
    seen = []

    async def do(pilot):
        await pilot.press("left_square_bracket")
        await settle(pilot)
        seen.append((app.looking.time.mode, app.looking.time.at_ns))
        await app.go_to_pass(0)
        await settle(pilot)
        seen.append((app.looking.time.mode, app.looking.time.at_ns))

    drive(app, do)
    assert seen[0] == seen[1]
    assert "pass 0 is not in this record" in app.looking.words


def test_times_alone_are_jumps():
    """A time needs no `at` before it."""
    for text in ("06:12:39", "+3m", "-30"):
        assert parse_jump(text, ()) == Jump("at", text)


def test_shadow_mode_and_old_numbers_are_said_at_every_width():
    """Neither gives way to anything else in the headline."""
    for width in (80, 120, 160):
        assert "SHADOW: soft gates only record" in head_lines(head(enforce=False), width, past=False)[0].plain
        assert "SHADOW" not in head_lines(head(enforce=True), width, past=False)[0].plain
        assert " old" in head_lines(head(presence="engine_gone"), width, past=False)[0].plain


def test_faults_alone_are_refused_where_there_are_none():
    """The key says which panels have faults, and turns nothing on behind the panel that is shown."""
    app = screen()
    told = []
    app.tell = told.append

    async def do(pilot):
        await pilot.press("3", "exclamation_mark")
        await settle(pilot)

    drive(app, do)
    assert "batches and log do" in told[0]
    assert not app.batches.faults_only
