"""A replayed run, replayed from its record or from its exported trace, does again exactly what it did."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay import KnobsAt, Pace, agent_sessions
from controller.engines.replay.step_time import step_time_model
from controller.knobs import Knobs
from controller.limits import Setting
from estimator.errors import NotFoundError
from tests.controller.replay.test_loop_properties import built, shapes, workloads
from tests.ui.whatif.records import decided, estimator, record, record_again, served
from ui.whatif.fidelity import fidelity_of
from ui.whatif.figures import figures_of
from ui.whatif.happened import read_happened
from ui.whatif.played import play
from ui.whatif.recorded import read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.trace import trace_lines

ways = st.sampled_from(
    [
        ("unified", Setting(has_model=False), {}),
        ("unified", Setting(slots=2, has_model=False), {"max_requests": 2, "page_size": 8}),
        ("unified", Setting(has_model=False), {"chunked_prefill_size": None, "page_size": 1}),
        ("unified", Setting(has_model=True), {"max_buffer_bytes": "80MiB"}),
        ("prefill", Setting(slots=3, has_model=False), {"page_size": 2}),
        ("prefill", Setting(lanes=3, context_parallel=True, has_model=False), {"shared_kv_batching": True}),
        ("prefill", Setting(lanes=2, context_parallel=True, has_model=False), {"load_back_threshold": 5}),
    ]
)
turns = st.lists(
    st.tuples(
        st.integers(0, 120_000),
        st.sampled_from([{"max_requests": 1}, {"max_extend_tokens": 16}, {"max_requests": None}, {"enforce": False}]),
    ),
    max_size=3,
)


def exported(run, path: Path) -> Path:
    """A run's trace in a file."""
    recorded = read_recorded(run.path / "glassgate.db")
    path.write_bytes(b"".join(trace_lines(recorded, read_span(recorded), recorded.step_time)))
    return path


def replayed(run, since=None):
    """What happened in a run, and what happens when its record is replayed."""
    recorded = read_recorded(run.path / "glassgate.db")
    span = read_span(recorded, since)
    return read_happened(recorded, span), play(recorded, span, steps_of(recorded)), span


@settings(max_examples=60, deadline=None)
@given(workloads, shapes, ways, turns)
def test_small_workloads(rows, shape, way, changes):
    """Whatever the workload, role, lanes, pages and knobs turned on the way: every pass, decision and step is the same.

    Of the record alone, and of the trace alone.
    """
    role, setting, values = way
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)
    turned = [KnobsAt(at_ns, 0, values, "ops") for at_ns, values in sorted(changes, key=lambda change: change[0])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = record(
            folder, served(built(rows)), role=role, setting=setting, knobs=knobs, changes=turned,
            estimator=estimator(knobs) if setting.has_model else None, **shape,
        )  # fmt: skip
        try:
            happened, again, span = replayed(run)
        except NotFoundError:
            return  # nobody was ever admitted
        fidelity = fidelity_of(happened, again)
        assert fidelity.exact, fidelity
        assert fidelity.score == 1
        assert figures_of(happened, span) == figures_of(again, span)
        other = record_again(folder, exported(run, folder / "trace.jsonl"), name="two")
        assert decided(other) == decided(run)


SESSIONS = {"seed": 3, "sessions": 12, "sessions_per_second": 0.3, "max_context_tokens": 30_000}
STEPS = step_time_model("l4-llama-8b")


@pytest.mark.parametrize(
    "more",
    [
        {"device_tokens": 60_000, "host_tokens": 200_000},
        {"device_tokens": 60_000, "host_tokens": 200_000, "write_policy": "write_back", "role": "prefill"},
        {"device_tokens": 40_000, "host_tokens": 0, "new_token_ratio": 0.0},
        {"device_tokens": 80_000, "host_tokens": 300_000, "role": "prefill",
         "setting": Setting(context_parallel=True, lanes=4)},
    ],
)  # fmt: skip
def test_sessions(tmp_path, more):
    """Agent sessions with host hits, retractions, chunks and lanes: from the record and from the trace alike."""
    knobs = Knobs.parse(
        {"page_size": 64, "chunked_prefill_size": 4096, "max_extend_tokens": 8192, "max_buffer_bytes": "600MiB",
         "shared_kv_batching": True}
    )  # fmt: skip
    run = record(tmp_path, agent_sessions(**SESSIONS), knobs=knobs, step_time=STEPS, estimator=estimator(knobs), **more)
    happened, again, span = replayed(run)
    assert len(happened.passes) > 50
    assert fidelity_of(happened, again).exact
    assert figures_of(happened, span) == figures_of(again, span)
    assert decided(record_again(tmp_path, exported(run, tmp_path / "trace.jsonl"), name="two")) == decided(run)


def test_a_part_of_a_run_is_warmed_by_what_was_before(tmp_path):
    """The end of a run is reproduced exactly, since the record before it is replayed first."""
    knobs = Knobs(page_size=64, chunked_prefill_size=4096)
    run = record(
        tmp_path, agent_sessions(**SESSIONS), knobs=knobs, step_time=STEPS, device_tokens=60_000, host_tokens=200_000
    )
    happened, again, span = replayed(run, "11m")
    assert span.whole
    assert 0 < len(happened.passes) < len(replayed(run)[0].passes)
    assert fidelity_of(happened, again).exact
    assert figures_of(happened, span) == figures_of(again, span)


def test_knobs_turned_by_an_operator_are_turned_at_the_same_pass(tmp_path, monkeypatch):
    """Changes that were asked for while a paced run went on come at their passes, whenever they were taken."""
    monkeypatch.setattr("controller.engines.replay.engine.PROGRESS_NS", 0)
    knobs = Knobs(page_size=64, chunked_prefill_size=4096)
    asked = [
        (5, {"max_requests": 1}),
        (40, {"max_extend_tokens": 2048, "max_requests": None}),
        (41, {"enforce": False}),
    ]

    def turn(engine, _standing):
        while asked and engine.summary.passes >= asked[0][0]:
            _, values = asked.pop(0)
            engine._changes.append(KnobsAt(0, 0, values, "ops"))

    run = record(
        tmp_path, agent_sessions(**SESSIONS), knobs=knobs, step_time=STEPS, device_tokens=60_000, progress=turn,
        pace=Pace(1e6),
    )  # fmt: skip
    happened, again, span = replayed(run)
    assert len(read_recorded(run.path / "glassgate.db").revisions) == 4
    assert fidelity_of(happened, again).exact
    assert figures_of(happened, span) == figures_of(again, span)
    assert decided(record_again(tmp_path, exported(run, tmp_path / "trace.jsonl"), name="two")) == decided(run)
