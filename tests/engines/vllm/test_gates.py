"""Glassgate's own gates on vLLM's waiting loop: each one binds with the right numbers, and none starves anybody."""

import random

import bare
import pytest
from reading import assert_counts_add_up, closed_by
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from controller.records import Finish, StepEnd
from controller.vocabulary import Gate, Verdict

PROMPT = 64
"""Four blocks."""


def add(scheduler, *names, prompt=PROMPT, **keywords):
    """Requests that share nothing, in the queue."""
    for name in names:
        scheduler.add_request(bare.request(name, prompt, **keywords))


def test_a_step_admits_no_more_requests_than_max_requests(scene):
    """The third request of a step waits for request_count, and the fourth is not reached."""
    scheduler, record = scene(knobs={"max_requests": 2})
    add(scheduler, "a", "b", "c", "d")
    output = bare.step(scheduler)
    assert set(output.num_scheduled_tokens) == {"a", "b"}
    (passed,) = record.passes
    assert record.told(passed) == {
        "a": ("admit", None, 0, 0),
        "b": ("admit", None, 0, 0),
        "c": ("wait", "request_count/limit", 3, 2),
    }
    assert (closed_by(passed), passed.queue, passed.not_reached) == ("request_count/limit", 4, 1)


def test_a_step_computes_no_more_prompt_tokens_than_max_extend_tokens(scene):
    """The sum is charged in whole blocks, and the one that would exceed it waits with the sum it would have made."""
    scheduler, record = scene(knobs={"max_extend_tokens": 100})
    add(scheduler, "a", prompt=40)
    add(scheduler, "b", prompt=50)
    add(scheduler, "c", prompt=1)
    bare.step(scheduler)
    (passed,) = record.passes
    assert record.told(passed) == {
        "a": ("admit", None, 0, 0),
        "b": ("wait", "extend_tokens/limit", 48 + 64, 100),
    }
    assert record.decisions(passed)["b"].short_by == 12


def test_a_step_reuses_no_more_prefix_than_max_cached_tokens(scene):
    """Prefix hits are summed up over the step's batch; the one that would exceed the limit waits."""
    scheduler, record = scene(knobs={"max_cached_tokens": 100})
    shared = bare.tokens(PROMPT, 7)
    scheduler.add_request(bare.request("first", [*shared, 5], output=1))
    bare.step(scheduler)
    for name in ("a", "b"):
        scheduler.add_request(bare.request(name, [*shared, *bare.tokens(20, ord(name))]))
    bare.step(scheduler)
    told = record.told(record.passes[-1])
    assert told == {"a": ("admit", None, 0, 0), "b": ("wait", "cached_tokens/limit", 2 * PROMPT, 100)}
    assert record.decisions(record.passes[-1])["a"].device_hit_tokens == PROMPT


def test_a_step_needs_no_more_buffers_than_max_buffer_bytes(scene):
    """The estimate of the batch with the candidate in it is what waits at the limit, to the byte."""
    scheduler, record = scene()
    estimator = scheduler._glassgate.gates.estimator
    one = estimator.add(estimator.empty, 0, PROMPT)
    two = estimator.add(one, 0, PROMPT)
    scheduler.shutdown()
    scheduler, record = scene(knobs={"max_buffer_bytes": two.peak_bytes - 1})
    add(scheduler, "a", "b")
    bare.step(scheduler)
    (passed,) = record.passes
    assert record.told(passed)["b"] == ("wait", "buffer_bytes/limit", two.peak_bytes, two.peak_bytes - 1)
    assert passed.peak_bytes == one.peak_bytes
    assert sum(passed.parts) == one.peak_bytes


@pytest.mark.parametrize("knob", ["max_extend_tokens", "max_cached_tokens", "max_buffer_bytes"])
def test_a_limit_that_nobody_meets_keeps_nobody_out(scene, knob):
    """The first of each step's batch enters whatever the limit is, marked exempt, so every request is served."""
    scheduler, record = scene(knobs={knob: 1}, max_num_batched_tokens=64)
    shared = bare.tokens(PROMPT, 7)
    for name in ("a", "b", "c"):
        scheduler.add_request(bare.request(name, [*shared, *bare.tokens(30, ord(name))], output=3))
    for _ in range(60):
        if not scheduler.has_requests():
            break
        bare.step(scheduler)
    assert not scheduler.has_requests()
    gate = {"max_extend_tokens": Gate.EXTEND_TOKENS, "max_cached_tokens": Gate.CACHED_TOKENS}.get(
        knob, Gate.BUFFER_BYTES
    )
    entered = [
        each
        for passed in record.passes
        for each in record.decisions(passed).values()
        if each.outcome.word.startswith("admit") and not each.done_tokens
    ]
    assert len(entered) == 3
    exempt = [each for each in entered if each.ladder()[gate].verdict is Verdict.EXEMPT]
    assert exempt
    assert all(each.ladder()[gate].observed > 1 for each in exempt)


def test_shadow_mode_lets_in_what_a_gate_would_have_kept_out(scene):
    """With enforce off the checks say would_refuse and the batch is the stock scheduler's."""
    scheduler, record = scene(knobs={"max_requests": 1, "enforce": "off"})
    add(scheduler, "a", "b", "c")
    output = bare.step(scheduler)
    assert set(output.num_scheduled_tokens) == {"a", "b", "c"}
    decisions = record.decisions(record.passes[0])
    verdicts = [decisions[name].ladder()[Gate.REQUEST_COUNT].verdict for name in ("a", "b", "c")]
    assert verdicts == [Verdict.PASS, Verdict.WOULD_REFUSE, Verdict.WOULD_REFUSE]


def test_no_gate_touches_a_request_that_runs(scene):
    """Under limits that nothing meets, whoever runs gets a token in every step, and nobody is preempted."""
    scheduler, _ = scene(knobs={"max_requests": 1, "max_extend_tokens": 1, "max_cached_tokens": 1})
    add(scheduler, "a", "b", "c", "d", output=30)
    running: set[str] = set()
    for _ in range(20):
        before = {each.request_id for each in scheduler.running}
        output = bare.step(scheduler)
        assert before <= set(output.num_scheduled_tokens)
        assert len(output.num_scheduled_tokens) - len(before) <= 1
        running |= set(output.num_scheduled_tokens)
    assert running == {"a", "b", "c", "d"}
    assert all(each.num_preemptions == 0 for each in scheduler.running)


def test_the_chunks_of_prompts_that_run_count_as_members(scene):
    """A prompt that goes on is the batch's first member, so that the next one is held to the limit."""
    scheduler, record = scene(knobs={"max_extend_tokens": 128}, max_num_batched_tokens=256)
    scheduler.add_request(bare.request("long", 300))
    bare.step(scheduler)
    add(scheduler, "b", prompt=100)
    bare.step(scheduler)
    decisions = record.decisions(record.passes[1])
    assert (decisions["long"].done_tokens, decisions["long"].extend_tokens) == (256, 44)
    assert record.told(record.passes[1])["b"] == ("wait", "extend_tokens/limit", 48 + 112, 128)


@pytest.mark.parametrize("stock_class", [Scheduler, AsyncScheduler])
@pytest.mark.parametrize("ahead", [1, 2])
def test_with_every_knob_unset_every_step_is_the_stock_schedulers(scene, tiny_model, stock_class, ahead):
    """Without limits the watched scheduler schedules what the stock one does, step by step, also one step ahead."""
    watched, record = scene(blocks=60, stock=stock_class)
    stock = bare.build(stock_class, bare.configure(str(tiny_model)), 60)
    shared = bare.tokens(200, 3)
    for number in range(40):
        for scheduler in (watched, stock):
            ids = [*shared[: 16 * (number % 7)], *bare.tokens(5 + 37 * (number % 9), number)]
            scheduler.add_request(bare.request(f"r{number}", ids, output=1 + number % 25))
    under_way: dict[int, list] = {id(watched): [], id(stock): []}
    steps = 0
    while stock.has_requests() or under_way[id(stock)]:
        scheduled = []
        for scheduler in (watched, stock):
            waiting = under_way[id(scheduler)]
            if scheduler.has_requests():
                output = scheduler.schedule()
                waiting.append((output, bare.output_of(scheduler, output)))
                scheduled.append(dict(output.num_scheduled_tokens))
            if len(waiting) >= ahead or not scheduler.has_requests():
                scheduler.update_from_output(*waiting.pop(0))
        assert len(scheduled) != 1
        assert not scheduled or scheduled[0] == scheduled[1]
        steps += 1
    assert not watched.has_requests()
    assert steps > 40
    assert len(record.of(Finish)) == 40
    assert {number for end in record.of(StepEnd) for number in end.first_tokens} == set(range(40))


@pytest.mark.parametrize("seed", range(12))
def test_under_any_limits_everybody_is_served_and_no_batch_grows_past_one(scene, seed):
    """Random limits, pool and requests: all finish, every pass adds up, and only a batch of one exceeds a limit."""
    draw = random.Random(seed)  # noqa: S311 - the same cases every time
    limits = {
        "max_requests": draw.choice((None, 1, 2, 3)),
        "max_extend_tokens": draw.choice((None, 1, 64, 200)),
        "max_cached_tokens": draw.choice((None, 1, 64, 200)),
    }
    knobs = {name: limit for name, limit in limits.items() if limit is not None}
    scheduler, record = scene(
        blocks=draw.choice((40, 80)),
        knobs=knobs,
        max_num_seqs=draw.randrange(1, 9),
        max_num_batched_tokens=draw.choice((64, 256)),
    )
    shared = bare.tokens(200, 3)
    todo = 60
    while todo or scheduler.has_requests():
        for _ in range(min(todo, draw.randrange(4))):
            todo -= 1
            prompt = [*shared[: 16 * draw.randrange(9)], *bare.tokens(draw.randrange(1, 250), todo)]
            scheduler.add_request(bare.request(f"r{todo}", prompt, output=draw.randrange(1, 20)))
        bare.step(scheduler)
    assert len(record.of(Finish)) == 60
    for passed in record.passes:
        assert_counts_add_up(passed)
        joined = [member for member in passed.batch if not member[5]]
        if len(passed.batch) > 1 and joined:
            assert len(joined) <= (limits["max_requests"] or 60)
            extends = sum(-(-extend // bare.BLOCK) * bare.BLOCK for _, _, extend, *_ in passed.batch)
            assert extends <= (limits["max_extend_tokens"] or 1 << 30)
            assert sum(hit + load for *_, hit, load, _ in joined) <= (limits["max_cached_tokens"] or 1 << 30)
    assert "unattributed/not_told" not in {closed_by(passed) for passed in record.passes}
