"""What a replay adds up to."""

import json
from random import Random

import pytest

from controller.decision import PassResult
from controller.engines.replay.summary import RELATIVE_ACCURACY, Summary, Times
from controller.vocabulary import Gate, HostHit, Outcome, Reason


def decision(outcome, gate=-1, reason=-1, host=HostHit.NONE_RESIDENT):
    """A flat decision with nothing else in it."""
    return (0, outcome, gate, reason, *[0] * 8, host, *[0] * 4)


def passed(*decisions, batch=(), closed=None):
    """A pass."""
    return PassResult(tuple(batch), decisions, closed, len(decisions), None, 0, 0)


def test_counts_by_outcome_gate_and_what_closed_a_pass():
    """Decisions are counted by outcome and gate, passes by what closed them, skipped host hits by reason."""
    summary = Summary()
    pool = (Gate.KV_CAPACITY, Reason.POOL)
    summary.passed(
        passed(
            decision(Outcome.ADMIT, host=HostHit.LOADED),
            decision(Outcome.ADMIT_CHUNK, Gate.CHUNK_TOKENS, Reason.BUDGET, HostHit.QUOTA),
            batch=[(0, 0, 100, 0, 0, 0), (1, 1, 28, 0, 0, 0)],
            closed=(Gate.CHUNK_TOKENS, Reason.BUDGET),
        )
    )
    summary.passed(passed(decision(Outcome.WAIT, *pool, HostHit.QUOTA), closed=pool))
    summary.passed(passed(decision(Outcome.REFUSE, Gate.KV_CAPACITY, Reason.CAN_NEVER)))
    found = summary.as_dict()
    assert found["passes"] == 3
    assert found["decisions"] == {
        "by_outcome": {"admit": 1, "admit_chunk": 1, "park": 0, "wait": 1, "refuse": 1},
        "by_gate": {"kv_capacity": {"pool": 1, "can_never": 1}, "chunk_tokens": {"budget": 1}},
    }
    assert found["closed_by"] == {"kv_capacity": {"pool": 1}, "chunk_tokens": {"budget": 1}}
    assert {reason: count for reason, count in found["host_hits_skipped"].items() if count} == {"quota": 2}
    assert found["computed_tokens"] == 128
    assert found["batch_size"] == {"p50": 2, "p90": 2, "p95": 2, "p99": 2, "max": 2}


def test_batch_sizes_are_exact():
    """Percentiles of batch sizes are those of the sorted sizes."""
    summary = Summary()
    for size in [1] * 89 + [2] * 8 + [7] * 2 + [40]:
        summary.passed(passed(batch=[(0, 0, 1, 0, 0, 0)] * size))
    assert summary.batch_size() == {"p50": 1, "p90": 2, "p95": 2, "p99": 7, "max": 40}


def test_times_are_within_a_percent_and_the_maximum_exact():
    """Percentiles of a stream of times are within the stated accuracy; the maximum is exact."""
    draw = Random(1)  # noqa: S311 - a reproducible test, no secret
    values = [int(draw.expovariate(1e-9)) for _ in range(5_000)]
    times = Times()
    for value in values:
        times.add(value)
    found = times.seconds()
    values.sort()
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        exact = values[int(share * (len(values) - 1))] / 1e9
        assert found[name] == pytest.approx(exact, rel=1.1 * RELATIVE_ACCURACY)
    assert found["max"] == values[-1] / 1e9


def test_zero_is_a_time():
    """Requests that did not wait count as such."""
    times = Times()
    times.add(0)
    assert times.seconds() == {"p50": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}


def test_hits_count_at_first_admission():
    """The hit ratio is device and host hits over prompt tokens; an empty replay has none and still prints."""
    summary = Summary()
    assert summary.hit_ratio == 0
    assert json.loads(json.dumps(summary.as_dict()))["ttft_seconds"] == {}
    summary.admitted(100, 30, 20, 5)
    summary.admitted(100, 0, 0, 5)
    assert summary.hit_ratio == 0.25
