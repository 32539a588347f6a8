"""What holds of every pass, whatever the knobs, the queue, the room and the loads that fail."""

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.admission import AdmissionPass
from controller.gates import STRICT_GATES
from controller.request import Lane
from controller.vocabulary import GATE_REASONS, Gate, Outcome, Reason, Verdict
from tests.controller.scenes import ANY, Allocator, Ran, Scene

ENTERED = {Outcome.ADMIT, Outcome.ADMIT_CHUNK}
MANY = settings(max_examples=100, deadline=None)


@pytest.fixture(scope="module")
def run(flat_estimator):
    """Runs a scene on a fresh engine, which takes a continuing chunk's pages before the queue is looked at."""

    def running(scene: Scene) -> Ran:
        limits = scene.limits
        engine = Allocator(scene)
        estimator = None if scene.rates is None else flat_estimator(*scene.rates)
        admission = AdmissionPass(limits, scene.capacity, estimator)
        result = admission.run(engine.candidates(admission), engine, scene.chunk)
        engine.go_on(result.batch)
        return Ran(scene, engine, result, limits)

    return running


@given(scene=ANY)
@MANY
def test_counts_add_up(run, scene):
    """Admitted + waiting + refused + not reached are the queue a pass started with; the chunk is counted apart."""
    ran = run(scene)
    outcomes = [decision.outcome for decision in ran.decisions]
    not_reached = len(scene.wishes) - ran.result.looked_at
    kinds = [ENTERED, {Outcome.WAIT}, {Outcome.REFUSE}]
    assert sum(outcome in kind for kind in kinds for outcome in outcomes) + not_reached == len(scene.wishes)
    assert [d.number for d in ran.decisions] == list(range(ran.result.looked_at))
    members = [member[0] for member in ran.result.batch]
    assert members == [d.number for d in ran.all_decisions if d.outcome in ENTERED]
    assert outcomes.count(Outcome.WAIT) <= 1


@given(scene=ANY)
@MANY
def test_a_pass_is_a_pure_function_of_its_inputs(run, fake_engine, scene):
    """The same inputs give the same result, and the inputs are left as they were."""
    before = copy.deepcopy(scene)
    first = run(scene)
    assert run(scene).result == first.result
    assert scene == before
    admission = AdmissionPass(first.limits, scene.capacity)
    queue = list(Allocator(scene).candidates(admission))
    kept = copy.deepcopy(queue)
    admission.run(queue, fake_engine(), scene.chunk)
    assert queue == kept


@given(scene=ANY)
@MANY
def test_a_candidate_not_reached_is_never_drawn(run, scene):
    """A pass reads its queue no further than the candidate that closed it."""
    ran = run(scene)
    assert ran.engine.drawn == ran.result.looked_at


@given(scene=ANY)
@MANY
def test_a_refused_candidate_leaves_no_trace(run, scene):
    """Only members are committed; a load is asked for only once the gates have passed."""
    ran = run(scene)
    assert ran.engine.commits == [d.number for d in ran.decisions if d.outcome in ENTERED]
    assert ran.engine.loads == [d.number for d in ran.decisions if d.asked_tokens]
    for decision in ran.decisions:
        if decision.outcome not in ENTERED and not decision.checks_before_load_failure:
            assert decision.number not in ran.engine.loads


@given(scene=ANY)
@MANY
def test_a_load_failure_is_recorded_with_both_ladders(run, scene):
    """A decision has two ladders just when its load failed, and the earlier one had passed every gate."""
    ran = run(scene)
    for decision in ran.decisions:
        failed = decision.number in ran.engine.loads and scene.wishes[decision.number].fails
        assert bool(decision.checks_before_load_failure) == failed
        verdicts = {check.verdict for check in decision.ladder(decision.checks_before_load_failure)}
        assert not verdicts & {Verdict.REFUSE, Verdict.NOT_EVALUATED}


@given(scene=ANY)
@MANY
def test_soft_limits_are_exceeded_by_an_exempt_first_member_only(run, scene):
    """With enforce on, every sum of a batch of two or more is within its limit."""
    ran = run(replace(scene, knobs=replace(scene.knobs, enforce=True)))
    batch, limits = ran.result.batch, ran.limits
    if len(batch) < 2:
        return
    peak = ran.result.estimate.peak_bytes if scene.rates is not None else 0
    sums = [
        (len(batch), limits.max_requests),
        (sum(ran.charged()), limits.max_extend),
        (sum(member[3] + member[4] for member in batch), limits.max_cached),
        (peak, limits.max_buffer),
    ]
    assert [(total, limit) for total, limit in sums if limit is not None and total > limit] == []


@given(scene=ANY)
@MANY
def test_only_a_first_member_is_exempt(run, scene):
    """A check is marked exempt only while the batch is empty, and would_refuse only in shadow mode behind a member."""
    ran = run(scene)
    members = 0
    for decision in ran.all_decisions:
        verdicts = {check.verdict for check in decision.ladder()}
        assert not (members and Verdict.EXEMPT in verdicts)
        assert not (Verdict.WOULD_REFUSE in verdicts and (scene.knobs.enforce or not members))
        members += decision.outcome in ENTERED


@given(scene=ANY)
@MANY
def test_no_soft_limit_keeps_a_lone_request_out(run, scene):
    """While the batch is empty a candidate waits for slots or for KV capacity, and for nothing else."""
    ran = run(scene)
    if ran.result.batch or not ran.decisions:
        return
    for decision in ran.decisions:
        assert decision.gate in (Gate.REQUEST_SLOTS, Gate.KV_CAPACITY)


@given(scene=ANY)
@MANY
def test_compute_budgets_are_never_overdrawn(run, scene):
    """A pass computes no more than its chunk budget, and adds to its input budget only while some is left."""
    ran = run(scene)
    charged, limits = ran.charged(), ran.limits
    if limits.chunk_budget is not None:
        assert sum(charged) <= limits.chunk_budget
        assert sum(charged[:-1]) < limits.input_budget
    elif len(charged) > 1:
        assert sum(charged) < limits.input_budget
    assert scene.capacity.running + len(ran.result.batch) <= max(scene.capacity.slots, scene.capacity.running + 1)


@given(scene=ANY)
@MANY
def test_the_room_promised_is_there_in_every_lane(run, scene):
    """An engine that locks, loads and computes what a pass admitted never runs out of pages, in the pool or a lane."""
    ran = run(scene)
    assert all(free >= 0 and evictable >= 0 for free, evictable in ran.engine.lanes)
    assert ran.result.quota_tokens + ran.limits.overhead * len(ran.result.batch) >= 0
    taken = sum(ran.charged()) + sum(member[4] for member in ran.result.batch)
    assert taken <= scene.capacity.free_tokens + scene.capacity.evictable_tokens


@given(scene=ANY)
@MANY
def test_at_most_one_chunk_is_unfinished(run, scene):
    """A pass leaves at most one prompt partly computed, and it is the last member."""
    ran = run(scene)
    outcomes = [member[1] for member in ran.result.batch]
    assert Outcome.ADMIT_CHUNK not in outcomes[:-1]


@given(scene=ANY)
@MANY
def test_on_the_shared_path_only_a_first_member_is_cut(run, scene):
    """With shared_kv_batching in force a member that is not first is computed whole."""
    ran = run(scene)
    if ran.limits.shared_path:
        assert Outcome.ADMIT_CHUNK not in [member[1] for member in ran.result.batch[1:]]


@given(scene=ANY)
@MANY
def test_a_parked_chunk_lets_nobody_past(run, scene):
    """When the continuing chunk is parked the batch is empty and nobody was looked at."""
    ran = run(scene)
    if ran.all_decisions and ran.all_decisions[0].outcome is Outcome.PARK:
        assert (ran.result.batch, ran.result.looked_at, ran.engine.drawn) == ((), 0, 0)
        assert ran.result.closed_by is not None
        assert ran.result.closed_by[0] is Gate.KV_CAPACITY


@given(scene=ANY)
@MANY
def test_what_closed_a_pass_is_what_its_last_decision_says(run, scene):
    """A pass that somebody waits or is parked in is closed by that gate and reason; one that nothing closed saw all."""
    ran = run(scene)
    last = ran.all_decisions[-1] if ran.all_decisions else None
    if last is not None and last.outcome in (Outcome.WAIT, Outcome.PARK):
        assert ran.result.closed_by == (last.gate, last.reason)
    if ran.result.closed_by is None:
        assert ran.result.looked_at == len(scene.wishes)
    elif last is not None and last.outcome in ENTERED:
        assert ran.result.closed_by[0] in (Gate.KV_CAPACITY, Gate.INPUT_TOKENS, Gate.CHUNK_TOKENS)


@given(scene=ANY)
@MANY
def test_every_decision_carries_the_numbers_of_its_gate(run, scene):
    """Gate and reason are from the closed lists, observed and limit those of its check, and what waits is short."""
    ran = run(scene)
    for decision in ran.all_decisions:
        if decision.gate is None:
            assert decision.outcome is Outcome.ADMIT
            continue
        check = decision.ladder()[decision.gate]
        assert decision.reason in GATE_REASONS[decision.gate]
        assert (decision.observed, decision.limit) == (check.observed, check.limit)
        assert decision.short_by >= 1
        if decision.outcome in (Outcome.WAIT, Outcome.REFUSE):
            assert check.verdict is Verdict.REFUSE
            assert decision.short_by == decision.observed - decision.limit + (decision.gate in STRICT_GATES)
        assert (decision.outcome is Outcome.REFUSE) == (decision.reason is Reason.CAN_NEVER)


@given(scene=ANY)
@MANY
def test_the_ladder_stops_at_the_gate_that_refused(run, scene):
    """Of a candidate's checks at most one refuses, all before it were evaluated and none behind it."""
    for decision in run(scene).decisions:
        verdicts = [check.verdict for check in decision.ladder()]
        stop = len(verdicts) if decision.outcome in ENTERED else int(decision.gate) + 1
        assert Verdict.NOT_EVALUATED not in verdicts[:stop]
        assert set(verdicts[stop:]) <= {Verdict.NOT_EVALUATED}
        assert verdicts.count(Verdict.REFUSE) == (decision.outcome not in ENTERED)


@given(scene=ANY)
@MANY
def test_shadow_mode_changes_nothing(run, scene):
    """With enforce off a pass admits, cuts, loads and closes as it does with every soft limit off."""
    shadow = replace(scene.knobs, enforce=False)
    free = replace(shadow, max_requests=None, max_extend_tokens=None, max_cached_tokens=None, max_buffer_bytes=None)
    in_shadow, without = run(replace(scene, knobs=shadow)), run(replace(scene, knobs=free))
    assert in_shadow.result.batch == without.result.batch
    assert in_shadow.result.closed_by == without.result.closed_by
    assert in_shadow.engine.loads == without.engine.loads
    assert [d.outcome for d in in_shadow.all_decisions] == [d.outcome for d in without.all_decisions]


@given(scene=ANY, number=st.integers(0, 6))
@MANY
def test_who_stands_behind_changes_nothing(run, scene, number):
    """A pass over the front of a queue decides about it as the pass over the whole queue did."""
    whole = run(scene)
    front = run(replace(scene, wishes=scene.wishes[:number]))
    common = min(number, whole.result.looked_at) + (scene.chunk is not None)
    assert front.result.decisions[:common] == whole.result.decisions[:common]


@given(scene=ANY)
@MANY
def test_can_never_does_not_depend_on_how_full_the_pool_is(run, scene):
    """What is refused for good is refused by an empty engine as well, and what waits for room is not."""
    capacity = scene.capacity
    page = scene.knobs.page_size
    lanes = len(capacity.lanes)
    empty = replace(
        capacity,
        free_tokens=capacity.pool_tokens,
        evictable_tokens=0,
        reserved_tokens=0,
        running=0,
        lanes=(Lane(capacity.pool_tokens // page // lanes, 0),) * lanes if lanes else (),
    )
    for decision in run(scene).decisions:
        if decision.gate is not Gate.KV_CAPACITY:
            continue
        alone = replace(scene, capacity=empty, chunk=None, wishes=(scene.wishes[decision.number],))
        (again,) = run(alone).decisions
        assert (again.outcome is Outcome.REFUSE) == (decision.outcome is Outcome.REFUSE)
        assert again.outcome is not Outcome.WAIT
