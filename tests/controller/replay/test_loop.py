"""The serving loop."""

from itertools import pairwise
from pathlib import Path

import pytest

from controller.decision import Decision
from controller.engines.replay import loop
from controller.engines.replay.engine import ReplayEngine
from controller.engines.replay.step_time import step_time_model
from controller.engines.replay.stuck import ReplayStuck
from controller.engines.replay.traces import open_trace
from controller.knobs import Knobs
from controller.limits import Setting
from controller.recorder import Recorder
from controller.records import (
    Abort,
    Arrival,
    Finish,
    KnobsInForce,
    LoadDone,
    Pass,
    Repeat,
    Retract,
    RunEnd,
    RunStart,
    StepEnd,
    decode,
)
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason
from estimator.errors import InputError, StorageError, UsageError
from tests.controller.replay.small_engine import Shelf, ask, engine, is_empty, replay

TRACE = Path(__file__).resolve().parents[3].parent / "shared/traces/mooncake_conversation.jsonl"


def test_the_life_of_one_request():
    """A request is prefilled when it arrives, has its first token at the step's end, and one a decode step after."""
    made, summary, shelf = replay([ask(0, 20, 6, at=5_000)])
    start, knobs, arrival, passed, step, decoded, finish, end = shelf.records()
    assert isinstance(start, RunStart)
    assert (start.engine, start.simulated, start.pool_tokens, start.largest_prompt_tokens) == ("replay", True, 400, 394)
    assert isinstance(knobs, KnobsInForce)
    assert isinstance(arrival, Arrival)
    assert (arrival.id, arrival.at_ns, arrival.prompt_tokens, arrival.output_tokens) == ("q0", 5_000, 20, 6)
    assert isinstance(passed, Pass)
    assert (passed.start_ns, passed.queue, passed.queued_tokens, passed.batch) == (5_000, 1, 20, ((0, 0, 20, 0, 0, 0),))
    assert step == StepEnd(1, 5_000, 25_000, (0,))
    assert decoded == StepEnd(-1, 25_000, 25_500, ())
    assert finish == Finish(0, 25_500, 6)
    assert end == RunEnd(25_500, "finished", 1, 1)
    assert summary.first_token_times.seconds()["max"] == 20e-6
    assert summary.queue_times.seconds()["max"] == 0
    assert is_empty(made)


def test_a_long_prompt_is_computed_in_chunks():
    """What a pass cannot compute of a prompt goes on in the next passes, first of all."""
    _, summary, shelf = replay([ask(0, 150), ask(1, 20)])
    passes = shelf.records(Pass)
    assert [batch for passed in passes for batch in passed.batch] == [
        (0, Outcome.ADMIT_CHUNK, 64, 0, 0, 0),
        (0, Outcome.ADMIT_CHUNK, 64, 0, 0, 64),
        (0, Outcome.ADMIT, 22, 0, 0, 128),
        (1, Outcome.ADMIT, 20, 0, 0, 0),
    ]
    assert [step.first_tokens for step in shelf.records(StepEnd)] == [(), (), (0, 1)]
    assert summary.computed_tokens == 170


def test_prefill_goes_before_decode():
    """A request that arrives while another decodes is prefilled at the next step boundary."""
    _, _, shelf = replay([ask(0, 10, 100), ask(1, 10, 100, at=12_345)])
    second = shelf.records(Pass)[1]
    assert second.start_ns == 12_400
    assert second.before[3] == 1
    assert [finish.number for finish in shelf.records(Finish)] == [0, 1]


def test_arrivals_during_a_step_keep_their_time():
    """A request that arrives while a step runs is recorded with its own time, and queued until the step ends."""
    _, summary, shelf = replay([ask(0, 60), ask(1, 60, at=7)])
    assert [arrival.at_ns for arrival in shelf.records(Arrival)] == [0, 7]
    assert [passed.start_ns for passed in shelf.records(Pass)] == [0, 60_000]
    assert summary.queue_times.seconds()["max"] == 59_993e-9


def test_generated_tokens_become_a_prefix():
    """Where the workload knows what a request generates, a later prompt that contains it hits it."""
    turns = [ask(0, 8, 8, blocks=[1, 2, 3, 4]), ask(1, 18, 1, at=10**6, blocks=[1, 2, 3, 4, 5])]
    _, summary, _ = replay(turns)
    assert summary.device_hit_tokens == 12  # the last token generated is never computed, nor its page


def test_the_same_prefix_at_once_is_computed_twice():
    """Requests of one batch do not hit what the batch itself computes; a later one does."""
    requests = [ask(0, 17, blocks=range(5)), ask(1, 17, blocks=range(5)), ask(2, 17, at=10**6, blocks=range(5))]
    _, summary, shelf = replay(requests)
    assert [member[3] for passed in shelf.records(Pass) for member in passed.batch] == [0, 0, 16]
    assert summary.hit_ratio == 16 / 51


def test_out_of_pages_retracts_and_goes_on():
    """When decode runs out of pages requests give theirs back, wait by arrival, and generate all they were to."""
    requests = [ask(number, 20, 60) for number in range(4)]
    made, summary, shelf = replay(requests, device_tokens=200, new_token_ratio=0.0)
    retracts = shelf.records(Retract)
    assert retracts
    assert summary.retractions == len(retracts)
    assert {finish.number: finish.generated_tokens for finish in shelf.records(Finish)} == dict.fromkeys(range(4), 60)
    first = retracts[0]
    assert first.number == 3
    assert first.freed_tokens > 0
    again = [Decision.read(flat) for passed in shelf.records(Pass) for flat in passed.decisions if flat[0] == 3]
    assert again[-1].prompt_tokens >= 20 + first.generated_tokens
    assert summary.prompt_tokens == 80
    assert is_empty(made)


def test_the_last_running_request_is_aborted_when_it_runs_out():
    """A request that outgrows the pool by itself is aborted, and its pages are free again."""
    made, summary, shelf = replay([ask(0, 20, 5_000)], device_tokens=4_200)
    (abort,) = shelf.records(Abort)
    assert abort.why == "out of KV: 0 pages free or evictable, 1 needed, and no other request runs"
    assert (summary.aborts, summary.finished) == (1, 0)
    assert is_empty(made)


def test_what_can_never_fit_leaves_and_the_queue_goes_on():
    """A prompt larger than the pool is refused for good at once; the one behind it enters in the same pass."""
    _, summary, shelf = replay([ask(0, 900), ask(1, 20)])
    (abort,) = shelf.records(Abort)
    assert (abort.number, abort.why) == (0, "can_never: kv_capacity needs 905 tokens of 400")
    assert [member[0] for passed in shelf.records(Pass) for member in passed.batch] == [1]
    assert (summary.outcomes()["refuse"], summary.finished) == (1, 1)


def test_a_prefill_node_holds_kv_until_it_is_handed_over():
    """In the prefill role a request's KV moves over one link after its prefill, holds a slot meanwhile, and is done."""
    made, _, shelf = replay([ask(0, 20, 500), ask(1, 20, 500)], role="prefill", setting=Setting(slots=1))
    assert shelf.records(Finish) == [Finish(0, 20_200, 1), Finish(1, 40_400, 1)]
    decisions = [Decision.read(flat) for passed in shelf.records(Pass) for flat in passed.decisions]
    first, refused, second = decisions[0], decisions[1], decisions[-1]
    assert (first.number, first.output_tokens) == (0, 1)
    assert (refused.number, refused.gate, refused.reason) == (1, Gate.REQUEST_SLOTS, Reason.SLOTS)
    assert (second.number, second.outcome) == (1, Outcome.ADMIT)
    assert is_empty(made)


def test_hand_overs_share_the_link():
    """Two prompts that end in one step are handed over one after the other."""
    _, _, shelf = replay([ask(0, 20), ask(1, 30)], role="prefill")
    assert [finish.at_ns for finish in shelf.records(Finish)] == [50_200, 50_500]


def test_owner_lanes_are_for_prefill_nodes():
    """More than one owner lane needs the prefill role, and there every lane's books close."""
    with pytest.raises(UsageError, match="4 owner lanes with role unified"):
        engine([], setting=Setting(lanes=4))
    requests = [ask(number, 30 + number, blocks=[number % 3, *range(10)][: 8 + number // 4]) for number in range(8)]
    setting = Setting(lanes=4, context_parallel=True)
    knobs = Knobs(page_size=4, chunked_prefill_size=64, shared_kv_batching=True)
    made, summary, shelf = replay(requests, role="prefill", setting=setting, knobs=knobs)
    assert summary.finished == 8
    assert all(len(passed.lanes) == 4 for passed in shelf.records(Pass))
    assert is_empty(made)


def host_case(**more):
    """Three prompts with one prefix: computed, evicted to the host by another, wanted again."""
    requests = [
        ask(0, 101, blocks=range(26)),
        ask(1, 341, at=10**6, blocks=range(100, 186)),
        ask(2, 101, at=2 * 10**6, blocks=range(26)),
    ]
    return replay(requests, knobs=Knobs(page_size=4, chunked_prefill_size=None), host_tokens=None, **more)


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_a_host_hit_is_loaded(policy):
    """What was evicted to the host is loaded back, which costs device room and transfer time and no compute."""
    made, summary, shelf = host_case(write_policy=policy)
    last = shelf.records(Pass)[-1]
    (decision,) = map(Decision.read, last.decisions)
    assert (decision.device_hit_tokens, decision.loaded_tokens, decision.extend_tokens) == (56, 44, 1)
    assert shelf.records(LoadDone) == [LoadDone(2, 2_001_000, 44)]
    assert summary.host_hit_tokens == 44
    assert summary.hit_ratio == 100 / 543
    assert is_empty(made)


def test_a_failed_load_is_computed_instead():
    """When a planned load fails the ladder runs again without it, both are recorded, and nothing stays behind."""
    made, summary, shelf = host_case(fail_load=lambda number: HostHit.ALLOCATOR if number == 2 else None)
    (decision,) = map(Decision.read, shelf.records(Pass)[-1].decisions)
    assert (decision.host, decision.asked_tokens, decision.loaded_tokens) == (HostHit.ALLOCATOR, 44, 0)
    assert decision.extend_tokens == 45
    assert len(decision.ladder(decision.checks_before_load_failure)) == len(LADDER_GATES)
    assert summary.host_skips()["allocator"] == 1
    assert shelf.records(LoadDone) == []
    assert is_empty(made)


def test_a_refusal_that_repeats_is_counted():
    """The same refusal after each finish is one pass and a count."""
    requests = [*[ask(number, 20, 20 + 8 * number) for number in range(6)], ask(6, 200, 8, at=1)]
    _, summary, shelf = replay(requests, device_tokens=300)
    assert [repeat.number for repeat in shelf.records(Repeat)][-1] == 6
    assert len(shelf.records(Pass)) < summary.passes


def run_with_progress(made, progress):
    """Run with `progress` called at every event."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
        return made.run(progress)


def test_stop_ends_the_run_at_a_pass_boundary():
    """A stopped run ends in good order and says so."""
    made, shelf = engine([ask(number, 20, at=number * 10**6) for number in range(50)])
    summary = run_with_progress(made, lambda told: made.stop() if told.finished == 3 else None)
    assert (summary.finished, shelf.records(RunEnd)[0].reason) == (3, "interrupted")


def test_a_queue_that_can_never_move_is_an_error():
    """With nothing running and the head refused the replay stops, naming gate, observed and limit."""
    made, shelf = engine([ask(0, 300)])
    made.loop.cache.take(50)  # pages that nobody will ever give back
    with pytest.raises(ReplayStuck, match=r"request 0 waits .* kv_capacity observed 305 tokens against a limit of 200"):
        made.run()
    assert shelf.records(RunEnd)[0].reason == "failed"


def test_a_bad_line_ends_the_run_with_its_record():
    """When the workload breaks off, what was served before is recorded, and the end too."""

    def requests():
        yield ask(0, 20)
        yield ask(1, 20, at=10**6)
        raise InputError("trace:3: bad")

    made, shelf = engine(requests())
    with pytest.raises(InputError, match="trace:3"):
        made.run()
    assert [arrival.id for arrival in shelf.records(Arrival)] == ["q0", "q1"]
    assert shelf.records(RunEnd)[0].reason == "failed"


def test_a_full_disk_is_passed_on():
    """A journal that cannot be written ends the run with its own error."""
    made, shelf = engine([ask(0, 20)])

    def refuse(_):
        raise StorageError("full")

    shelf.append = refuse
    with pytest.raises(StorageError, match="full"):
        made.run()


def test_records_are_not_held_back():
    """Without passes records are appended at least every simulated second, or when 256 are pending."""
    seconds = [ask(0, 8, 4_000_000), *[ask(number, 8, 1, at=number * 10**9 // 2) for number in range(1, 10)]]
    made, shelf = engine(seconds, device_tokens=None, setting=Setting(slots=1))
    marks = []
    shelf.append = lambda payload, keep=shelf.append: (marks.append(made.loop.now_ns), keep(payload))[1]
    made.run()
    assert max(later - sooner for sooner, later in pairwise(marks)) <= 2 * 10**9
    many = [ask(0, 8, 4_000_000), *[ask(number, 8, 1, at=30_000 + number) for number in range(1, 3_000)]]
    made, _, shelf = replay(many, device_tokens=None, setting=Setting(slots=1))
    assert len(shelf.records(Arrival)) == 3_000
    assert max(len(decode(frame)) for frame in shelf.frames) <= 257


def test_outputs_longer_than_any_record_are_told(monkeypatch):
    """A trace may state outputs that take centuries; the replay ends in words where no record could hold the time."""
    monkeypatch.setattr(loop, "LATEST_NS", 10**9)
    replay([ask(0, 8, 9_999_000)], device_tokens=None)
    with pytest.raises(InputError, match="of simulated time"):
        replay([ask(0, 8, 10_001_000)], device_tokens=None)


def test_memory_is_bounded_by_the_tiers():
    """A long replay keeps no more nodes than the tiers have pages, and no request that is done."""
    requests = (ask(number, 40, 3, at=number * 50_000, blocks=range(number, number + 10)) for number in range(2_000))
    made, _, _ = replay(requests, host_tokens=400)
    nodes = [made.loop.cache._tree.root]
    for node in nodes:
        nodes.extend(node.children.values())
    assert len(nodes) <= 1 + 100 + 100
    assert len(made.loop._members) + len(made.loop.queue) + len(made.loop.held) < 10


def test_the_mooncake_conversation_without_bounds():
    """Unbounded, with its own blocks as pages, the trace's token hit ratio is 37.36 % within 0.2 points."""
    if not TRACE.exists():
        pytest.skip(f"{TRACE} is not here")
    with open_trace(TRACE) as trace:
        made = ReplayEngine(
            trace,
            knobs=Knobs(page_size=512),
            step_time=step_time_model(),
            recorder=Recorder(Shelf()),
            device_tokens=None,
            host_tokens=None,
        )
        summary = made.run()
    assert (summary.requests, summary.finished) == (12_031, 12_031)
    assert abs(summary.hit_ratio - 0.3736) < 0.002
