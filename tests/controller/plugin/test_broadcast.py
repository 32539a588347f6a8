"""Knob requests on their way to every rank: as numbers and back, in process, without a way, and when nobody answers."""

import time

import pytest

from controller.engines.plugin import Http, InProcess, NoWay, broadcast, requests
from controller.engines.plugin.broadcast import Forwarded, from_numbers, leave_forwarded, number_of, to_numbers
from controller.knob_requests import KnobRequest
from controller.knob_turning import answer, asked_change
from controller.knobs import KNOB_SPECS, Knobs
from controller.limits import Setting
from controller.records import KnobChange
from estimator.errors import KnobError

HTTP = Http("http://127.0.0.1:1/set_internal_state", "server_args")


def left(**changes):
    """A request as an operator leaves it and the collector takes it."""
    return KnobRequest("00000000000000000042-7-abcd.json", asked_change(changes, "ada"), None, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_requests": 4},
        {"max_requests": "unlimited", "max_buffer_bytes": "4GiB"},
        {"enforce": "off", "shared_kv_batching": True},
        {"chunked_prefill_size": -1, "max_prefill_tokens": 2048, "load_back_threshold": 0},
    ],
)
def test_a_request_is_answered_alike_before_and_after_the_broadcast(changes):
    """What every rank makes of the numbers is what the request asks for, whole numbers all of them."""
    knobs = Knobs(max_requests=9)
    numbers = to_numbers(left(**changes))
    assert all(type(value) is int for value in numbers.values())
    assert set(numbers) <= set(broadcast.KEYS)
    request, number = from_numbers(numbers)
    assert number == number_of(left(**changes).name)
    there, here = answer(request, knobs, Setting()), answer(left(**changes), knobs, Setting())
    assert there.accepted
    assert (there.knobs, there.changes) == (here.knobs, here.changes)


def test_floats_are_what_an_endpoint_may_make_of_numbers():
    """Whole floats stand for the same, and those that are not whole are refused by the answer, not by an error."""
    request, _ = from_numbers({"glassgate_max_requests": 4.0, "glassgate_enforce": 0.0})
    assert answer(request, Knobs(), Setting()).knobs.max_requests == 4
    for odd in (4.5, float("nan"), float("inf")):
        request, number = from_numbers({"glassgate_max_requests": odd, "glassgate_request": odd})
        assert not answer(request, Knobs(), Setting()).accepted
        assert isinstance(number, int)
    request, _ = from_numbers({"glassgate_enforce": 2})
    assert "enforce" in answer(request, Knobs(), Setting()).why


def test_an_expected_revision_travels():
    """A request made for another revision than the one in force is refused on every rank."""
    asked = KnobRequest("a.json", asked_change({"max_requests": 4}, "ada", expect_revision=3), None, 0)
    request, _ = from_numbers(to_numbers(asked))
    assert "revision 3" in answer(request, Knobs(), Setting()).why
    assert answer(request, Knobs(revision=3), Setting()).accepted


@pytest.mark.parametrize(
    "request_",
    [
        KnobRequest("a.json", None, "knob request a.json is not a JSON object", 0),
        KnobRequest("a.json", {"who": "ada"}, None, 0),
        KnobRequest("a.json", {"changes": {"max_request": 4}}, None, 0),
        KnobRequest("a.json", {"changes": {"max_requests": [1]}}, None, 0),
    ],
)
def test_what_is_no_request_is_never_broadcast(request_):
    """A request that cannot be read is a KnobError before anything is sent."""
    with pytest.raises(KnobError):
        to_numbers(request_)


def test_every_knob_has_a_key():
    """No knob is left out of the broadcast."""
    assert len(broadcast.KEYS) == len(KNOB_SPECS) + 2


def changes_in(records):
    """(accepted, who, request, why) of each recorded answer."""
    return [(r.accepted, r.who, r.request, r.why) for r in records if isinstance(r, KnobChange)]


def until(condition, seconds=10.0):
    """Wait for something that is to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_in_process_a_request_waits_for_the_next_pass_boundary(engine, records_of):
    """The clerk takes what was left; the engine answers when it likes, and it is recorded."""
    one = engine(way=InProcess())
    name = one.record.run.leave_request(asked_change({"max_requests": 3}, "ada"))
    until(lambda: one.record.taken)
    one.record.turned(answer(one.record.taken.popleft(), one.record.knobs, Setting()))
    one.record.close()
    assert changes_in(records_of(one.record.run)) == [(True, "ada", name, "")]


def test_in_process_the_other_groups_get_a_copy(engine):
    """A request left with the first rank reaches the leader of each other group, and no rank that only follows."""
    zero = engine(run_id="dp000001", group="dp0", way=InProcess())
    one = engine(run_id="dp000001", group="dp1", rank=1, way=InProcess())
    two = engine(run_id="dp000001", group="dp1", rank=2, leads=False, way=InProcess())
    zero.record.run.leave_request(asked_change({"max_requests": 3}, "ada"))
    until(lambda: zero.record.taken and one.record.taken)
    assert one.record.taken[0].content["changes"] == {"max_requests": 3}
    time.sleep(0.6)
    assert (len(zero.record.taken), len(one.record.taken), len(two.record.taken)) == (1, 1, 0)


def test_without_a_way_a_request_is_refused_with_the_reason(engine, records_of):
    """An engine that can turn no knob safely says so in the record, under the name of whoever asked."""
    one = engine(way=NoWay("ranks on two machines cannot be told at one step"))
    name = one.record.run.leave_request(asked_change({"max_requests": 3}, "ada"))
    until(lambda: changes_in(records_of(one.record.run)))
    assert changes_in(records_of(one.record.run)) == [
        (False, "ada", name, "ranks on two machines cannot be told at one step")
    ]


def forwarded(record, why="", at_ns=None):
    """Leave word of a request as the collector does; its name and number."""
    request = left(max_requests=3)
    at_ns = time.time_ns() if at_ns is None else at_ns
    leave_forwarded(record.run.path / "knob-requests", Forwarded(request.name, at_ns, 0, request.content, None, why))
    return request.name, number_of(request.name)


def test_a_broadcast_is_recorded_under_the_name_of_whoever_asked(engine, records_of):
    """The record of an answer names the request in the run's folder and who left it, though numbers alone travelled."""
    one = engine(way=HTTP)
    name, number = forwarded(one.record)
    request, _ = from_numbers(to_numbers(left(max_requests=3)))
    one.record.turned(answer(request, one.record.knobs, Setting()), number=number)
    one.record.close()
    assert changes_in(records_of(one.record.run)) == [(True, "ada", name, "")]
    assert broadcast.list_forwarded(one.record.run.path / "knob-requests") == []


def test_every_groups_leader_records_who_asked(engine, records_of):
    """Of several groups each leader finds the request in the folder in which it was left, whichever answers first."""
    zero = engine(run_id="groups01", group="dp0", way=HTTP)
    one = engine(run_id="groups01", group="dp1", rank=1, way=HTTP)
    name, number = forwarded(zero.record)
    request, _ = from_numbers(to_numbers(left(max_requests=3)))
    for each in (zero, one):
        each.record.turned(answer(request, each.record.knobs, Setting()), number=number)
        each.record.close()
        assert changes_in(records_of(each.record.run)) == [(True, "ada", name, "")]
    folder = zero.record.run.path / "knob-requests"
    broadcast.clear_answered(folder, time.time_ns() + 1)
    assert broadcast.find_forwarded(folder, number) is None


def test_a_broadcast_that_nobody_left_is_recorded_as_such(engine, records_of):
    """Numbers that somebody posted straight to the engine are recorded too."""
    one = engine(way=HTTP)
    request, number = from_numbers({"glassgate_max_requests": 3})
    one.record.turned(answer(request, one.record.knobs, Setting()), number=number)
    one.record.close()
    assert changes_in(records_of(one.record.run)) == [(True, "the engine's endpoint", "broadcast-0", "")]


def test_what_got_no_further_than_the_collector_is_recorded_with_its_reason(engine, records_of):
    """A refusal that the collector left reaches the journal, once."""
    one = engine(way=HTTP)
    name, _ = forwarded(one.record, "it cannot be reached")
    until(lambda: changes_in(records_of(one.record.run)))
    time.sleep(0.6)
    assert changes_in(records_of(one.record.run)) == [(False, "ada", name, "it cannot be reached")]


def test_a_request_that_no_rank_answers_is_refused_in_the_end(engine, records_of):
    """What was passed on too long ago counts as refused, so that whoever asked is told."""
    one = engine(way=HTTP)
    forwarded(one.record, at_ns=time.time_ns() - requests.PATIENCE_NS - 1)
    until(lambda: changes_in(records_of(one.record.run)))
    ((accepted, who, _, why),) = changes_in(records_of(one.record.run))
    assert (accepted, who) == (False, "ada")
    assert "no rank answered within 60 s" in why


def test_a_damaged_file_of_the_collector_harms_nothing(engine, records_of):
    """A file that cannot be read as a forwarded request is passed over."""
    one = engine(way=HTTP)
    folder = one.record.run.path / "knob-requests" / broadcast.FOLDER
    folder.mkdir()
    (folder / "7.json").write_text("{")
    name, _ = forwarded(one.record, "no")
    until(lambda: changes_in(records_of(one.record.run)))
    assert changes_in(records_of(one.record.run)) == [(False, "ada", name, "no")]
    assert len(one.faults) == 0
