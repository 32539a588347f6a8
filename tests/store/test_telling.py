"""The words for what a gate saw of a request."""

import pytest
from msgspec.structs import replace

from controller.vocabulary import GATE_REASONS, LADDER_GATES, Gate, Reason, unit_of
from store.life import Part
from store.telling import part_line, shortfall
from store.waits import HELD

STOPS = [(gate, reason) for gate, reasons in GATE_REASONS.items() for reason in reasons]
ENGINES = [stop for stop in STOPS if stop[0] not in LADDER_GATES]


def part(gate, reason):
    """Time that one stop held a request, with 700 observed of 300."""
    return Part(
        kind=HELD, ns=5_000_000, gate=gate.word, reason=reason.word, looks=3, observed=700, limit=300, short_by=400,
        unit=unit_of(gate, reason), needs=None, left=None,
    )  # fmt: skip


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: "/".join(word.word for word in stop))
def test_every_stop_can_be_told(stop):
    """Each gate with each of its reasons makes a line that names it, with nothing left to fill in."""
    line = part_line(part(*stop))
    assert line.startswith(f"5 ms behind {stop[0].word}")
    assert not set(line) & set("{}")


@pytest.mark.parametrize("stop", ENGINES, ids=lambda stop: "/".join(word.word for word in stop))
def test_what_only_an_engine_says_has_words_of_its_own(stop):
    """A stop that no knob sets is not told as a budget that was spent."""
    assert "of 300 spent" not in shortfall(part(*stop))


def test_a_pool_that_filled_the_batch_is_told_with_what_was_left():
    """What an engine's mark stands for is told as what was needed and what was there."""
    told = shortfall(part(Gate.BATCH_FULL, Reason.POOL))
    assert told == "needed 700 tokens; 300 were left, and the engine looks again when a request leaves"


@pytest.mark.parametrize(("limit", "words"), [(1, "the batch has its 1 request"), (2, "the batch has its 2 requests")])
def test_a_limit_of_one_request_is_told_in_the_singular(limit, words):
    """A batch that holds one request at most has its 1 request."""
    told = shortfall(replace(part(Gate.REQUEST_COUNT, Reason.LIMIT), observed=limit + 1, limit=limit))
    assert told == words
