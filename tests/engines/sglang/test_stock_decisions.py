"""The subclass with every knob off against the stock class, and the replay against both: thousands of passes."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from bare import LANES, Interleaved, gated_pass, lanes_of, members, replayed, terms_of, told
from make_sglang_golden import chunk_has_room, fits_for_ever, make_spec, too_close
from sglang_pass import CLIP, NoRoomError, World, run_pass

from controller.case import decide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bare import Passed
    from sglang_pass import Spec

PASSES = {"radix": 1000, "unified": 800, "host": 500}
INTERLEAVED = 900
SEED = 20_523


def specs(tree: str, count: int, seed: int) -> Iterator[Spec]:
    """Random states of the engine with a queue, the same at every run."""
    draw = random.Random(seed)  # noqa: S311 - cases, not secrets
    for _ in range(count):
        yield make_spec(draw, tree, starve=draw.random() < 0.06, never=draw.random() < 0.04)


def names_of(case: dict[str, Any]) -> list[str]:
    """The names of a case's requests by their numbers; the continuing chunk comes last."""
    return [*(item["id"] for item in case["queue"]), "L"]


def written(passed: Passed) -> list[dict[str, Any]]:
    """What the plug-in wrote down of each request looked at, by name."""
    requests = [passed.outcome.adder.chunk, *passed.outcome.adder.looks]
    known = {passed.desk.ledger.number(look.request): look.request.rid for look in requests if look is not None}
    for request in passed.world.queue:
        known[passed.desk.ledger.number(request)] = request.rid
    return told(passed.result, known)


def plain(told_of: dict[str, Any]) -> dict[str, Any]:
    """What was told of a request, without what a case does not hold or the engine does in another order.

    - A case says nothing of what an eviction would free.
    - The engine counts on every host hit until its cache turns down one that is too short, or one there is no room
      for; it selects a shape again then. The replay plans without such a hit from the start.
    - Of a candidate for which there was no slot the engine looks up no prefix.
    """
    hit = {**told_of["host_hit"], "evicted_tokens": 0}
    short = hit["reason"] == "below_threshold"
    if told_of["gate"] == "request_slots" or (told_of["outcome"] == "wait" and hit["reason"] == "quota"):
        return told_of | {"host_hit": "planned"}
    if told_of["outcome"] == "wait":
        numbers = dict.fromkeys(("observed", "short_by", "checks")) if short else {}
        return told_of | numbers | {"host_hit": "planned"}
    if short:
        again = {"after_load_failure": False, "checks_before_load_failure": []}
        return told_of | again | {"host_hit": hit | {"asked_tokens": 0}}
    return told_of | {"host_hit": hit}


def rounds(spec: Spec) -> bool:
    """Whether the float sum of the running requests' reserves stands within its own rounding of a whole number."""
    reserve = sum(min(each.remaining, CLIP) * (1.0 if each.ignore_eos else spec.ratio) for each in spec.running)
    return reserve != round(reserve) and abs(reserve - round(reserve)) < 1e-6


def all_fit(world: Interleaved) -> bool:
    """Whether the empty pool of lanes holds every waiting request; each takes a page in every lane beside its own."""
    page, size = world.spec.page, world.allocator.size
    return all(waiting.demand() + LANES * page < size for waiting in world.spec.queue)


@pytest.mark.parametrize("tree", PASSES)
def test_with_every_knob_off_it_is_the_stock_class_and_the_replay_follows_both(tree, server_args):
    """Over the same states all three give the same verdicts, members, lengths, order and ladders.

    The three ways in which the replay differs by design are counted, and each is what it is said to be.
    """
    seen = Counter()
    for spec in specs(tree, PASSES[tree], SEED):
        try:
            stock = run_pass(World(spec, server_args))
        except NoRoomError:
            continue
        passed = gated_pass(spec, server_args, terms_of(spec))
        assert passed.outcome.expected == stock.expected, spec
        if stock.partly_locked or too_close(stock) or rounds(spec):
            seen["left out"] += 1
            continue
        answer = decide(stock.case)
        if not chunk_has_room(spec, stock):
            assert answer["decisions"][0]["outcome"] in ("park", "admit_chunk")
            assert answer["decisions"][0]["gate"] == "kv_capacity"
            seen["chunk without the room it wants"] += 1
        elif not fits_for_ever(spec):
            seen["can never fit"] += 1
        else:
            assert answer["batch"] == stock.expected["batch"], spec
            theirs, ours = answer["decisions"], written(passed)
            if stock.expected["stop"] == "slots" and not stock.expected["looked_at"] and not spec.active:
                seen["no slot, nobody tried"] += 1
                continue
            if stock.expected.get("after_chunk") == "NO_TOKEN":
                # The stock loop tries one more to no effect, the replay closes at once.
                theirs, ours = theirs[:1], ours[:1]
                seen["one more tried"] += 1
            assert [plain(each) for each in ours] == [plain(each) for each in theirs], spec
            seen["the same"] += 1
    assert seen["the same"] > 0.7 * PASSES[tree], seen
    assert min(seen["chunk without the room it wants"], seen["can never fit"], seen["one more tried"]) > 0, seen


def test_on_an_interleaved_pool_all_three_decide_alike(server_args):
    """With pages dealt to owner lanes members and lengths are the same, seen as the engine sees the pool: as one."""
    same = 0
    for spec in specs("unified", INTERLEAVED, SEED + 1):
        if spec.page == 1:
            continue
        try:
            passed = gated_pass(spec, server_args, terms_of(spec, lanes=LANES), kind=Interleaved)
            stock = run_pass(Interleaved(spec, server_args))
        except NoRoomError:
            continue
        assert passed.outcome.expected == stock.expected, spec
        if stock.partly_locked or not all_fit(passed.world):
            continue
        found = replayed(stock.case, lanes=LANES)
        if not chunk_has_room(passed.world.spec, stock):
            continue
        assert members(found, names_of(stock.case)) == stock.expected["batch"], spec
        same += 1
    assert same > 0.5 * INTERLEAVED


def test_seen_lane_by_lane_the_replay_is_seldom_another(server_args):
    """Judged lane by lane, as Glassgate's replay does, most passes are the same; the others admit less, but for few."""
    seen = Counter()
    for spec in specs("unified", INTERLEAVED // 2, SEED + 2):
        if spec.page == 1:
            continue
        try:
            world = Interleaved(spec, server_args)
            lanes = lanes_of(world)
            passed = gated_pass(spec, server_args, terms_of(spec, lanes=LANES), kind=Interleaved)
        except NoRoomError:
            continue
        if passed.outcome.partly_locked or not all_fit(world):
            continue
        case = lane_case(passed, world, lanes)
        theirs = [(m["id"], m["extend_tokens"]) for m in passed.outcome.expected["batch"]]
        ours = [(m["id"], m["extend_tokens"]) for m in members(replayed(case, lanes=LANES), names_of(case))]
        tokens = sum(each[1] for each in ours), sum(each[1] for each in theirs)
        seen["same" if ours == theirs else "less" if tokens[0] < tokens[1] else "more"] += 1
    assert seen["same"] > 0.9 * seen.total(), seen
    assert seen["more"] < 0.02 * seen.total(), seen


def lane_case(passed: Passed, world: Interleaved, lanes: list[dict[str, int]]) -> dict[str, Any]:
    """The case with each lane's pages, and the lane in which each chain begins."""
    case = passed.outcome.case
    tree = world.tree
    case["capacity"] |= {"free_tokens": world.allocator.aggregate_free_size(), "lanes": lanes}
    for item, request in zip(case["queue"], world.queue, strict=True):
        request.init_next_round_input(tree)
        base = tree.rotation_base_of(request.last_node) if request.prefix_len else None
        if base is not None:
            item["first_lane"] = base
    if world.active is not None:
        case["active_chunk"]["first_lane"] = tree.rotation_base_of(world.active.last_node)
    return case
