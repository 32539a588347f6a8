"""The built-in workload of agent sessions."""

import hashlib
import tracemalloc
from collections import defaultdict
from itertools import islice, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay import sessions as module
from controller.engines.replay.sessions import agent_sessions, exponential
from controller.engines.replay.workload import WorkloadRequest, blocks_covering
from estimator.errors import UsageError

small_workloads = st.fixed_dictionaries(
    {
        "seed": st.integers(-5, 1 << 70),
        "sessions": st.integers(1, 30),
        "sessions_per_second": st.sampled_from([0.01, 1.0, 50.0]),
        "agents": st.integers(1, 5),
        "mean_turns": st.sampled_from([1.0, 5.0]),
        "think_seconds": st.sampled_from([0.0, 10.0]),
        "max_context_tokens": st.integers(1_024, 150_000),
        "block_tokens": st.sampled_from([1, 16, 64, 512]),
        "busy_seconds": st.sampled_from([0.0, 3.0]),
        "calm_seconds": st.sampled_from([0.0, 40.0]),
    }
)


def by_session(requests: list[WorkloadRequest]) -> dict[str, list[WorkloadRequest]]:
    """Group requests by the session in their id, in order."""
    turns: dict[str, list[WorkloadRequest]] = defaultdict(list)
    for request in requests:
        turns[request.id.partition(".")[0]].append(request)
    return turns


def test_default_workload_is_the_same_everywhere() -> None:
    """The default workload is pinned, so that a run on any machine or Python version sees the same requests."""
    digest = hashlib.sha256()
    count = 0
    for request in agent_sessions():
        count += 1
        digest.update(repr((request.id, request.arrival_ns, request.prompt_tokens, request.output_tokens)).encode())
        digest.update(repr(request.blocks).encode())
    assert (count, digest.hexdigest()[:16]) == (3350, "1d727a696c2c57e4")


def test_no_session_begins_in_a_calm_stretch() -> None:
    """Sessions begin in the busy stretches alone, as close upon one another there as without the calm ones."""
    busy, calm = 5.0, 20.0
    firsts: dict[float, list[int]] = {}
    for pause in (0.0, calm):
        workload = agent_sessions(sessions=400, sessions_per_second=4.0, busy_seconds=busy, calm_seconds=pause)
        firsts[pause] = [turns[0].arrival_ns for turns in by_session(list(workload)).values()]
    stretch = round((busy + calm) * 1e9)
    assert max(at % stretch for at in firsts[calm]) < busy * 1e9
    assert len({at // stretch for at in firsts[calm]}) > 15
    joined = [at // stretch * round(busy * 1e9) + at % stretch for at in firsts[calm]]
    assert joined == firsts[0.0]


@settings(max_examples=40, deadline=None)
@given(small_workloads)
def test_every_request_keeps_the_contract_of_a_workload(options: dict[str, Any]) -> None:
    """Arrivals never go back, lengths are within the context, blocks cover prompt and output, ids differ."""
    workload = agent_sessions(**options)
    requests = list(workload)
    assert workload.block_tokens == options["block_tokens"]
    assert workload.position() == 1.0
    assert len(by_session(requests)) == options["sessions"]
    assert len({request.id for request in requests}) == len(requests)
    assert requests[0].arrival_ns == 0
    for before, after in pairwise(requests):
        assert before.arrival_ns <= after.arrival_ns
    for request in requests:
        context = request.prompt_tokens + request.output_tokens
        assert request.prompt_tokens >= 1
        assert request.output_tokens >= 1
        assert context <= options["max_context_tokens"]
        assert len(request.blocks) == blocks_covering(context, options["block_tokens"])


@settings(max_examples=40, deadline=None)
@given(small_workloads)
def test_a_turn_goes_on_from_the_turn_before(options: dict[str, Any]) -> None:
    """A turn's prompt holds the prompt and output before it, with the same blocks, and grows by at least one token."""
    for turns in by_session(list(agent_sessions(**options))).values():
        assert [turn.id.partition(".t")[2] for turn in turns] == [str(number) for number in range(len(turns))]
        for before, after in pairwise(turns):
            context = before.prompt_tokens + before.output_tokens
            assert after.prompt_tokens > context
            assert after.arrival_ns > before.arrival_ns
            assert after.blocks[: len(before.blocks)] == before.blocks


@settings(max_examples=20, deadline=None)
@given(small_workloads)
def test_a_block_id_stands_for_one_chain(options: dict[str, Any]) -> None:
    """An id is always found at the same position behind the same id, so that a shared id is a shared prefix."""
    place: dict[int, tuple[int, int | None]] = {}
    for request in agent_sessions(**options):
        for position, (before, block) in enumerate(pairwise((None, *request.blocks))):
            assert block is not None
            assert place.setdefault(block, (position, before)) == (position, before)


def test_sessions_of_one_agent_share_whole_blocks_of_its_prefix_and_no_more() -> None:
    """First turns of different sessions share a prefix of 2,000 tokens or more, and never their whole prompt."""
    first = [turns[0] for turns in by_session(list(agent_sessions(sessions=40, agents=1, block_tokens=64))).values()]
    for request in first[1:]:
        shared = sum(a == b for a, b in zip(request.blocks, first[0].blocks, strict=False))
        assert shared >= 2_000 // 64
        assert shared * 64 < request.prompt_tokens


def test_a_fan_out_shares_its_brief_and_arrives_at_once() -> None:
    """Some arrivals are several sessions at one moment that share more than their agent's prefix."""
    first = [turns[0] for turns in by_session(list(agent_sessions(sessions=200, agents=1))).values()]
    together: dict[int, list[WorkloadRequest]] = defaultdict(list)
    for request in first:
        together[request.arrival_ns].append(request)
    groups = [group for group in together.values() if len(group) > 1]
    assert groups
    alone = next(group[0] for group in together.values() if len(group) == 1)
    for group in groups:
        assert len(group) <= module.FAN_OUT_SESSIONS[1]
        in_group = sum(a == b for a, b in zip(group[0].blocks, group[1].blocks, strict=False))
        outside = sum(a == b for a, b in zip(group[0].blocks, alone.blocks, strict=False))
        assert in_group > outside


def test_a_longer_workload_begins_with_the_shorter_one() -> None:
    """A session is drawn from seed and number alone, so that more sessions leave the others as they were."""
    few = by_session(list(agent_sessions(sessions=10)))
    many = by_session(list(agent_sessions(sessions=30)))
    assert few == {name: turns for name, turns in many.items() if name in few}


def test_seeds_differ() -> None:
    """Another seed is another workload."""
    assert list(agent_sessions(seed=1, sessions=3)) != list(agent_sessions(seed=2, sessions=3))


def test_memory_does_not_grow_with_the_workload() -> None:
    """Only sessions in progress are held: ten times the sessions take about the same memory."""

    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in agent_sessions(sessions=count, sessions_per_second=0.05, mean_turns=3.0):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(20)
    assert peak(600) < 3 * peak(60)


def test_lengths_are_long_tailed() -> None:
    """The default workload has contexts from a few thousand tokens to over 100,000."""
    prompts = sorted(request.prompt_tokens for request in agent_sessions())
    assert prompts[0] < 8_000
    assert 20_000 < prompts[len(prompts) // 2] < 60_000
    assert prompts[-1] > 100_000


def test_exponential_has_the_right_mean_and_tail() -> None:
    """The comparison method draws deviates of mean 1 of which e^-1 lie above 1 and e^-3 above 3."""
    draw = Random(7).random  # noqa: S311 - a fixed seed for a test
    deviates = [exponential(draw) for _ in range(20_000)]
    assert abs(sum(deviates) / 20_000 - 1) < 0.03
    assert abs(sum(d > 1 for d in deviates) / 20_000 - 0.3679) < 0.015
    assert abs(sum(d > 3 for d in deviates) / 20_000 - 0.0498) < 0.006


def test_arrivals_keep_the_rate_asked_for() -> None:
    """Sessions start at the rate given, fan-outs counted in."""
    starts = [r.arrival_ns for r in agent_sessions(sessions=4_000, sessions_per_second=5.0, mean_turns=1.0)]
    assert abs(4_000 / (starts[-1] / 1e9) - 5.0) < 0.6


def test_position_grows_while_the_workload_is_read() -> None:
    """Position goes from 0 to 1 with the sessions that ended."""
    workload = agent_sessions(sessions=20)
    assert workload.position() == 0.0
    for _ in islice(workload, 100):
        pass
    middle = workload.position()
    assert middle is not None
    assert 0.0 < middle < 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"sessions": 0},
        {"sessions_per_second": 0.0},
        {"sessions_per_second": float("nan")},
        {"agents": 0},
        {"mean_turns": 0.5},
        {"think_seconds": -1.0},
        {"max_context_tokens": 100},
        {"block_tokens": 0},
        {"max_context_tokens": 1 << 24, "block_tokens": 1},
    ],
)
def test_arguments_out_of_range_are_usage_errors(options: dict[str, Any]) -> None:
    """An argument out of range is an error that names it, its value and the range."""
    with pytest.raises(UsageError, match=r": .* is not within .* to .*; give a value that is"):
        agent_sessions(**options)
