"""Effective limits: what is in force, and what each knob's state says about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.knobs import KNOB_SPECS, Knobs
from controller.limits import Setting, effective, explain, largest_prompt
from controller.vocabulary import Reason
from estimator.errors import KnobError

CP = Setting(context_parallel=True)
ORDINARY = Setting()


def shown(name, setting=ORDINARY, **knobs):
    """One knob's effective value and state."""
    found = next(knob for knob in explain(Knobs(**knobs), setting) if knob.name == name)
    return found.effective, found.state


def why(name, setting=ORDINARY, **knobs):
    """Why one knob is in force as it is."""
    return next(knob.why for knob in explain(Knobs(**knobs), setting) if knob.name == name)


@pytest.mark.parametrize(
    ("user", "chunk", "extend", "reason"),
    [
        (None, 8192, 8192, Reason.CHUNK_BUDGET),
        (65_536, 8192, 8192, Reason.CHUNK_BUDGET),
        (4096, 8192, 4096, Reason.LIMIT),
        (8192, 8192, 8192, Reason.LIMIT),
        (65_536, None, 65_536, Reason.LIMIT),
        (None, None, None, Reason.LIMIT),
    ],
)
def test_the_extend_limit_of_the_shared_path(user, chunk, extend, reason):
    """On the shared path the limit is min(user, chunk budget), either alone, or off with neither."""
    knobs = Knobs(shared_kv_batching=True, max_extend_tokens=user, chunked_prefill_size=chunk)
    limits = effective(knobs, CP)
    assert limits.shared_path
    assert (limits.max_extend, limits.extend_reason) == (extend, reason)


@pytest.mark.parametrize("user", [None, 100, 65_536])
@pytest.mark.parametrize("chunk", [None, 8192])
@pytest.mark.parametrize(("setting", "switch"), [(ORDINARY, True), (ORDINARY, False), (CP, False)])
def test_off_the_shared_path_the_extend_limit_is_the_users(user, chunk, setting, switch):
    """Everywhere else the limit is the user value or off, and the input budget is max_prefill_tokens."""
    knobs = Knobs(shared_kv_batching=switch, max_extend_tokens=user, chunked_prefill_size=chunk)
    limits = effective(knobs, setting)
    assert not limits.shared_path
    assert (limits.max_extend, limits.input_budget) == (user, 16_384)


@pytest.mark.parametrize(
    ("user", "chunk", "budget"),
    [
        (None, 32_768, 32_768), (20_000, 32_768, 20_000), (65_536, 32_768, 32_768), (None, 8192, 16_384),
        (100, 8192, 16_384), (None, None, 16_384), (40_000, None, 40_000),
    ],
)  # fmt: skip
def test_the_input_budget_of_the_shared_path(user, chunk, budget):
    """On the shared path the input budget is max(max_prefill_tokens, effective extend limit)."""
    knobs = Knobs(shared_kv_batching=True, max_extend_tokens=user, chunked_prefill_size=chunk)
    assert effective(knobs, CP).input_budget == budget


@given(
    user=st.none() | st.integers(1, 100_000),
    chunk=st.none() | st.integers(64, 100_000),
    ranks=st.integers(1, 8),
    prefill=st.integers(1, 100_000),
)
def test_the_limit_never_advertises_more_than_a_pass_can_run(user, chunk, ranks, prefill):
    """On the shared path neither the user value nor the chunk budget is exceeded by the effective extend limit."""
    page = 64
    knobs = Knobs(
        shared_kv_batching=True,
        max_extend_tokens=user,
        chunked_prefill_size=chunk,
        max_prefill_tokens=prefill,
        page_size=page,
    )
    setting = Setting(context_parallel=True, data_parallel=ranks)
    if chunk is not None and chunk // ranks < page:
        with pytest.raises(KnobError, match="chunked_prefill_size"):
            effective(knobs, setting)
        return
    limits = effective(knobs, setting)
    budgets = [value for value in (user, limits.chunk_budget) if value is not None]
    assert limits.max_extend == min(budgets, default=None)
    if limits.chunk_budget is not None and chunk is not None:
        assert limits.chunk_budget % page == 0
        assert limits.chunk_budget <= chunk / ranks < limits.chunk_budget + page


def test_a_share_under_one_page_is_refused():
    """A chunk whose data-parallel share holds no page is an error that says what it must be at least."""
    with pytest.raises(KnobError, match=r"chunked_prefill_size 256 divided by data_parallel 8 .*at least 512"):
        effective(Knobs(chunked_prefill_size=256, page_size=64), Setting(data_parallel=8))


@pytest.mark.parametrize("bad", [{"data_parallel": 0}, {"lanes": 0}, {"slots": 0}])
def test_a_setting_counts_from_one(bad):
    """Ranks, lanes and slots below one are refused."""
    with pytest.raises(KnobError, match=next(iter(bad))):
        Setting(**bad)


def test_the_overhead_is_one_page_in_every_lane():
    """Each request is charged one page for rounding in every owner lane."""
    assert effective(Knobs(page_size=64), Setting(lanes=4)).overhead == 256


def test_every_knob_is_explained_in_order():
    """The explanation lists every knob once, with the value set beside the effective one."""
    knobs = Knobs(max_requests=5)
    rows = explain(knobs, ORDINARY)
    assert [row.name for row in rows] == [spec.name for spec in KNOB_SPECS]
    assert [row.set_to for row in rows] == list(knobs.as_dict().values())


def test_a_value_in_force_as_it_was_set():
    """A limit that binds as it was set says just that."""
    assert shown("max_requests", max_requests=5) == (5, "as set")
    assert shown("max_cached_tokens", max_cached_tokens=5) == (5, "as set")
    assert shown("max_extend_tokens", max_extend_tokens=5) == (5, "as set")
    assert shown("max_buffer_bytes", max_buffer_bytes=5) == (5, "as set")
    assert shown("chunked_prefill_size") == (8192, "as set")


def test_a_limit_that_is_not_set_is_off():
    """A limit without a value has no effective value and is off."""
    for name in ("max_requests", "max_extend_tokens", "max_cached_tokens", "max_buffer_bytes"):
        assert shown(name) == (None, "off")
    assert shown("chunked_prefill_size", chunked_prefill_size=None) == (None, "off")


def test_a_clamped_extend_limit_is_reported():
    """A user value above the chunk budget of the shared path is shown clamped to it, with the reason."""
    knobs = {"shared_kv_batching": True, "max_extend_tokens": 65_536}
    assert shown("max_extend_tokens", CP, **knobs) == (8192, "clamped")
    assert "8192" in why("max_extend_tokens", CP, **knobs)


def test_a_derived_extend_limit_is_reported():
    """The shared path's default is shown as derived from the chunk budget."""
    assert shown("max_extend_tokens", CP, shared_kv_batching=True) == (8192, "derived")


def test_a_chunk_divided_among_ranks_is_reported():
    """A chunk shared by data-parallel ranks is shown clamped to one rank's share, with the number of ranks."""
    setting = Setting(data_parallel=8)
    assert shown("chunked_prefill_size", setting, chunked_prefill_size=32_768) == (4096, "clamped")
    assert "8 data-parallel" in why("chunked_prefill_size", setting, chunked_prefill_size=32_768)


def test_a_raised_input_budget_is_reported():
    """An input budget raised on the shared path is shown with what raised it."""
    knobs = {"shared_kv_batching": True, "chunked_prefill_size": None, "max_extend_tokens": 40_000}
    assert shown("max_prefill_tokens", CP, **knobs) == (40_000, "raised")


def test_an_input_budget_that_the_chunk_comes_before_is_not_binding():
    """An input budget larger than the chunk budget never closes a pass and is shown as not binding."""
    setting = Setting(data_parallel=8)
    assert shown("max_prefill_tokens", setting, chunked_prefill_size=32_768) == (16_384, "not binding")


def test_an_input_budget_below_the_chunk_binds():
    """An input budget smaller than the chunk budget is in force as set."""
    assert shown("max_prefill_tokens", max_prefill_tokens=1000) == (1000, "as set")


def test_an_input_budget_of_just_the_chunk_binds(decided):
    """Of two budgets spent at once the input budget is named, so one of just the chunk is no idle knob."""
    assert shown("max_prefill_tokens", max_prefill_tokens=8192) == (8192, "as set")
    assert shown("max_prefill_tokens", CP, shared_kv_batching=True, max_prefill_tokens=1000) == (8192, "raised")
    answer = decided([{"prompt_tokens": 8192}], knobs={"max_prefill_tokens": 8192})
    assert answer.closed == ("input_tokens", "budget")


def test_an_extend_limit_that_the_chunk_comes_before_is_not_binding():
    """Off the shared path candidates are cut to the chunk, so an extend limit of that size never refuses."""
    assert shown("max_extend_tokens", max_extend_tokens=8192) == (8192, "not binding")
    assert shown("max_extend_tokens", max_extend_tokens=8191) == (8191, "as set")


def test_soft_limits_of_a_single_request_batch_are_dead():
    """With one request a batch no soft limit can refuse anyone, and each says so."""
    knobs = {"max_requests": 5, "max_extend_tokens": 5, "max_cached_tokens": 5, "max_buffer_bytes": 5}
    for name in knobs:
        assert shown(name, CP, **knobs)[1] == "dead"
        assert "shared_kv_batching is off" in why(name, CP, **knobs)


def test_a_buffer_limit_without_a_model_is_dead():
    """Without a model nothing is estimated; the limit is shown as not in force."""
    setting = Setting(has_model=False)
    assert shown("max_buffer_bytes", setting, max_buffer_bytes=5) == (None, "dead")
    assert effective(Knobs(max_buffer_bytes=5), setting).max_buffer is None


def test_the_switch_is_dead_without_context_parallelism():
    """shared_kv_batching does nothing to ordinary prefill and is shown as off and dead."""
    assert shown("shared_kv_batching", shared_kv_batching=True) == (False, "dead")
    assert shown("shared_kv_batching", CP, shared_kv_batching=True) == (True, "as set")


def test_more_requests_than_slots_is_not_binding():
    """A request count larger than the engine's slots never closes a pass."""
    assert shown("max_requests", Setting(slots=4), max_requests=5) == (5, "not binding")


def test_shadow_mode_is_explained():
    """Shadow mode says in words that soft gates do nothing."""
    assert "shadow" in why("enforce", enforce=False)


def test_a_knob_that_is_not_as_set_says_why():
    """Every knob that is clamped, raised, derived, dead or not binding has a reason in words."""
    settings = [ORDINARY, CP, Setting(has_model=False, data_parallel=2, slots=1)]
    knobs = [
        Knobs(max_requests=9, max_extend_tokens=65_536, max_buffer_bytes=9, shared_kv_batching=True, page_size=64),
        Knobs(max_requests=9, max_cached_tokens=9, max_extend_tokens=9),
    ]
    rows = [row for setting in settings for each in knobs for row in explain(each, setting)]
    assert {row.state for row in rows} >= {"as set", "clamped", "dead", "off", "not binding"}
    assert all(row.why for row in rows if row.state not in ("as set", "off"))


@given(pool=st.integers(1, 10_000), page=st.sampled_from([1, 16, 64]), output=st.integers(0, 300))
def test_the_largest_prompt_is_one_less_than_what_never_fits(pool, page, output):
    """Prompt + output + overhead of the largest prompt is just below the pool, or nothing fits at all."""
    largest = largest_prompt(effective(Knobs(page_size=page), ORDINARY), pool, output)
    assert largest == max(0, pool - 1 - output - page)
