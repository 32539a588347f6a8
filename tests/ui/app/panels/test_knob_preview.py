"""The preview of a draft of knobs: asked for, made by a script in place of a process, told, and given up."""

from pathlib import Path

import pytest

from estimator.errors import GlassgateError, NotFoundError
from tests.ui.app.panels.scenes import KNOBS, NOW, SECOND, PanelApp, drive, head, knob_panel, snap, text_of
from tests.ui.app.script import run_choice, settle
from ui.app.panels.knobs import KnobsPanel
from ui.view import snapshot as s
from ui.whatif.process import READING, Standing
from ui.whatif.side_by_side import Row, SideBySide

FOUND = SideBySide(
    since_ns=NOW - 300 * SECOND,
    until_ns=NOW,
    warmed="replayed from the run's start",
    steps="steps as recorded",
    score=0.98,
    fidelity="1,890 of 1,895 passes have the same members (99.7 %)",
    holds=True,
    rows=(
        Row("tokens a second", "5,509", "5,511", "5,525", "+0.3 %", True),
        Row("batch size, mean", "1", "1", "5.92", "+492 %"),
        Row("queue, p50", "55.5 ms", "65.4 ms", "16.3 ms", "-75 %", True),
        Row("queue, p99", "155 ms", "165 ms", "116 ms", "-30 %", True),
        Row("TTFT, p50", "64.9 ms", "74.4 ms", "30.6 ms", "-59 %", True),
        Row("TTFT, p99", "227 ms", "173 ms", "950 ms", "+449 %", False),
        Row("refused for good", "0", "0", "0", ""),
        Row("host hits used", "12", "12", "14", "+17 %"),
        Row("peak of buffers", "1.20 GiB", "1.20 GiB", "4.46 GiB", "+272 %"),
    ),
    stops=(Row("chunk_tokens", "2", "2", "180", "+8,900 %"), Row("request_count", "1,808", "1,728", "0", "-100 %")),
    limits=(
        Row("its limit", "4.00 GiB", "4.00 GiB", "4.00 GiB", ""),
        Row("smoke reached", "4.09 GiB", "4.09 GiB", "4.09 GiB", ""),
    ),
    remarks=("the peak of buffers is above max_buffer_bytes of 4.00 GiB: a lone request passes it",),
    wall_s=1.5,
)


class Begun:
    """A preview as a script makes it: nothing until the test gives it an answer."""

    def __init__(self, *asked, **more):
        self.asked, self.more = asked, more
        self.standing = READING
        self.answer = None
        self.stopped = False

    def poll(self):
        """The answer, when the test gave one."""
        return self.answer

    def stop(self):
        """Nobody waits any more."""
        self.stopped = True


class Process:
    """Begins previews, and keeps them."""

    def __init__(self):
        self.begun = []

    def __call__(self, *asked, **more):
        """One more."""
        self.begun.append(Begun(*asked, **more))
        return self.begun[-1]

    @property
    def last(self):
        """The one begun last."""
        return self.begun[-1]


def app_of(*, readonly=False, of_head=None, **more):
    """The panel of a run with a record, and the script that makes its previews."""
    panel = KnobsPanel()
    panel.preview.preview.begin = Process()
    choice = run_choice(1, run="7f3a0000", database="/records/glassgate.db")
    snapshot = snap(knobs=knob_panel(KNOBS, **more), head=head(**(of_head or {})))
    app = PanelApp(panel, snapshot=s.msgspec.structs.replace(snapshot, runs=(choice,)), readonly=readonly)
    app.process = panel.preview.preview.begin
    return app


async def draft(pilot, name="max_requests", text="8"):
    """Enter another value for a knob."""
    table = pilot.app.query_one("#knobs")
    table.focus()
    assert table.go_to(name)
    await settle(pilot)
    await pilot.press("enter", *text, "enter")
    await settle(pilot)


async def ask(pilot):
    """Draft, and ask for a preview."""
    await draft(pilot)
    await pilot.press("v")
    await settle(pilot)


async def answer(pilot, found):
    """Let the process answer, and the panel look."""
    pilot.app.process.last.answer = found
    pilot.app.panels[0].preview.look()
    await settle(pilot)


@pytest.mark.parametrize("size", [(80, 24), (140, 45)])
def test_a_draft_is_previewed_before_it_is_applied(size):
    """`v` replays the last minutes of this run's record under the draft; the figures stand side by side, and why."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        begun = app.process.last
        assert begun.asked == (Path("/records/glassgate.db"), "7f3a0000", {"max_requests": 8})
        assert begun.more == {"rank": 0, "since": "300s"}
        assert "5 min before +6 min 40 s  reading the record" in text_of(app.screen)
        begun.standing = Standing("replaying what if", 0.75)
        app.panels[0].preview.look()
        await settle(pilot)
        assert "replaying what if  ━━━━━━━━━───  75 %" in text_of(app.screen)
        await answer(pilot, FOUND)

    text = drive(app, do, size=size)
    assert "fidelity 0.98: 1,890 of 1,895 passes have the same members" in " ".join(text.split())
    row = next(line for line in text.splitlines() if "TTFT, p99" in line)
    assert row.split() == ["TTFT,", "p99", "227", "ms", "173", "ms", "950", "ms", "+449", "%"]
    assert "the peak of buffers is above max_buffer_bytes of 4.00 GiB" in text
    kept = "glassgate whatif 7f3a0000 --since 300s --set max_requests=8 --keep, then B here"
    assert (kept in " ".join(text.split())) is (size == (140, 45))
    assert "draft  max_requests off -> 8 req" in text


def test_every_figure_can_be_reached_on_a_small_screen():
    """At 80x24 the figures scroll: gates, limits and host hits are there too."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        await answer(pilot, FOUND)
        app.query_one("#figures").focus()
        await pilot.press("end")
        keys = app.query_one("#figures").rows.keys
        assert set(keys) >= {
            "its limit",
            "smoke reached",
            "peak of buffers",
            "refused for good",
            "closed by chunk_tokens",
        }

    text = drive(app, do)
    assert "host hits used" in text
    assert "closed by request_count" in text


def test_below_the_floor_nothing_is_concluded_in_words():
    """A fidelity that is too low gives no figures, says so, and what to do."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        await answer(pilot, FOUND._replace(score=0.52, holds=False, rows=(), stops=(), limits=(), remarks=()))

    text = " ".join(drive(app, do, size=(140, 45)).split())
    assert "fidelity 0.52 is below 0.70, so nothing is concluded: 1,890 of 1,895" in text
    assert "w takes another span" in text
    assert "TTFT, p99" not in text


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("run 7f3a0000: no batch was formed in that span; the run lasted 40 s"),
        NotFoundError("run 7f3a0000: the record holds no prefix hashes"),
        GlassgateError("database glassgate.db has schema version 99, this Glassgate reads 4"),
    ],
)
def test_what_cannot_be_replayed_says_why(error):
    """A span without passes, a run without its workload, a newer record: its words, and the key that may help."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        await answer(pilot, error)

    text = " ".join(drive(app, do, size=(140, 45)).split())
    assert f"{error} (w: another span)" in text


def test_a_preview_that_cannot_begin_says_why():
    """No process, or no record to replay: a message, and the panel goes on."""
    app = app_of()

    def begin(*_asked, **_more):
        raise OSError(11, "Resource temporarily unavailable")

    app.panels[0].preview.preview.begin = begin
    text = drive(app, ask, size=(140, 45))
    assert "no process could be started for the preview: Resource temporarily unavailable" in text
    app = app_of()
    app.first = s.msgspec.structs.replace(app.first, runs=())
    assert "this run's record cannot be found" in drive(app, ask, size=(140, 45))


def test_without_a_draft_it_says_what_to_do_first():
    """`v` alone begins nothing."""
    app = app_of()

    async def do(pilot):
        app.query_one("#knobs").focus()
        await pilot.press("v")
        await settle(pilot)

        (said,) = app._notifications
        assert said.message.startswith("nothing is drafted yet: Enter edits the knob")

    drive(app, do, size=(140, 45))
    assert app.process.begun == []


@pytest.mark.parametrize("key", ["enter", "x", "v", "w"])
def test_a_draft_that_changes_ends_its_preview(key):
    """Another value, none any more, the preview asked for again or of another span: the one before is stopped."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        first = app.process.last
        if key == "enter":
            await draft(pilot, text="9")
        else:
            await pilot.press(key)
        await settle(pilot)
        assert first.stopped
        assert len(app.process.begun) == (2 if key in "vw" else 1)
        if key == "w":
            assert app.process.last.more["since"] == "900s"

    text = drive(app, do, size=(140, 45))
    assert ("reading the record" in text) is (key in "vw")


def test_a_preview_stays_when_its_draft_was_accepted_and_goes_with_the_next():
    """What was foretold can be held against what comes; it is of another draft when one is entered."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        await answer(pilot, FOUND)
        panel = app.panels[0]
        panel.draft_values.clear()
        panel.redraw()
        await settle(pilot)
        assert "preview of max_requests 8 req  5 min before" in text_of(app.screen)
        assert "fidelity 0.98" in text_of(app.screen)
        await draft(pilot, text="9")

    assert "fidelity 0.98" not in drive(app, do, size=(140, 45))


def test_another_run_on_the_screen_ends_it():
    """A preview of one run is not shown beside another."""
    app = app_of()

    async def do(pilot):
        await ask(pilot)
        begun = app.process.last
        app.show(snap(knobs=knob_panel(KNOBS), head=head(run="another")))
        await settle(pilot)
        assert begun.stopped

    assert "reading the record" not in drive(app, do, size=(140, 45))


def test_the_end_of_the_screen_ends_it():
    """Nothing goes on replaying when the app has ended."""
    app = app_of()
    drive(app, ask)
    assert app.process.last.stopped


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"readonly": True}, "read-only"),
        ({"may_change": False, "why_not": "the run has ended"}, "the run has ended"),
        ({"of_head": {"following": False, "at_ns": NOW - SECOND}}, "this is a moment of the past"),
    ],
)
def test_it_is_of_use_where_nothing_can_be_applied(more, why):
    """Read-only, on a recording and at a past moment a draft can be previewed; it still cannot be asked for."""
    app = app_of(**more)

    async def do(pilot):
        await ask(pilot)
        await answer(pilot, FOUND)
        await pilot.press("a")
        await settle(pilot)
        assert len(app.screen_stack) == 1

    text = drive(app, do, size=(140, 45))
    assert f"{why}" in text
    assert "; v previews" in text
    assert "fidelity 0.98" in text


def test_a_past_moment_is_previewed_up_to_that_moment():
    """The span ends at the moment shown, and does not begin before the run."""
    app = app_of(of_head={"following": False, "at_ns": 100 * SECOND})

    async def do(pilot):
        await ask(pilot)
        assert app.process.last.more == {"rank": 0, "since": 0, "until": 100 * SECOND}
        app.panels[0].preview.preview.span = 0
        await pilot.press("v")
        assert app.process.last.more == {"rank": 0, "since": 40 * SECOND, "until": 100 * SECOND}
        await pilot.press("w", "w", "w", "w")
        assert app.process.last.more == {"rank": 0, "until": 100 * SECOND}
        app.panels[0].preview.preview.span = 0
        await pilot.press("v")
        await answer(pilot, FOUND)
        assert "whatif 7f3a0000 --since +40s --until +100s --set max_requests=8" in text_of(app.screen)

    drive(app, do, size=(140, 45))


def test_the_question_tells_what_the_preview_said(tmp_path):
    """Before the change is asked for it stands there what it would have done, or that nobody looked."""
    app = app_of(folder=str(tmp_path))

    async def do(pilot):
        await draft(pilot)
        await pilot.press("a")
        await settle(pilot)
        assert "not previewed" in text_of(app.screen)
        await pilot.press("n", "v")
        await settle(pilot)
        await answer(pilot, FOUND)
        await pilot.press("a")
        await settle(pilot)

    text = " ".join(drive(app, do, size=(140, 45)).replace("│", " ").split())
    assert "previewed on 5 min before +6 min 40 s, fidelity 0.98: tokens a second 5,511 -> 5,525 (+0.3 %)" in text
    assert "TTFT, p99 173 ms -> 950 ms (+449 %)" in text
