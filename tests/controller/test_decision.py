"""Decisions as flat integers and as named fields."""

import pytest

from controller.decision import Decision, read_check
from controller.knobs import Knobs
from controller.request import ActiveChunk, Candidate, Capacity, PrefixMatch
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason, Verdict


def test_a_decision_on_the_hot_path_is_a_flat_tuple_of_integers(drive):
    """Every element of every decision and batch member is a whole number, nothing nested, nothing fractional."""
    queue = [Candidate(0, 5000, 10, PrefixMatch(host_tokens=100)), Candidate(1, 5000, 10), Candidate(2, 5, 10)]
    room = Capacity(pool_tokens=100_000, free_tokens=100_000, reserved_tokens=10.5)
    result = drive(queue, capacity=room, chunk=ActiveChunk(3, 100, 50, 5)).result
    flat = [value for row in (*result.decisions, *result.batch) for value in row]
    assert flat
    assert all(isinstance(value, int) for value in flat)


def test_a_decision_reads_back_as_it_was_made(drive):
    """The named form holds what the plan held: lengths, hits, host answer, and the numbers of the gate."""
    match = PrefixMatch(
        device_tokens=64, unlocked_tokens=64, host_tokens=128, resident_tokens=192, host_answer=HostHit.PLANNED
    )
    room = Capacity(pool_tokens=10_000, free_tokens=300, evictable_tokens=64)
    (decision,) = drive([Candidate(7, 400, 20, match)], capacity=room).decisions
    assert (decision.number, decision.outcome) == (7, Outcome.WAIT)
    assert (decision.gate, decision.reason, decision.unit) == (Gate.KV_CAPACITY, Reason.POOL, "tokens")
    assert (decision.observed, decision.limit, decision.short_by) == (400 - 64 + 20 + 1, 300, 58)
    assert (decision.prompt_tokens, decision.done_tokens, decision.device_hit_tokens) == (400, 0, 64)
    assert (decision.resident_tokens, decision.matched_tokens, decision.asked_tokens) == (192, 128, 0)
    assert decision.output_tokens == 20


def test_a_member_uncut_has_no_gate_and_no_unit(drive):
    """A decision to admit uncut names no gate, no reason and no unit."""
    (decision,) = drive([Candidate(0, 400, 20)]).decisions
    assert (decision.outcome, decision.gate, decision.reason, decision.unit) == (Outcome.ADMIT, None, None, None)


def test_loaded_tokens_are_what_was_asked_for_and_came(drive, fake_engine):
    """A load that came counts as loaded in full, one that failed as nothing."""
    queue = [Candidate(0, 400, 0, PrefixMatch(host_tokens=300))]
    (loaded,) = drive(queue).decisions
    (failed,) = drive(queue, engine=fake_engine(failures={0: (HostHit.ALLOCATOR, 5)})).decisions
    assert (loaded.host, loaded.asked_tokens, loaded.loaded_tokens, loaded.evicted_tokens) == (
        HostHit.LOADED, 300, 300, 0,
    )  # fmt: skip
    assert (failed.host, failed.asked_tokens, failed.loaded_tokens, failed.evicted_tokens) == (
        HostHit.ALLOCATOR, 300, 0, 5,
    )  # fmt: skip


def test_the_ladder_lists_every_gate_in_order(drive):
    """A decision's ladder has one check for each gate, in evaluation order."""
    (decision,) = drive([Candidate(0, 400, 0)], knobs=Knobs(max_requests=1)).decisions
    assert [check.gate for check in decision.ladder()] == list(LADDER_GATES)
    assert decision.ladder(decision.checks_before_load_failure) == ()


def test_a_second_ladder_has_every_gate_too(drive, fake_engine):
    """The ladder from before a load failure reads back whole."""
    engine = fake_engine(failures={0: (HostHit.OWNER_LANE, 0)})
    (decision,) = drive([Candidate(0, 400, 0, PrefixMatch(host_tokens=300))], engine=engine).decisions
    before = decision.ladder(decision.checks_before_load_failure)
    assert [check.gate for check in before] == list(LADDER_GATES)
    assert before[Gate.CHUNK_TOKENS].observed == 100
    assert decision.ladder()[Gate.CHUNK_TOKENS].observed == 400


def test_a_gate_that_is_off_or_was_not_evaluated_has_no_limit():
    """A check without a limit reads as None, one with a limit as its number."""
    assert read_check(Gate.REQUEST_COUNT, Verdict.OFF, 3, 0).limit is None
    assert read_check(Gate.REQUEST_COUNT, Verdict.NOT_EVALUATED, 0, 0).limit is None
    assert read_check(Gate.REQUEST_COUNT, Verdict.PASS, 3, 0).limit == 0


@pytest.mark.parametrize("room", [100, 57])
def test_short_by_is_what_is_missing_to_pass(drive, room):
    """With short_by more tokens of room the same candidate enters, with one less it still waits."""
    queue = [Candidate(0, 400, 0)]

    def outcome(free):
        (decision,) = drive(queue, capacity=Capacity(pool_tokens=10_000, free_tokens=free)).decisions
        return decision

    short = outcome(room).short_by
    assert outcome(room + short).outcome is Outcome.ADMIT
    assert outcome(room + short - 1).outcome is Outcome.WAIT


@pytest.mark.parametrize(
    ("knob", "match"),
    [("max_requests", {}), ("max_extend_tokens", {}), ("max_cached_tokens", {"device_tokens": 50})],
)
def test_short_by_of_a_soft_limit_is_what_to_raise_it_by(drive, knob, match):
    """A soft limit raised by short_by lets the candidate in, raised by one less it does not."""
    queue = [Candidate(n, 100, 0, PrefixMatch(**match)) for n in range(2)]
    waited = drive(queue, knobs=Knobs(**{knob: 1})).decisions[1]
    raised = drive(queue, knobs=Knobs(**{knob: 1 + waited.short_by}))
    assert raised.told[1][0] == "admit"
    if waited.short_by > 1:
        assert drive(queue, knobs=Knobs(**{knob: waited.short_by})).told[1][0] == "wait"


def test_short_by_of_the_input_budget_is_what_to_raise_it_by(drive):
    """Without chunking the budget raised by short_by lets the candidate in, raised by one less it does not."""
    queue = [Candidate(n, 100, 0) for n in range(2)]

    def second(budget):
        return drive(queue, knobs=Knobs(chunked_prefill_size=None, max_prefill_tokens=budget)).decisions[1]

    short = second(150).short_by
    assert second(150 + short).outcome is Outcome.ADMIT
    assert second(150 + short - 1).outcome is Outcome.WAIT


def test_the_result_holds_the_batch_as_members(drive):
    """A member is its number, outcome, extend, device hit, loaded and done tokens, the continuing chunk first."""
    queue = [Candidate(0, 1000, 0, PrefixMatch(device_tokens=100, host_tokens=200))]
    result = drive(queue, chunk=ActiveChunk(9, 600, 500, 0)).result
    assert result.batch == ((9, Outcome.ADMIT, 100, 0, 0, 500), (0, Outcome.ADMIT, 700, 100, 200, 0))
    assert result.looked_at == 1


def test_reading_needs_no_engine():
    """A flat tuple from a record reads back by itself."""
    flat = (3, 3, 2, 2, 5, 4, 1, 100, 0, 0, 100, 10, int(HostHit.NONE_RESIDENT), 0, 0, 0, 0, *([0, 1, 1] * 9))
    decision = Decision.read(flat)
    assert (decision.outcome, decision.gate, decision.reason) == (Outcome.WAIT, Gate.REQUEST_COUNT, Reason.LIMIT)
    assert decision.checks == flat[17:]
    assert decision.checks_before_load_failure == ()
