"""Waits kept up as records come say what the passes say afterwards."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.records import Pass, Repeat
from controller.vocabulary import Gate, Outcome, Reason
from store.waiting import Waiting, stop_code
from store.waits import PassedBy, attribute

STOPS = ((Gate.KV_CAPACITY, Reason.POOL), (Gate.EXTEND_TOKENS, Reason.LIMIT), (Gate.REQUEST_COUNT, Reason.LIMIT))


def a_pass(number, start_ns, stop):
    """A pass that says only when it began and what closed it."""
    gate, reason = stop or (-1, -1)
    return Pass(number, start_ns, 10, 0, 0, 0, 0, (), gate, reason, -1, (), (0, 0, 0, 0), (0, 0), ())


@st.composite
def runs(draw):
    """Requests that come, passes that look at some of them, repeats, and numbers missing between."""
    waiting, clock, number = Waiting(), 0, 0
    passes, begun, verdicts, ended = [], {}, {}, []
    for _ in range(draw(st.integers(1, 14))):
        for _ in range(draw(st.integers(0, 2))):
            clock += draw(st.integers(1, 5))
            who = len(begun)
            begun[who], verdicts[who] = clock, {}
            waiting.join(who, clock, "arrival")
        clock += draw(st.integers(0, 20))
        number += draw(st.sampled_from([1, 1, 1, 3]))
        stop = draw(st.sampled_from([*STOPS, None]))
        waiting.begin(a_pass(number, clock, stop))
        start_ns = clock
        for who in draw(st.lists(st.sampled_from(sorted(waiting.waiters)), unique=True)) if waiting.waiters else []:
            said = draw(st.sampled_from([None, "park", *STOPS]))
            if said == "park":
                waiting.look(who, Outcome.PARK, stop_code(*STOPS[0]))
            elif said is None:
                ended.append((waiting.look(who, Outcome.ADMIT, -1), len(passes) + 1))
            else:
                verdicts[who][number] = said
                waiting.look(who, Outcome.WAIT, stop_code(*said))
        first_ns = last_ns = None
        last = number
        if draw(st.booleans()):
            clock += draw(st.integers(0, 9))
            first_ns = clock
            for _ in range(draw(st.integers(0, 2))):
                clock += draw(st.integers(1, 5))
                who = len(begun)
                begun[who], verdicts[who] = clock, {}
                waiting.join(who, clock, "arrival")
            clock += draw(st.integers(0, 9))
            last_ns, last = clock, number + 5
            waiting.repeat(Repeat(number, last, 5, first_ns, last_ns, 0, 3, 3, (0,) * 4, (0,) * 4, 1, 0, 0, ended=True))
        passes.append(PassedBy(number, start_ns, stop, last, first_ns, last_ns))
        number = last
        if draw(st.integers(0, 3)) == 0:  # kept and read back, as by a collector that was killed
            waiting = msgspec.msgpack.decode(msgspec.msgpack.encode(waiting), type=Waiting)
        for who in (
            draw(st.lists(st.sampled_from(sorted(waiting.waiters)), unique=True, max_size=2))
            if (waiting.waiters)
            else []
        ):
            clock += draw(st.integers(0, 7))
            ended.append((waiting.leave(who, clock, "abort"), len(passes)))
    return passes, verdicts, ended


@settings(max_examples=150, deadline=None)
@given(runs())
def test_what_is_kept_up_is_what_is_said_afterwards(run):
    """Whatever passes went by, each wait has the parts that the passes give it when asked afterwards."""
    passes, verdicts, ended = run
    for wait, recorded in ended:
        known = passes[:recorded]
        spent = {(part.kind, part.stop): part.ns for part in wait.spent}
        assert spent == attribute(wait.start_ns, wait.end_ns, known, verdicts[wait.number])
        assert sum(spent.values()) == wait.end_ns - wait.start_ns
        assert all(wait.start_ns <= part.until_ns <= wait.end_ns for part in wait.spent)


def test_a_wait_has_its_looks_and_the_first_of_them():
    """Repeats count as looks; who leaves without a look has no first one."""
    waiting = Waiting()
    waiting.join(0, 5, "arrival")
    waiting.join(1, 6, "arrival")
    waiting.begin(a_pass(1, 10, STOPS[0]))
    waiting.look(0, Outcome.WAIT, stop_code(*STOPS[0]))
    repeat = Repeat(1, 4, 3, 20, 40, 0, 3, 3, (0,) * 4, (0,) * 4, 1, 0, 0, ended=False)
    waiting.repeat(repeat)
    waiting.repeat(msgspec.structs.replace(repeat, last_pass=9, count=8, last_ns=90, ended=True))
    waiting.begin(a_pass(10, 100, None))
    wait = waiting.look(0, Outcome.ADMIT, -1)
    assert (wait.looks, wait.first_look_ns, wait.first_pass, wait.ended) == (10, 10, 1, "admit")
    left = waiting.leave(1, 120, "abort")
    assert (left.looks, left.first_look_ns, left.ended) == (0, None, "abort")
    assert waiting.leave(1, 130, "abort") is None
