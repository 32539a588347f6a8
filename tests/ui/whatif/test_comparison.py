"""A span as it was, replayed as recorded, and replayed under other knobs."""

import dataclasses
import json

import pytest

from controller.journal import JournalReader
from controller.knobs import Knobs
from controller.limits import Setting
from estimator.errors import FidelityError, InputError, KnobError
from store.ingest import Ingest
from tests.ui.whatif.records import database_of, decided, many, record, served
from ui.whatif.comparison import compare, preview
from ui.whatif.fidelity import Fidelity, fidelity_of
from ui.whatif.happened import read_happened
from ui.whatif.played import Life, Played, play
from ui.whatif.recorded import read_recorded
from ui.whatif.side_by_side import remarks
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of


def test_without_changes_there_is_one_replay_and_nothing_parts(run):
    """What if nothing: recorded, replayed and changed are one."""
    found = preview(database_of(run), "one", {})
    assert found.fidelity.exact
    assert found.recorded == found.replayed == found.changed
    assert (found.same_passes, found.parted) == (60, ())
    found.check()


def test_requests_without_an_end_are_told(run, tmp_path):
    """Where the record stops while requests wait, as a live run's does, it is told why two exact columns differ."""
    assert preview(database_of(run), "one", {}).unended == 0
    database = tmp_path / "half.db"
    with JournalReader(run.journal) as reader, Ingest(database, "one") as ingest:
        frames = list(reader)
        ingest.feed(frames[: len(frames) // 2])
    found = preview(database, "one", {})
    assert found.fidelity.exact
    assert found.unended == found.replayed.finished - found.recorded.finished > 0
    assert found.recorded.queue_p50 < found.replayed.queue_p50
    (told,) = remarks(found)
    assert told.startswith(f"the record holds no end (yet) of {found.unended} of 60 requests: ")
    assert found.as_dict()["unended"] == found.unended


def test_a_change_holds_from_the_span_on(run):
    """Before the span all is as recorded; in it the batches grow, and it is told where they part."""
    found = preview(database_of(run), "one", {"max_requests": "off"}, since="+0.1ms")
    assert found.fidelity.exact
    assert found.changes == {"max_requests": (1, None)}
    assert found.replayed.batch_size_max == 1
    assert found.changed.batch_size_max > 1
    assert found.replayed.stops == {"request_count": found.replayed.stops["request_count"]}
    assert found.parted[0].place == found.same_passes
    first = found.parted[0]
    assert len(first.changed.members) > len(first.recorded.members) == 1
    assert set(first.recorded.members) <= set(first.changed.members)
    earlier = {number for each in found.parted if each.changed for number in each.changed.members}
    assert min(earlier) > 0
    assert found.wall_s > 0


def test_from_the_start_a_change_is_as_another_run(run, tmp_path):
    """What if the whole run had had other knobs: what a run with them did."""
    other = record(
        tmp_path, served(many()), knobs=Knobs(page_size=4, chunked_prefill_size=64, max_requests=3), device_tokens=4_000
    )
    wanted = preview(database_of(other), None, {})
    found = preview(database_of(run), None, {"max_requests": 3})
    assert found.changed == wanted.recorded
    assert decided(other) != decided(run)


def test_the_records_own_changes_leave_a_changed_knob_alone(sessions):
    """A knob set anew stays so though the record turned it later; other knobs of the record are turned as they were."""
    recorded = read_recorded(database_of(sessions))
    assert [each.knobs.max_requests for each in recorded.revisions] == [None, 2, 3]
    span = read_span(recorded, "+150s")
    played = play(recorded, span, steps_of(recorded), {"max_requests": 1})
    assert max(len(each.members) for each in played.passes) == 1
    found = preview(database_of(sessions), None, {"max_extend_tokens": 2048}, since="+150s")
    assert found.fidelity.exact
    assert found.changed.batch_size_max <= 3


def test_buffers_are_compared_with_limit_and_smoke(sessions):
    """The peak of the estimated buffers stands beside the limit before and after."""
    found = preview(database_of(sessions), None, {"max_buffer_bytes": "100MiB", "chunked_prefill_size": 1024})
    assert found.limit_bytes == (600 << 20, 100 << 20)
    assert found.changed.peak_buffer < found.replayed.peak_buffer == found.recorded.peak_buffer
    assert found.smoke_bytes is None
    assert found.replayed.host_tokens > 0


def test_a_page_size_holds_from_the_replays_start(sessions):
    """What cannot be turned on the way is set from the beginning, warm-up included."""
    found = preview(database_of(sessions), None, {"page_size": 128}, since="+150s")
    assert found.changes == {"page_size": (64, 128)}
    assert found.changed != found.replayed


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"wishes": 3}, KnobError, "'wishes' is no knob"),
        ({"max_requests": 0}, KnobError, "max_requests is 0"),
        ({"chunked_prefill_size": 32}, KnobError, "smaller than page_size 64"),
        ({"page_size": 100}, InputError, "do not divide one another"),
    ],
)
def test_changes_that_cannot_be_are_refused(sessions, changes, error, told):
    """One line that names the knob, the value and the bound, before anything is replayed."""
    with pytest.raises(error, match=told):
        preview(database_of(sessions), None, changes)


def test_a_change_that_a_later_revision_does_not_allow_is_refused(tmp_path):
    """A chunk that fits the pages at first and the setting never is told, whenever in the record that comes."""
    knobs = Knobs(page_size=4, chunked_prefill_size=64)
    run = record(tmp_path, served(many(10)), knobs=knobs, setting=Setting(data_parallel=8, has_model=False))
    with pytest.raises(KnobError, match="divided by data_parallel 8 is less than one page"):
        preview(database_of(run), None, {"chunked_prefill_size": 16})


def test_a_knob_that_is_not_in_force_as_it_was_set_is_told(run, sessions):
    """Raised beyond what another limit allows, or without what it needs, a knob does less than it says: why is told."""
    (knob,) = preview(database_of(run), None, {"max_buffer_bytes": "1GiB", "max_requests": 2}).not_as_set
    assert (knob.name, knob.set_to, knob.effective, knob.state) == ("max_buffer_bytes", 1 << 30, None, "dead")
    found = preview(database_of(run), None, {"max_buffer_bytes": "1GiB"})
    assert remarks(found)[0].startswith("max_buffer_bytes is 1.00 GiB, in force off (dead): ")
    assert found.as_dict()["not_as_set"][0]["state"] == "dead"
    assert preview(database_of(sessions), None, {"max_buffer_bytes": "1GiB"}).not_as_set == ()


def test_everything_is_plain_data(sessions):
    """A comparison goes into JSON with the figures of all three, the fidelity and where they part."""
    found = json.loads(json.dumps(preview(database_of(sessions), None, {"max_requests": 1}).as_dict()))
    assert found["fidelity"]["exact"] is True
    assert found["fidelity"]["score"] == 1
    assert found["changes"] == {"max_requests": {"recorded": None, "new": 1}}
    assert found["what_if"]["batch_size_max"] == 1
    assert found["recorded"] == found["replayed"]
    assert found["parted"][0]["recorded"]["members"]
    assert found["parted"][0]["place"] == found["same_passes"]


def test_fidelity_is_the_least_of_its_parts():
    """Members, times to first token and queue times each bring it down; below the floor no conclusion is drawn."""
    base = {
        "passes": 10,
        "same_passes": 3,
        "exact": False,
        "ttft_mean": 2.0,
        "compared": 10,
        "ttft_each": 9.0,
        "queue_each": 9.0,
    }
    assert Fidelity(**base, overlap=0.9, ttft_error=0.1, queue_error=0.0).score == pytest.approx(0.9)
    assert Fidelity(**base, overlap=1.0, ttft_error=0.5, queue_error=0.1).score == pytest.approx(0.75)
    assert Fidelity(**base, overlap=1.0, ttft_error=0.0, queue_error=0.6).score == pytest.approx(0.7)
    assert Fidelity(**base, overlap=1.0, ttft_error=9.0, queue_error=0.6).score == 0
    low = Fidelity(**base, overlap=0.6, ttft_error=0.1, queue_error=0.0)
    low.check(0.6)
    with pytest.raises(
        FidelityError, match=r"fidelity 0\.60 is below 0\.70: 3 of 10 passes have the same members"
    ) as told:
        low.check()
    assert "no conclusion can be drawn" in str(told.value)
    assert told.value.exit_code == 12


def test_times_are_off_as_a_whole_and_request_by_request():
    """Two requests that change places are off one by one, and as a whole they are not."""
    lives = {number: Life(0, 10**9 * number, 2 * 10**9 * number, None, 1, 1) for number in (1, 3)}
    turned = {1: lives[3], 3: lives[1]}
    found = fidelity_of(Played((), lives, 0, 0, 0.0), Played((), turned, 0, 0, 0.0))
    assert (found.ttft_error, found.ttft_each) == (0, 4)
    assert (found.queue_error, found.queue_each) == (0, 2)
    assert found.ttft_mean == 4
    assert not found.exact


def test_another_step_time_is_seen_in_the_fidelity(run):
    """Under a model that is not the run's, batches and times are off, and it is said by how much."""
    recorded = read_recorded(database_of(run))
    span = read_span(recorded)
    found = compare(recorded, span, {}, steps_of(recorded, "preset"))
    assert not found.fidelity.exact
    assert found.fidelity.ttft_error > 0
    with pytest.raises(FidelityError):
        found.check()


def test_passes_are_matched_by_their_members_wherever_they_stand(run):
    """Members are compared as sets with the number of times, not place by place."""
    recorded = read_recorded(database_of(run))
    happened = read_happened(recorded, read_span(recorded))
    turned = dataclasses.replace(happened, passes=happened.passes[::-1])
    assert fidelity_of(happened, turned).same_share == 1
    assert not fidelity_of(happened, turned).exact
    twice = dataclasses.replace(happened, passes=happened.passes[:1] * 60)
    assert fidelity_of(happened, twice).same_passes == 1
    assert fidelity_of(happened, twice).overlap == pytest.approx(1 / 60)
    pairs = [dataclasses.replace(each, members=(each.members[0], each.members[0] + 1000)) for each in happened.passes]
    halves = fidelity_of(happened, dataclasses.replace(happened, passes=tuple(pairs)))
    assert (halves.same_passes, halves.overlap) == (0, pytest.approx(0.5))


def test_an_early_stop_ends_the_replay(sessions):
    """Where `stopped` says so the replay ends within a moment, with what it has."""
    recorded = read_recorded(database_of(sessions))
    span = read_span(recorded)
    told = []
    played = play(recorded, span, steps_of(recorded), progress=told.append, stopped=lambda: True)
    assert len(played.passes) <= len(read_happened(recorded, span).passes)
