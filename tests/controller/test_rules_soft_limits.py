"""The soft limits: extend tokens, cached tokens, request count; who is exempt, and shadow mode."""

import pytest

PAGED = {"page_size": 64, "chunked_prefill_size": None, "max_prefill_tokens": 1_000_000}
LOOSE = {"chunked_prefill_size": None, "max_prefill_tokens": 1_000_000}


def cached(device, prompt=1000, **more):
    """A request with a device hit."""
    return {"prompt_tokens": prompt, "device_hit_tokens": device, **more}


def test_extend_tokens_are_counted_in_whole_pages(decided):
    """Two prompts of 65 tokens count as two pages each against max_extend_tokens."""
    queue = [{"prompt_tokens": 65}] * 2
    assert list(decided(queue, knobs={**PAGED, "max_extend_tokens": 256}).extends) == ["a", "b"]
    answer = decided(queue, knobs={**PAGED, "max_extend_tokens": 255})
    assert answer.told["b"] == ("wait", "extend_tokens", "limit")
    assert answer.numbers("b") == (256, 255, 1, "tokens")


def test_extend_tokens_are_the_prompt_without_its_cached_prefix(decided):
    """Device hits and planned host loads are not computed, so they do not count as extend tokens."""
    queue = [cached(900), {"prompt_tokens": 1000, "host_hit_tokens": 900}]
    knobs = {**LOOSE, "max_extend_tokens": 200}
    answer = decided(queue, knobs=knobs, capacity={"evictable_tokens": 1000})
    assert answer.extends == {"a": 100, "b": 100}


def test_a_candidate_at_the_limit_enters(decided):
    """Soft limits refuse beyond the limit and not at it."""
    assert list(decided([{"prompt_tokens": 50}] * 2, knobs={**LOOSE, "max_extend_tokens": 100}).extends) == ["a", "b"]
    queue = [cached(50), cached(50)]
    knobs = {**LOOSE, "max_cached_tokens": 100}
    assert list(decided(queue, knobs=knobs, capacity={"evictable_tokens": 100}).extends) == ["a", "b"]


def test_the_sum_of_extend_tokens_holds_the_continuing_chunk(decided):
    """The whole batch's sum is compared with max_extend_tokens, the continuing chunk in it."""
    answer = decided(
        [{"prompt_tokens": 500}],
        knobs={"max_extend_tokens": 1000},
        active_chunk={"id": "L", "prompt_tokens": 9000, "done_tokens": 8192},
    )
    assert answer.numbers("a") == (808 + 500, 1000, 308, "tokens")


def test_off_the_shared_path_a_candidate_is_charged_its_cut(decided):
    """On ordinary prefill a candidate is charged what this pass would compute of it: the cut, not the prompt."""
    queue = [{"prompt_tokens": 1000}, {"prompt_tokens": 100_000}]
    answer = decided(queue, knobs={"chunked_prefill_size": 4096, "max_extend_tokens": 4096})
    assert answer.extends == {"a": 1000, "b": 3096}
    assert answer.check("b", "extend_tokens")["observed"] == 4096


def test_off_the_shared_path_extend_tokens_have_no_default(decided):
    """Without a user value ordinary prefill has no extend limit, chunked or not."""
    for knobs in ({}, {"chunked_prefill_size": None}):
        answer = decided([{"prompt_tokens": 100}] * 2, knobs=knobs)
        assert answer.verdict("b", "extend_tokens") == "off"


def test_cached_tokens_count_device_hits_and_planned_loads_together(decided):
    """Prefixes after the load-back plan share one budget, whichever tier they come from."""
    queue = [cached(400), {"prompt_tokens": 1000, "host_hit_tokens": 500}, cached(200)]
    answer = decided(queue, knobs={**LOOSE, "max_cached_tokens": 1000}, capacity={"evictable_tokens": 600})
    assert list(answer.extends) == ["a", "b"]
    assert answer.told["c"] == ("wait", "cached_tokens", "limit")
    assert answer.numbers("c") == (1100, 1000, 100, "tokens")


def test_one_candidates_device_and_host_hit_add_up_in_cached_tokens(decided):
    """A candidate with a device hit and a host hit behind it is charged the sum of both."""
    queue = [{"prompt_tokens": 10}, cached(300, host_hit_tokens=200)]
    answer = decided(queue, knobs={**LOOSE, "max_cached_tokens": 499}, capacity={"evictable_tokens": 300})
    assert answer.numbers("b") == (500, 499, 1, "tokens")


def test_a_host_hit_that_is_skipped_is_not_cached(decided):
    """A host hit below the threshold is computed and leaves max_cached_tokens untouched."""
    queue = [{"prompt_tokens": 10}, {"prompt_tokens": 1000, "host_hit_tokens": 500}]
    answer = decided(queue, knobs={**LOOSE, "max_cached_tokens": 1, "load_back_threshold": 501})
    assert answer.extends == {"a": 10, "b": 1000}
    assert answer.check("b", "cached_tokens")["observed"] == 0


def test_cached_and_extend_limits_are_separate(decided):
    """A long cached prefix is nothing to max_extend_tokens, and a long prompt nothing to max_cached_tokens."""
    knobs = {**LOOSE, "max_extend_tokens": 1000, "max_cached_tokens": 1000}
    queue = [{"prompt_tokens": 900}, cached(1000, 1050)]
    answer = decided(queue, knobs=knobs, capacity={"evictable_tokens": 1000})
    assert answer.check("b", "extend_tokens")["observed"] == 950
    assert answer.check("b", "cached_tokens")["observed"] == 1000
    assert answer.told["b"][0] == "admit"


def test_request_count_and_cached_tokens_keep_none_as_unlimited_on_every_path(decided):
    """Neither max_requests nor max_cached_tokens has a default, on the shared path or off it."""
    queue = [cached(500)] * 4
    for case in ({}, {"context_parallel": True, "knobs": {"shared_kv_batching": True}}):
        answer = decided(queue, capacity={"evictable_tokens": 2000}, **case)
        assert list(answer.extends) == ["a", "b", "c", "d"]
        assert (answer.verdict("d", "request_count"), answer.verdict("d", "cached_tokens")) == ("off", "off")


@pytest.mark.parametrize(
    ("knob", "gate"),
    [("max_extend_tokens", "extend_tokens"), ("max_cached_tokens", "cached_tokens")],
)
def test_no_soft_limit_keeps_a_lone_request_out(decided, knob, gate):
    """The first member of a batch passes a soft limit it exceeds, with the check marked exempt."""
    answer = decided([cached(500)], knobs={knob: 1}, capacity={"evictable_tokens": 500})
    assert answer.told["a"] == ("admit", None, None)
    found = answer.check("a", gate)
    assert (found["verdict"], found["observed"], found["limit"]) == ("exempt", 500, 1)


@pytest.mark.parametrize(
    ("knob", "gate"),
    [("max_extend_tokens", "extend_tokens"), ("max_cached_tokens", "cached_tokens")],
)
def test_behind_an_exempt_first_member_nobody_else_enters(decided, knob, gate):
    """The exemption is for the first member alone: the next one waits at the limit the first exceeded."""
    answer = decided([cached(500)] * 2, knobs={knob: 1}, capacity={"evictable_tokens": 1000})
    assert answer.told["b"] == ("wait", gate, "limit")


def test_a_first_member_within_the_limit_is_no_exemption(decided):
    """A first member within the limits passes them; nothing is marked exempt."""
    answer = decided([cached(500)], knobs={"max_extend_tokens": 500, "max_cached_tokens": 500})
    assert "exempt" not in {c["verdict"] for c in answer.of("a")["checks"]}


def test_the_exemption_passes_on_when_the_first_is_refused_for_good(decided):
    """A request that can never fit is no member, so the one behind it is the first and exempt."""
    queue = [{"prompt_tokens": 5000}, {"prompt_tokens": 500}]
    answer = decided(queue, knobs={"max_extend_tokens": 100}, capacity={"pool_tokens": 1000})
    assert answer.verdict("b", "extend_tokens") == "exempt"
    assert answer.told["b"][0] == "admit"


SHADOW_CASES = [
    ({"max_requests": 1}, "request_count"),
    ({"max_extend_tokens": 900}, "extend_tokens"),
    ({"max_cached_tokens": 500}, "cached_tokens"),
]


@pytest.mark.parametrize(("limit", "gate"), SHADOW_CASES)
def test_shadow_mode_records_what_a_soft_gate_would_have_done(decided, limit, gate):
    """With enforce off a soft gate records would_refuse with its numbers and lets the candidate pass."""
    queue = [cached(400)] * 2
    capacity = {"evictable_tokens": 800}
    enforced = decided(queue, knobs=limit, capacity=capacity)
    shadow = decided(queue, knobs={**limit, "enforce": False}, capacity=capacity)
    assert enforced.told["b"] == ("wait", gate, "limit")
    assert shadow.told["b"] == ("admit", None, None)
    found, refused = shadow.check("b", gate), enforced.check("b", gate)
    assert found["verdict"] == "would_refuse"
    assert (found["observed"], found["limit"]) == (refused["observed"], refused["limit"])


@pytest.mark.parametrize(("limit", "gate"), SHADOW_CASES)
def test_shadow_mode_changes_nothing(decided, limit, gate):
    """With enforce off the batch is the one that the same case without soft limits has."""
    queue = [cached(400)] * 5
    capacity = {"evictable_tokens": 2000}
    free = decided(queue, capacity=capacity).data
    shadow = decided(queue, knobs={**limit, "enforce": False}, capacity=capacity).data
    assert shadow["batch"] == free["batch"]
    assert shadow["closed_by"] == free["closed_by"]
    assert {c["gate"] for c in shadow["decisions"][4]["checks"] if c["verdict"] == "would_refuse"} == {gate}


def test_shadow_mode_leaves_the_hard_gates_in_force(decided):
    """KV capacity, slots, budgets and the single-request batch refuse in shadow mode as they do otherwise."""
    queue = [{"prompt_tokens": 100}] * 2
    shadow = {"enforce": False}
    closed = [
        decided(queue, knobs=shadow, context_parallel=True).closed,
        decided(queue, knobs=shadow, capacity={"running_slots": 1}).closed,
        decided(queue, knobs=shadow, capacity={"free_tokens": 150}).closed,
        decided(queue, knobs={**shadow, "chunked_prefill_size": None, "max_prefill_tokens": 150}).closed,
        decided(queue, knobs={**shadow, "chunked_prefill_size": 100}).closed,
    ]
    assert [gate for gate, _reason in closed] == [
        "batch_mode", "request_slots", "kv_capacity", "input_tokens", "chunk_tokens",
    ]  # fmt: skip
