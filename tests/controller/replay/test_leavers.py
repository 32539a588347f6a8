"""Requests that leave before they are done, and those that generate less than they may."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.knobs import Knobs
from controller.records import Abort, Arrival, Finish, Pass
from tests.controller.replay.small_engine import ask, engine, is_empty, replay


def decided(passed):
    """A pass without the real time that deciding took."""
    return msgspec.structs.replace(passed, decide_ns=0)


def test_one_that_gives_up_while_it_waits_frees_the_queue():
    """A head that nothing could ever admit blocks the queue until its client gives up; then the next one enters."""
    rows = [ask(0, 300, 40), ask(1, 390, 1, at=1, leaves_ns=500_000), ask(2, 40, 1, at=2)]
    made, summary, shelf = replay(rows)
    (abort,) = shelf.records(Abort)
    assert (abort.number, abort.why) == (1, "its client gave up")
    assert abort.at_ns >= 500_000
    assert {finish.number for finish in shelf.records(Finish)} == {0, 2}
    assert (summary.finished, summary.aborts) == (2, 1)
    assert is_empty(made)


def test_one_that_gives_up_while_it_decodes_leaves_within_a_step():
    """Decoding goes no more than one step past the moment; its KV is freed and what it generated is not counted on."""
    made, _, shelf = replay([ask(0, 40, 10_000 // 40, leaves_ns=45_000)])
    (abort,) = shelf.records(Abort)
    assert 45_000 <= abort.at_ns <= 45_100
    assert is_empty(made)
    assert not shelf.records(Finish)


def test_one_that_gives_up_between_its_chunks_frees_the_chunk():
    """A prompt that is partly computed when its client gives up holds nothing from the next pass on."""
    made, _, shelf = replay([ask(0, 200, 5, leaves_ns=100_000, blocks=range(50)), ask(1, 20, 2, at=1)])
    assert [abort.number for abort in shelf.records(Abort)] == [0]
    assert [finish.number for finish in shelf.records(Finish)] == [1]
    assert is_empty(made)


def test_one_that_is_done_in_time_does_not_leave():
    """A moment to leave that comes after the last token changes nothing and ends nothing late."""
    plain, _, shelf = replay([ask(0, 40, 5)])
    timed, _, other = replay([ask(0, 40, 5, leaves_ns=1 << 50)])
    assert timed.loop.now_ns == plain.loop.now_ns
    assert [decided(each) for each in shelf.records(Pass)] == [decided(each) for each in other.records(Pass)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 200_000), st.integers(1, 150), st.integers(1, 60), st.integers(0, 300),
            st.one_of(st.none(), st.integers(0, 400_000)), st.integers(0, 6),
        ),
        min_size=1, max_size=14,
    ),
    st.sampled_from(["unified", "prefill"]),
)  # fmt: skip
def test_whoever_leaves_everything_is_given_back(rows, role):
    """Each request finishes or leaves, never both, never early, and the pool is whole again at the end."""
    requests = [
        ask(number, prompt, output, at=at, blocks=range(stem, stem - (-(prompt + output) // 4)),
            max_new_tokens=output + spare, leaves_ns=None if leaves is None else at + leaves)
        for number, (at, prompt, output, spare, leaves, stem) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]  # fmt: skip
    made, summary, shelf = replay(requests, role=role, knobs=Knobs(page_size=4, chunked_prefill_size=32))
    finished = {finish.number: finish for finish in shelf.records(Finish)}
    left = {abort.number: abort for abort in shelf.records(Abort)}
    assert finished.keys() | left.keys() == set(range(len(requests)))
    assert not finished.keys() & left.keys()
    for number, abort in left.items():
        leaves_ns = requests[number].leaves_ns
        assert abort.why != "its client gave up" or abort.at_ns >= leaves_ns
    assert summary.finished + summary.aborts == len(requests)
    assert is_empty(made)


def test_room_is_held_back_for_all_that_may_be_generated():
    """The reserve goes by what a request may generate, and its end by what it does."""
    made, shelf = engine([ask(0, 40, 3, max_new_tokens=200), ask(1, 40, 3, at=1)], new_token_ratio=1.0)
    made.run()
    second = shelf.records(Pass)[1]
    assert second.before[2] == 200 - 1  # one token of the first one's is out
    assert [arrival.output_tokens for arrival in shelf.records(Arrival)] == [200, 3]
    assert [finish.generated_tokens for finish in shelf.records(Finish)] == [3, 3]
