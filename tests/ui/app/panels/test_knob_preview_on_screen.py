"""The preview of a draft of knobs on the whole screen: what ends it, its keys, its pictures, and a real one."""

import pytest

from tests.ui.app.panels.scenes import KNOBS, SECOND, drive, knob_panel, text_of
from tests.ui.app.panels.test_knob_preview import FOUND, Process
from tests.ui.app.script import Script, run_choice, screen, settle, still
from tests.ui.app.test_snapshots import on_recording
from ui.view import snapshot as s
from ui.whatif.comparison import preview
from ui.whatif.side_by_side import side_by_side


def on_screen(**more):
    """The whole screen with a panel of knobs, its runs having a record."""
    script = Script()
    script.parts = {"knobs": knob_panel(KNOBS)}
    app = screen(script, **more)
    answer_of = script.answer
    choice = run_choice(1, run="7f3a0000", presence="live", database="/records/glassgate.db")
    script.answer = lambda ask: s.msgspec.structs.replace(answer_of(ask), runs=(choice,))
    return app


async def to_knobs(pilot):
    """Show the panel, with a script for its previews and a draft."""
    await pilot.press("6")
    await settle(pilot)
    panel = pilot.app.panel
    pilot.app.process = panel.preview.preview.begin = Process()
    panel.draft_values = {"max_requests": 8}
    panel.redraw()
    await settle(pilot)


def test_leaving_the_panel_ends_it_and_a_dialog_does_not():
    """Help over the panel lets it go on; another panel in its place ends it."""
    app = on_screen()

    async def do(pilot):
        await to_knobs(pilot)
        await pilot.press("v", "question_mark")
        await settle(pilot)
        assert not app.process.last.stopped
        await pilot.press("escape")
        await settle(pilot)
        assert not app.process.last.stopped
        await pilot.press("3")
        await settle(pilot)
        assert app.process.last.stopped

    drive(app, do, size=(120, 35))


@pytest.mark.parametrize("readonly", [False, True])
def test_the_footer_and_the_palette_have_it(readonly):
    """A click on its key in the footer does what the key does, also where the screen is read-only."""
    app = on_screen(readonly=readonly)

    async def do(pilot):
        await to_knobs(pilot)
        line = text_of(app.screen).splitlines()[-1]
        await pilot.click("KeysBar", offset=(line.index("v preview"), 0))
        await settle(pilot)
        assert len(app.process.begun) == 1
        assert "preview draft" in {each.title for each in app.get_system_commands(app.screen)}

    drive(app, do, size=(140, 35))


async def knobs_of_recording(pilot):
    """Show the panel of the recording's knobs."""
    await still(pilot)
    await pilot.press("6")
    await still(pilot)
    return pilot.app.panel


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (160, 50)], ids=["80x24", "120x35", "160x50"])
def test_the_preview_in_pictures(recording, snap_compare, size):
    """The panel on the recording with a draft and its preview."""
    app = on_recording(recording, at="+300")

    async def show(pilot):
        panel = await knobs_of_recording(pilot)
        begun = panel.preview.preview.begin = Process()
        for keys in (("down", "down"), ("enter",), ("8", "enter"), ("v",)):
            await pilot.press(*keys)
            await still(pilot)
        begun.last.answer = FOUND
        panel.preview.look()
        await still(pilot)

    assert snap_compare(app, terminal_size=size, run_before=show)


def test_a_preview_of_the_recording_itself(recording):
    """Without a script: the record is replayed in another process, and what stands there is what `preview` says."""
    app = on_recording(recording, at="+300")

    async def do(pilot):
        panel = await knobs_of_recording(pilot)
        await pilot.press("down", "down", "enter", *"8", "enter", "v")
        assert panel.preview.preview.working
        for _ in range(3_000):
            await pilot.pause(0.02)
            if not panel.preview.preview.working:
                break
        await still(pilot)

    text = " ".join(drive(app, do, size=(140, 45)).split())
    database = recording / "glassgate.db"
    wanted = side_by_side(preview(database, "recording", {"max_requests": 8}, 0, 300 * SECOND))
    assert f"fidelity {wanted.score:.2f}: {wanted.fidelity}" in text
    assert " ".join(wanted.rows[0][:5]).strip() in text
    assert wanted.remarks[0] in text
