"""The shared path, context-parallel prefill with shared_kv_batching on: its extend limit and its input budget."""

import pytest


def shared(decided, queue, **case):
    """A case on the shared path, page 64, chunk 8,192 unless said."""
    knobs = {"page_size": 64, "shared_kv_batching": True, **case.pop("knobs", {})}
    return decided(queue, context_parallel=True, knobs=knobs, **case)


def prompts(*lengths):
    """Requests of these prompt lengths."""
    return [{"prompt_tokens": length} for length in lengths]


def test_without_a_user_value_the_extend_limit_is_the_chunk_budget(decided):
    """On the shared path with chunking on, page-aligned sums are compared with the chunk budget."""
    answer = shared(decided, prompts(5000, 3000, 1000))
    assert answer.extends == {"a": 5000, "b": 3000}
    assert answer.told["c"] == ("wait", "extend_tokens", "chunk_budget")
    assert answer.numbers("c") == (5056 + 3008 + 1024, 8192, 896, "tokens")


def test_a_user_value_above_the_chunk_budget_is_clamped_to_it(decided):
    """A user value larger than the chunk budget never lets a batch plan more than the pass can run."""
    answer = shared(decided, prompts(5000, 3200), knobs={"max_extend_tokens": 65_536})
    assert answer.told["b"] == ("wait", "extend_tokens", "chunk_budget")
    assert answer.of("b")["limit"] == 8192


def test_a_user_value_below_the_chunk_budget_holds(decided):
    """A user value smaller than the chunk budget is the limit, and the reason says it is the user's."""
    answer = shared(decided, prompts(5000, 1000), knobs={"max_extend_tokens": 6000})
    assert answer.told["b"] == ("wait", "extend_tokens", "limit")
    assert answer.numbers("b") == (6080, 6000, 80, "tokens")


def test_the_budget_is_the_one_at_pass_start(decided):
    """A continuing chunk counts in the sum and does not lower the limit, so that it is compared once."""
    active = {"id": "L", "prompt_tokens": 9192, "done_tokens": 8192}
    fits = shared(decided, prompts(7168), active_chunk=active)
    assert fits.extends == {"L": 1000, "a": 7168}
    waits = shared(decided, prompts(7169), active_chunk=active)
    assert waits.told["a"] == ("wait", "extend_tokens", "chunk_budget")
    assert waits.numbers("a") == (1024 + 7232, 8192, 64, "tokens")


def test_a_data_parallel_share_is_the_chunk_budget(decided):
    """The extend limit comes from the chunk budget in force, which data-parallel ranks share."""
    answer = shared(decided, prompts(2000, 2100), knobs={"chunked_prefill_size": 32_768}, data_parallel=8)
    assert answer.told["b"] == ("wait", "extend_tokens", "chunk_budget")
    assert answer.of("b")["limit"] == 4096


def test_without_chunking_the_user_value_is_the_limit(decided):
    """With chunking off the extend limit is the user value, or off without one."""
    with_value = shared(decided, prompts(5000, 5000), knobs={"chunked_prefill_size": None, "max_extend_tokens": 8000})
    assert with_value.told["b"] == ("wait", "extend_tokens", "limit")
    without = shared(decided, prompts(5000, 5000), knobs={"chunked_prefill_size": None})
    assert without.verdict("b", "extend_tokens") == "off"


def test_a_first_member_is_cut_to_the_chunk(decided):
    """A first member longer than the chunk budget is cut to it on the shared path as elsewhere."""
    answer = shared(decided, prompts(20_000))
    assert answer.extends == {"a": 8192}
    assert answer.told["a"] == ("admit_chunk", "chunk_tokens", "budget")


def test_only_a_first_member_is_cut(decided):
    """A candidate that is not first is charged whole and waits, where ordinary prefill would cut it."""
    queue = prompts(5000, 5000)
    assert shared(decided, queue).told["b"] == ("wait", "extend_tokens", "chunk_budget")
    ordinary = decided(queue, knobs={"page_size": 64})
    assert ordinary.told["b"] == ("admit_chunk", "chunk_tokens", "budget")


def test_behind_a_continuing_chunk_nobody_is_cut(decided):
    """A continuing chunk is the first member, so the candidate behind it enters whole or waits."""
    active = {"id": "L", "prompt_tokens": 9192, "done_tokens": 8192}
    answer = shared(decided, prompts(8000), active_chunk=active)
    assert answer.told["a"][:2] == ("wait", "extend_tokens")


def test_in_shadow_mode_a_candidate_too_long_for_the_chunk_still_waits(decided):
    """Shadow mode lets the extend limit pass, and the compute budget then makes a candidate that is not first wait."""
    answer = shared(decided, prompts(5000, 5000), knobs={"enforce": False})
    assert answer.verdict("b", "extend_tokens") == "would_refuse"
    assert answer.told["b"] == ("wait", "chunk_tokens", "budget")


def test_the_input_budget_is_raised_to_the_extend_limit(decided):
    """On the shared path the input budget is the effective extend limit where that is larger."""
    queue = prompts(10_000, 10_000, 10_000)
    knobs = {"page_size": 1, "chunked_prefill_size": 32_768, "max_prefill_tokens": 16_384}
    assert list(shared(decided, queue, knobs=knobs).extends) == ["a", "b", "c"]
    ordinary = decided(queue, knobs=knobs)
    assert list(ordinary.extends) == ["a", "b"]
    assert ordinary.closed == ("input_tokens", "budget")


def test_the_input_budget_is_raised_no_further(decided):
    """A user value of 20,000 raises an input budget of 16,384 to 20,000 and not to the chunk of 32,768."""
    knobs = {
        "page_size": 1, "chunked_prefill_size": 32_768, "max_prefill_tokens": 16_384, "max_extend_tokens": 20_000,
    }  # fmt: skip
    answer = shared(decided, prompts(10_000, 10_000, 1), knobs=knobs)
    assert list(answer.extends) == ["a", "b"]
    assert answer.closed == ("input_tokens", "budget")
    assert answer.check("b", "input_tokens")["limit"] == 20_000


def test_the_input_budget_is_never_lowered(decided):
    """An extend limit below max_prefill_tokens leaves the input budget as it was set."""
    knobs = {"chunked_prefill_size": None, "max_prefill_tokens": 16_384, "max_extend_tokens": 1000}
    answer = shared(decided, prompts(100), knobs=knobs)
    assert answer.check("a", "input_tokens")["limit"] == 16_384


@pytest.mark.parametrize("context_parallel", [False, True])
def test_off_the_shared_path_the_input_budget_is_as_set(decided, context_parallel):
    """Neither ordinary nor single-request prefill raises the input budget, whatever the extend limit."""
    knobs = {"chunked_prefill_size": 32_768, "max_prefill_tokens": 100, "max_extend_tokens": 20_000}
    answer = decided(prompts(50), knobs=knobs, context_parallel=context_parallel)
    assert answer.check("a", "input_tokens")["limit"] == 100


def test_the_allocators_checks_are_the_same_on_the_shared_path(decided):
    """KV capacity observes and limits alike on and off the shared path."""
    queue = prompts(5000, 2900, 300)
    capacity = {"free_tokens": 8200}
    on = shared(decided, queue, capacity=capacity)
    off = decided(queue, knobs={"page_size": 64}, capacity=capacity)
    assert on.told["c"][0] == off.told["c"][0] == "wait"
    assert [on.check(name, "kv_capacity") for name in "abc"] == [off.check(name, "kv_capacity") for name in "abc"]


@pytest.mark.parametrize(
    ("chunk", "user"),
    [(8192, 500), (8192, 65_536), (None, 5000), (None, 500)],
)
def test_an_extend_limit_in_shadow_mode_leaves_the_input_budget_alone(decided, chunk, user):
    """With enforce off a user's extend limit changes nothing, the input budget of the shared path included."""
    knobs = {"page_size": 1, "chunked_prefill_size": chunk, "max_prefill_tokens": 1000, "enforce": False}
    shadow = shared(decided, prompts(600, 600, 600, 600), knobs={**knobs, "max_extend_tokens": user})
    without = shared(decided, prompts(600, 600, 600, 600), knobs=knobs)
    assert shadow.data["batch"] == without.data["batch"]
    assert shadow.closed == without.closed
