"""Drafts of knob changes: checked and explained by the controller's own code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.knobs import SPEC_BY_NAME, parse_knob
from controller.limits import explain
from tests.ui.app.panels.scenes import KNOBS, SETTING, knob_panel
from ui.app.panels.knob_draft import NO_KNOBS, NO_SETTING, check, expected, in_force, told_change, typed


def test_a_value_is_told_with_its_effect_on_every_knob():
    """The effect names what is in force before and after, also of a knob that changes along with it."""
    found = check(knob_panel(), {}, "max_extend_tokens", "131072")
    assert found.value == 131_072
    assert found.problem == ""
    assert found.effects[0].startswith("max_extend_tokens effective 65,536 tok -> 131,072 tok, not binding:")
    assert found.effects[1].startswith("max_prefill_tokens effective 65,536 tok -> 131,072 tok, raised:")


def test_an_effect_that_stays_is_said():
    """A value that is clamped to what is in force already does nothing, and the operator is told so."""
    found = check(knob_panel(), {"chunked_prefill_size": 65_536}, "max_extend_tokens", "131072")
    assert found.effects[0].startswith("max_extend_tokens effective stays 65,536 tok, clamped:")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("max_requests", "many", "max_requests is 'many'; it is a whole number of requests from 1"),
        ("max_requests", "0", "from 1 to"),
        ("max_buffer_bytes", "4 GiBi", "write whole bytes or a size such as"),
        ("chunked_prefill_size", "32", "smaller than page_size 64"),
        ("enforce", "maybe", "it is on or off"),
        ("page_size", "128", "page_size is fixed for a run"),
        ("nonsense", "1", "is no knob"),
    ],
)
def test_a_bad_value_is_told_in_the_controllers_words(name, text, words):
    """What cannot be is refused before it is asked for, with value, bound and remedy."""
    found = check(knob_panel(), {}, name, text)
    assert words in found.problem
    assert found.effects == ()


def test_a_draft_is_checked_as_a_whole():
    """A value that goes only with another value of the draft is taken."""
    panel = knob_panel()
    assert check(panel, {}, "max_extend_tokens", "off").problem == ""
    assert (
        "one page"
        in check(knob_panel(setting=type(SETTING)(data_parallel=8)), {}, "chunked_prefill_size", "64").problem
    )


def test_without_the_knobs_or_the_setting_nothing_is_made_up():
    """An effect that cannot be worked out is said to be unknown."""
    assert check(knob_panel(setting=None), {}, "max_requests", "4").effects == (NO_SETTING,)
    whole = knob_panel()
    lost = type(whole)(
        whole.revision,
        tuple(type(row)(**{**row_fields(row), "set_to": None}) for row in whole.knobs),
        (),
        may_change=True,
        why_not="",
    )
    assert in_force(lost) is None
    assert check(lost, {}, "max_requests", "4").problem == NO_KNOBS
    assert expected(lost, {"max_requests": 4}) == {}


def row_fields(row):
    """A knob's row as a dictionary."""
    return {name: getattr(row, name) for name in type(row).__struct_fields__}


def test_a_draft_shows_what_would_be_in_force():
    """The rows of a draft are what the controller says of it, and nothing without one."""
    draft = {"max_extend_tokens": 131_072}
    coming = expected(knob_panel(), draft)
    assert coming == {each.name: each for each in explain(KNOBS.changed(draft), SETTING)}
    assert expected(knob_panel(), {}) == {}


@given(st.sampled_from(sorted(SPEC_BY_NAME)), st.integers(1, 1 << 45))
def test_what_is_offered_for_editing_is_read_as_the_same_value(name, number):
    """The text an edit begins with means the value it stands for."""
    spec = SPEC_BY_NAME[name]
    value = bool(number % 2) if spec.kind == "switch" else number
    assert parse_knob(spec, typed(value, spec.unit)) == value
    if spec.kind in ("limit", "bytes"):
        assert parse_knob(spec, typed(None, spec.unit)) is None


def test_bytes_are_offered_in_the_largest_unit_that_is_whole():
    """Nobody edits 4294967296."""
    assert typed(4 << 30, "bytes") == "4GiB"
    assert typed(1400 << 20, "bytes") == "1400MiB"
    assert typed(1_000, "bytes") == "1,000"


def test_a_change_in_words():
    """A change has its before and after with units."""
    assert told_change("max_buffer_bytes", None, 4 << 30) == "max_buffer_bytes off -> 4.00 GiB"
    assert told_change("enforce", True, False) == "enforce on -> off"
