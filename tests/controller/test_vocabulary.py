"""The closed lists: gates and their order, reasons by gate, outcomes, verdicts, host-hit answers, units."""

import pytest

from controller.vocabulary import (
    GATE_REASONS,
    LADDER_GATES,
    SOFT_GATES,
    Gate,
    HostHit,
    Outcome,
    Reason,
    Verdict,
    unit_of,
)

LADDER = {
    "batch_mode": ["single_request"],
    "request_slots": ["slots"],
    "request_count": ["limit", "engine_limit"],
    "kv_capacity": [
        "pool",
        "lane",
        "can_never",
        "current",
        "window",
        "preemption",
        "watermark",
        "reserved",
    ],
    "extend_tokens": ["limit", "chunk_budget"],
    "cached_tokens": ["limit"],
    "buffer_bytes": ["limit"],
    "input_tokens": ["budget"],
    "chunk_tokens": ["budget", "second_chunk", "floor", "long_prefill", "alignment"],
}
ENGINES = {
    "batch_full": ["flag", "slots", "pool"],
    "prefill_delay": ["delayer", "free_slots", "interval", "cadence"],
    "shard_scratch": ["scratch"],
    "tile_budget": ["tiles"],
    "state_slots": ["slots"],
    "lora": ["adapter"],
    "pooling_mode": ["mode"],
    "storage": ["prefetch", "staging"],
    "load_back": ["deferred", "loading", "lookup"],
    "unattributed": ["not_told"],
    "request_state": ["grammar", "more_input", "stale_output"],
    "encoder": ["budget", "transfer"],
    "paused": ["paused"],
}
NUMBERS = {
    Gate: [
        "batch_mode", "request_slots", "request_count", "kv_capacity", "extend_tokens", "cached_tokens",
        "buffer_bytes", "input_tokens", "chunk_tokens", "batch_full", "prefill_delay", "shard_scratch", "tile_budget",
        "state_slots", "lora", "pooling_mode", "storage", "load_back", "unattributed",
        "request_state", "encoder", "paused",
    ],
    Reason: [
        "single_request", "slots", "limit", "pool", "lane", "can_never", "chunk_budget", "budget", "second_chunk",
        "engine_limit", "current", "window", "floor", "flag", "delayer", "free_slots", "interval", "scratch", "tiles",
        "adapter", "mode", "prefetch", "staging", "deferred", "not_told",
        "preemption", "watermark", "reserved", "long_prefill", "alignment", "loading", "lookup", "grammar",
        "more_input", "stale_output", "transfer", "paused", "cadence",
    ],
    Outcome: ["admit", "admit_chunk", "park", "wait", "refuse"],
    Verdict: ["pass", "refuse", "exempt", "off", "would_refuse", "not_evaluated"],
    HostHit: [
        "planned", "loaded", "below_threshold", "quota", "owner_lane", "allocator", "in_flight", "disabled",
        "none_resident", "controller", "not_told",
    ],
}  # fmt: skip
"""What each number in a record means; a number is never given another meaning, so this only grows at its end."""


def test_gates_stand_in_the_order_of_the_ladder():
    """The gates' numbers are their places in the documented ladder; those of engines come after it."""
    assert [gate.word for gate in sorted(Gate)] == [*LADDER, *ENGINES]
    assert [gate.word for gate in LADDER_GATES] == list(LADDER)


def test_each_gate_has_its_closed_list_of_reasons():
    """Every gate gives the reasons documented for it and no others."""
    assert {gate.word: [reason.word for reason in GATE_REASONS[gate]] for gate in Gate} == LADDER | ENGINES


def test_every_reason_belongs_to_a_gate():
    """No reason stands outside the closed lists."""
    assert {reason for reasons in GATE_REASONS.values() for reason in reasons} == set(Reason)


@pytest.mark.parametrize("words", NUMBERS, ids=lambda words: words.__name__)
def test_a_number_in_a_record_keeps_its_meaning(words):
    """Records carry these numbers, so each stands for the same word for good."""
    assert [word.word for word in sorted(words)] == NUMBERS[words]
    assert [int(word) for word in sorted(words)] == list(range(len(words)))


def test_the_soft_gates_are_the_four_that_never_starve():
    """Request count, extend tokens, cached tokens and buffer bytes are soft, and nothing else is."""
    assert {gate.word for gate in SOFT_GATES} == {"request_count", "extend_tokens", "cached_tokens", "buffer_bytes"}


def test_a_host_hit_is_loaded_or_skipped_for_one_of_nine_reasons():
    """Every answer but a plan and a load is a skip with its reason."""
    skips = {answer.word for answer in HostHit if answer.status == "skipped"}
    assert skips == {
        "below_threshold", "quota", "owner_lane", "allocator", "in_flight", "disabled", "none_resident",
        "controller", "not_told",
    }  # fmt: skip
    assert HostHit.LOADED.status == "loaded"
    assert HostHit.PLANNED.status == "planned"


@pytest.mark.parametrize(
    ("gate", "reason", "unit"),
    [
        (Gate.BATCH_MODE, None, "requests"),
        (Gate.REQUEST_SLOTS, Reason.SLOTS, "slots"),
        (Gate.REQUEST_COUNT, Reason.LIMIT, "requests"),
        (Gate.KV_CAPACITY, None, "tokens"),
        (Gate.KV_CAPACITY, Reason.POOL, "tokens"),
        (Gate.KV_CAPACITY, Reason.LANE, "pages"),
        (Gate.KV_CAPACITY, Reason.CAN_NEVER, "tokens"),
        (Gate.EXTEND_TOKENS, Reason.CHUNK_BUDGET, "tokens"),
        (Gate.CACHED_TOKENS, Reason.LIMIT, "tokens"),
        (Gate.BUFFER_BYTES, Reason.LIMIT, "bytes"),
        (Gate.INPUT_TOKENS, Reason.BUDGET, "tokens"),
        (Gate.CHUNK_TOKENS, Reason.BUDGET, "tokens"),
        (Gate.BATCH_FULL, Reason.FLAG, "requests"),
        (Gate.BATCH_FULL, Reason.SLOTS, "slots"),
        (Gate.BATCH_FULL, Reason.POOL, "tokens"),
        (Gate.STATE_SLOTS, Reason.SLOTS, "slots"),
        (Gate.STORAGE, Reason.PREFETCH, "tokens"),
    ],
)
def test_every_number_has_a_unit(gate, reason, unit):
    """A gate's numbers are tokens, requests, slots or bytes, and pages for a lane."""
    assert unit_of(gate, reason) == unit
