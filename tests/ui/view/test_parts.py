"""Gates, buffers, knobs, request, alarms and log."""

import json
import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest

from controller.vocabulary import Gate, Reason
from estimator import estimate_batch, model
from estimator.context import RunContext
from store.why import why
from tests.ui.view.showing import S
from ui.view.snapshot import MOST_ROWS, Ask


def part(snapshot_of, name):
    """Shows one part of a snapshot alone."""
    return lambda seconds=None, **ask: getattr(snapshot_of(seconds, panels=frozenset({name}), **ask), name)


def test_only_what_is_asked_for_is_read(show):
    """A panel's part is there when it is asked for; what nobody sees is None."""
    parts = ("detail", "waiting", "gates", "hits", "buffers", "knobs", "request", "log")
    for name in ("waiting", "gates", "hits", "buffers", "knobs", "request", "log"):
        snapshot = show(140, panels=frozenset({name}))
        assert [each for each in parts if getattr(snapshot, each) is not None] == [name]
        assert snapshot.passes == ()
    live = show(140, panels=frozenset({"live"}))
    assert [each for each in parts if getattr(live, each) is None] == ["request"]
    assert live.log.lines == ()
    assert live.buffers.windows == ()


def test_gates_come_in_order_with_set_beside_effective(show):
    """The nine gates stand in the order of evaluation, each with its knob as it was set and as it is in force."""
    rows = part(show, "gates")(612)
    assert [row.gate for row in rows] == [
        "batch_mode", "request_slots", "request_count", "kv_capacity", "extend_tokens", "cached_tokens",
        "buffer_bytes", "input_tokens", "chunk_tokens",
    ]  # fmt: skip
    by_gate = {row.gate: row for row in rows}
    extend = by_gate["extend_tokens"]
    assert (extend.knob, extend.set_to, extend.effective) == ("max_extend_tokens", 12_288, 12_288)
    assert extend.state == "not binding"
    assert by_gate["buffer_bytes"].limit is None
    assert by_gate["request_count"].limit == 8
    assert (by_gate["request_slots"].knob, by_gate["request_slots"].limit) == (None, 64)


def test_a_gate_that_only_an_engine_has_gets_a_row(story, open_view):
    """A gate beyond the ladder that closed passes in the window stands below the nine."""
    story.arrive("a", 1)
    story.passed(2, wait=["a"], stop=(Gate.PAUSED, Reason.PAUSED))
    rows = open_view(story.into()).answer(Ask(panels=frozenset({"gates"}))).gates
    assert [(row.gate, row.stops) for row in rows if row.stops] == [("paused", 1)]
    assert len(rows) == 10


def test_the_windows_are_those_of_the_estimate(show, sql):
    """The buffers of the last batch are those of the estimator's own whole-batch estimate, with its peak."""
    shown = part(show, "buffers")(140)
    ((context,),) = sql("SELECT context FROM runs")
    geometry = model("deepseek-v3.2")
    members = sql(
        """SELECT device_hit_tokens + done_tokens + CASE host_hit WHEN 1 THEN asked_tokens ELSE 0 END, extend_tokens,
        CASE host_hit WHEN 1 THEN asked_tokens ELSE 0 END FROM decisions WHERE pass = ? AND outcome < 2""",
        shown.of_pass,
    )
    estimate = estimate_batch(geometry, RunContext.from_run(json.loads(context), geometry), members)
    assert {window.name: window.bytes for window in shown.windows} == {
        window.name: estimate.window_bytes(window) for window in estimate.windows
    }
    assert max(shown.phase_bytes) == estimate.peak_bytes == shown.last
    for window in shown.windows:
        assert len(window.phases) == len(shown.phases)
        assert any(window.phases)


def test_limits_and_smoke_stand_beside_the_estimate(show):
    """The limit is the one in force at the moment; the smoke allocation and the run's own safety factor stand by it."""
    before, after = part(show, "buffers")(140), part(show, "buffers")(400)
    assert before.limit == before.smoke_asked == 1_400 << 20
    assert (before.smoke_device, before.smoke_passed, before.safety_percent) == ("cuda:0", True, 100)
    assert after.limit is None


def test_knobs_are_those_in_force_then(show):
    """At each moment the knobs are those of the revision in force, with who turned each last, and changes up to it."""
    knobs = part(show, "knobs")
    begun, turned, later = knobs(100), knobs(200), knobs(600)
    assert (begun.revision, turned.revision, later.revision) == (0, 1, 4)
    value = {row.name: row for row in turned.knobs}["max_extend_tokens"]
    assert (value.set_to, value.changed_by) == (12_288, "ops")
    assert value.changed_ns < 200 * S
    assert {row.name: row for row in begun.knobs}["max_extend_tokens"].changed_ns is None
    assert begun.changes == ()
    assert [(change.knob, change.old, change.new, change.accepted) for change in turned.changes] == [
        ("page_size", 64, 128, False), ("max_extend_tokens", 6_144, 12_288, True),
    ]  # fmt: skip
    assert "page_size is fixed" in turned.changes[0].why
    assert turned.changes[0].request.endswith("recording.json")
    enforce = [(change.old, change.new) for change in later.changes if change.knob == "enforce"]
    assert enforce == [(False, True), (True, False)]


def test_the_headline_says_whether_gates_are_enforced(show, sql, story, open_view):
    """At each moment `enforce` is that of the knob change before it; a record without knobs says nothing."""
    changes = sql("SELECT at_ns, new FROM knob_changes WHERE knob = 'enforce' AND accepted ORDER BY id")
    assert {new for _, new in changes} == {0, 1}
    for at_ns, new in changes:
        assert show(at_ns / S, panels=frozenset()).head.enforce is bool(new)
        assert show((at_ns - 1) / S, panels=frozenset()).head.enforce is not bool(new)
    assert open_view(story.into()).answer(Ask()).head.enforce is None


def test_an_ended_run_takes_no_change(show):
    """Why no change can be asked for is said, and in which setting the engine ran."""
    panel = part(show, "knobs")()
    assert not panel.may_change
    assert "ended" in panel.why_not
    assert panel.setting.slots == 64


@pytest.mark.parametrize("request_id", ["wide", "too-long", "s3.t5", "talker-13", "s11.t4"])
def test_a_request_is_told_in_the_words_of_why(show, recording, request_id):
    """A request's words are exactly those of `why`, and its waits as spans add up to the time it waited."""
    panel = part(show, "request")(request=request_id)
    life = why(recording / "glassgate.db", request_id)
    assert list(panel.found.words) == life.words()
    spans = [span for span in panel.found.spans if span.what not in ("computing", "decoding", "computing and decoding")]
    assert sum(span.to_ns - span.from_ns for span in spans) == life.waited_ns
    starts = [span.from_ns for span in panel.found.spans]
    assert starts == sorted(starts)
    assert json.loads(panel.found.raw)["id"] == request_id
    assert panel.found.passes == tuple(sorted(panel.found.passes))


def test_a_life_is_one_line_of_time(show):
    """From its arrival to its end a served request's spans follow one another without a gap."""
    spans = part(show, "request")(request="s3.t5").found.spans
    assert all(one.to_ns == other.from_ns for one, other in pairwise(spans))
    assert [span.what for span in spans[-2:]] == ["computing", "decoding"]


def test_a_search_finds_one_or_offers_some(show):
    """A beginning of one id finds it, of several lists them, and of none says so; an empty one is silent."""
    request = part(show, "request")
    assert request(request="too-l").found.request == "too-long"
    offered = request(request="burst-")
    assert offered.found is None
    assert offered.matches[:2] == ("burst-00", "burst-01")
    assert "begins with 'nobody'" in request(request="nobody").problem
    assert request(request="  ").problem == ""
    assert len(request(request="s").matches) == 20


def test_a_life_that_goes_on_says_so(show):
    """At a moment within its life a request is told whole, and the panel says that this is later."""
    request = part(show, "request")
    assert request(140, request="s3.t5").later
    assert not request(request="s3.t5").later


def test_the_alarm_stands_from_its_raising_to_its_end(show):
    """An alarm is absent before, open with its growing length while it stands, and closed after."""
    log = part(show, "log")
    assert log(153).alarms == ()
    (standing,) = log(154).alarms
    assert (standing.alarm, standing.state, standing.closed_ns, standing.at_least) == ("long_wait", "open", None, True)
    assert log(154).open_alarms == 1
    assert 60 * S < standing.measured <= log(170).alarms[0].measured
    assert not log(170).alarms[0].at_least
    (over,) = log(200).alarms
    assert (over.state, log(200).open_alarms) == ("closed", 0)


def test_the_log_has_every_kind_newest_first(show):
    """What happened is in the log by kind, faults marked, newest first, each line with its raw record."""
    log = part(show, "log")(rows=MOST_ROWS)
    assert {line.kind for line in log.lines} == {"run", "knob", "alarm", "refuse", "retract", "smoke"}
    times = [line.at_ns for line in log.lines]
    assert times == sorted(times, reverse=True)
    texts = " / ".join(line.text for line in log.lines)
    for words in (
        "ops turned max_extend_tokens 6,144 to 12,288: revision 1", "page_size is fixed at 64",
        "too-long can never fit",
        "gave its KV back and waits again", "smoke allocation of 1.37 GiB on cuda:0 passed", "run ended: finished",
        "night shift turned max_requests 4 to 2, max_buffer_bytes 1.37 GiB to off",
    ):  # fmt: skip
        assert words in texts
    for line in log.lines:
        json.loads(line.raw)
        assert line.fault == (line.kind in ("refuse", "retract") or "raised" in line.text or "refused" in line.text)


def test_each_knob_request_has_its_own_line(story, open_view):
    """Requests taken at one boundary are told apart, accepted or refused, and the changes of one stay together."""
    story.arrive("a", 1)
    story.passed(2, wait=["a"])
    rows = [
        ("max_requests", 8, 4, 1, "", "one.json", 1), ("min_free_slots", 0, 2, 1, "", "one.json", 1),
        ("max_requests", 4, 6, 1, "", "two.json", 2), ("page_size", 1, 2, 0, "fixed", "three.json", 2),
        ("page_size", 1, 4, 0, "fixed", "four.json", 2),
    ]  # fmt: skip
    with closing(sqlite3.connect(story.into())) as database, database:
        for knob, old, new, accepted, why_not, request, revision in rows:
            database.execute(
                """INSERT INTO knob_changes (run, at_ns, who, knob, old, new, accepted, why, request, revision)
                VALUES (1, ?, 'ops', ?, ?, ?, ?, ?, ?, ?)""",
                (2 * S, knob, old, new, accepted, why_not, request, revision),
            )
    log = open_view(story.path).answer(Ask(panels=frozenset({"log"}), log_filter="knob")).log
    assert [line.text for line in log.lines][::-1] == [
        "ops turned max_requests 8 to 4, min_free_slots 0 to 2: revision 1",
        "ops turned max_requests 4 to 6: revision 2",
        "ops asked for page_size 1 to 2; refused: fixed",
        "ops asked for page_size 1 to 4; refused: fixed",
    ]


def test_the_log_is_filtered(show):
    """Text filters kind, text and request, `!` turns it round, faults only leaves the rest out, hidden counts them."""
    log = part(show, "log")
    whole = log(rows=MOST_ROWS)
    knobs = log(rows=MOST_ROWS, log_filter="knob")
    others = log(rows=MOST_ROWS, log_filter="! knob")
    assert len(knobs.lines) + knobs.hidden == len(others.lines) + others.hidden == len(whole.lines)
    assert len(knobs.lines) + len(others.lines) == len(whole.lines)
    assert {line.kind for line in knobs.lines} == {"knob"}
    faults = log(rows=MOST_ROWS, faults_only=True)
    assert all(line.fault for line in faults.lines)
    assert faults.hidden == sum(not line.fault for line in whole.lines)
    assert len(log(rows=2).lines) == 2


def test_losses_and_aborts_are_in_the_log(story, open_view):
    """An abort is told with its reason; a loss whose time is not known stands at the end, and at no past moment."""
    story.arrive("a", 1)
    story.passed(2, wait=["a"])
    story.abort("a", 5)
    story.into()
    with closing(sqlite3.connect(story.path)) as database, database:
        database.execute("INSERT INTO losses VALUES (NULL, 1, 'missing', 3, 400, NULL, NULL, 1, 900, '')")
    view = open_view(story.path)
    log = view.answer(Ask(panels=frozenset({"log"}))).log
    assert [line.kind for line in log.lines] == ["abort", "loss", "run"]
    assert log.lines[0].text == "a was aborted 4.0 s after it arrived: client went away"
    assert "3 frames" in log.lines[1].text
    past = view.answer(Ask(panels=frozenset({"log"}), at_ns=4 * S)).log
    assert [line.kind for line in past.lines] == ["run"]
    assert view.answer(Ask()).head.losses == 3
