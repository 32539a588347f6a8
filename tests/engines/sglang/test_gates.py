"""Glassgate's gates on top of the stock class: the replay with the same knobs decides alike, over random states."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from bare import gated_pass, members, terms_of
from make_sglang_golden import chunk_has_room, fits_for_ever, make_spec, too_close
from sglang_pass import NoRoomError, Running, Spec, Waiting, World, run_pass
from test_stock_decisions import names_of, rounds, written

from controller.admission import AdmissionPass
from controller.case import CaseEngine, read_case
from controller.decision import Decision
from controller.request import ActiveChunk, Capacity, running_reserve
from controller.vocabulary import Gate, Outcome, Reason
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.geometry import Geometry

SEED = 7_523
COUNT = 700
TINY = Geometry(
    name="tiny", hidden_size=128, intermediate_size=256, heads=4, vocab_size=512, layers=2, context_len=8192,
    kv_heads=2, head_dim=32, v_head_dim=32,
)  # fmt: skip


def estimator_of(spec: Spec) -> BatchEstimator:
    """An estimator for a small model on the pool of a spec."""
    return BatchEstimator(
        TINY, RunContext.default_for(TINY, page_size=spec.page, chunked_prefill_size=spec.chunk or 8192)
    )


def limits_of(draw: random.Random, spec: Spec) -> dict[str, Any]:
    """Random soft limits, near enough to what a queue asks for that they bind."""
    want = sum(each.prompt for each in spec.queue) or 1
    knobs: dict[str, Any] = {}
    if draw.random() < 0.5:
        knobs["max_requests"] = draw.randint(1, 4)
    if draw.random() < 0.5:
        knobs["max_extend_tokens"] = max(1, int(want * draw.uniform(0.1, 1.0)))
    if draw.random() < 0.4:
        knobs["max_cached_tokens"] = draw.choice((1, 64, 400, 1500))
    if draw.random() < 0.4:
        knobs["max_buffer_bytes"] = int(want * draw.uniform(500, 3000)) + 1
    if draw.random() < 0.15:
        knobs["enforce"] = False
    return knobs


def replay(case: dict[str, Any], terms: Any, estimator: BatchEstimator) -> Any:
    """The replay's pass over a case under the same limits."""
    read = read_case(case)
    given, chunk = read.capacity, read.active_chunk
    reserve = [(each.remaining_output_tokens, each.ignore_eos) for each in read.running]
    capacity = Capacity(
        pool_tokens=given.pool_tokens or 1, free_tokens=given.free_tokens or 0, running=len(read.running),
        evictable_tokens=given.evictable_tokens, slots=given.running_slots,
        reserved_tokens=running_reserve(reserve, read.new_token_ratio),
    )  # fmt: skip
    engine = CaseEngine(read, given.evictable_tokens)
    active = None
    if chunk is not None:
        active = ActiveChunk(len(read.queue), chunk.prompt_tokens, chunk.done_tokens, chunk.output_tokens)
    return AdmissionPass(terms.limits, capacity, estimator).run(engine.candidates(), engine, active)


@pytest.mark.parametrize("path", ["ordinary", "shared", "single"])
def test_with_the_same_knobs_the_replay_decides_as_the_engine_does(path, server_args):
    """Members, lengths and order are the same with every soft limit, in shadow mode, and under context parallelism."""
    draw, seen, stops = random.Random(SEED), Counter(), Counter()  # noqa: S311 - cases, not secrets
    for _ in range(COUNT if path == "ordinary" else COUNT // 2):
        spec = make_spec(draw, draw.choice(("radix", "unified")), starve=False)
        knobs = limits_of(draw, spec)
        if path != "ordinary" and spec.chunk is None:
            continue
        if path == "shared":
            knobs["shared_kv_batching"] = True
        estimator = estimator_of(spec)
        terms = terms_of(spec, estimator=estimator, context_parallel=path != "ordinary", **knobs)
        try:
            passed = gated_pass(spec, server_args, terms)
        except NoRoomError:
            continue
        ran = passed.outcome
        if ran.partly_locked or too_close(ran) or rounds(spec) or not fits_for_ever(spec):
            continue
        if not chunk_has_room(spec, ran):
            continue
        found = replay(ran.case, terms, estimator)
        assert members(found, names_of(ran.case)) == ran.expected["batch"], (spec, knobs)
        seen["cases"] += 1
        if not (ran.expected["stop"] == "slots" and not ran.expected["looked_at"]):
            ours = [each for each in written(passed) if each["outcome"] == "wait"]
            for each in ours:
                stops[each["gate"]] += 1
                theirs = [Decision.read(flat) for flat in found.decisions if flat[1] == Outcome.WAIT]
                same = theirs and theirs[-1].gate is not None and theirs[-1].gate.word == each["gate"]
                if same and each["gate"] not in ("kv_capacity", "request_slots"):
                    assert (theirs[-1].observed, theirs[-1].limit) == (each["observed"], each["limit"]), (spec, knobs)
                    seen["same numbers"] += 1
    assert seen["cases"] > 0.4 * COUNT / 2
    wanted = {
        "ordinary": {"request_count", "extend_tokens", "cached_tokens", "buffer_bytes", "kv_capacity"},
        "shared": {"request_count", "extend_tokens"},
        "single": {"batch_mode"},
    }
    assert wanted[path] <= set(stops), stops
    assert seen["same numbers"] > 20


STARVED = Spec(  # free 704, running reserve 2,867, 20,000 left to compute
    "radix", 64, 25_600, 16, 0.7, 2048, 16_384, 22_784, (Running(64, 5000, 10, ignore_eos=False),),
    active=(22_048, 2048, 128), queue=(Waiting(-1, 0, 500, 64),),
)  # fmt: skip


def test_a_chunk_without_room_for_a_page_is_parked_and_nothing_else_enters(server_args):
    """It keeps its slot and comes back to the engine unfinished; the pass is closed before anybody is tried."""
    passed = gated_pass(STARVED, server_args, terms_of(STARVED, park=True))
    adder = passed.outcome.adder
    assert passed.outcome.expected["batch"] == []
    assert passed.outcome.expected["verdicts"] == {}
    assert adder.parked
    assert adder.can_run_list == []
    assert passed.world.active.extend_end is None  # nothing for the engine to stash
    (parked,) = passed.result.decisions
    told = Decision.read(parked)
    assert (told.outcome, told.gate, told.reason) == (Outcome.PARK, Gate.KV_CAPACITY, Reason.POOL)
    assert (told.observed, told.limit) == (64, -2164)
    assert passed.result.closed_by == (Gate.KV_CAPACITY, Reason.POOL)
    assert passed.result.looked_at == 0


def test_without_park_the_stock_class_lets_it_through(server_args):
    """Switched off, the chunk goes on as the engine has it, with no room at all."""
    passed = gated_pass(STARVED, server_args, terms_of(STARVED, park=False))
    assert [(each["id"], each["extend_tokens"]) for each in passed.outcome.expected["batch"]] == [("L", 2048)]


def test_a_chunk_is_not_parked_where_nobody_would_make_room(server_args):
    """With nothing running and nothing handed over it is the only possible progress, and goes on."""
    alone = replace(STARVED, running=(), eat=STARVED.eat + 64 * 12)
    stock = run_pass(World(alone, server_args))
    assert stock.chunk_room < 64
    passed = gated_pass(alone, server_args, terms_of(alone, park=True))
    assert passed.outcome.expected == stock.expected
    assert [each["id"] for each in passed.outcome.expected["batch"]] == ["L"]


def test_a_chunk_with_little_room_is_cut_to_whole_pages(server_args):
    """Less room than it wants, but a page of it or more: it gets the whole pages that fit, and says what cut it."""
    spec = replace(STARVED, eat=STARVED.eat - 64 * 40)
    passed = gated_pass(spec, server_args, terms_of(spec, park=True))
    room = int(passed.outcome.chunk_room)
    assert 64 < room < 2048
    (cut,) = passed.outcome.expected["batch"]
    assert cut["extend_tokens"] == room // 64 * 64
    told = Decision.read(passed.result.decisions[0])
    assert (told.outcome, told.gate, told.observed, told.limit) == (Outcome.ADMIT_CHUNK, Gate.KV_CAPACITY, 2048, room)


def test_parked_cases_of_the_golden_file_are_parked_here_too(server_args):
    """Over random starved states the engine with park decides what the replay decides."""
    draw, seen = random.Random(SEED + 2), Counter()  # noqa: S311 - cases, not secrets
    while seen["park"] < 12 or seen["cut"] < 8:
        spec = make_spec(draw, draw.choice(("radix", "unified")), starve=True)
        if spec.active is None:
            continue
        try:
            passed = gated_pass(spec, server_args, terms_of(spec, park=True))
        except NoRoomError:
            continue
        ran = passed.outcome
        if ran.partly_locked or too_close(ran) or rounds(spec) or not fits_for_ever(spec) or not spec.running:
            continue
        found = replay(ran.case, passed.desk.terms, estimator_of(spec))
        assert members(found, names_of(ran.case)) == ran.expected["batch"], spec
        seen["park" if ran.adder.parked else "cut" if not chunk_has_room(spec, ran) else "whole"] += 1


def test_what_can_never_fit_leaves_and_the_queue_goes_on(server_args):
    """With can_never on, the rest of the queue is tried in the same pass; the request is left for the abort."""
    spec = Spec("radix", 1, 76_640, 16, 1.0, 8192, 16_384,
                queue=(Waiting(-1, 0, 100_000, 128), Waiting(-1, 0, 500, 128, number=1)))  # fmt: skip
    passed = gated_pass(spec, server_args, terms_of(spec), aborts_never=True)
    assert [each["id"] for each in passed.outcome.expected["batch"]] == ["q1"]
    first, second = (Decision.read(flat) for flat in passed.result.decisions)
    assert (first.outcome, first.gate, first.reason) == (Outcome.REFUSE, Gate.KV_CAPACITY, Reason.CAN_NEVER)
    assert second.outcome is Outcome.ADMIT
    assert [look.request.rid for look in passed.desk.doomed] == ["q0"]
    waiting = gated_pass(spec, server_args, terms_of(spec))
    assert waiting.outcome.expected["batch"] == []
    told = Decision.read(waiting.result.decisions[0])
    assert (told.outcome, told.gate, told.reason) == (Outcome.WAIT, Gate.KV_CAPACITY, Reason.CAN_NEVER)


def test_a_fault_of_ours_leaves_the_pass_to_the_engine(server_args, monkeypatch):
    """An estimator that fails costs the gate and the record, and changes no decision of the stock class."""
    spec = Spec("radix", 1, 50_000, 16, 1.0, 8192, 16_384,
                queue=tuple(Waiting(-1, 0, 500, 64, number=number) for number in range(4)))  # fmt: skip
    estimator = estimator_of(spec)
    terms = terms_of(spec, estimator=estimator, max_buffer_bytes=1 << 40)
    monkeypatch.setattr(BatchEstimator, "add", lambda *_: 1 // 0)
    passed = gated_pass(spec, server_args, terms, faulty=True)
    assert passed.outcome.expected == run_pass(World(spec, server_args)).expected
    assert [type(error) for error in passed.desk.record.errors] == [ZeroDivisionError]
    assert passed.desk.failed
    assert len(passed.desk.record.asides) == 1
