"""The bar of a request's life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui.app.panels.scenes import SECOND, life
from ui.app.panels.life import _widths, life_bar, life_legend
from ui.view.snapshot import LifeSpan


@given(st.lists(st.integers(0, 1 << 62), max_size=30), st.integers(1, 80))
def test_the_bar_is_as_wide_as_it_should_be_and_hides_nothing(lengths, cells):
    """The widths add up, and every stretch is seen as long as there are enough cells."""
    widths = _widths(lengths, cells)
    assert sum(widths) == (cells if lengths else 0)
    assert all(width >= (1 if len(lengths) <= cells else 0) for width in widths)


def test_letters_are_gates_and_marks_the_rest():
    """Held and behind are told apart under the letters, and the rest has marks of its own."""
    bar, under = life_bar(life().spans, 70).plain.split("\n")
    assert sorted(set(bar)) == sorted("ie·█▓")
    assert [under[bar.index(letter)] for letter in "ie"] == ["╌", "━"]
    assert under[bar.index("█") :].strip() == ""
    assert bar.count("i") == pytest.approx(40, abs=3)


def test_the_legend_tells_how_long_each_was_the_longest_first():
    """What a mark stands for stands beside its time."""
    told = life_legend((*life().spans, LifeSpan(170 * SECOND, 175 * SECOND, "held", "extend_tokens")), 75).plain
    assert told == (
        "i╌ behind input_tokens 40 s   e━ held extend_tokens 15 s   ▓ decoding 12 s\n█ computing 7.0 s   "
        "· between passes 1.0 s"
    )


def test_a_life_that_goes_on_and_one_of_which_nothing_is_left():
    """A stretch without an end has a cell; no stretch at all is said."""
    assert life_bar((LifeSpan(0, None, "held", "kv_capacity"),), 10).plain == "k" * 10 + "\n" + "━" * 10
    assert "no part of its life" in life_bar((), 10).plain
    assert life_legend((), 75).plain == ""
