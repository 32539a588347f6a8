"""Words of cells: harmless, short, and never a zero for what is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.app.figures import ABSENT
from ui.app.panels.words import brief, cell, in_unit, length, plain, short_span, since, span, spark, value_of

SECOND = 1_000_000_000


@given(st.text())
def test_plain_text_can_be_printed_on_one_line(text):
    """No escape, newline or other control of the record reaches the terminal."""
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)


def test_a_cell_is_never_markup():
    """Brackets in the record are brackets on the screen."""
    assert cell("[bold red]x[/]", "bold").plain == "[bold red]x[/]"
    assert cell("a\x1b[31mb\nc").plain == "a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}c"


@pytest.mark.parametrize(
    ("ns", "told"),
    [
        (None, ABSENT),
        (0, "0.0 s"),
        (400_000_000, "0.4 s"),
        (9_940_000_000, "9.9 s"),
        (10 * SECOND, "10 s"),
        (59 * SECOND, "59 s"),
        (82 * SECOND, "1 min 22 s"),
    ],
)
def test_spans_are_calm(ns, told):
    """Tenths only below ten seconds."""
    assert span(ns) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "0.4 s"), (59, "59 s"), (258, "4 min"), (86_000, "23.9 h"), (86_400 * 12, "12 d")]
)
def test_short_spans_fit_a_column(seconds, told):
    """A column of durations stays narrow whatever they are."""
    assert short_span(int(seconds * SECOND)) == told
    assert len(told) <= 7


def test_since_is_absent_where_either_moment_is():
    """An age needs both its ends."""
    assert since(None, 5) == since(5, None) == ABSENT
    assert since(SECOND, 3 * SECOND) == "2.0 s"


def test_values_of_knobs():
    """No limit is off, a switch is on or off, bytes are a size."""
    assert value_of(None, "tokens") == "off"
    assert value_of(True, "on/off") == "on"
    assert value_of(False, "on/off") == "off"
    assert value_of(4 << 30, "bytes") == "4.00 GiB"
    assert value_of(65_536, "tokens") == "65,536 tok"


def test_brief_numbers():
    """A number for a narrow column keeps its unit."""
    assert brief(1_200_000, "tokens") == "1.2M tok"
    assert brief(None, "tokens") == ABSENT
    assert brief(4 << 30, "bytes") == "4.00 GiB"


def test_in_unit_tells_ns_as_a_duration():
    """Nobody reads 60,000,000,000 ns."""
    assert in_unit(60 * SECOND, "ns") == "1 min 0 s"
    assert in_unit(3, "passes") == "3 passes"


@given(st.floats(-1, 2), st.integers(0, 60))
def test_a_bar_is_as_long_as_it_should_be(part, cells):
    """A bar has its width whatever its part, and anything above nothing shows."""
    drawn = length(part, cells)
    assert len(drawn) == cells or (part > 0 and cells == 0)
    assert bool(drawn.strip()) == (part > 0)


@given(st.lists(st.none() | st.integers(0, 1 << 60)), st.integers(1, 40))
def test_a_sparkline_has_its_width_and_blanks_where_nothing_is_known(values, cells):
    """A stretch without a value is a blank, never the lowest bar."""
    drawn = spark(values, cells=cells)
    assert len(drawn) == cells
    if len(values) <= cells:
        padded = [None] * (cells - len(values)) + values
        assert [each == " " for each in drawn] == [each is None for each in padded]


def test_a_sparkline_keeps_the_least_or_the_most_of_what_shares_a_cell():
    """A short dip of headroom is not averaged away, nor is a short peak of bytes."""
    assert spark([1.0, 0.0, 1.0, 1.0], 1.0, 2) == "▁█"
    assert spark([0.0, 1.0, 0.0, 0.0], 1.0, 2, most_of=True) == "█▁"
