"""What is recorded beside the passes, how much a crowded engine records, and what becomes of a failure of ours."""

import json
import time

import bare
import pytest
from reading import Record, closed_by
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from controller.engines.plugin import SUPPORTED, read_faults, read_status
from controller.engines.plugin.supported import Fit
from controller.engines.vllm import passes, start, watch
from controller.engines.vllm.ledger import client_id
from controller.engines.vllm.scheduler import GlassgateScheduler
from controller.knob_requests import KnobRequest
from controller.knob_turning import asked_change
from controller.records import Abort, Arrival, Finish, KnobChange, KnobsInForce, Pass, Repeat, RunStart, StepEnd


def test_the_start_names_engine_model_pool_and_knobs(scene):
    """The record begins with the engine, its version, the pool in tokens, the slots, and the knobs in force."""
    scheduler, record = scene(blocks=101, knobs={"max_requests": 3})
    begun = record.of(RunStart)[0]
    assert (begun.engine, begun.version, begun.group, begun.simulated) == ("vllm", "0.32.0", "dp0", False)
    assert (begun.pool_tokens, begun.slots, begun.largest_prompt_tokens) == (100 * bare.BLOCK, 8, 1600)
    assert json.loads(begun.context)["page_size"] == bare.BLOCK
    knobs = {name: (effective, state) for name, _, _, effective, state, _ in record.of(KnobsInForce)[0].knobs}
    assert knobs["max_requests"] == (3, "as set")
    assert knobs["page_size"] == (bare.BLOCK, "as set")
    assert knobs["chunked_prefill_size"] == (512, "as set")
    assert read_status(record.folder).replaced == ("vllm.v1.core.sched.scheduler.Scheduler",)
    assert type(scheduler) is GlassgateScheduler


def test_the_life_of_a_request(scene):
    """Arrival, admission, first token with the step that computed the prompt's end, and finish are recorded."""
    scheduler, record = scene(max_num_batched_tokens=64)
    scheduler.add_request(bare.request("a", 100, output=3))
    while scheduler.has_requests():
        bare.step(scheduler)
    (arrival,) = record.of(Arrival)
    assert (arrival.number, arrival.id, arrival.prompt_tokens, arrival.output_tokens) == (0, "a", 100, 3)
    first, second = record.passes
    assert [member[1:3] for passed in (first, second) for member in passed.batch] == [(1, 64), (0, 36)]
    ends = record.of(StepEnd)
    assert [(each.passed, each.first_tokens) for each in ends] == [(1, ()), (2, (0,)), (-1, ())]
    assert all(each.start_ns < each.end_ns for each in ends)
    (finish,) = record.of(Finish)
    assert (finish.number, finish.generated_tokens) == (0, 3)
    assert finish.at_ns >= ends[-1].end_ns


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (RequestStatus.FINISHED_ABORTED, "aborted"),
        (RequestStatus.FINISHED_ERROR, "error"),
        (RequestStatus.FINISHED_IGNORED, "ignored"),
    ],
)
def test_a_request_that_is_not_served(scene, status, word):
    """One that leaves without being served is recorded with how, waiting or running."""
    scheduler, record = scene(max_num_seqs=1)
    for name in ("runs", "waits"):
        scheduler.add_request(bare.request(name))
    bare.step(scheduler)
    scheduler.finish_requests({"runs", "waits"}, status)
    found = {each.number: each.why for each in record.of(Abort)}
    assert set(found) == {0, 1}
    assert all(word in why for why in found.values())
    assert scheduler._glassgate.requests.queued_tokens == 0


def test_the_id_is_the_clients(scene):
    """The digits that vLLM adds to an id are taken off, the trace context of the client is kept."""
    assert client_id("cmpl-1234-0-0123abcd") == "cmpl-1234-0"
    assert client_id("2_mine-0123abcd") == "2_mine"
    assert client_id("mine") == "mine"
    scheduler, record = scene()
    traced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    scheduler.add_request(bare.request("mine-0123abcd", trace_headers={"traceparent": traced}))
    bare.step(scheduler)
    assert [(each.id, each.traceparent) for each in record.of(Arrival)] == [("mine", traced)]


def test_an_unmoved_head_is_recorded_once_and_counted(scene):
    """While the same request waits for the same, its passes are counted, not written one by one."""
    scheduler, record = scene(max_num_seqs=1)
    scheduler.add_request(bare.request("runs", 16, output=80))
    bare.step(scheduler)
    scheduler.add_request(bare.request("waits", 16, output=1))
    for _ in range(50):
        bare.step(scheduler)
    scheduler.shutdown()
    written = [each for each in record.of(Pass) if closed_by(each) == "request_slots/slots"]
    assert len(written) == 1
    (repeat,) = record.of(Repeat)
    assert (repeat.count, repeat.observed, repeat.limit) == (49, (2,) * 4, (1,) * 4)


def test_a_head_without_room_is_recorded_once_and_counted(scene):
    """A head that the pool has no room for is looked up in every step, and counted in the record."""
    scheduler, record = scene(blocks=11, max_num_seqs=4, enable_prefix_caching=False)
    scheduler.add_request(bare.request("runs", 16, output=80))
    bare.step(scheduler)
    scheduler.add_request(bare.request("waits", 150, output=1))
    for _ in range(40):
        bare.step(scheduler)
    scheduler.shutdown()
    assert len([each for each in record.of(Pass) if closed_by(each) == "kv_capacity/pool"]) == 1
    (repeat,) = record.of(Repeat)
    assert (repeat.count, repeat.observed[:2]) == (39, (160, 160))
    assert repeat.limit[0] > repeat.limit[1]


def test_steps_that_only_decode_record_no_pass(scene):
    """With an empty queue and no prompt under way nothing is recorded but how long the engine decoded."""
    scheduler, record = scene()
    scheduler.add_request(bare.request("a", 16, output=60))
    while scheduler.has_requests():
        bare.step(scheduler)
    assert len(record.passes) == 1
    assert [each.passed for each in record.of(StepEnd)] == [1, -1]


def test_a_knob_is_turned_between_two_steps(scene):
    """A request that has come is in force from the next step boundary on, and is recorded with who asked."""
    scheduler, record = scene()
    asked = asked_change({"max_requests": 1}, "test")
    scheduler._glassgate.record.taken.append(KnobRequest("left", asked, None))
    for name in ("a", "b"):
        scheduler.add_request(bare.request(name))
    assert set(bare.step(scheduler).num_scheduled_tokens) == {"a"}
    (change,) = record.of(KnobChange)
    assert (change.accepted, change.who, change.revision, change.changes) == (
        True, "test", 1, (("max_requests", None, 1),),
    )  # fmt: skip
    assert record.passes[-1].revision == 1


def test_a_request_left_beside_the_run_is_answered_without_work(scene):
    """With nothing to schedule a knob request is answered without waiting for the next request."""
    scheduler, record = scene()
    scheduler._glassgate.record.run.leave_request(asked_change({"max_requests": 1}, "test"))
    _until(lambda: record.of(KnobChange))
    assert scheduler._glassgate.gates.limits.max_requests == 1


def test_no_knob_is_turned_within_a_pass(scene, monkeypatch):
    """A request that comes while a pass goes on waits for its end."""
    scheduler, _ = scene()
    watched = scheduler._glassgate
    limits = []

    def turn_meanwhile(*each, **keywords):
        asked = asked_change({"max_requests": 7}, "test")
        watched.record.taken.append(KnobRequest("left", asked, None))
        watched.answer_meanwhile()
        limits.append(watched.gates.limits.max_requests)
        return described(*each, **keywords)

    described = watch.describe
    monkeypatch.setattr(watch, "describe", turn_meanwhile)
    scheduler.add_request(bare.request("a"))
    bare.step(scheduler)
    watched.answer_meanwhile()
    assert limits == [None]
    assert watched.gates.limits.max_requests == 7


@pytest.mark.parametrize(
    "change",
    [{"page_size": 32}, {"chunked_prefill_size": 128}, {"max_prefill_tokens": 9}, {"shared_kv_batching": True}],
)
def test_a_knob_that_the_engine_fixed_is_refused_with_the_reason(scene, change):
    """What vLLM lays out when it starts cannot be turned, and the answer says why."""
    scheduler, record = scene()
    scheduler._glassgate.record.taken.append(KnobRequest("left", asked_change(change, "test"), None))
    scheduler.add_request(bare.request("a"))
    bare.step(scheduler)
    (answered,) = record.of(KnobChange)
    (name,) = change
    assert not answered.accepted
    assert f"{name} is fixed" in answered.why


@pytest.mark.parametrize("broken", ["before", "describe", "looks_at", "vetoes", "allocated"])
def test_a_failure_of_ours_leaves_the_stock_scheduler(scene, tiny_model, monkeypatch, broken):
    """Whatever of ours fails, the engine schedules on as the stock one would, and the fault is said once and kept."""

    def fail(*_, **__):
        raise ZeroDivisionError("made to fail")

    scheduler, record = scene()
    stock = bare.build(Scheduler, bare.configure(str(tiny_model)))
    for number in range(3):
        for each in (scheduler, stock):
            each.add_request(bare.request(f"r{number}", 50, output=4))
    folder, engine_record = record.folder, scheduler._glassgate.record
    if broken == "describe":
        monkeypatch.setattr(watch, "describe", fail)
    else:
        monkeypatch.setattr(watch.SchedulerWatch, broken, watch._contained(fail))
        fail.__name__ = broken
    while stock.has_requests():
        assert bare.step(scheduler).num_scheduled_tokens == bare.step(stock).num_scheduled_tokens
    assert not scheduler.has_requests()
    assert scheduler._glassgate is None
    assert scheduler.kv_cache_manager.allocate_slots.__func__ is type(scheduler.kv_cache_manager).allocate_slots
    (fault,) = read_faults(folder)
    assert (fault.count, fault.error) == (1, "ZeroDivisionError: made to fail")
    _until(lambda: not read_status(folder).in_force)
    assert "made to fail" in read_status(folder).why_not
    engine_record.close()


def test_a_version_that_was_not_tested_is_left_alone(glassgate, home, tiny_model, monkeypatch):
    """With an unknown vLLM the scheduler is the stock one, and nothing is recorded."""
    glassgate()
    monkeypatch.setattr(
        "controller.engines.plugin.start.fit", lambda _: Fit("9.9.9", False, "vllm 9.9.9 is not a version")
    )
    scheduler = bare.build(GlassgateScheduler, bare.configure(str(tiny_model)))
    assert scheduler._glassgate is None
    scheduler.add_request(bare.request("a"))
    assert set(bare.step(scheduler).num_scheduled_tokens) == {"a"}
    assert not home.exists()
    assert SUPPORTED["vllm"].versions == ("0.32.0",)


def test_data_parallel_ranks_are_ranks_of_one_run(glassgate, tiny_model):
    """Each data-parallel scheduler records whole under the run's id, in a group of its own, and the first collects."""
    glassgate()
    config = bare.configure(str(tiny_model))
    folders, started = [], []
    for rank in range(2):
        config.parallel_config.data_parallel_index = config.parallel_config.data_parallel_rank_local = rank
        scheduler = bare.build(GlassgateScheduler, config)
        record = Record(scheduler)
        scheduler.add_request(bare.request("a"))
        bare.step(scheduler)
        folders.append(record.folder.name)
        started.append(record.of(RunStart)[0])
        assert len(record.passes) == 1
        scheduler.shutdown()
    name = start.run_id(config)
    assert folders == [name, f"{name}-1"]
    assert [(each.rank, each.group) for each in started] == [(0, "dp0"), (1, "dp1")]


def test_a_bad_setting_stops_the_start(scene):
    """A value that a knob cannot have, or one that the engine was started otherwise with, ends the start in words."""
    with pytest.raises(SystemExit, match=r"GLASSGATE_MAX_REQUESTS: max_requests is 0"):
        scene(knobs={"max_requests": 0})
    with pytest.raises(SystemExit, match=r"page_size is '64' in GLASSGATE_PAGE_SIZE, and the engine runs with 16"):
        scene(knobs={"page_size": 64, "max_requests": ""})


def test_passes_are_described_by_what_the_loop_did(scene, monkeypatch):
    """An unmoved head that nobody looks at makes the very same pass again, without being put into words again."""
    scheduler, _ = scene(max_num_seqs=1)
    scheduler.add_request(bare.request("runs", 16, output=30))
    bare.step(scheduler)
    scheduler.add_request(bare.request("waits", 16))
    told = []
    monkeypatch.setattr(passes._Telling, "turn_away", lambda *each: told.append(each))
    for _ in range(10):
        bare.step(scheduler)
    assert len(told) == 1


def _until(found, seconds=5.0):
    """Wait for another thread."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.02)
