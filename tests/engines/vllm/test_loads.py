"""Host hits on vLLM's waiting loop: found, being loaded, loaded and used, or not, and why. The connector is made up."""

from __future__ import annotations

from unittest.mock import MagicMock

import bare
import pytest
from reading import closed_by
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput

from controller.records import LoadDone, Pass, Repeat
from controller.vocabulary import Gate, HostHit, Verdict

PROMPT = 100
HIT = 64


class Connected(Scheduler):
    """A scheduler whose connector answers what a test says."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        connector = self.connector = MagicMock()
        connector.supports_divergent_local_hybrid_hits = False
        connector.requires_kv_delivery = False
        connector.has_pending_block_frees.return_value = False
        connector.has_pending_push_work.return_value = False
        connector.get_loaded_kv_cache_group_ids.return_value = ()
        connector.get_num_new_matched_tokens.return_value = (0, False)
        connector.request_finished.return_value = (False, None)
        connector.get_kv_connector_stats.return_value = None
        connector.take_events.return_value = None
        self.finds = connector.get_num_new_matched_tokens


@pytest.fixture
def connected(scene):
    """A watched scheduler with that connector."""

    def make(**keywords):
        return scene(stock=Connected, **keywords)

    return make


def came(*names, failed=()):
    """What workers say when loads are over."""
    return KVConnectorOutput(finished_recving=set(names) | set(failed), failed_recving=set(failed))


def test_a_hit_is_loaded_and_then_used(connected):
    """The funnel of a hit: matched and asked for, waited for, loaded, and part of the batch when the request enters."""
    scheduler, record = connected()
    scheduler.finds.return_value = (HIT, True)
    scheduler.add_request(bare.request("a", PROMPT))
    bare.step(scheduler)
    for _ in range(3):
        bare.step(scheduler)
    bare.step(scheduler, came("a"))
    bare.step(scheduler)
    first, _, last = record.of(Pass)
    assert record.told(first) == {"a": ("wait", "load_back/loading", HIT, 0)}
    begun = record.decisions(first)["a"]
    assert (begun.host, begun.matched_tokens, begun.asked_tokens) == (HostHit.PLANNED, HIT, HIT)
    assert begun.ladder()[Gate.KV_CAPACITY].observed == HIT
    # It was looked at again in each step: written once, as the engine is not idle any more, then counted.
    (repeat,) = record.of(Repeat)
    assert (repeat.first_pass, repeat.count, repeat.gate) == (2, 3, Gate.LOAD_BACK)
    (done,) = record.of(LoadDone)
    assert done.tokens == HIT
    used = record.decisions(last)["a"]
    assert (used.outcome.word, used.host, used.loaded_tokens, used.extend_tokens) == (
        "admit", HostHit.LOADED, HIT, PROMPT - HIT,
    )  # fmt: skip
    assert last.batch == ((0, 0, PROMPT - HIT, 0, HIT, 0),)


def test_a_load_that_fails_is_computed_again(connected):
    """A transfer that brought nothing leaves the whole prompt to compute, and the cause stands beside it."""
    scheduler, record = connected()
    scheduler.finds.return_value = (HIT, True)
    scheduler.add_request(bare.request("a", PROMPT))
    bare.step(scheduler)
    scheduler.finds.return_value = (0, False)
    bare.step(scheduler, came(failed=("a",)))
    bare.step(scheduler)
    entered = record.decisions(record.of(Pass)[-1])["a"]
    assert (entered.outcome.word, entered.host, entered.extend_tokens) == ("admit", HostHit.CONTROLLER, PROMPT)
    assert entered.matched_tokens == HIT
    assert record.of(LoadDone) == []


def test_a_connector_that_cannot_say_yet(connected):
    """While the connector has no answer its request is passed over for the look-up, and the next one enters."""
    scheduler, record = connected()
    scheduler.finds.side_effect = lambda request, _: (None, False) if request.request_id == "a" else (0, False)
    for name in ("a", "b"):
        scheduler.add_request(bare.request(name, PROMPT))
    bare.step(scheduler)
    (passed,) = record.passes
    assert record.told(passed) == {
        "a": ("wait", "load_back/lookup", PROMPT, 0),
        "b": ("admit", None, 0, 0),
    }
    assert record.decisions(passed)["a"].host is HostHit.IN_FLIGHT
    assert closed_by(passed) is None


def test_a_hit_that_comes_with_the_step(connected):
    """A connector that loads within the step has its tokens in the batch at once."""
    scheduler, record = connected()
    scheduler.finds.return_value = (HIT, False)
    scheduler.add_request(bare.request("a", PROMPT))
    bare.step(scheduler)
    (passed,) = record.passes
    assert passed.batch == ((0, 0, PROMPT - HIT, 0, HIT, 0),)
    assert record.decisions(passed)["a"].host is HostHit.LOADED


def test_a_hit_without_room(connected):
    """A hit for which the pool has no room waits for the pool, and is not loaded for want of it."""
    scheduler, record = connected(blocks=9)
    scheduler.add_request(bare.request("runs", 60, output=40))
    bare.step(scheduler)
    scheduler.finds.return_value = (HIT, True)
    scheduler.add_request(bare.request("a", PROMPT))
    bare.step(scheduler)
    waits = record.decisions(record.passes[-1])["a"]
    assert (waits.gate, waits.host, waits.matched_tokens, waits.asked_tokens) == (
        Gate.KV_CAPACITY, HostHit.ALLOCATOR, HIT, 0,
    )  # fmt: skip
    assert waits.short_by == waits.observed - waits.limit > 0


def test_what_is_promised_to_prompts_in_flight(connected):
    """A load that would fit, but for what a prompt in flight still needs, waits for what is reserved."""
    scheduler, record = connected(
        blocks=21, max_num_batched_tokens=80, long_prefill_token_threshold=64, scheduler_reserve_full_isl=False
    )
    scheduler.add_request(bare.request("long", 200))
    bare.step(scheduler)
    scheduler.finds.return_value = (176, True)
    scheduler.add_request(bare.request("a", 190))
    bare.step(scheduler)
    # Nine blocks are taken and eleven free, of which four are promised to the prompt under way; eleven are wanted.
    assert record.told(record.passes[-1])["a"] == ("wait", "kv_capacity/reserved", (11 + 4) * 16, 11 * 16)


def test_a_limit_bounds_how_many_hits_begin_to_load(connected):
    """A host hit that begins to load counts against the limits of its step like a member."""
    scheduler, record = connected(knobs={"max_requests": 2, "max_cached_tokens": 2 * HIT})
    scheduler.finds.return_value = (HIT, True)
    for name in ("a", "b", "c"):
        scheduler.add_request(bare.request(name, PROMPT))
    bare.step(scheduler)
    assert record.told(record.passes[0])["c"] == ("wait", "request_count/limit", 3, 2)
    assert len(scheduler.kv_holding_waiting) == 2


def test_a_request_that_holds_its_kv_is_never_kept_out(connected):
    """Once its hit is loaded a request enters whatever the limits are, marked exempt."""
    scheduler, record = connected(knobs={"max_cached_tokens": 10, "max_extend_tokens": 10, "max_requests": 1})
    scheduler.finds.return_value = (HIT, True)
    scheduler.add_request(bare.request("held", PROMPT))
    bare.step(scheduler)
    scheduler.finds.return_value = (0, False)
    scheduler.add_request(bare.request("long", 600))
    bare.step(scheduler, came("held"))
    bare.step(scheduler)
    entered = record.decisions(record.of(Pass)[-1])["held"]
    assert entered.outcome.word == "admit"
    ladder = entered.ladder()
    assert (ladder[Gate.CACHED_TOKENS].verdict, ladder[Gate.EXTEND_TOKENS].verdict) == (Verdict.EXEMPT,) * 2
    assert ladder[Gate.CACHED_TOKENS].observed == HIT
