"""Where a wait's time went: every nanosecond to one cause, and to the right one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.waits import BEHIND, BETWEEN, HELD, UNATTRIBUTED, PassedBy, attribute

KV, EXTEND = (3, 3), (4, 2)


def passed(number, start_ns, stop=KV, *, repeats=()):
    """A pass, and the times of its repeats."""
    if not repeats:
        return PassedBy(number, start_ns, stop, number)
    return PassedBy(number, start_ns, stop, number + len(repeats), repeats[0], repeats[-1])


@st.composite
def passings(draw):
    """Passes in order of number, some repeated, some missing, whose clock now and then stands still."""
    number, clock, passes = 0, draw(st.integers(0, 50)), []
    for _ in range(draw(st.integers(0, 12))):
        number += draw(st.sampled_from([1, 1, 1, 3]))
        clock += draw(st.integers(0, 30))
        repeats = []
        for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
            clock += draw(st.integers(0, 30))
            repeats.append(clock)
        begin = repeats[0] - draw(st.integers(0, 5)) if repeats else clock
        passes.append(passed(number, begin, draw(st.sampled_from([KV, EXTEND, None])), repeats=repeats))
        number += len(repeats)
    return passes


@settings(max_examples=300, deadline=None)
@given(passings(), st.integers(0, 200), st.integers(0, 200), st.sets(st.integers(1, 20)))
def test_the_parts_of_a_wait_add_up_to_it(passes, start_ns, length, told):
    """Whatever passes went by, repeated, missing or out of step, the parts are positive and their sum is the wait."""
    spent = attribute(start_ns, start_ns + length, passes, dict.fromkeys(told, EXTEND))
    assert sum(spent.values()) == length
    assert all(ns > 0 for ns in spent.values())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from([KV, EXTEND]), st.booleans()), min_size=1, max_size=10))
def test_each_pass_owns_the_time_to_the_next(steps):
    """In an unbroken record, the time from each pass to the next belongs to what that pass said, told or not."""
    passes, verdicts, wanted, clock = [], {}, {}, 10
    for number, (ns, stop, told) in enumerate(steps, 1):
        passes.append(passed(number, clock, stop))
        if told:
            verdicts[number] = stop
        key = (HELD if told else BEHIND, stop)
        wanted[key] = wanted.get(key, 0) + ns
        clock += ns
    assert attribute(4, clock, passes, verdicts) == {(BETWEEN, None): 6, **wanted}


def test_a_wait_that_begins_between_two_passes_lasts_first_to_the_next():
    """The pass that began before the wait says nothing about it."""
    passes = [passed(1, 10), passed(2, 30, EXTEND), passed(3, 40)]
    assert attribute(15, 40, passes, {2: EXTEND}) == {(BETWEEN, None): 15, (HELD, EXTEND): 10}


@pytest.mark.parametrize(
    ("start_ns", "wanted"),
    [
        (5, {(BETWEEN, None): 5, (BEHIND, KV): 90}),
        (15, {(BETWEEN, None): 5, (BEHIND, KV): 80}),
        (50, {(BEHIND, KV): 50}),
        (65, {(BETWEEN, None): 35}),
    ],
)
def test_a_refusal_that_goes_on_owns_its_time(start_ns, wanted):
    """A wait met by a repeated refusal belongs to its gate from the pass or repeat that first met it."""
    passes = [passed(41, 10, repeats=(20, 40, 60)), passed(45, 100, EXTEND)]
    if start_ns < 10:
        passes.insert(0, passed(40, 3))
    assert attribute(start_ns, 100, passes, {}) == wanted


def test_time_in_which_passes_are_missing_is_unattributed():
    """Where the record skips passes, the verdict before is held to its last known repeat and no further."""
    passes = [passed(1, 10), passed(2, 20, repeats=(30, 40)), passed(9, 100, EXTEND), passed(11, 130)]
    assert attribute(5, 130, passes, {}) == {
        (BETWEEN, None): 5, (BEHIND, KV): 30, (UNATTRIBUTED, None): 60 + 30,
    }  # fmt: skip


def test_time_before_the_first_known_pass_is_unattributed_when_others_came_before_it():
    """A record that begins late does not say what the passes before it decided."""
    assert attribute(5, 30, [passed(7, 20)], {}) == {(UNATTRIBUTED, None): 15, (BEHIND, KV): 10}


def test_a_pass_that_closed_on_nothing_explains_no_wait():
    """A pass that looked at the whole queue and not at this request leaves its time unattributed."""
    assert attribute(5, 30, [passed(1, 10, None), passed(2, 30)], {}) == {(BETWEEN, None): 5, (UNATTRIBUTED, None): 20}


def test_a_wait_no_pass_met_is_between_passes():
    """Without any pass the whole wait lies between passes; an empty one has no parts."""
    assert attribute(5, 30, [], {}) == {(BETWEEN, None): 25}
    assert attribute(5, 5, [passed(1, 5)], {}) == {}
