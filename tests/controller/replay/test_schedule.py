"""Knobs turned at known moments of a replay."""

from controller.engines.replay import KnobsAt
from controller.knobs import Knobs
from controller.records import KnobChange, KnobsInForce, Pass
from tests.controller.replay.small_engine import ask, replay


def test_knobs_are_turned_at_the_first_step_that_fits():
    """Not before the time, not before the passes: the next pass is decided under the next revision."""
    requests = [ask(number, 40, at=number * 50_000) for number in range(6)]
    changes = [
        KnobsAt(0, 2, {"max_requests": 3}, "ann"),
        KnobsAt(200_000, 0, {"max_extend_tokens": 64, "max_requests": None}, "ben"),
    ]
    made, _, shelf = replay(requests, changes=changes)
    assert [(each.number, each.revision) for each in shelf.records(Pass)] == [
        (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2),
    ]  # fmt: skip
    assert [(each.who, each.revision, each.accepted) for each in shelf.records(KnobChange)] == [
        ("ann", 1, True),
        ("ben", 2, True),
    ]
    assert len(shelf.records(KnobsInForce)) == 3
    assert (made.knobs.max_requests, made.knobs.max_extend_tokens) == (None, 64)


def test_a_change_that_cannot_be_is_refused_and_recorded():
    """A page size cannot be turned while a run goes on; the record says so, as for any request."""
    made, _, shelf = replay([ask(0, 40)], changes=[KnobsAt(0, 1, {"page_size": 8}, "ann")])
    (change,) = shelf.records(KnobChange)
    assert not change.accepted
    assert "page_size is fixed at 4" in change.why
    assert made.knobs == Knobs(page_size=4, chunked_prefill_size=64)
