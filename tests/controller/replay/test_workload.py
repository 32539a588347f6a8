"""The workload record and its container."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engines.replay.workload import (
    KEPT_PROBLEMS,
    SkippedLines,
    Workload,
    WorkloadRequest,
    blocks_covering,
)


def test_request_cannot_be_changed() -> None:
    """A request stays what the workload said it was."""
    request = WorkloadRequest("r0", 0, 10, 1)
    with pytest.raises(AttributeError, match="immutable"):
        request.prompt_tokens = 11  # type: ignore[misc]


def test_request_defaults_share_nothing() -> None:
    """A request without blocks shares nothing and stops at the end of sequence."""
    request = WorkloadRequest("r0", 0, 10, 1)
    assert request.blocks == ()
    assert request.ignore_eos is False
    assert msgspec.json.decode(msgspec.json.encode(request), type=WorkloadRequest) == request


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_blocks_cover_the_tokens_with_none_to_spare(tokens: int, block_tokens: int) -> None:
    """The blocks said to cover some tokens hold them all, and one block fewer would not."""
    count = blocks_covering(tokens, block_tokens)
    assert (count - 1) * block_tokens < tokens <= count * block_tokens


def test_skipped_lines_are_all_counted_and_the_first_kept() -> None:
    """Every skipped line is counted, while the messages kept stay bounded."""
    skipped = SkippedLines()
    for number in range(KEPT_PROBLEMS + 5):
        skipped.add(f"t:{number}: bad")
    assert skipped.count == KEPT_PROBLEMS + 5
    assert skipped.problems == [f"t:{number}: bad" for number in range(KEPT_PROBLEMS)]


def test_workload_is_read_once_in_order_and_released() -> None:
    """A workload yields its requests once; leaving its `with` ends it and frees what is behind it."""
    released: list[bool] = []
    requests = [WorkloadRequest(f"r{i}", i, 1, 1) for i in range(3)]
    with Workload(
        name="w", block_tokens=64, requests=(r for r in requests), release=lambda: released.append(True)
    ) as workload:
        assert next(iter(workload)) is requests[0]
        assert not released
    assert released == [True]
    assert list(workload) == []


def test_position_is_a_fraction_or_unknown() -> None:
    """Position is None where the length is unknown and never above 1."""
    empty: list[WorkloadRequest] = []
    assert Workload(name="w", block_tokens=1, requests=iter(empty)).position() is None
    assert Workload(name="w", block_tokens=1, requests=iter(empty), position=lambda: 1.5).position() == 1.0
