"""What the engine's own tests ask of a PrefillAdder, asked of the stock class and of ours with every knob off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bare import Shelf, terms_of
from sglang.srt.managers.schedule_policy import PrefillAdder
from sglang.srt.runtime_context import get_context
from sglang_pass import CLIP, Running, Spec, World, make_request, prefix_ids

from controller.engines.sglang.adder import GatedAdder
from controller.engines.sglang.desk import Desk
from controller.engines.sglang.verdicts import CONTINUE, NO_TOKEN, OTHER
from controller.records import Preempt

SPEC = Spec("radix", 16, 4096, 16, 1.0, None, 4096)


def ours(spec: Spec) -> type:
    """Our class with a desk and every knob off."""
    return type("OurAdder", (GatedAdder,), {"desk": Desk(Shelf(), terms_of(spec))})  # type: ignore[arg-type]


@pytest.fixture(params=["stock", "ours"])
def adder_class(request: pytest.FixtureRequest) -> Any:
    """The stock class, or ours, for a spec."""
    return (lambda _: PrefillAdder) if request.param == "stock" else ours


class RunningBatch:
    """Running requests as `preempt_to_schedule` uses them; what it releases gives its KV back to the pool."""

    def __init__(self, world: World, priorities: list[int], output: int) -> None:
        self.world = world
        self.reqs = []
        self.batch_is_full = False
        for number, priority in enumerate(priorities):
            request = world._run(number, Running(64, output, 4, ignore_eos=True))
            request.priority = priority
            request.time_stats = SimpleNamespace(wait_queue_entry_time=float(number))
            self.reqs.append(request)
        self.released: list[str] = []

    def batch_size(self) -> int:
        """Running requests."""
        return len(self.reqs)

    def release_req(self, index: int, _left: int) -> None:
        """Give a request's KV back."""
        self.released.append(self.reqs[index].rid)

    def filter_batch(self, keep_indices: list[int]) -> None:
        """Keep those of so many places."""
        self.reqs = [self.reqs[place] for place in keep_indices]


def adder_of(adder_class: Any, world: World, running: Any, **arguments: Any) -> Any:
    """An adder over a world."""
    spec = world.spec
    return adder_class(spec)(
        spec.page, world.tree, world.allocator, running, spec.ratio, spec.max_prefill, spec.chunk, **arguments
    )


def candidate(prompt: int, output: int, priority: int = 0, number: int = 0) -> Any:
    """A waiting request that has looked up nothing yet."""
    request = make_request(f"c{number}", prefix_ids(700 + number, prompt), output)
    request.priority = priority
    return request


@pytest.mark.parametrize("low_first", [True, False])
def test_preemption_takes_from_the_least_important_and_only_as_much_as_is_needed(adder_class, server_args, low_first):
    """A request of higher priority gets the reserve of those of lower priority, the least important first."""
    with get_context().override_server_args(schedule_low_priority_values_first=low_first):
        world = World(SPEC, server_args)
        sign = 1 if low_first else -1
        running = RunningBatch(world, [sign * 5, sign * 9, sign * 7], 1000)
        adder = adder_of(adder_class, world, running)
        waiting = candidate(1000, 500, priority=0)
        waiting.init_next_round_input(world.tree)
        assert adder.rem_total_tokens < 1500
        assert adder.preempt_to_schedule(waiting)
        assert running.released == ["r1"]
        assert [each.rid for each in running.reqs] == ["r0", "r2"]
        assert [each.rid for each in adder.preempt_list] == ["r1"]
        assert adder.rem_total_tokens >= 1500


def test_preemption_is_refused_below_the_threshold_or_where_it_would_not_be_enough(adder_class, server_args):
    """Equal priorities preempt nobody, and nothing is taken where all of it would not make room."""
    with get_context().override_server_args(schedule_low_priority_values_first=True):
        world = World(SPEC, server_args)
        running = RunningBatch(world, [1, 1], 1000)
        adder = adder_of(adder_class, world, running, priority_scheduling_preemption_threshold=5)
        waiting = candidate(3000, 500, priority=0)
        waiting.init_next_round_input(world.tree)
        assert not adder.preempt_to_schedule(waiting)
        adder = adder_of(adder_class, world, running)
        waiting = candidate(4000, 4000, priority=0)
        waiting.init_next_round_input(world.tree)
        assert not adder.preempt_to_schedule(waiting)
        assert running.released == []


def test_ours_records_who_was_preempted_and_for_whom(server_args):
    """A preemption is in the record, with the request that it was for."""
    with get_context().override_server_args(schedule_low_priority_values_first=True):
        world = World(SPEC, server_args)
        running = RunningBatch(world, [5, 9], 1500)
        made = ours(SPEC)
        adder = adder_of(lambda _: made, world, running)
        waiting = candidate(1000, 500)
        waiting.init_next_round_input(world.tree)
        assert adder.preempt_to_schedule(waiting)
        (record,) = [each for each in made.desk.record.noted if isinstance(each, Preempt)]
        number = made.desk.ledger.number
        assert (record.number, record.by) == (number(adder.preempt_list[0]), number(waiting))


def test_mixed_decode_rows_are_taken_from_both_budgets(adder_class, server_args):
    """Decode rows of a mixed batch count against input and chunk budgets before anybody is admitted."""
    spec = Spec("radix", 16, 4096, 16, 1.0, 512, 600)
    world = World(spec, server_args)
    adder = adder_of(adder_class, world, None, num_mixed_decode_tokens=500)
    assert (adder.rem_input_tokens, adder.rem_chunk_tokens) == (100, 12)
    assert adder.budget_state() is CONTINUE
    adder = adder_of(adder_class, world, None, num_mixed_decode_tokens=512)
    assert adder.budget_state() is OTHER


@pytest.mark.parametrize(("output", "generated", "reserved"), [(100, 40, 60), (9000, 10, CLIP), (4097, 0, CLIP)])
def test_a_running_request_reserves_what_is_left_clipped(adder_class, server_args, output, generated, reserved):
    """The reserve of a running request is what it may still generate, at most 4,096, times the ratio."""
    spec = Spec("radix", 16, 16_384, 16, 0.5, None, 4096)
    world = World(spec, server_args)
    running = SimpleNamespace(reqs=[make_request("r", prefix_ids(1, 4), output, generated)], batch_size=lambda: 1)
    adder = adder_of(adder_class, world, running)
    assert adder.rem_total_tokens == 16_384 - reserved * 0.5
    assert adder.cur_rem_tokens == 16_384


def test_members_keep_the_queues_order_and_one_is_cut(adder_class, server_args):
    """Requests enter in order until the chunk is spent; the last is cut to it and remembered as the unfinished one."""
    spec = Spec("radix", 16, 16_384, 16, 1.0, 512, 4096)
    world = World(spec, server_args)
    adder = adder_of(adder_class, world, None)
    verdicts = []
    for number, prompt in enumerate((200, 100, 400)):
        request = candidate(prompt, 8, number=number)
        request.init_next_round_input(world.tree)
        verdicts.append(adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None))
    assert verdicts == [CONTINUE, CONTINUE, OTHER]
    assert [each.rid for each in adder.can_run_list] == ["c0", "c1", "c2"]
    assert [each.extend_end for each in adder.can_run_list] == [200, 100, 192]
    assert adder.new_chunked_req is adder.can_run_list[-1]


def test_a_refused_candidate_leaves_no_trace(adder_class, server_args):
    """What did not enter has no lock, no place in the batch, and took nothing from any budget."""
    world = World(SPEC, server_args)
    adder = adder_of(adder_class, world, None)
    before = (adder.rem_total_tokens, adder.cur_rem_tokens, adder.rem_input_tokens, world.tree.protected_size())
    request = candidate(3000, 2000)
    request.init_next_round_input(world.tree)
    assert adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None) is NO_TOKEN
    assert adder.can_run_list == []
    assert request.lock is None
    after = (adder.rem_total_tokens, adder.cur_rem_tokens, adder.rem_input_tokens, world.tree.protected_size())
    assert after == before


def test_a_continuing_chunk_is_charged_and_comes_back_until_it_is_done(adder_class, server_args):
    """It gets the chunk, is charged for it, and is handed back while prompt is left."""
    spec = Spec("radix", 16, 16_384, 16, 1.0, 512, 4096, active=(1100, 512, 64))
    world = World(spec, server_args)
    adder = adder_of(adder_class, world, None)
    world.active.init_next_round_input()
    assert adder.add_chunked_req(world.active) is world.active
    assert (world.active.extend_end, adder.rem_chunk_tokens) == (1024, 0)
    spec = Spec("radix", 16, 16_384, 16, 1.0, 512, 4096, active=(1000, 512, 64))
    world = World(spec, server_args)
    adder = adder_of(adder_class, world, None)
    world.active.init_next_round_input()
    assert adder.add_chunked_req(world.active) is None
    assert (world.active.extend_end, adder.rem_chunk_tokens) == (1000, 512 - 496)


def test_truncation_is_aligned(adder_class, server_args):
    """A cut ends on the alignment that the engine asks for."""
    spec = Spec("radix", 16, 16_384, 16, 1.0, 500, 4096)
    world = World(spec, server_args)
    adder = adder_of(adder_class, world, None)
    request = candidate(900, 8)
    request.init_next_round_input(world.tree)
    adder.add_one_req(request, has_chunked_req=False, truncation_align_size=128)
    assert request.extend_end == 384
