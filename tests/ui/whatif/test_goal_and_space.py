"""What a search is to reach, and what it goes through."""

import dataclasses

import pytest

from controller.engines.replay import agent_sessions
from controller.knobs import Knobs
from estimator.errors import KnobError, UsageError
from tests.controller.replay.small_engine import ask
from tests.ui.whatif.records import estimator, record, served
from ui.whatif.figures import figures_of
from ui.whatif.goal import METRICS, keeps, read_aim, read_bound
from ui.whatif.happened import read_happened
from ui.whatif.recorded import read_recorded
from ui.whatif.space import places_of, space_of, values_at
from ui.whatif.span import read_span


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run with a model and a host cache."""
    knobs = Knobs(page_size=64)
    run = record(
        tmp_path_factory.mktemp("runs"), agent_sessions(seed=1, sessions=2), knobs=knobs, device_tokens=100_000,
        host_tokens=100_000, estimator=estimator(knobs),
    )  # fmt: skip
    return read_recorded(run.path / "glassgate.db")


@pytest.fixture(scope="module")
def figures(recorded):
    """What the run added up to."""
    span = read_span(recorded)
    return figures_of(read_happened(recorded, span), span)


@pytest.mark.parametrize(
    ("text", "limit", "upper"),
    [
        ("ttft_p99<5s", 5.0, True), ("ttft_p99 <= 200ms", 0.2, True), ("queue_mean<1.5m", 90.0, True),
        ("ttft_p50<3", 3.0, True), ("peak_buffer<4GiB", float(4 << 30), True), ("buffer_mean<1000", 1000.0, True),
        ("tokens_per_second>=10000", 10_000.0, False), ("refused<=0", 0.0, True), ("batch_size_mean>1.5", 1.5, False),
    ],
)  # fmt: skip
def test_bounds_are_read(text, limit, upper):
    """Figure, direction, and the limit in the figure's unit."""
    bound = read_bound(text)
    assert (bound.limit, bound.upper) == (pytest.approx(limit), upper)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttft_p99", "is no bound; write for instance"),
        ("ttft_p99<", "is no bound"),
        ("wishes<3", "'wishes' is no figure; the figures are requests, answered"),
        ("ttft_p99<5GiB", "'5GiB' is no time for ttft_p99"),
        ("refused<2s", "'2s' is no number for refused"),
        ("peak_buffer<off", "'off' is no size for peak_buffer"),
        ("buffer_mean<1e3", "'1e3' is no size for buffer_mean"),
    ],
)
def test_what_is_no_bound_is_refused(text, told):
    """One line that says what is wrong and how to write one."""
    with pytest.raises(UsageError) as error:
        read_bound(text)
    assert told in str(error.value)


def test_excess_is_above_nothing_only_beyond_the_bound(figures):
    """A figure within its bound keeps it, one beyond does not, and by how much is told as a share."""
    some = dataclasses.replace(figures, ttft_p99=10.0, refused=2, tokens_per_second=50.0, peak_buffer=None)
    assert read_bound("ttft_p99<20s").excess(some) == -0.5
    assert read_bound("ttft_p99<5s").excess(some) == 1
    assert read_bound("refused<=0").excess(some) == 2
    assert read_bound("tokens_per_second>=100").excess(some) == 0.5
    assert read_bound("peak_buffer<1GiB").excess(some) <= 0
    assert keeps([read_bound("ttft_p99<20s"), read_bound("refused<3")], some)
    assert not keeps([read_bound("ttft_p99<20s"), read_bound("refused<1")], some)
    never = dataclasses.replace(some, ttft_p99=None)
    assert not keeps([read_bound("ttft_p99<20s")], never)
    assert read_aim("ttft_p99", maximise=False).of(never) == float("inf")


def test_goals_name_figures(figures):
    """Every figure but the table of stops may be one; anything else is refused with the list."""
    for name in METRICS:
        read_aim(name, maximise=True).of(figures)
    with pytest.raises(UsageError, match="'stops' is no figure"):
        read_aim("stops", maximise=True)


def test_what_can_matter_is_searched(recorded, tmp_path):
    """Buffers with a model, chunks of a replay, a threshold with a host cache; an engine's own flags are left alone."""
    names = [each.knob for each in space_of(recorded, Knobs(page_size=64))]
    assert names == [
        "max_requests", "max_extend_tokens", "max_cached_tokens", "max_buffer_bytes", "chunked_prefill_size",
        "max_prefill_tokens", "load_back_threshold",
    ]  # fmt: skip
    bare = read_recorded(record(tmp_path, served([ask(0, 8)])).path / "glassgate.db")
    assert "max_buffer_bytes" not in [each.knob for each in space_of(bare, Knobs())]
    engine = dataclasses.replace(recorded, simulated=False)
    assert "chunked_prefill_size" not in [each.knob for each in space_of(engine, Knobs())]


def test_ladders_go_up_and_hold_the_current_value(recorded):
    """Values in order, in whole pages, unlimited last; what is in force now is one of them."""
    knobs = Knobs(page_size=64, max_extend_tokens=5_000, chunked_prefill_size=4096)
    for ladder in space_of(recorded, knobs):
        values = [each for each in ladder.values if each is not None]
        assert values == sorted(set(values))
        assert None not in ladder.values[:-1]
        assert getattr(knobs, ladder.knob) in ladder.values
        if ladder.knob in ("max_extend_tokens", "chunked_prefill_size"):
            assert all(each % 64 == 0 or each == 5_000 for each in values)
    space = space_of(recorded, knobs)
    assert values_at(space, places_of(space, knobs)) == {each.knob: getattr(knobs, each.knob) for each in space}


def test_a_range_bounds_a_ladder(recorded):
    """Both ends are on it, nothing beyond but the current value, and sizes are written as anywhere."""
    (ladder,) = space_of(recorded, Knobs(page_size=64, max_extend_tokens=64), ["max_extend_tokens=4096:16384"])
    assert ladder.values == (64, 4096, 6144, 8192, 12288, 16384)
    (ladder,) = space_of(recorded, Knobs(), ["max_buffer_bytes=1GiB:2GiB"])
    assert ladder.values == (1 << 30, 3 << 29, 1 << 31, None)
    (ladder,) = space_of(recorded, Knobs(), ["shared_kv_batching"])
    assert ladder.values == (False, True)


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        (["wishes"], UsageError, "--knob 'wishes' cannot be searched"),
        (["page_size"], UsageError, "cannot be searched"),
        (["max_requests=5"], UsageError, "is no range; write for instance max_requests=4096:131072"),
        (["max_requests=5:1"], UsageError, "goes down"),
        (["max_requests=0:5"], KnobError, "0 is below 1"),
        (["max_requests=a:5"], UsageError, "is no range"),
        (["enforce=0:1"], UsageError, "is on or off"),
        (["max_requests", "max_requests=1:4"], UsageError, "names a knob twice"),
    ],
)
def test_what_cannot_be_searched_is_refused(recorded, asked, error, told):
    """One line that names the knob and what is wrong."""
    with pytest.raises(error) as found:
        space_of(recorded, Knobs(), asked)
    assert told in str(found.value)
