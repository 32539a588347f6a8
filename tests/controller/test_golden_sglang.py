"""Decisions against those of the real SGLang 0.5.23 PrefillAdder, kept in golden/ (see make_sglang_golden.py there)."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.case import decide

GOLDEN = Path(__file__).parent / "golden"
GATES = {
    "NO_TOKEN": {"kv_capacity"},
    "OTHER": {"input_tokens", "chunk_tokens"},
    "slots": {"request_slots"},
    None: {None},
}
CLIP = 4096

AT_LEAST = {
    "page_1": 300, "page_16": 300, "page_64": 290,
    "chunking": 650, "no_chunking": 240, "data_parallel": 1,
    "active_chunk_goes_on": 95, "active_chunk_ends": 150, "chunk_cut_to_the_room": 20, "members_beside_a_chunk": 50,
    "running": 520, "running_ignore_eos": 230, "part_of_the_reserve": 340,
    "output_beyond_clip": 115, "retracted": 160,
    "locked_device_hit": 280, "loose_device_hit": 260, "host_hit_loaded": 125, "host_hit_below_threshold": 10,
    "host_behind_device_hit": 90, "loaded_by_an_earlier_member": 40, "locked_by_an_earlier_member": 55,
    "stopped_by_kv": 335, "stopped_by_compute": 350, "stopped_by_slots": 110, "queue_ran_out": 100,
    "nobody_enters": 75, "three_or_more_enter": 210, "cut_to_a_chunk": 130,
    "kv_met_exactly": 20, "kv_missed_by_one": 38,
}  # fmt: skip
"""How many cases of each kind the golden file holds at the least."""

DIFFERS_AT_LEAST = {"park": 14, "cut_to_pages": 8, "can_never": 14}


def read(name: str) -> list[dict[str, Any]]:
    """The cases of one golden file."""
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def golden() -> list[dict[str, Any]]:
    """Cases in which a replay decides as SGLang does."""
    return read("sglang_0_5_23.jsonl")


@pytest.fixture(scope="module")
def differs() -> list[dict[str, Any]]:
    """Cases in which Glassgate decides otherwise by design."""
    return read("sglang_0_5_23_differs.jsonl")


def report(number: int, line: dict[str, Any], **found: Any) -> str:
    """One disagreement, with all it takes to run it by hand."""
    told = "\n  ".join(f"{key}: {json.dumps(value)}" for key, value in found.items())
    return f"line {number}\n  case: {json.dumps(line['case'])}\n  {told}"


def judge(disagreements: list[str], cases: int) -> None:
    """Fail with the number of disagreements and the first few."""
    assert not disagreements, f"{len(disagreements)} of {cases} cases disagree\n" + "\n".join(disagreements[:4])


def test_batches_equal_those_of_the_stock_class(golden):
    """With every Glassgate knob off, each batch holds the stock class's members, cut and cached as they are there."""
    judge(
        [
            report(number, line, stock=line["expected"]["batch"], glassgate=answer["batch"], closed=answer["closed_by"])
            for number, line in enumerate(golden, 1)
            if (answer := decide(line["case"]))["batch"] != line["expected"]["batch"]
        ],
        len(golden),
    )


def test_passes_close_where_the_stock_class_stops(golden):
    """The gate that closes a pass is of the kind that the stock verdict stands for, and the queue is accounted for."""
    wrong = []
    for number, line in enumerate(golden, 1):
        answer, expected = decide(line["case"]), line["expected"]
        closed = answer["closed_by"] and answer["closed_by"]["gate"]
        allowed = set(GATES[expected["stop"]])
        if expected.get("after_chunk") == "NO_TOKEN":  # the stock loop goes on, to no effect
            allowed = GATES["NO_TOKEN"]
        looked_at = [d["id"] for d in answer["decisions"] if d["id"] != "L"]
        queue = [item["id"] for item in line["case"]["queue"]]
        if closed not in allowed or looked_at + answer["not_reached"] != queue:
            wrong.append(report(number, line, stock=expected, closed=answer["closed_by"], looked_at=looked_at))
    judge(wrong, len(golden))


def test_where_glassgate_differs_it_does_so_as_designed(differs):
    """A chunk without room is parked or cut to whole pages, and what can never fit is refused while the rest go on."""
    wrong = []
    for number, line in enumerate(differs, 1):
        answer = decide(line["case"])
        told = {d["id"]: (d["outcome"], d["gate"], d["reason"]) for d in answer["decisions"]}
        if line["why"] == "can_never":
            page, pool = line["case"]["knobs"]["page_size"], line["case"]["capacity"]["pool_tokens"]
            never = {item["id"] for item in line["case"]["queue"] if demand(item) + page >= pool} & set(told)
            right = {i for i, t in told.items() if t == ("refuse", "kv_capacity", "can_never")} == never
        else:
            outcome = "park" if line["why"] == "park" else "admit_chunk"
            right = told["L"][:2] == (outcome, "kv_capacity") and answer["closed_by"]["gate"] == "kv_capacity"
        if answer["batch"] != line["glassgate"] or not right:
            wrong.append(report(number, line, why=line["why"], design=line["glassgate"], glassgate=answer))
    judge(wrong, len(differs))


def test_the_differing_cases_do_differ(differs):
    """Every case kept as a difference is one, and none of the kinds has shrunk."""
    assert all(line["glassgate"] != line["expected"]["batch"] for line in differs)
    kinds = Counter(line["why"] for line in differs)
    assert {why: n for why, n in DIFFERS_AT_LEAST.items() if kinds[why] < n} == {}


def test_the_golden_file_covers_every_kind_of_case(golden):
    """The golden file holds enough cases of every kind, so that it cannot shrink unseen."""
    found = Counter(kind for line in golden for kind in set(kinds_of(line)))
    assert {kind: (found[kind], n) for kind, n in AT_LEAST.items() if found[kind] < n} == {}


def demand(item: dict[str, Any]) -> int:
    """Tokens a waiting request asks of the empty pool, without the page of overhead."""
    return item["prompt_tokens"] + min(item["output_tokens"] - item.get("generated_tokens", 0), CLIP)


def kinds_of(line: dict[str, Any]) -> Iterator[str]:
    """The kinds a golden case belongs to; of its candidates, those count that were looked at."""
    case, expected = line["case"], line["expected"]
    looked_at = [item for item in case["queue"] if item["id"] in expected["verdicts"]]
    yield from kinds_of_engine(case, expected["batch"])
    yield from kinds_of_batch(expected)
    for item in looked_at:
        yield from kinds_of_candidate(item)
    yield from kinds_of_sharing(looked_at, expected["batch"])
    yield from edges(case, expected)


def kinds_of_engine(case: dict[str, Any], batch: list[dict[str, Any]]) -> Iterator[str]:
    """The kinds that the state of the engine makes."""
    yield f"page_{case['knobs']['page_size']}"
    yield "chunking" if case["knobs"]["chunked_prefill_size"] else "no_chunking"
    if case["data_parallel"] > 1:
        yield "data_parallel"
    chunk = case.get("active_chunk")
    if chunk and batch[0]["extend_tokens"] < min(
        case["knobs"]["chunked_prefill_size"], chunk["prompt_tokens"] - chunk["done_tokens"]
    ):
        yield "chunk_cut_to_the_room"
    if case["running"]:
        yield "running"
        if case["new_token_ratio"] < 1 and not all(r.get("ignore_eos") for r in case["running"]):
            yield "part_of_the_reserve"
        if any(r.get("ignore_eos") for r in case["running"]):
            yield "running_ignore_eos"


def kinds_of_batch(expected: dict[str, Any]) -> Iterator[str]:
    """The kinds that the stock class's answer makes."""
    batch = expected["batch"]
    stops = {"NO_TOKEN": "stopped_by_kv", "OTHER": "stopped_by_compute", "slots": "stopped_by_slots"}
    yield stops.get(expected["stop"], "queue_ran_out")
    yield "nobody_enters" if not batch else "three_or_more_enter" if len(batch) > 2 else "one_or_two_enter"
    if "after_chunk" in expected:
        yield "active_chunk_ends" if batch[0]["outcome"] == "admit" else "active_chunk_goes_on"
        if len(batch) > 1:
            yield "members_beside_a_chunk"
    if any(m["outcome"] == "admit_chunk" and m["id"] != "L" for m in batch):
        yield "cut_to_a_chunk"
    if any(m["host_loaded_tokens"] for m in batch):
        yield "host_hit_loaded"


def kinds_of_candidate(item: dict[str, Any]) -> Iterator[str]:
    """The kinds one candidate brings to its case."""
    device, host = item.get("device_hit_tokens", 0), item.get("host_hit_tokens", 0)
    if item["output_tokens"] - item.get("generated_tokens", 0) > CLIP:
        yield "output_beyond_clip"
    if item.get("generated_tokens"):
        yield "retracted"
    if device:
        yield "locked_device_hit" if item.get("device_hit_locked") else "loose_device_hit"
    if 0 < host < 10:
        yield "host_hit_below_threshold"
    if device and host:
        yield "host_behind_device_hit"


def kinds_of_sharing(looked_at: list[dict[str, Any]], batch: list[dict[str, Any]]) -> Iterator[str]:
    """Whether a candidate finds locked just what an earlier member of the same pass has loaded, or locked."""
    members = {m["id"]: m for m in batch}
    loaded, locked = set(), set()
    for item in looked_at:
        hit = item.get("device_hit_tokens", 0) if item.get("device_hit_locked") else 0
        if hit in loaded:
            yield "loaded_by_an_earlier_member"
        if hit in locked:
            yield "locked_by_an_earlier_member"
        member = members.get(item["id"])
        if member and member["host_loaded_tokens"]:
            loaded.add(member["cached_tokens"])
        elif member and member["cached_tokens"] and not item.get("device_hit_locked"):
            locked.add(member["cached_tokens"])


def edges(case: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    """Whether the first candidate stands exactly at the room it finds, or one token below it."""
    first = case["queue"][0]
    if "active_chunk" in case or first["id"] not in expected["verdicts"]:
        return
    reserve = sum(
        min(r["remaining_output_tokens"], CLIP) * (1.0 if r.get("ignore_eos") else case["new_token_ratio"])
        for r in case["running"]
    )
    device = first.get("device_hit_tokens", 0)
    room = case["capacity"]["free_tokens"] + case["capacity"]["evictable_tokens"] - reserve
    room -= 0 if first.get("device_hit_locked") else device
    left = room - (demand(first) - device + case["knobs"]["page_size"])
    if 0 <= left < 1:
        yield "kv_met_exactly"
    elif 1 <= left < 2:
        yield "kv_missed_by_one"
