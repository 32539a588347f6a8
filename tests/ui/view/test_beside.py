"""Two recorded runs beside each other: a run and its what-if, kept as a run of its own."""

import dataclasses
import queue

import msgspec
import pytest

from controller.engines.replay import agent_sessions
from controller.knobs import Knobs
from estimator.errors import NotFoundError
from tests.ui.whatif.records import STEPS, record, served
from ui.keeping import keep
from ui.view.alignment import parts
from ui.view.beside import Beside, BesideView, Opening
from ui.view.beside_reader import BesideReader, source_of
from ui.view.snapshot import RunChoice
from ui.view.source import Source
from ui.whatif.comparison import preview
from ui.whatif.recorded import read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of

SESSIONS = {"seed": 3, "sessions": 8, "sessions_per_second": 0.3, "max_context_tokens": 20_000}
CHANGES = {"max_requests": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder of runs."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(base):
    """A run in which requests wait for each other."""
    knobs = Knobs.parse({"page_size": 64, "chunked_prefill_size": 4096, "max_requests": 3})
    steps = dataclasses.replace(STEPS, token_fs=2 * 10**11)
    return record(
        base, agent_sessions(**SESSIONS), knobs=knobs, device_tokens=60_000, host_tokens=100_000, step_time=steps
    )


def kept(run, base, changes, since=None, warm_requests=50_000):
    """A what-if of the run as a run of its own, and the span it is of."""
    recorded = read_recorded(run.path / "glassgate.db")
    span = read_span(recorded, since, warm_requests=warm_requests)
    return keep(recorded, span, steps_of(recorded), changes, base), span


def beside(left, right):
    """The two, read whole, and what reads them."""
    view = BesideView(source(left), source(right))
    return view.read(), view


def source(run):
    """Where a run is read from."""
    return Source.open(str(run.path), run.path.parent)


def test_a_what_if_under_the_same_knobs_parts_nowhere(run, base):
    """Every batch stands beside the same one, with the same gate and the same verdicts."""
    again, _ = kept(run, base, {})
    found, view = beside(run, again)
    view.close()
    assert found.rows
    assert found.parting == found.knobs == ()
    assert all(row.left is not None and row.right is not None for row in found.rows)
    assert found.left.batches == found.right.batches == len(found.rows)
    assert (found.left.run, found.right.workload) == ("one", "what if one")


def test_they_part_where_the_comparison_says(run, base):
    """The first row that parts is the first place that the what-if tells; every row says truly what it parts in."""
    other, _ = kept(run, base, CHANGES)
    told = preview(run.path / "glassgate.db", None, CHANGES)
    seen = []
    view = BesideView(source(run), source(other))
    found = view.read(seen.append)
    view.close()
    assert found.parting[0] <= told.same_passes
    assert all(not row.parts for row in found.rows[: found.parting[0]])
    for place, row in enumerate(found.rows):
        assert row.parts == parts(row.left, row.right)
        assert (place in found.parting) is bool(row.parts)
    assert found.knobs == (("max_requests", 3, 1, "requests"),)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert found.shared == len(view_requests(run))


def view_requests(run):
    """Ids of a run's requests."""
    recorded = read_recorded(run.path / "glassgate.db")
    return [each.id for each in read_span(recorded).requests]


def test_a_clock_that_begins_later_is_put_forward(run, base):
    """A what-if that begins within the run is laid where it belongs, and nothing before it is compared."""
    recorded = read_recorded(run.path / "glassgate.db")
    middle = (recorded.start_ns + recorded.last_ns) // 2
    other, span = kept(run, base, {}, middle, warm_requests=2)
    assert span.begin_ns > recorded.start_ns
    found, view = beside(run, other)
    view.close()
    assert found.from_ns == span.begin_ns
    assert found.shared == len(span.requests)
    assert all(found.from_ns <= row.start_ns <= found.until_ns for row in found.rows)
    assert any(not row.parts for row in found.rows)


def test_runs_without_a_request_in_common_are_laid_from_their_starts(run, base):
    """Two runs of other workloads are aligned by the time since their starts, and it is said."""
    sessions = agent_sessions(**{**SESSIONS, "seed": 4})
    others = [msgspec.structs.replace(each, id=f"other-{number}") for number, each in enumerate(sessions.requests)]
    knobs = Knobs.parse({"page_size": 64, "chunked_prefill_size": 4096})
    workload = served(others, sessions.block_tokens)
    other = record(base, workload, name="two", knobs=knobs, device_tokens=60_000)
    found, view = beside(run, other)
    view.close()
    assert found.shared == 0
    assert found.from_ns == 0
    assert "alone" in {part for row in found.rows for part in row.parts}


def test_a_row_is_opened_with_the_ladders_of_both(run, base):
    """Both passes with every decision; a side without a batch has none."""
    other, _ = kept(run, base, CHANGES)
    found, view = beside(run, other)
    place = next(at for at in found.parting if found.rows[at].left and found.rows[at].right)
    opening = view.open(found, place)
    assert (opening.place, opening.left.row.number) == (place, found.rows[place].left.number)
    assert opening.right.row.number == found.rows[place].right.number
    assert opening.left.decisions[0].checks
    alone = next((at for at, row in enumerate(found.rows) if row.left is None), None)
    assert alone is not None
    assert view.open(found, alone).left is None
    assert not view.changed
    view.close()


def test_a_run_that_is_not_there_is_named(run, base):
    """A database without that run says so, and how it comes there."""
    place = source(run).place._replace(run="nobody")
    with pytest.raises(NotFoundError, match="nothing of run nobody"):
        BesideView(source(run), Source(place, base)).read()


def test_a_choice_of_the_screen_names_a_source(run):
    """A run that is listed is read from its folder, or else from its database."""
    values = {"key": 0, "run": "one", "rank": 0, "engine": None, "model": None, "started_wall_ns": None}
    values |= {"presence": "ended", "passes": None, "database": str(run.path / "glassgate.db")}
    for folder in (str(run.path), ""):
        place = source_of(RunChoice(**values, folder=folder)).place
        assert (place.run, place.rank, place.database) == ("one", 0, run.path / "glassgate.db")


def test_the_reader_tells_progress_rows_and_what_is_opened(run):
    """From its own thread: how far it is, both runs, and the row that was asked for last; closed, nothing more."""
    told = queue.Queue()
    reader = BesideReader(source(run), source(run))
    reader.start(told.put)
    found = told.get(timeout=60)
    while isinstance(found, Beside) and found.fraction < 1:
        found = told.get(timeout=60)
    assert found.parting == ()
    reader.open(0)
    opening = told.get(timeout=60)
    while isinstance(opening, Beside):
        opening = told.get(timeout=60)
    assert isinstance(opening, Opening)
    assert opening.left == opening.right
    reader.close()
    assert not reader._thread.is_alive()


def test_the_reader_tells_what_cannot_be_read(run, base):
    """An error is told as a problem, with the names that are known."""
    told = queue.Queue()
    reader = BesideReader(source(run), Source(source(run).place._replace(run="nobody"), base))
    reader.start(told.put)
    found = told.get(timeout=60)
    reader.close()
    assert "nothing of run nobody" in found.problem
    assert (found.left.run, found.right.run) == ("one", "nobody")
