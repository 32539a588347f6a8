"""The knobs: shown, drafted, asked for."""

import json
import stat

import pytest

from controller.knobs import Knobs
from controller.run_directory import RunDirectory
from tests.ui.app.panels.scenes import (
    KNOBS,
    PanelApp,
    drive,
    head,
    knob_change,
    knob_panel,
    line_with,
    snap,
    text_of,
)
from tests.ui.app.script import settle
from ui.app.figures import ABSENT
from ui.app.panels.knobs import PAST, READONLY, SHADOW, KnobsPanel
from ui.turning import default_who


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A live run, whose engine this process is; nothing is read from or written to the user's config."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    made = RunDirectory.create(tmp_path / "runs", engine="replay", version="1")
    yield made
    made.release()


def left_in(run):
    """The files of requests in a run."""
    return sorted((run.path / "knob-requests").iterdir())


def app_of(run=None, knobs=KNOBS, *, readonly=False, head=None, **more):
    """The panel over a run."""
    panel = knob_panel(knobs, folder="" if run is None else str(run.path), **more)
    parts = {"knobs": panel} if head is None else {"knobs": panel, "head": head}
    return PanelApp(KnobsPanel(), snapshot=snap(**parts), readonly=readonly)


async def on_knob(pilot, name):
    """Put the cursor on a knob."""
    table = pilot.app.query_one("#knobs")
    table.focus()
    assert table.go_to(name)
    await settle(pilot)


async def type_in(pilot, name, text):
    """Edit a knob as an operator does."""
    await on_knob(pilot, name)
    await pilot.press("enter", *text)
    await settle(pilot)


def test_every_knob_has_set_effective_state_and_what_it_bounds():
    """All eleven knobs stand at 80x24, with the one that differs explained under the cursor."""
    app = app_of()

    async def do(pilot):
        await on_knob(pilot, "max_prefill_tokens")

    text = drive(app, do)
    assert all(each in text for each in KNOBS.as_dict())
    row = next(line for line in text.splitlines() if line.strip().startswith("max_prefill_tokens "))
    assert row.split() == ["max_prefill_tokens", "16,384", "tok", "65,536", "tok", "raised"]
    assert "tokens after which a batch takes no further member" in text
    assert "raised: to the effective extend limit of the shared path" in text.replace("\n ", " ")


def test_when_a_knob_was_changed_and_by_whom_stands_in_its_row():
    """With room, the last change of each knob is in its row; one that was never changed says nothing."""
    text = drive(app_of(), size=(140, 30))
    row = next(line for line in text.splitlines() if line.strip().startswith("max_extend_tokens "))
    assert row.split()[5:11] == ["as", "set", "1", "min", "0", "s"]
    assert "alice@box" in row
    untouched = next(line for line in text.splitlines() if line.strip().startswith("max_requests "))
    assert untouched.split()[4] == ABSENT


def test_the_history_tells_before_after_and_answer():
    """Changes that were taken and refused are listed with who, from what, to what."""
    refused = knob_change(accepted=False, knob="page_size", old=64, new=128, why="page_size is fixed", who="bob@box")
    text = drive(app_of(changes=(knob_change(), refused)), size=(140, 30))
    assert "max_extend_tokens 32,768 tok -> 65,536 tok" in text
    assert "revision 12" in line_with(text, "32,768")
    assert "refused: page_size is fixed" in line_with(text, "bob@box")


def test_shadow_mode_is_shown_above_everything():
    """While soft gates only record, the first line says so; otherwise it does not."""
    assert SHADOW in drive(app_of(knobs=Knobs(enforce=False))).splitlines()[1]
    assert SHADOW not in drive(app_of())


def test_an_edit_says_its_effect_while_it_is_typed(run):
    """Each letter is checked; the effect, or why it cannot be, stands below at once."""
    app = app_of(run)

    async def do(pilot):
        await type_in(pilot, "max_extend_tokens", "131072")
        assert "max_extend_tokens effective 65,536 tok -> 131,072 tok" in text_of(app.screen)
        await pilot.press("x")
        await settle(pilot)
        assert "max_extend_tokens is '131072x'; it is a whole number of tokens" in text_of(app.screen)

    drive(app, do)


def test_a_bad_value_stays_in_the_line_and_leaves_nothing(run):
    """A value that cannot be is not drafted, and nothing is left in the run's folder."""
    app = app_of(run)
    panel = app.panels[0]

    async def do(pilot):
        await type_in(pilot, "max_buffer_bytes", "4 GiBi")
        await pilot.press("enter")
        await settle(pilot)
        assert panel.has_class("editing")
        assert panel.draft_values == {}
        await pilot.press("escape", "a")
        await settle(pilot)
        assert not panel.has_class("editing")

    assert "GiBi" not in drive(app, do)
    assert left_in(run) == []


def test_a_draft_of_several_is_asked_for_as_one_request_only_its_owner_can_read(run):
    """Apply asks once, shows before, after and who, and leaves exactly one whole request with mode 0600."""
    app = app_of(run)

    async def do(pilot):
        await type_in(pilot, "max_extend_tokens", "131072")
        await pilot.press("enter")
        await on_knob(pilot, "enforce")
        await pilot.press("enter")
        await settle(pilot)
        assert "enforce on -> off" in text_of(app.screen)
        assert left_in(run) == []
        await pilot.press("a")
        await settle(pilot)
        asked = text_of(app.screen)
        assert "max_extend_tokens 65,536 tok -> 131,072 tok" in asked
        assert f"asked by {default_who()}" in asked
        await pilot.press("y")

    text = drive(app, do, size=(120, 30))
    assert "; the engine answers between two passes" in text
    (left,) = left_in(run)
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    content = json.loads(left.read_text())
    assert content["changes"] == {"max_extend_tokens": 131_072, "enforce": False}
    assert content["who"] == default_who()
    assert content["expect_revision"] == 12


def test_no_leaves_nothing(run):
    """Saying no, or escape, keeps the draft and leaves no request."""
    app = app_of(run)

    async def do(pilot):
        await on_knob(pilot, "enforce")
        await pilot.press("enter", "a", "n")
        await settle(pilot)
        await pilot.press("a", "escape")
        await settle(pilot)

    text = drive(app, do)
    assert "draft  enforce on -> off" in text
    assert left_in(run) == []


def test_the_mouse_can_do_all_of_it(run):
    """Two clicks on a switch draft it, and a click on Apply asks for it."""
    app = app_of(run)

    async def do(pilot):
        await pilot.click("#knobs", offset=(4, 2))
        await pilot.click("#knobs", offset=(4, 2))
        await settle(pilot)
        await pilot.press("a")
        await settle(pilot)
        await pilot.click("#yes")

    drive(app, do)
    (left,) = left_in(run)
    assert json.loads(left.read_text())["changes"] == {"shared_kv_batching": False}


def answered(app, **more):
    """The snapshot after an answer to the request that was left."""
    request = app.panels[0].asked.name
    change = knob_change(knob="enforce", old=True, new=False, request=request, **more)
    knobs = Knobs.parse({**KNOBS.as_dict(), "enforce": False}) if change.accepted else KNOBS
    folder = app.first.knobs.folder
    return snap(knobs=knob_panel(knobs, changes=(change,), folder=folder, revision=change.revision))


async def ask_for_shadow(pilot):
    """Draft shadow mode and ask for it."""
    await on_knob(pilot, "enforce")
    await pilot.press("enter", "a", "y")
    await settle(pilot)


def test_an_accepted_change_is_no_draft_any_more(run):
    """The answer is known by the request's name; the draft is done, and the new mode is shown."""
    app = app_of(run)

    async def do(pilot):
        await ask_for_shadow(pilot)
        app.show(answered(app, accepted=True, revision=13))

    text = drive(app, do)
    assert "enforce off accepted as revision 13" in text
    assert SHADOW in text
    assert app.panels[0].draft_values == {}


def test_a_refused_change_keeps_the_draft_and_says_why(run):
    """A refusal is shown with the engine's reason, and what was typed is there to be mended."""
    app = app_of(run)

    async def do(pilot):
        await ask_for_shadow(pilot)
        app.show(answered(app, accepted=False, revision=12, why="it was made for revision 12, and 13 is in force"))

    text = drive(app, do, size=(120, 30))
    assert "enforce off refused: it was made for revision 12, and 13 is in force" in text
    assert app.panels[0].draft_values == {"enforce": False}


def test_an_answer_to_somebody_else_is_not_ours(run):
    """Only the change that names our request answers it."""
    app = app_of(run)

    async def do(pilot):
        await ask_for_shadow(pilot)
        app.show(snap(knobs=knob_panel(changes=(knob_change(request="another"),), folder=str(run.path))))

    assert "; the engine answers between two passes" in drive(app, do)


def test_no_answer_withdraws_the_request(run):
    """After five seconds without an answer a request that nobody took is taken back, and the operator is told."""
    app = app_of(run)
    now = [100.0]
    app.panels[0].now = lambda: now[0]

    async def do(pilot):
        await ask_for_shadow(pilot)
        now[0] += 4.9
        await pilot.pause(0.4)
        assert len(left_in(run)) == 1
        now[0] += 0.2
        await pilot.pause(0.4)

    text = drive(app, do, size=(120, 30))
    assert "no answer after 5 s: the engine may be gone. The request was withdrawn; nothing was changed" in text
    assert left_in(run) == []


def test_a_request_that_was_taken_is_not_called_withdrawn(run):
    """When the engine took it and the answer is late, nothing is claimed of what it did; a late answer still counts."""
    app = app_of(run)
    now = [100.0]
    app.panels[0].now = lambda: now[0]

    async def do(pilot):
        await ask_for_shadow(pilot)
        run.take_requests()
        now[0] += 6
        await pilot.pause(0.4)
        assert "the engine took the request" in text_of(app.screen)
        app.show(answered(app, accepted=True, revision=13))

    assert "accepted as revision 13" in drive(app, do, size=(120, 30))


def test_apply_and_save_saves_what_was_accepted(run, tmp_path):
    """`S` writes the accepted values to the config, and only then."""
    app = app_of(run)
    config = tmp_path / "config" / "glassgate" / "glassgate.toml"

    async def do(pilot):
        await on_knob(pilot, "enforce")
        await pilot.press("enter", "S")
        await settle(pilot)
        assert "saved to the config" in text_of(app.screen)
        await pilot.press("y")
        await settle(pilot)
        assert not config.exists()
        app.show(answered(app, accepted=True, revision=13))

    text = drive(app, do, size=(120, 30))
    assert "accepted as revision 13; saved in" in text
    assert config.read_text() == "enforce = false\n"


def test_discard_throws_the_draft_away(run):
    """`x` leaves the knobs as they are."""
    app = app_of(run)

    async def do(pilot):
        await on_knob(pilot, "enforce")
        await pilot.press("enter", "x", "a")

    assert "draft  " not in drive(app, do)
    assert app.panels[0].draft_values == {}
    assert left_in(run) == []


def test_a_switch_turned_twice_is_no_draft(run):
    """A value that is set already leaves the draft."""
    app = app_of(run)

    async def do(pilot):
        await on_knob(pilot, "enforce")
        await pilot.press("enter", "enter")

    drive(app, do)
    assert app.panels[0].draft_values == {}


@pytest.mark.parametrize("keys", [("enter", "a", "y"), ("S", "y"), ("x",)])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"readonly": True}, READONLY),
        ({"may_change": False, "why_not": "the run has ended"}, "the run has ended"),
        ({"head": head(following=False)}, PAST),
    ],
)
def test_where_no_change_can_be_made_it_is_said_why_and_none_is(run, more, words, keys):
    """Read-only, an ended run, a moment of the past: no key leaves a request, and the first line says why."""
    app = app_of(run, **more)

    async def do(pilot):
        app.panels[0].draft_values = {"enforce": False}
        await on_knob(pilot, "enforce")
        await pilot.press(*keys)
        await pilot.click("#knobs", offset=(4, 1))
        await pilot.click("#knobs", offset=(4, 1))

    text = drive(app, do)
    assert words in text.splitlines()[1]
    assert left_in(run) == []
    assert not app.panels[0].has_class("editing")


def test_a_record_apart_from_its_run_cannot_be_changed():
    """A database without the run's folder has nowhere to leave a request."""
    assert "stands apart from its run's folder" in drive(app_of())


def test_a_run_that_ended_meanwhile_refuses_in_words(run):
    """Between the snapshot and the key the run may have ended; that is told, not raised."""
    app = app_of(run)

    async def do(pilot):
        run.end()
        await ask_for_shadow(pilot)

    assert "has ended" in drive(app, do, size=(120, 30))
    assert left_in(run) == []


def test_a_folder_that_cannot_be_written_refuses_in_words(run):
    """Where no request can be left that is told, not raised."""
    app = app_of(run)
    (run.path / "knob-requests").rmdir()
    (run.path / "knob-requests").write_text("a file where the folder should be")
    assert "no request can be left" in drive(app, ask_for_shadow, size=(120, 30))


def test_copies(run):
    """The knob or change under the cursor, the panel and the question can be copied."""
    app = app_of(run, changes=(knob_change(),))
    panel = app.panels[0]

    async def do(pilot):
        await on_knob(pilot, "max_requests")
        assert json.loads(panel.raw())["name"] == "max_requests"
        assert "FROM knobs" in panel.as_sql()
        app.query_one("#changes").focus()
        await settle(pilot)
        assert json.loads(panel.raw())["request"] == "r1"
        assert "knob_changes" in panel.as_sql()

    drive(app, do)


def test_asking_is_off_until_something_is_drafted(run):
    """So that the footer tells the key only where it does something."""
    app = app_of(run)
    seen = []

    async def do(pilot):
        panel = app.panels[0]
        for key in (None, "enter", "x"):
            if key is not None:
                pilot.app.query_one("#knobs").focus()
                await pilot.press(key)
                await settle(pilot)
            seen.append(bool(panel.check_action("apply", ())))

    drive(app, do)
    assert seen == [False, True, False]
