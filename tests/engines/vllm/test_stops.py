"""Every stop and skip of vLLM's waiting loop that can be told apart is told, with its numbers; the rest is counted."""

from types import SimpleNamespace

import bare
import pytest
from reading import assert_counts_add_up, closed_by
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from controller.vocabulary import Gate, Verdict


def add(scheduler, *names, prompt=64, **keywords):
    """Requests that share nothing, in the queue."""
    for name in names:
        scheduler.add_request(bare.request(name, prompt, **keywords))


def test_no_request_slot(scene):
    """With every slot taken the head of the queue waits for one, and nobody behind it is reached."""
    scheduler, record = scene(max_num_seqs=2)
    add(scheduler, "a", "b", output=20)
    bare.step(scheduler)
    add(scheduler, "c", "d")
    bare.step(scheduler)
    passed = record.passes[-1]
    assert record.told(passed) == {"c": ("wait", "request_slots/slots", 3, 2)}
    assert (closed_by(passed), passed.not_reached) == ("request_slots/slots", 1)
    assert record.decisions(passed)["c"].ladder()[Gate.REQUEST_SLOTS].verdict is Verdict.REFUSE


def test_a_prompt_is_cut_to_what_is_left_of_the_step(scene):
    """What is left of the token budget, decoded tokens taken off, cuts the last one; its numbers say by how much."""
    scheduler, record = scene(max_num_batched_tokens=200)
    add(scheduler, "a", prompt=30, output=20)
    bare.step(scheduler)
    add(scheduler, "b", prompt=100)
    add(scheduler, "c", prompt=500)
    add(scheduler, "d")
    bare.step(scheduler)
    passed = record.passes[-1]
    assert record.told(passed)["c"] == ("admit_chunk", "chunk_tokens/budget", 1 + 100 + 500, 200)
    assert record.decisions(passed)["c"].extend_tokens == 99
    assert (closed_by(passed), passed.queue, passed.not_reached) == ("chunk_tokens/budget", 3, 1)


def test_a_budget_that_is_spent_before_the_queue(scene):
    """Prompts that run can spend the step whole; then the head waits for the budget, and each chunk is recorded."""
    scheduler, record = scene(max_num_batched_tokens=64)
    add(scheduler, "long", prompt=200)
    bare.step(scheduler)
    add(scheduler, "b")
    bare.step(scheduler)
    passed = record.passes[-1]
    assert record.told(passed) == {
        "long": ("admit_chunk", "chunk_tokens/budget", 136, 64),
        "b": ("wait", "chunk_tokens/budget", 65, 64),
    }
    assert [member[2:] for member in passed.batch] == [(64, 0, 0, 64)]


def test_a_cap_on_one_prompt_of_a_step(scene):
    """`--long-prefill-token-threshold` cuts a prompt while others wait, and is told from the budget."""
    scheduler, record = scene(long_prefill_token_threshold=48)
    add(scheduler, "a", "b", prompt=100)
    bare.step(scheduler)
    told = record.told(record.passes[-1])
    assert told == {
        "a": ("admit_chunk", "chunk_tokens/long_prefill", 100, 48),
        "b": ("admit_chunk", "chunk_tokens/long_prefill", 100, 48),
    }


def test_a_prompt_that_may_not_be_cut(scene):
    """Without chunked prefill a prompt that exceeds what is left of the step ends it, by the input budget."""
    scheduler, record = scene(enable_chunked_prefill=False, max_num_batched_tokens=8192)
    add(scheduler, "a", prompt=6000)
    add(scheduler, "b", prompt=3000)
    add(scheduler, "c", prompt=10)
    bare.step(scheduler)
    passed = record.passes[-1]
    assert record.told(passed)["b"] == ("wait", "input_tokens/budget", 9000, 8192)
    assert (closed_by(passed), passed.not_reached) == ("input_tokens/budget", 1)


def test_a_prompt_that_may_not_be_cut_wants_what_is_not_cached(scene):
    """Without chunked prefill a prompt is held against the budget with what a prefix hit leaves of it."""
    scheduler, record = scene(enable_chunked_prefill=False, max_num_batched_tokens=8192)
    shared = bare.tokens(3200, 7)
    scheduler.add_request(bare.request("first", [*shared, 5], output=1))
    bare.step(scheduler)
    add(scheduler, "a", prompt=6000)
    scheduler.add_request(bare.request("b", [*shared, *bare.tokens(2500, 8)]))
    bare.step(scheduler)
    assert record.told(record.passes[-1])["b"] == ("wait", "input_tokens/budget", 6000 + 2500, 8192)


def test_a_whole_prompt_that_the_pool_has_no_room_for(scene):
    """A prompt enters when all of it fits: blocks needed against blocks free, in tokens."""
    scheduler, record = scene(blocks=21, max_num_batched_tokens=64)
    add(scheduler, "a", prompt=160, output=1)
    bare.step(scheduler)
    add(scheduler, "b", prompt=300)
    for _ in range(2):
        bare.step(scheduler)
    told = record.told(record.passes[-1])
    # 20 blocks in all; the first prompt has 10 of them once its last chunk is in.
    assert told["b"] == ("wait", "kv_capacity/pool", 304, 160)
    assert closed_by(record.passes[-1]) == "kv_capacity/pool"


def test_the_watermark(scene):
    """What would fit, but for the blocks kept free for those that run, waits for the watermark."""
    scheduler, record = scene(blocks=21, watermark=0.2)
    add(scheduler, "a", prompt=160, output=30)
    bare.step(scheduler)
    add(scheduler, "b", prompt=130)
    bare.step(scheduler)
    told = record.told(record.passes[-1])
    # Nine blocks are needed and nine are free; four more would have to stay free.
    assert told["b"] == ("wait", "kv_capacity/watermark", (9 + 4) * 16, 9 * 16)
    assert record.passes[-1].before[2] == 4 * 16


def test_a_step_in_which_a_request_gave_its_kv_back(scene):
    """After a preemption the queue is not looked at in that step, and the one that gave its KV back is told."""
    scheduler, record = scene(blocks=9, max_num_seqs=3, enable_prefix_caching=False)
    add(scheduler, "a", "b", prompt=60, output=40)
    for _ in range(4):
        bare.step(scheduler)
    add(scheduler, "c", prompt=16)
    while not (output := bare.step(scheduler)).num_scheduled_tokens or "b" in output.num_scheduled_tokens:
        pass
    (passed,) = [each for each in record.passes if closed_by(each) == "kv_capacity/preemption"]
    assert record.told(passed) == {"c": ("wait", "kv_capacity/preemption", 64, 0)}
    (gave_back,) = [each for each in record.records if type(each).__name__ == "Retract"]
    assert gave_back.freed_tokens == 64
    assert gave_back.generated_tokens > 0


def test_a_paused_engine(scene):
    """An engine told to take nothing in says so of its queue."""
    scheduler, record = scene()
    add(scheduler, "a", output=20)
    bare.step(scheduler)
    add(scheduler, "b", "c")
    scheduler.set_pause_state(PauseState.PAUSED_NEW)
    bare.step(scheduler)
    assert record.told(record.passes[-1]) == {"b": ("wait", "paused/paused", 2, 0)}
    assert record.passes[-1].not_reached == 1


def test_an_engine_paused_whole(scene):
    """An engine told to compute nothing parks its unfinished prompt for that, and its queue waits for the same."""
    scheduler, record = scene(max_num_batched_tokens=64)
    add(scheduler, "long", prompt=200)
    bare.step(scheduler)
    add(scheduler, "b")
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert bare.step(scheduler).total_num_scheduled_tokens == 0
    assert record.told(record.passes[-1]) == {
        "long": ("park", "paused/paused", 1, 0),
        "b": ("wait", "paused/paused", 1, 0),
    }


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        (RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR, "request_state/grammar"),
        (RequestStatus.WAITING_FOR_STREAMING_REQ, "request_state/more_input"),
    ],
)
def test_a_request_that_is_not_ready(scene, status, stop):
    """One that waits for its grammar or its client is passed over with that reason, and the next one enters."""
    scheduler, record = scene()
    held = bare.request("held")
    held.status = status
    held.streaming_queue = None
    if status is RequestStatus.WAITING_FOR_STREAMING_REQ:
        scheduler.num_waiting_for_streaming_input += 1
    scheduler.add_request(held)
    add(scheduler, "next")
    bare.step(scheduler)
    (passed,) = record.passes
    assert record.told(passed) == {"held": ("wait", stop, 1, 0), "next": ("admit", None, 0, 0)}
    assert (closed_by(passed), passed.not_reached) == (None, 0)


def test_output_that_is_still_to_be_delivered(scene):
    """A request whose output from before a preemption is on its way is passed over for that."""
    scheduler, record = scene()
    stale = bare.request("stale")
    stale.num_stale_output_tokens = 1
    scheduler.add_request(stale)
    bare.step(scheduler)
    assert record.told(record.passes[0]) == {"stale": ("wait", "request_state/stale_output", 1, 0)}


def test_the_limit_on_adapters(scene):
    """One more adapter than a step may have passes its request over, and the next one enters."""
    scheduler, record = scene()
    scheduler.lora_config = SimpleNamespace(max_loras=1)
    for name, adapter in (("a", 1), ("b", 2), ("c", 1)):
        lora = SimpleNamespace(lora_int_id=adapter, lora_name=f"adapter-{adapter}", lora_path="nowhere")
        scheduler.add_request(bare.request(name, lora_request=lora))
    bare.step(scheduler)
    (passed,) = record.passes
    assert record.told(passed) == {
        "a": ("admit", None, 0, 0),
        "b": ("wait", "lora/adapter", 2, 1),
        "c": ("admit", None, 0, 0),
    }


def test_prompts_put_off_for_other_ranks(scene):
    """On a step that data-parallel balancing throttles, prompts wait for the cadence."""
    scheduler, record = scene()
    add(scheduler, "a", output=20)
    bare.step(scheduler)
    add(scheduler, "b", "c")
    output = scheduler.schedule(True)
    scheduler.update_from_output(output, bare.output_of(scheduler, output))
    passed = record.passes[-1]
    assert record.told(passed) == {"b": ("wait", "prefill_delay/cadence", 2, 0)}
    assert closed_by(passed) == "prefill_delay/cadence"


class NoAlignedChunk(Scheduler):
    """A scheduler that finds no chunk at which its state can be cached."""

    def _mamba_block_aligned_split(self, request, num_new_tokens, *_):
        del request, num_new_tokens
        return 0


class NoEncoderRoom(Scheduler):
    """A scheduler whose encoder has no room."""

    def _try_schedule_encoder_inputs(self, *_, **__):
        return [], 0, 0, [], []


class InTransit(Scheduler):
    """A scheduler for which an encoder input is on its way."""

    def _ec_transfer_pending(self, request, _):
        return request.request_id == "a"


class Drafting(Scheduler):
    """A scheduler whose drafter takes the eight tokens behind a chunk."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.num_prefill_lookahead = 8


def test_a_chunk_that_cannot_end_where_state_is_cached(scene):
    """Where chunks must end at a boundary, a budget without one ends the step."""
    scheduler, record = scene(stock=NoAlignedChunk)
    scheduler.need_mamba_block_aligned_split = True
    add(scheduler, "a", "b")
    bare.step(scheduler)
    assert record.told(record.passes[0]) == {"a": ("wait", "chunk_tokens/alignment", 16, 512)}


def test_an_encoder_without_room(scene):
    """An input that the encoder has no room for ends the step, with its tokens and the encoder's budget."""
    scheduler, record = scene(stock=NoEncoderRoom)
    scheduler.max_num_encoder_input_tokens = 30
    pictured = bare.request("a")
    pictured.mm_features = [SimpleNamespace(mm_position=SimpleNamespace(get_num_embeds=lambda: 40))]
    scheduler.add_request(pictured)
    output = scheduler.schedule()
    assert output.total_num_scheduled_tokens == 0
    assert record.told(record.passes[0]) == {"a": ("wait", "encoder/budget", 40, 30)}


def test_an_encoder_input_on_its_way(scene):
    """A request whose encoder input has not arrived is passed over, and the next one enters."""
    scheduler, record = scene(stock=InTransit)
    add(scheduler, "a", "b")
    bare.step(scheduler)
    told = record.told(record.passes[0])
    assert told == {"a": ("wait", "encoder/transfer", 0, 0), "b": ("admit", None, 0, 0)}


def test_a_chunk_that_ends_too_close_to_the_prompts_end(scene):
    """Where a drafter wants what comes behind a chunk, a budget that would leave it less ends the step."""
    scheduler, record = scene(max_num_batched_tokens=64, stock=Drafting)
    add(scheduler, "a", prompt=60)
    add(scheduler, "b", prompt=6)
    bare.step(scheduler)
    told = record.told(record.passes[0])
    assert told == {"a": ("admit", None, 0, 0), "b": ("wait", "chunk_tokens/alignment", 60 + 6, 64)}


def test_a_cause_that_cannot_be_told(scene, monkeypatch):
    """A pool that gives nothing although there is room leaves its request unattributed, and no cause is guessed."""
    scheduler, record = scene()
    monkeypatch.setattr(scheduler._glassgate, "_stock_allocate", lambda *_, **__: None)
    add(scheduler, "a", "b")
    scheduler.schedule()
    (passed,) = record.passes
    assert record.told(passed) == {"a": ("wait", "unattributed/not_told", 1, 0)}
    assert record.decisions(passed)["a"].ladder()[Gate.KV_CAPACITY].verdict is Verdict.NOT_EVALUATED
    assert (closed_by(passed), passed.not_reached) == ("unattributed/not_told", 1)


def test_the_counts_of_every_pass_add_up(scene):
    """Whatever happens in a crowded engine, admitted + waiting + refused + not reached is the queue of each pass."""
    scheduler, record = scene(
        blocks=40, max_num_seqs=4, max_num_batched_tokens=96, knobs={"max_requests": 1, "max_extend_tokens": 200}
    )
    shared = bare.tokens(80, 3)
    for number in range(60):
        ids = [*shared[: 16 * (number % 5)], *bare.tokens(3 + 23 * (number % 11), number)]
        scheduler.add_request(bare.request(f"r{number}", ids, output=1 + number % 30))
        bare.step(scheduler)
        if number % 13 == 12:
            scheduler.finish_requests(f"r{number - 2}", RequestStatus.FINISHED_ABORTED)
    while scheduler.has_requests():
        bare.step(scheduler)
    passes = record.passes
    for passed in passes:
        assert_counts_add_up(passed)
    assert {closed_by(passed) for passed in passes} >= {
        "request_slots/slots",
        "kv_capacity/pool",
        "request_count/limit",
    }
    assert scheduler._glassgate.requests.queued_tokens == 0
