"""Tables on stdout, as wide as there is room."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui.output import print_table

COLUMNS = ["request", "why it waits"]
ROWS = [["chat-1", "max_extend_tokens off to 65536, enforce on to off"], ["chat-2", 12_000]]


@pytest.fixture
def printed(monkeypatch, capsys):
    """What a table looks like on so many columns."""

    def say(width, *table, **more):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(*table, **more)
        return capsys.readouterr().out

    return say


def test_words_are_broken_between_them(printed):
    """A table that is wider than there is room has more lines, and whole words."""
    text = printed(30, COLUMNS, ROWS)
    assert text.splitlines()[0].split() == ["request", "why", "it", "waits"]
    for word in ("max_extend_tokens", "enforce", "12,000"):
        assert word in text


def test_rows_without_room_beside_each_other_are_told_one_by_one(printed):
    """Where words would have to be broken, each row stands in lines of its own under one title."""
    text = printed(20, COLUMNS, ROWS, "waits")
    assert text.splitlines()[0].strip() == "waits"
    assert [line.rstrip() for line in text.splitlines()[-2:]] == ["request       chat-2", "why it waits  12,000"]
    assert [line.strip() for line in text.splitlines()].count("waits") == 1


def test_what_is_to_stay_whole_stays_whole(printed):
    """A moment is never broken: rather the rows are told one by one."""
    moment = "2026-01-01T12:00:00Z of a day"
    assert moment in printed(48, ["at", "what"], [[moment, "something quite long is told here"]], whole={0})
    assert moment in printed(36, ["at", "what"], [[moment, "something"]], whole={0})


@given(st.lists(st.lists(st.text("ab c", max_size=30), min_size=3, max_size=3), max_size=4), st.integers(10, 60))
def test_nothing_is_left_out(rows, width):
    """Whatever the width, every letter of every cell is there."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setattr("sys.stdout", out)
        print_table(["x", "y", "z"], rows)
    for letter in "abc":
        assert out.getvalue().count(letter) == sum(each.count(letter) for row in rows for each in row)
