"""Who may stand in a batch: one request or several, slots, request count, and what closes a pass."""

import pytest

LADDER = [
    "batch_mode", "request_slots", "request_count", "kv_capacity", "extend_tokens", "cached_tokens", "buffer_bytes",
    "input_tokens", "chunk_tokens",
]  # fmt: skip

SMALL = {"prompt_tokens": 100}


def small(count):
    """Requests of 100 tokens."""
    return [SMALL] * count


def test_context_parallel_prefill_holds_one_request_without_shared_kv_batching(decided):
    """Context-parallel prefill holds one request a batch unless shared_kv_batching is on."""
    answer = decided(small(3), context_parallel=True)
    assert answer.told == {"a": ("admit", None, None), "b": ("wait", "batch_mode", "single_request")}
    assert answer.numbers("b") == (2, 1, 1, "requests")
    assert answer.closed == ("batch_mode", "single_request")
    assert answer.not_reached == ["c"]


def test_a_continuing_chunk_is_the_one_request_of_a_single_request_batch(decided):
    """A continuing chunk that got tokens is the member that keeps others out of a single-request batch."""
    active = {"id": "L", "prompt_tokens": 200, "done_tokens": 100}
    answer = decided(small(1), context_parallel=True, active_chunk=active)
    assert answer.extends == {"L": 100}
    assert answer.told["a"] == ("wait", "batch_mode", "single_request")


def test_a_request_refused_for_good_does_not_fill_a_single_request_batch(decided):
    """A request that can never fit is no member, so the next one still enters a single-request batch."""
    answer = decided([{"prompt_tokens": 5000}, SMALL], context_parallel=True, capacity={"pool_tokens": 1000})
    assert answer.told == {"a": ("refuse", "kv_capacity", "can_never"), "b": ("admit", None, None)}


def test_shared_kv_batching_lets_context_parallel_prefill_hold_several(decided):
    """With shared_kv_batching on, a context-parallel batch holds more than one request and the gate is off."""
    answer = decided(small(3), context_parallel=True, knobs={"shared_kv_batching": True})
    assert answer.extends == {"a": 100, "b": 100, "c": 100}
    assert {answer.verdict(name, "batch_mode") for name in "abc"} == {"off"}


@pytest.mark.parametrize(
    "case",
    [
        {"queue": [{"prompt_tokens": 6000}, {"prompt_tokens": 6000}]},
        {"queue": [{"prompt_tokens": 6000}] * 4, "knobs": {"chunked_prefill_size": None}},
        {"queue": [{"prompt_tokens": 6000}] * 4, "knobs": {"max_extend_tokens": 7000}},
        {"queue": small(2), "active_chunk": {"id": "L", "prompt_tokens": 9000, "done_tokens": 8192}},
    ],
)
def test_the_switch_touches_only_context_parallel_prefill(decided, case):
    """Ordinary prefill decides the same whether shared_kv_batching is on or off."""
    knobs = case.get("knobs", {})
    off = decided(**{**case, "knobs": knobs}).data
    on = decided(**{**case, "knobs": {**knobs, "shared_kv_batching": True}}).data
    assert all(on[key] == off[key] for key in ("batch", "decisions", "closed_by", "not_reached"))


def test_running_chunk_and_members_hold_the_slots(decided):
    """Running requests, the active chunk and the members take a request slot each; the next one waits for `slots`."""
    answer = decided(
        small(3),
        capacity={"running_slots": 4},
        running=[{"id": "r1", "remaining_output_tokens": 1}, {"id": "r2", "remaining_output_tokens": 1}],
        active_chunk={"id": "L", "prompt_tokens": 200, "done_tokens": 100},
    )
    assert answer.extends == {"L": 100, "a": 100}
    assert answer.told["b"] == ("wait", "request_slots", "slots")
    assert answer.numbers("b") == (5, 4, 1, "slots")
    assert answer.closed == ("request_slots", "slots")
    assert answer.not_reached == ["c"]


def test_slots_keep_even_a_lone_request_out(decided):
    """Request slots are no soft limit: with none left the first candidate waits."""
    answer = decided(small(1), capacity={"running_slots": 1}, running=[{"id": "r", "remaining_output_tokens": 1}])
    assert answer.told == {"a": ("wait", "request_slots", "slots")}


def test_max_requests_bounds_the_batch(decided):
    """A batch holds at most max_requests members; the next candidate waits with the numbers that say so."""
    answer = decided(small(4), knobs={"max_requests": 2})
    assert list(answer.extends) == ["a", "b"]
    assert answer.told["c"] == ("wait", "request_count", "limit")
    assert answer.numbers("c") == (3, 2, 1, "requests")
    assert answer.not_reached == ["d"]


def test_a_continuing_chunk_counts_as_a_member(decided):
    """max_requests counts a continuing chunk that got tokens as the first member."""
    active = {"id": "L", "prompt_tokens": 200, "done_tokens": 100}
    answer = decided(small(2), knobs={"max_requests": 2}, active_chunk=active)
    assert list(answer.extends) == ["L", "a"]
    assert answer.told["b"] == ("wait", "request_count", "limit")


def test_without_max_requests_the_count_is_unlimited(decided):
    """Request count has no limit unless one is set, and its check says so."""
    answer = decided(small(20), knobs={"max_requests": None})
    assert len(answer.extends) == 20
    assert answer.verdict("t", "request_count") == "off"


def test_checks_stand_in_ladder_order_and_end_where_the_gate_closed(decided):
    """Every decision carries all gates in ladder order; what stands behind the refusing gate was not evaluated."""
    answer = decided(small(2), knobs={"max_requests": 1})
    assert [c["gate"] for c in answer.of("b")["checks"]] == LADDER
    verdicts = [c["verdict"] for c in answer.of("b")["checks"]]
    assert verdicts == ["off", "pass", "refuse"] + ["not_evaluated"] * 6


@pytest.mark.parametrize(
    ("case", "gate"),
    [
        ({"context_parallel": True, "capacity": {"running_slots": 1}, "knobs": {"max_requests": 1}}, "batch_mode"),
        ({"capacity": {"running_slots": 1}, "knobs": {"max_requests": 1}}, "request_slots"),
        ({"knobs": {"max_requests": 1}, "capacity": {"free_tokens": 150}}, "request_count"),
        ({"knobs": {"max_extend_tokens": 150}, "capacity": {"free_tokens": 150}}, "kv_capacity"),
        ({"knobs": {"max_extend_tokens": 150, "max_cached_tokens": 1}}, "extend_tokens"),
        (
            {"knobs": {"max_cached_tokens": 1, "chunked_prefill_size": None, "max_prefill_tokens": 150}},
            "cached_tokens",
        ),
        ({"knobs": {"chunked_prefill_size": None, "max_prefill_tokens": 150}}, "input_tokens"),
    ],
)
def test_the_first_gate_of_the_ladder_that_refuses_is_named(decided, case, gate):
    """Where several gates would refuse, the decision names the first in ladder order."""
    queue = [{"prompt_tokens": 101, "device_hit_tokens": 1}] * 2
    answer = decided(queue, **case)
    assert answer.told["a"][0] == "admit"
    assert answer.told["b"][:2] == ("wait", gate)


def test_every_wait_closes_the_pass(decided):
    """A waiting candidate closes the pass, so a smaller one behind it does not slip past."""
    answer = decided([{"prompt_tokens": 5000}, SMALL], capacity={"free_tokens": 1000})
    assert answer.told == {"a": ("wait", "kv_capacity", "pool")}
    assert answer.closed == ("kv_capacity", "pool")
    assert answer.not_reached == ["b"]


def test_nothing_closes_a_pass_that_ran_out_of_queue(decided):
    """When the queue ends before any budget, closed_by is null and nothing is left unreached."""
    answer = decided(small(2))
    assert answer.closed is None
    assert answer.not_reached == []


def test_an_empty_queue_is_an_empty_pass(decided):
    """A pass over an empty queue decides nothing and is closed by nothing."""
    answer = decided()
    assert (answer.data["batch"], answer.data["decisions"], answer.closed) == ([], [], None)


def test_a_spent_budget_closes_the_pass_even_with_an_empty_queue(decided):
    """The budget a pass has used up is what closed it, whether or not anyone was left to ask."""
    answer = decided([{"prompt_tokens": 8192}])
    assert answer.closed == ("chunk_tokens", "budget")
    assert answer.not_reached == []


def test_a_spent_budget_leaves_the_next_candidate_unreached(decided):
    """After the budget is spent the pass ends without looking at the next candidate."""
    answer = decided([{"prompt_tokens": 8192}, SMALL])
    assert list(answer.told) == ["a"]
    assert answer.not_reached == ["b"]


def test_spent_budgets_are_tested_kv_first_then_input_then_chunk(decided):
    """Of several budgets spent by one admission, kv_capacity is named before input_tokens before chunk_tokens."""
    knobs = {"page_size": 64, "chunked_prefill_size": 128, "max_prefill_tokens": 128}
    queue = [{"prompt_tokens": 65}]
    tight = {"pool_tokens": 1000, "free_tokens": 130}
    assert decided(queue, knobs=knobs, capacity=tight).closed == ("kv_capacity", "pool")
    assert decided(queue, knobs=knobs).closed == ("input_tokens", "budget")
    assert decided(queue, knobs={**knobs, "max_prefill_tokens": 129}).closed == ("chunk_tokens", "budget")


def test_a_member_uncut_names_no_gate(decided):
    """A decision to admit uncut has neither gate nor reason nor numbers."""
    answer = decided(small(1))
    assert answer.told == {"a": ("admit", None, None)}
    assert answer.numbers("a") == (None, None, None, None)
