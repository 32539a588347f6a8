"""Host hits: planned before loading, skipped for a reason, tried again without the hit when a load fails."""

import pytest

from controller.admission import LoadAnswer
from controller.knobs import Knobs
from controller.request import Candidate, Capacity, PrefixMatch
from controller.vocabulary import HostHit, Outcome


def hit(host, prompt=1000, **more):
    """A request with a host hit."""
    return {"prompt_tokens": prompt, "host_hit_tokens": host, **more}


def waiting(number, prompt=1000, output=0, **match):
    """A candidate for a driven pass."""
    return Candidate(number, prompt, output, PrefixMatch(**match))


def test_a_host_hit_is_loaded_and_only_the_rest_computed(decided):
    """A planned hit is loaded whole when the candidate enters, and only what stands behind it is computed."""
    answer = decided([hit(600)])
    assert answer.hit("a") == ("loaded", None)
    assert answer.data["batch"] == [
        {"id": "a", "outcome": "admit", "extend_tokens": 400, "cached_tokens": 600, "host_loaded_tokens": 600}
    ]


def test_the_funnel_of_a_loaded_hit_is_kept(decided):
    """Resident, matched, asked and loaded tokens of a hit are all in its decision."""
    found = decided([hit(600)]).of("a")["host_hit"]
    funnel = [found[f"{stage}_tokens"] for stage in ("resident", "matched", "asked", "loaded")]
    assert funnel == [600, 600, 600, 600]


def test_the_funnel_of_a_skipped_hit_ends_where_it_was_skipped(decided):
    """A hit skipped by the plan was matched, and nothing was asked or loaded."""
    found = decided([hit(9)]).of("a")["host_hit"]
    funnel = [found[f"{stage}_tokens"] for stage in ("resident", "matched", "asked", "loaded")]
    assert funnel == [9, 9, 0, 0]


def test_a_hit_below_the_threshold_is_skipped(decided):
    """A hit shorter than load_back_threshold is computed; one at the threshold is loaded."""
    knobs = {"load_back_threshold": 256}
    below = decided([hit(255)], knobs=knobs)
    assert below.hit("a") == ("skipped", "below_threshold")
    assert below.extends == {"a": 1000}
    assert decided([hit(256)], knobs=knobs).hit("a") == ("loaded", None)


def test_without_a_hit_none_is_resident(decided):
    """A request the host holds nothing of says so."""
    assert decided([{"prompt_tokens": 10}]).hit("a") == ("skipped", "none_resident")


@pytest.mark.parametrize("why", ["in_flight", "disabled"])
def test_a_hit_that_may_not_be_asked_for_is_skipped(decided, why):
    """A hit still being written, or a host tier that is disabled, is no load; the prompt is computed whole."""
    answer = decided([hit(600, host_load=why)])
    assert answer.hit("a") == ("skipped", why)
    assert answer.extends == {"a": 1000}
    assert answer.of("a")["after_load_failure"] is False


def test_evictable_tokens_count_in_the_quota(decided):
    """A hit larger than the free tokens is loaded when eviction makes room for it."""
    answer = decided([hit(600)], capacity={"free_tokens": 100, "evictable_tokens": 1900})
    assert answer.hit("a") == ("loaded", None)


def test_the_quota_is_exact(decided):
    """A hit of just free + evictable tokens is within the quota; one token more is beyond it."""
    capacity = {"pool_tokens": 10_000, "free_tokens": 200, "evictable_tokens": 400}
    at = decided([hit(600)], capacity=capacity)
    assert at.hit("a")[0] != "skipped"
    assert decided([hit(601)], capacity=capacity).hit("a") == ("skipped", "quota")


def test_the_candidates_own_device_prefix_is_no_quota(decided):
    """The candidate's own device hit is evictable until it is tested, and is no room for its load."""
    request = hit(501, device_hit_tokens=400)
    capacity = {"pool_tokens": 10_000, "free_tokens": 500, "evictable_tokens": 400}
    assert decided([request], capacity=capacity).hit("a") == ("skipped", "quota")
    assert decided([{**request, "host_hit_tokens": 500}], capacity=capacity).hit("a")[0] != "skipped"


def test_tokens_promised_in_this_pass_are_no_quota(decided):
    """What earlier members of the pass load and compute is no quota for a later hit."""
    queue = [hit(600), hit(600)]
    capacity = {"pool_tokens": 10_000, "free_tokens": 1500}
    assert decided(queue[1:], capacity=capacity).hit("a") == ("loaded", None)
    assert decided(queue, capacity=capacity).hit("b") == ("skipped", "quota")


def test_running_requests_take_room_and_not_quota(decided):
    """The quota is free + evictable, without what is reserved for running requests; that stays with kv_capacity."""
    answer = decided(
        [hit(600)],
        capacity={"pool_tokens": 10_000, "free_tokens": 700},
        running=[{"remaining_output_tokens": 500, "ignore_eos": True}],
    )
    assert answer.hit("a")[1] != "quota"
    assert answer.told["a"] == ("wait", "kv_capacity", "pool")


def test_a_hit_is_all_or_nothing(decided):
    """A hit that does not fit the quota is not loaded in part."""
    answer = decided([hit(601)], capacity={"pool_tokens": 10_000, "free_tokens": 600})
    assert answer.of("a")["host_hit"]["asked_tokens"] == 0


def test_a_waiting_candidate_asks_for_no_load(drive):
    """A candidate that a gate keeps waiting triggers neither load nor commit."""
    room = Capacity(pool_tokens=10_000, free_tokens=900)
    driven = drive([waiting(0, host_tokens=600, resident_tokens=600)], capacity=room)
    assert driven.told == {0: ("wait", "kv_capacity", "pool")}
    assert (driven.engine.loads, driven.engine.commits) == ([], [])


def test_a_candidate_refused_for_good_asks_for_no_load(drive):
    """A candidate that can never fit triggers neither load nor commit."""
    room = Capacity(pool_tokens=1000, free_tokens=1000)
    driven = drive([waiting(0, prompt=2000, host_tokens=600)], capacity=room)
    assert driven.told == {0: ("refuse", "kv_capacity", "can_never")}
    assert (driven.engine.loads, driven.engine.commits) == ([], [])


def test_a_member_is_loaded_once_and_committed_once(drive):
    """An admitted candidate's hit is asked for once, whole, and the candidate committed once."""
    driven = drive([waiting(0, host_tokens=600), waiting(1)])
    assert (driven.engine.loads, driven.engine.commits) == ([(0, 600)], [0, 1])


@pytest.mark.parametrize("why", ["owner_lane", "allocator"])
def test_a_load_that_fails_is_named_and_the_candidate_enters_without_it(decided, why):
    """When the load fails at an owner lane or the allocator, the candidate enters with its prompt computed whole."""
    answer = decided([hit(600, host_load=why)])
    assert answer.hit("a") == ("skipped", why)
    assert answer.data["batch"] == [
        {"id": "a", "outcome": "admit", "extend_tokens": 1000, "cached_tokens": 0, "host_loaded_tokens": 0}
    ]
    assert answer.of("a")["host_hit"]["asked_tokens"] == 600
    assert answer.of("a")["host_hit"]["loaded_tokens"] == 0


def test_both_ladders_are_recorded_after_a_load_failure(decided):
    """The ladder as it was with the hit and the one that ran without it are both in the decision."""
    answer = decided([{"prompt_tokens": 10}, hit(600, host_load="allocator")], knobs={"max_extend_tokens": 10_000})
    found = answer.of("b")
    assert found["after_load_failure"] is True
    before = {c["gate"]: c for c in found["checks_before_load_failure"]}
    after = {c["gate"]: c for c in found["checks"]}
    assert list(before) == list(after)
    assert (before["extend_tokens"]["observed"], after["extend_tokens"]["observed"]) == (410, 1010)
    assert (before["cached_tokens"]["observed"], after["cached_tokens"]["observed"]) == (600, 0)


def test_a_decision_without_a_failed_load_has_one_ladder(decided):
    """Where no load failed there is no earlier ladder."""
    found = decided([hit(600)]).of("a")
    assert (found["after_load_failure"], found["checks_before_load_failure"]) == (False, [])


def test_the_second_ladder_may_keep_the_candidate_out(drive, fake_engine):
    """A candidate that fits with its hit and not without waits after the failure, is not committed, closes the pass."""
    engine = fake_engine(failures={1: (HostHit.OWNER_LANE, 0)})
    queue = [waiting(0, 100), waiting(1, host_tokens=900), waiting(2, 1)]
    driven = drive(queue, knobs=Knobs(max_extend_tokens=500), engine=engine)
    assert driven.told[1] == ("wait", "extend_tokens", "limit")
    assert driven.decisions[1].checks_before_load_failure
    assert driven.engine.commits == [0]
    assert driven.closed == ("extend_tokens", "limit")
    assert driven.drawn == 2


def test_a_load_that_brings_a_part_has_failed(drive, fake_engine):
    """Loading is all or nothing: an engine that brings less than was asked is answered as one that brings nothing."""

    class Partly(fake_engine):
        def load_back(self, _candidate, tokens):
            return LoadAnswer(tokens - 1, HostHit.ALLOCATOR)

    driven = drive([waiting(0, host_tokens=600)], engine=Partly())
    assert driven.result.batch == ((0, Outcome.ADMIT, 1000, 0, 0, 0),)
    assert driven.decisions[0].checks_before_load_failure


def test_a_failed_load_is_tried_once(drive, fake_engine):
    """The second ladder runs with no hit at all, so the load is not asked for again."""
    engine = fake_engine(failures={0: (HostHit.ALLOCATOR, 0)})
    driven = drive([waiting(0, host_tokens=900)], engine=engine)
    assert driven.engine.loads == [(0, 900)]


def test_tokens_a_failed_load_evicted_are_recorded(drive, fake_engine):
    """The one trace a failed load may leave, tokens it evicted, stands in the decision."""
    engine = fake_engine(failures={0: (HostHit.ALLOCATOR, 128)})
    (decision,) = drive([waiting(0, host_tokens=900)], engine=engine).decisions
    assert decision.evicted_tokens == 128
    assert decision.host is HostHit.ALLOCATOR


def test_a_failed_load_leaves_the_room_as_it_was(drive, fake_engine):
    """After a failed load the next candidate finds the room and the quota that computing the prompt whole leaves."""
    room = Capacity(pool_tokens=10_000, free_tokens=2000, evictable_tokens=1000)
    queue = [waiting(0, host_tokens=900), waiting(1, 10)]
    failed = drive(queue, capacity=room, engine=fake_engine(failures={0: (HostHit.ALLOCATOR, 500)}))
    without = drive([waiting(0), waiting(1, 10)], capacity=room)
    assert failed.result.room_tokens == without.result.room_tokens
    assert failed.result.quota_tokens == without.result.quota_tokens


def test_a_cut_candidate_is_loaded_before_it_is_cut(decided):
    """The hit of a candidate that is cut is loaded whole; the chunk begins behind it."""
    answer = decided([hit(15_000, prompt=30_000)])
    assert answer.data["batch"] == [
        {
            "id": "a",
            "outcome": "admit_chunk",
            "extend_tokens": 8192,
            "cached_tokens": 15_000,
            "host_loaded_tokens": 15_000,
        }
    ]
