"""The compute budgets: `input_tokens` and `chunk_tokens`."""

import pytest


def prompts(*lengths):
    """Requests of these prompt lengths."""
    return [{"prompt_tokens": length} for length in lengths]


def test_the_chunk_of_data_parallel_ranks_is_shared(decided):
    """Chunk 32,768 over 8 ranks is 4,096 in force: 2,000 + 2,000 + 96, closed by chunk_tokens."""
    answer = decided(prompts(*[2000] * 16), data_parallel=8, knobs={"chunked_prefill_size": 32_768})
    assert answer.extends == {"a": 2000, "b": 2000, "c": 96}
    assert answer.closed == ("chunk_tokens", "budget")
    effective = {knob["name"]: knob for knob in answer.data["effective"]}
    assert effective["chunked_prefill_size"]["set_to"] == 32_768
    assert effective["chunked_prefill_size"]["effective"] == 4096
    assert effective["max_prefill_tokens"]["state"] == "not binding"


def test_a_candidate_longer_than_the_budget_is_cut_to_it(decided):
    """A cut candidate computes what is left of the budget and names the gate with the numbers that cut it."""
    answer = decided(prompts(5000, 5000))
    assert answer.extends == {"a": 5000, "b": 3192}
    assert answer.told["b"] == ("admit_chunk", "chunk_tokens", "budget")
    assert answer.numbers("b") == (10_000, 8192, 1808, "tokens")


def test_a_cut_is_made_in_whole_pages(decided):
    """With pages of 64 a cut candidate computes whole pages of what is left, charged page by page."""
    answer = decided(prompts(5000, 5000), knobs={"page_size": 64})
    assert answer.extends == {"a": 5000, "b": 8192 - 5056}


def test_compute_budgets_are_charged_in_whole_pages(decided):
    """Two prompts of 65 tokens spend a chunk of 256 tokens when a page is 64."""
    answer = decided(prompts(65, 65, 1), knobs={"page_size": 64, "chunked_prefill_size": 256})
    assert answer.extends == {"a": 65, "b": 65}
    assert answer.closed == ("chunk_tokens", "budget")
    assert answer.not_reached == ["c"]


def test_a_chunk_that_is_no_multiple_of_the_page_is_rounded_down(decided):
    """A chunk of 200 tokens runs three pages of 64."""
    answer = decided(prompts(1000), knobs={"page_size": 64, "chunked_prefill_size": 200})
    assert answer.extends == {"a": 192}


def test_a_prompt_that_just_fits_is_not_cut(decided):
    """A prompt of just the budget is computed whole."""
    assert decided(prompts(8192)).told["a"] == ("admit", None, None)
    assert decided(prompts(8193)).told["a"] == ("admit_chunk", "chunk_tokens", "budget")


def test_without_chunking_a_prompt_is_computed_whole(decided):
    """With chunking off the chunk gate is off and no prompt is cut."""
    answer = decided(prompts(50_000), knobs={"chunked_prefill_size": None})
    assert answer.extends == {"a": 50_000}
    assert answer.verdict("a", "chunk_tokens") == "off"


def test_with_chunking_one_request_may_overshoot_the_input_budget(decided):
    """With chunking on max_prefill_tokens is tested between requests: the one that crosses it still enters."""
    answer = decided(prompts(900, 900, 900), knobs={"max_prefill_tokens": 1000})
    assert answer.extends == {"a": 900, "b": 900}
    assert answer.closed == ("input_tokens", "budget")
    assert answer.not_reached == ["c"]


def test_the_input_budget_is_spent_at_equality(decided):
    """A budget used up to the token closes the pass."""
    answer = decided(prompts(500, 500, 1), knobs={"max_prefill_tokens": 1000})
    assert list(answer.extends) == ["a", "b"]
    assert answer.closed == ("input_tokens", "budget")


def test_without_chunking_a_candidate_refuses_at_what_is_left(decided):
    """With chunking off a candidate that is not first waits when it reaches what is left of the input budget."""
    knobs = {"chunked_prefill_size": None, "max_prefill_tokens": 1000}
    assert decided(prompts(500, 499), knobs=knobs).extends == {"a": 500, "b": 499}
    answer = decided(prompts(500, 500), knobs=knobs)
    assert answer.told["b"] == ("wait", "input_tokens", "budget")
    assert answer.numbers("b") == (1000, 1000, 1, "tokens")


def test_without_chunking_what_is_left_is_counted_in_whole_pages(decided):
    """The unchunked candidate is compared page-aligned: 65 tokens are 128 when a page is 64."""
    knobs = {"chunked_prefill_size": None, "max_prefill_tokens": 256, "page_size": 64}
    assert decided(prompts(64, 65), knobs=knobs).extends == {"a": 64, "b": 65}
    answer = decided(prompts(65, 65), knobs=knobs)
    assert answer.told["b"] == ("wait", "input_tokens", "budget")


def test_without_chunking_the_first_candidate_passes_however_long(decided):
    """A first prompt longer than the input budget enters, and the budget it spent closes the pass."""
    answer = decided(prompts(5000, 1), knobs={"chunked_prefill_size": None, "max_prefill_tokens": 1000})
    assert answer.extends == {"a": 5000}
    assert answer.closed == ("input_tokens", "budget")


def test_cached_prefixes_spend_no_compute(decided):
    """Device hits and loads are not computed and leave both compute budgets to others."""
    queue = [{"prompt_tokens": 50_000, "device_hit_tokens": 25_000, "host_hit_tokens": 24_900}] * 3
    answer = decided(queue, capacity={"evictable_tokens": 75_000})
    assert answer.extends == {"a": 100, "b": 100, "c": 100}
    assert answer.closed is None


@pytest.mark.parametrize("page", [1, 16, 64])
def test_what_is_charged_is_what_is_computed_in_pages(decided, page):
    """Checks of both budgets observe the page-aligned sum of what the batch computes."""
    answer = decided(prompts(100, 200, 300), knobs={"page_size": page})
    total = sum(-(-n // page) * page for n in (100, 200, 300))
    assert answer.check("c", "chunk_tokens")["observed"] == total
    assert answer.check("c", "input_tokens")["observed"] == total - -(-300 // page) * page
