"""Numbers as people read them."""

import pytest

from store.words import amount, counted, duration, size, times


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_500, "1.5 µs"), (42_000, "42 µs"), (999_600, "1 ms"), (12_345_678, "12.3 ms"),
        (340_000_000, "340 ms"), (900_000_000, "900 ms"), (999_700_000, "1.0 s"), (1_204_000_000, "1.2 s"),
        (59_940_000_000, "59.9 s"), (61_000_000_000, "1 min 1 s"), (3_725_000_000_000, "1 h 2 min 5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_in_the_unit_that_fits(ns, text):
    """A duration has two or three digits and the unit that fits, ms below one second."""
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (5 << 29, "2.50 GiB"), (3 << 40, "3.00 TiB")],
)
def test_a_size_is_in_the_largest_unit_that_leaves_one(number, text):
    """Bytes are told in the largest unit of which there is at least one."""
    assert size(number) == text
    assert amount(number, "bytes") == text


def test_counts_are_grouped_and_agree_with_their_noun():
    """Numbers are grouped by thousands, a noun is in the plural but for 1, and once and twice are words."""
    assert [counted(n, "token") for n in (0, 1, 12_288)] == ["0 tokens", "1 token", "12,288 tokens"]
    assert counted(2, "story", "stories") == "2 stories"
    assert [times(n) for n in (1, 2, 4_100)] == ["once", "twice", "4,100 times"]
    assert amount(65_536, "tokens") == "65,536"
