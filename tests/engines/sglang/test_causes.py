"""Each no of the stock class told apart: real adders, in states in which one check after the other binds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bare import Shelf, terms_of
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.prefill_delayer import PrefillDelayer, PrefillDelayerSinglePassExecutor
from sglang.srt.mem_cache.page_interleave import PageShardSpec
from sglang.srt.mem_cache.prefill_budget import SharedSWAPrefillBudget, SWAPrefillBudget
from sglang.srt.runtime_context import get_context
from sglang_pass import Running, Spec, World, make_request, prefix_ids

from controller.decision import Decision
from controller.engines.sglang import causes
from controller.engines.sglang.adder import GatedAdder, watched
from controller.engines.sglang.desk import Desk
from controller.engines.sglang.look import Look, Stop
from controller.engines.sglang.sheet import Sheet, Standing
from controller.engines.sglang.verdicts import CONTINUE, NO_TOKEN, OTHER
from controller.vocabulary import Gate, HostHit, Outcome, Reason

SPEC = Spec("radix", 16, 8192, 16, 1.0, 512, 2048)


class Bench:
    """An adder over a world, to which candidates are offered one by one."""

    def __init__(self, spec: Spec, server_args: Any, **arguments: Any) -> None:
        self.world = World(spec, server_args)
        self.desk = Desk(Shelf(), terms_of(spec))  # type: ignore[arg-type]
        self.adder_class = type("BenchAdder", (GatedAdder,), {"desk": self.desk})
        running = SimpleNamespace(reqs=self.world.running, batch_size=lambda: len(self.world.running))
        given = {"max_running_requests": spec.slots, "waiting_queue_len": 8, **arguments}
        self.adder = self.adder_class(
            spec.page, self.world.tree, self.world.allocator, running, spec.ratio, spec.max_prefill, spec.chunk, **given
        )

    def offer(
        self,
        prompt: int,
        output: int = 8,
        *,
        number: int = 0,
        align: int | None = None,
        ignore_eos: bool = False,
        chunked: bool = False,
    ) -> Any:
        """Offer a request as the scheduler's loop does; the verdict."""
        request = make_request(f"c{number}", prefix_ids(500 + number, prompt), output, 0, ignore_eos)
        self.adder.budget_state()
        request.init_next_round_input(self.world.tree)
        return self.adder.add_one_req(request, has_chunked_req=chunked, truncation_align_size=align)

    def why(self) -> Stop:
        """Why the last candidate did not enter."""
        assert not self.desk.record.errors  # type: ignore[attr-defined]
        return causes.refused(self.adder, self.adder.looks[-1])


def test_the_engines_own_request_cap(server_args):
    """--prefill-max-requests is told apart from a limit of Glassgate's."""
    bench = Bench(SPEC, server_args, prefill_max_requests=1)
    bench.offer(40)
    assert bench.offer(40, number=1) is OTHER
    assert bench.why() == Stop(Gate.REQUEST_COUNT, Reason.ENGINE_LIMIT, 2, 1)


def test_total_kv(server_args):
    """Too little room in the pool, with what was asked and what there was."""
    bench = Bench(SPEC, server_args)
    bench.offer(400, 4000)
    assert bench.offer(100, 4000, number=1) is NO_TOKEN
    assert bench.why() == Stop(Gate.KV_CAPACITY, Reason.POOL, 4116, 8192 - 4416)


def test_current_kv_spent_by_an_admission(server_args):
    """What this step's allocations have used up is told apart from what is promised for later ones."""
    bench = Bench(SPEC, server_args)
    budget = bench.adder.memory_budget
    budget.current_offset = 8192
    assert bench.adder.budget_state() is NO_TOKEN
    assert causes.spent(bench.adder, NO_TOKEN) == Stop(Gate.KV_CAPACITY, Reason.CURRENT, 1, 0)
    budget.total_offset = 8192
    bench.adder.budget_state()
    assert causes.spent(bench.adder, NO_TOKEN) == Stop(Gate.KV_CAPACITY, Reason.POOL, 1, 0)


def test_the_input_budget_with_and_without_chunks(server_args):
    """Without chunks a candidate must stay below what is left; with chunks a spent budget closes the pass."""
    bench = Bench(Spec("radix", 16, 8192, 16, 1.0, None, 600), server_args)
    bench.offer(400)
    assert bench.offer(300, number=1) is OTHER
    assert bench.why() == Stop(Gate.INPUT_TOKENS, Reason.BUDGET, 400 + 304, 600)
    bench = Bench(Spec("radix", 16, 8192, 16, 1.0, 4096, 256), server_args)
    assert bench.offer(400) is OTHER
    assert bench.adder.spent == Stop(Gate.INPUT_TOKENS, Reason.BUDGET, 400, 256)


def test_the_chunk_budget_and_its_floor(server_args):
    """A spent chunk closes the pass; a remainder that holds nothing once it is aligned is the floor."""
    bench = Bench(SPEC, server_args)
    bench.offer(600)
    assert bench.adder.spent == Stop(Gate.CHUNK_TOKENS, Reason.BUDGET, 512, 512)
    bench = Bench(SPEC, server_args)
    bench.offer(480)
    assert bench.offer(100, number=1, align=64) is OTHER
    assert bench.why() == Stop(Gate.CHUNK_TOKENS, Reason.FLOOR, 480 + 16, 512)


def test_a_second_chunk_under_shortest_prefill_first(server_args):
    """Where the engine's policy allows one unfinished prompt, the next that would be cut is told so."""
    with get_context().override_server_args(schedule_policy="shortest-prefill-first"):
        bench = Bench(SPEC, server_args)
        bench.adder.chunk = Look(make_request("L", prefix_ids(50, 9), 1), 0, 2048, 512)
        bench.adder.chunk.chunked = True
        assert bench.offer(600, chunked=True) is OTHER
        assert bench.why() == Stop(Gate.CHUNK_TOKENS, Reason.SECOND_CHUNK, 608, 512)


def test_the_delayer(server_args, monkeypatch):
    """A candidate for which a shape was selected, and which the ranks' negotiation held back: the engine's own one."""
    delayer = PrefillDelayer.__new__(PrefillDelayer)  # made without the group that its ranks would talk in
    vars(delayer).update(
        _max_delay_passes=30, _token_usage_low_watermark=None, _queue_trigger_enabled=False, _queue_min_ratio=None,
        _max_delay_ms=5000.0, _prefill_max_requests=None, _curr_state=None, skip_first_delayer=False,
        attn_dp_enabled=True, num_dp_ranks=2, _metrics_collector=None, _debug_log_enabled=False,
    )  # fmt: skip
    other = [[1, 0, 0, 0, 8, 0], [0, 0, 0, 0, 0, 0]]  # this rank has a prompt to compute, the other one none
    monkeypatch.setattr(delayer, "_gather_info", lambda **_: torch.tensor(other))
    executor = PrefillDelayerSinglePassExecutor(delayer, token_usage=0.5)
    bench = Bench(SPEC, server_args, prefill_delayer_single_pass=executor)
    assert bench.offer(100) is OTHER
    assert bench.why() == Stop(Gate.PREFILL_DELAY, Reason.DELAYER)
    other[1][0] = 1
    bench = Bench(SPEC, server_args, prefill_delayer_single_pass=PrefillDelayerSinglePassExecutor(delayer, 0.5))
    assert bench.offer(100, number=1) is CONTINUE


def test_sharded_scratch(server_args):
    """What the batch would take of a sharded pool's scratch, and what there is."""
    bench = Bench(SPEC, server_args)
    adder = bench.adder
    adder.kv_shard_granule, adder.kv_shard_size = 16, 4
    adder.kv_shard_scratch_spec = PageShardSpec(
        shard_rank=0, shard_size=4, page_size=16, max_prefix_tokens=4096, chunk_tokens=256
    )
    bench.offer(160)
    assert bench.offer(160, number=1) is OTHER
    assert bench.why() == Stop(Gate.SHARD_SCRATCH, Reason.SCRATCH, 320, 256)


def test_the_tile_budget(server_args, monkeypatch):
    """The engine's budget of attention tiles (AMD only), with the tiles of the batch and the candidate."""
    monkeypatch.setattr(schedule_policy, "_IS_HIP", True)
    monkeypatch.setattr(schedule_policy, "PREFILL_TILE_BUDGET", 1)
    bench = Bench(SPEC, server_args)
    bench.offer(100)
    assert bench.offer(100, number=1) is OTHER
    told = bench.why()
    assert (told.gate, told.reason, told.limit) == (Gate.TILE_BUDGET, Reason.TILES, 1)
    assert told.observed > 1


def test_the_tile_budget_is_told_from_the_chunk_that_cuts(server_args, monkeypatch):
    """A candidate that the chunk would cut, and of which even that has too many tiles, is told of the tiles."""
    monkeypatch.setattr(schedule_policy, "_IS_HIP", True)
    monkeypatch.setattr(schedule_policy, "PREFILL_TILE_BUDGET", 4)
    bench = Bench(SPEC, server_args)
    bench.offer(100)
    assert bench.offer(900, number=1) is OTHER
    assert bench.why()[:2] == (Gate.TILE_BUDGET, Reason.TILES)
    bench = Bench(SPEC, server_args)
    bench.offer(496)
    assert bench.offer(900, number=1, align=64) is OTHER
    assert bench.why()[:2] == (Gate.CHUNK_TOKENS, Reason.FLOOR)


def test_state_slots(server_args):
    """A model with recurrent layers has state slots of its own, which are told apart from request slots."""
    bench = Bench(SPEC, server_args)
    bench.adder.rem_mamba_slots, bench.adder._mamba_slot_cost = 0, 64
    assert bench.offer(100) is NO_TOKEN
    assert bench.why() == Stop(Gate.STATE_SLOTS, Reason.SLOTS, 1, 0)


class Windowed:
    """A pool with an attention window of its own, as the engine's budgets ask it."""

    page_size = 16
    swa_ring_cost_tokens = 0

    def __init__(self, full: int, window: int) -> None:
        self._full, self._window = full, window
        self.size_swa = 4096

    def full_available_size(self) -> int:
        """Free tokens of full attention."""
        return self._full

    def swa_available_size(self) -> int:
        """Free tokens of the window."""
        return self._window


WINDOWLESS = SimpleNamespace(
    full_evictable_size=lambda: 0, swa_evictable_size=lambda: 0, sliding_window_size=256, swa_retain_window=0
)


def windowed(kind: type, full: int, window: int, needed: int) -> Any:
    """What the adder leaves of one candidate under a budget with a window: (adder, look)."""
    budget = kind(Windowed(full, window), WINDOWLESS)
    budget.__class__ = watched(kind)
    request = make_request("w", prefix_ids(1, needed - 24), 8)
    request.init_next_round_input(None)
    adder = SimpleNamespace(
        memory_budget=budget, is_hybrid_swa=True, rem_mamba_slots=None, prefill_delayer_single_pass=None,
        token_to_kv_pool_allocator=SimpleNamespace(size=full), _swa_new_tokens=lambda _: 8,
    )  # fmt: skip
    look = Look(request, 0, 4096, 512)
    fits, _ = budget.check_prefill(
        extend_input_len=needed - 24, total_tokens=needed, max_new_tokens=8, input_tokens=needed - 24,
        swa_host_hit_length=0, chunk_limit=512,
    )  # fmt: skip
    assert not fits
    look.tried = (0, needed, budget.total_seen, NO_TOKEN)
    look.verdict = NO_TOKEN
    look.said = causes.window_short(adder, look, needed - 24, 0)
    return adder, look


def test_the_windows_pool_is_told_apart_from_full_attentions():
    """Where the window's pool refused, its numbers are told; where full attention's did, that one's."""
    adder, look = windowed(SWAPrefillBudget, 8192, 128, 224)
    told = causes.refused(adder, look)
    assert (told.gate, told.reason, told.limit) == (Gate.KV_CAPACITY, Reason.WINDOW, 128)
    assert told.observed >= 128
    adder, look = windowed(SWAPrefillBudget, 200, 4096, 224)
    assert causes.refused(adder, look) == Stop(Gate.KV_CAPACITY, Reason.CAN_NEVER, 224, 200)


class WindowedBench(Bench):
    """A bench whose pool has an attention window of its own."""

    def __init__(self, spec: Spec, server_args: Any, full: int, window: int) -> None:
        super().__init__(spec, server_args)
        world = self.world

        def budget(*_: Any, **__: Any) -> SWAPrefillBudget:
            return SWAPrefillBudget(Windowed(full, window), WINDOWLESS)

        world.allocator.create_prefill_budget = budget
        running = SimpleNamespace(reqs=[], batch_size=lambda: 0)
        self.adder = self.adder_class(
            spec.page, world.tree, world.allocator, running, 1.0, spec.max_prefill, spec.chunk
        )
        self.adder.is_hybrid_swa = True


@pytest.mark.parametrize(
    ("full", "window", "told"),
    [
        (4096, 10, Stop(Gate.KV_CAPACITY, Reason.WINDOW, 16, 10)),
        (0, 4096, Stop(Gate.KV_CAPACITY, Reason.POOL, 1, 0)),
    ],
)
def test_a_chunk_that_the_engine_leaves_for_its_window_is_parked_with_that_cause(server_args, full, window, told):
    """With an attention window's pool the engine itself lets a chunk wait; the record says for which pool."""
    spec = Spec("radix", 16, 8192, 16, 1.0, 512, 2048, active=(1100, 512, 64))
    bench = WindowedBench(spec, server_args, full, window)
    active = bench.world.active
    active.init_next_round_input()
    assert bench.adder.add_chunked_req(active) is active
    assert bench.adder.can_run_list == []
    assert not bench.adder.parked
    standing = Standing(
        bench.adder.terms, bench.desk.ledger.number, 0, 4, {}, out_of_slots=False, no_hit=HostHit.DISABLED,
        estimates=False,
    )  # fmt: skip
    (flat,) = Sheet(bench.adder, standing).write([]).decisions
    decision = Decision.read(flat)
    assert (decision.outcome, decision.gate, decision.reason) == (Outcome.PARK, told.gate, told.reason)
    assert (decision.observed, decision.limit) == told[2:]


def test_without_a_prefix_cache_the_window_is_told_from_the_look_ahead(server_args):
    """Of a request that runs to its full length the window's pool may be short; the engine looks no further ahead."""
    bench = WindowedBench(SPEC, server_args, 8192, 64)
    bench.world.tree.disable = True
    assert bench.offer(400, 8, ignore_eos=True) is NO_TOKEN
    told = bench.why()
    assert (told.gate, told.reason, told.limit) == (Gate.KV_CAPACITY, Reason.WINDOW, 65)
    assert told.observed >= told.limit


def test_a_joint_sum_over_two_pools_is_unattributed():
    """Where one sum decides over both pools, no pool is guessed."""
    adder = SimpleNamespace(memory_budget=SharedSWAPrefillBudget.__new__(SharedSWAPrefillBudget), rem_mamba_slots=None)
    look = Look(make_request("s", prefix_ids(1, 40), 8), 0, 4096, 512)
    look.tried = (0, 64, 0, NO_TOKEN)
    assert causes.refused(adder, look).gate is Gate.UNATTRIBUTED
    assert causes.spent(adder, NO_TOKEN).gate is Gate.UNATTRIBUTED


def test_without_a_prefix_cache_the_other_loop_is_told_too(server_args):
    """Requests that run to their full length without a cache have checks of their own, room now and room to come."""
    spec = Spec("radix", 16, 2048, 16, 1.0, 512, 2048, 0, (Running(64, 900, 4, ignore_eos=True),))
    bench = Bench(spec, server_args)
    bench.world.tree.disable = True
    assert bench.offer(1900, 64, ignore_eos=True) is NO_TOKEN
    assert bench.why()[:2] == (Gate.KV_CAPACITY, Reason.POOL)
    assert bench.offer(400, 1500, number=1, ignore_eos=True) is NO_TOKEN
    assert bench.why()[:2] == (Gate.KV_CAPACITY, Reason.RESERVED)
    assert bench.offer(40, 8, number=2, ignore_eos=True) is CONTINUE


def test_a_soft_limit_holds_without_a_prefix_cache_too(server_args):
    """Glassgate's gates stand in front of that loop as well."""
    bench = Bench(SPEC, server_args)
    bench.desk.terms = terms_of(SPEC, max_extend_tokens=100)
    bench.world.tree.disable = True
    running = SimpleNamespace(reqs=[], batch_size=lambda: 0)
    bench.adder = bench.adder_class(
        16, bench.world.tree, bench.world.allocator, running, 1.0, 2048, 512, max_running_requests=16
    )
    assert bench.offer(64, ignore_eos=True) is CONTINUE
    assert bench.offer(64, number=1, ignore_eos=True) is OTHER
    assert bench.why() == Stop(Gate.EXTEND_TOKENS, Reason.LIMIT, 128, 100)


def test_a_load_that_asks_to_come_again(server_args):
    """A host hit that could be neither loaded nor given up in this pass is told as that."""
    bench = Bench(SPEC, server_args)
    bench.offer(64)
    look = bench.adder.looks[-1]
    look.end, look.matched, look.verdict = -1, 320, OTHER
    assert bench.why() == Stop(Gate.LOAD_BACK, Reason.DEFERRED)


@pytest.mark.parametrize("verdict", [OTHER, NO_TOKEN])
def test_a_no_that_no_check_accounts_for_is_unattributed(server_args, verdict):
    """What cannot be told is counted as that."""
    bench = Bench(SPEC, server_args)
    bench.offer(64)
    look = bench.adder.looks[-1]
    look.end, look.verdict, look.tried = -1, verdict, None
    assert bench.why().gate is Gate.UNATTRIBUTED
