"""What holds in the serving loop whatever the workload."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay.decode import RunningBatch
from controller.knobs import Knobs
from controller.limits import Setting
from controller.records import Abort, Finish, Pass, Retract, RunStart, StepEnd
from tests.controller.replay.small_engine import ask, engine, is_empty, replay

workloads = st.lists(
    st.tuples(
        st.integers(0, 40_000),
        st.integers(1, 120),
        st.integers(1, 40),
        st.lists(st.integers(0, 2), min_size=40, max_size=40),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)
shapes = st.fixed_dictionaries(
    {
        "device_tokens": st.sampled_from([None, 130, 200, 400]),
        "host_tokens": st.sampled_from([None, 0, 60, 300]),
        "write_policy": st.sampled_from(["write_through", "write_back"]),
        "new_token_ratio": st.sampled_from([0.0, 0.7, 1.0]),
    }
)
ways = st.sampled_from(
    [
        ("unified", Setting(has_model=False), {}),
        ("unified", Setting(slots=2, has_model=False), {"max_requests": 2}),
        ("unified", Setting(has_model=False), {"chunked_prefill_size": None}),
        ("prefill", Setting(slots=3, has_model=False), {}),
        ("prefill", Setting(lanes=3, context_parallel=True, has_model=False), {"shared_kv_batching": True}),
        ("prefill", Setting(lanes=2, context_parallel=True, has_model=False), {}),
    ]
)


def built(rows):
    """Requests in order of arrival."""
    requests = []
    for number, (at, prompt, output, blocks, known, eos) in enumerate(sorted(rows, key=lambda row: row[0])):
        covered = -(-(prompt + output if known else prompt) // 4)
        requests.append(ask(number, prompt, output, at=at, blocks=blocks[:covered], ignore_eos=eos))
    return requests


@settings(max_examples=120, deadline=None)
@given(workloads, shapes, ways)
def test_everything_that_arrives_leaves(rows, shape, way):
    """Whatever the workload, each request finishes with all its tokens or is refused for good, and the books close."""
    role, setting, values = way
    requests = built(rows)
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)
    made, summary, shelf = replay(requests, role=role, setting=setting, knobs=knobs, **shape)
    finishes = {finish.number: finish for finish in shelf.records(Finish)}
    aborted = {abort.number for abort in shelf.records(Abort)}
    assert finishes.keys() | aborted == set(range(len(requests)))
    assert not finishes.keys() & aborted
    for number, finish in finishes.items():
        assert finish.generated_tokens == (1 if role == "prefill" else requests[number].output_tokens)
        assert finish.at_ns > requests[number].arrival_ns
    assert is_empty(made)
    firsts = [number for step in shelf.records(StepEnd) for number in step.first_tokens]
    assert set(firsts) >= finishes.keys()
    assert summary.requests == len(requests) == summary.finished + summary.aborts
    for passed in shelf.records(Pass):
        looked_at = sum(flat[8] == 0 for flat in passed.decisions)
        assert looked_at + passed.not_reached == passed.queue
        assert min(passed.before) >= 0
    times = [step.end_ns for step in shelf.records(StepEnd)]
    assert times == sorted(times)


@settings(max_examples=20, deadline=None)
@given(workloads, shapes, ways)
def test_two_replays_are_alike(rows, shape, way):
    """The same inputs give the same records, but for the time deciding took and the wall time of the start."""
    role, setting, values = way
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)

    def lines():
        _, _, shelf = replay(built(rows), role=role, setting=setting, knobs=knobs, **shape)
        for record in shelf.records():
            if isinstance(record, Pass):
                record = msgspec.structs.replace(record, decide_ns=0)  # noqa: PLW2901 - the same but for that
            if isinstance(record, RunStart):
                record = msgspec.structs.replace(record, wall_ns=0)  # noqa: PLW2901 - the same but for that
            yield record

    assert list(lines()) == list(lines())


class OneStep(RunningBatch):
    """A running batch that lets the loop run one step at a time."""

    @property
    def steps_to_finish(self):
        """No further than the next step."""
        return min(1, super().steps_to_finish)


@settings(max_examples=40, deadline=None)
@given(workloads, shapes, ways.filter(lambda way: way[0] == "unified"))
def test_decode_at_once_is_decode_step_by_step(rows, shape, way):
    """Passes, finishes and retractions are those of a loop that decodes one step at a time."""
    role, setting, values = way
    knobs = Knobs.parse({"page_size": 4, "chunked_prefill_size": 32} | values)
    happened = []
    for batch in (RunningBatch, OneStep):
        made, shelf = engine(built(rows), role=role, setting=setting, knobs=knobs, **shape)
        made.loop.running = batch(4)
        made.run()
        records = shelf.records(Pass | Finish | Retract | Abort)
        happened.append([msgspec.structs.replace(r, decide_ns=0) if isinstance(r, Pass) else r for r in records])
    assert happened[0] == happened[1]
