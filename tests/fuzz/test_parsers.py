"""Every parser on input near to valid, a few hundred times each; `make fuzz` is the same for as long as one likes."""

import pytest
import targets_cases  # noqa: F401 - they register themselves
import targets_records  # noqa: F401
import targets_words  # noqa: F401
from guard import Guard
from hypothesis import HealthCheck, given, settings
from target import TARGETS, Room

EXAMPLES = 200
"""For a parser of cost 1."""


@pytest.mark.parametrize("name", TARGETS)
def test_bad_input_is_refused_in_words_or_read_right(room: Room, name: str):
    """No traceback, no hang, no growth of memory: an answer, or a Glassgate error of one line."""
    target = TARGETS[name]
    aim = target.aim(room)

    @settings(
        max_examples=max(5, EXAMPLES // target.cost), derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(aim.inputs)
    def try_one(given_input: object) -> None:
        guard(aim.parse, given_input)

    with Guard() as guard:
        try_one()
    assert guard.executions > 0
