"""Searching knobs over the replay of a span."""

import dataclasses
import sys
from concurrent.futures import Future

import pytest

from controller.knobs import Knobs
from estimator.errors import GlassgateError, NotFoundError, UsageError
from tests.controller.replay.small_engine import ask
from tests.ui.whatif.records import STEPS, record, served
from ui.whatif.choice import choose
from ui.whatif.goal import keeps, read_aim, read_bound
from ui.whatif.played import knobs_at
from ui.whatif.recorded import read_recorded
from ui.whatif.search import TOGETHER, Question, Search, study_name
from ui.whatif.space import space_of
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.workers import Tried, Workers, attempt

KNOBS = Knobs(page_size=4, chunked_prefill_size=8192, max_extend_tokens=20, max_requests=64)


class Here:
    """Workers that try each point in this process, at once."""

    def __init__(self, scene):
        self.scene = scene
        self.tried = 0

    def submit(self, values):
        """The answer, ready."""
        self.tried += 1
        future: Future[Tried] = Future()
        future.set_result(attempt(*self.scene, values))
        return future


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A run in which the extend limit is so small that a step serves one request, and each step costs a lot."""
    requests = [ask(number, 20, 2, at=number * 8_000) for number in range(150)]
    run = record(
        tmp_path_factory.mktemp("runs"), served(requests), knobs=KNOBS, device_tokens=4_000,
        step_time=dataclasses.replace(STEPS, prefill_overhead_ns=30_000),
    )  # fmt: skip
    recorded = read_recorded(run.path / "glassgate.db")
    return recorded, read_span(recorded), steps_of(recorded)


def question_of(scene, *, aims=(("tokens_per_second", True),), bounds=("ttft_p99<1s",), knobs=(), fixed=None):
    """What is searched."""
    recorded, span, _ = scene
    return Question(
        aims=tuple(read_aim(name, maximise=up) for name, up in aims),
        bounds=tuple(read_bound(text) for text in bounds),
        space=space_of(recorded, knobs_at(recorded, span.since_ns), knobs),
        fixed=fixed or {},
    )  # fmt: skip


def search_of(scene, folder, **more):
    """A search in a file, and its question."""
    where = {key: more.pop(key) for key in ("seed", "name", "storage") if key in more}
    question = question_of(scene, **more)
    storage = where.pop("storage", str(folder / "study"))
    return Search(question, question.asked(*scene), storage=storage, **where), question


def points_of(search):
    """Every point's values, in order."""
    return [point.values for point in search._points()]


def test_a_planted_bottleneck_is_found_and_nothing_else_is_changed(scene, tmp_path):
    """The extend limit is what is raised: the rate rises, the bound is kept, and other changes are taken back."""
    search, question = search_of(scene, tmp_path)
    search.run(Here(scene), KNOBS, 32)
    found = search.found(KNOBS)
    assert found.tried == 32
    assert found.best.figures.tokens_per_second > 1.3 * found.current.figures.tokens_per_second
    assert keeps(question.bounds, found.best.figures)
    choice = choose(found.best, found.current.values, question, lambda values: attempt(*scene, values))
    assert list(choice.changed) == ["max_extend_tokens"]
    (change,) = choice.changes
    assert change.before == 20
    assert change.without.tokens_per_second == pytest.approx(found.current.figures.tokens_per_second)
    assert attempt(*scene, choice.changed).figures == choice.figures
    assert found.current.figures.stops["extend_tokens"] > 0


def test_a_choice_tries_nothing_twice(scene, tmp_path):
    """What was tried to take a change back is not tried again to tell what that change is worth."""
    search, question = search_of(scene, tmp_path)
    search.run(Here(scene), KNOBS, 8)
    found, asked = search.found(KNOBS), []

    def tried(values):
        asked.append(tuple(sorted(values.items(), key=str)))
        return attempt(*scene, values)

    better = found.best._replace(values=found.current.values | {"max_extend_tokens": 200, "max_requests": 32})
    better = better._replace(figures=attempt(*scene, better.values).figures)
    assert list(choose(better, found.current.values, question, tried).changed) == ["max_extend_tokens"]
    assert len(asked) == len(set(asked)) == 2


def test_no_point_on_the_frontier_is_worse_than_another(scene, tmp_path):
    """Of any two points on it each is better in some goal or bounded figure, and all keep the bounds."""
    search, question = search_of(scene, tmp_path, bounds=("ttft_p99<1s", "batch_size_max<=12"))
    search.run(Here(scene), KNOBS, 32)
    found = search.found(KNOBS)
    assert found.frontier
    for one in found.frontier:
        assert keeps(question.bounds, one.figures)
        assert not any(other.better(one, question) for other in found.frontier)


def test_the_same_seed_gives_the_same_points_on_any_number_of_processes(scene, tmp_path):
    """One process here, or two of their own: the points are the same, and another seed gives others."""
    here, _ = search_of(scene, tmp_path)
    here.run(Here(scene), KNOBS, 2 * TOGETHER)
    (tmp_path / "b").mkdir()
    there, _ = search_of(scene, tmp_path / "b")
    with Workers(*scene, 2) as workers:
        there.run(workers, KNOBS, 2 * TOGETHER)
    assert points_of(here) == points_of(there)
    assert [point.figures for point in here._points()] == [point.figures for point in there._points()]
    (tmp_path / "c").mkdir()
    other, _ = search_of(scene, tmp_path / "c", seed=1)
    other.run(Here(scene), KNOBS, 2 * TOGETHER)
    assert points_of(other)[0] == points_of(here)[0]  # the knobs as they are
    assert points_of(other) != points_of(here)


def test_a_search_that_was_interrupted_goes_on_where_it_was(scene, tmp_path):
    """What was tried is kept and not tried again; two who were interrupted at the same point go on alike."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        first, _ = search_of(scene, tmp_path / folder)
        first.run(Here(scene), KNOBS, 64, stopped=lambda first=first: first.done >= TOGETHER)
        before = first.done
        assert TOGETHER <= before < 2 * TOGETHER  # what was under way is told too
        again, _ = search_of(scene, tmp_path / folder)
        assert again.done == before
        workers = Here(scene)
        again.run(workers, KNOBS, 2 * TOGETHER)
        assert workers.tried <= 2 * TOGETHER - before
        assert again.found(KNOBS).tried == 2 * TOGETHER
    assert points_of(search_of(scene, tmp_path / "a")[0]) == points_of(search_of(scene, tmp_path / "b")[0])


def test_a_search_that_failed_in_the_middle_can_be_taken_up(scene, tmp_path):
    """Points whose answer never came are given up, so that no later sitting waits for them."""

    class Broken(Here):
        def submit(self, values):
            future = super().submit(values)
            if self.tried == 3:
                future = Future()
                future.set_exception(KeyboardInterrupt())
            return future

    search, _ = search_of(scene, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        search.run(Broken(scene), KNOBS, TOGETHER)
    again, _ = search_of(scene, tmp_path)
    assert again.done == 2  # the rest was given up
    again.run(Here(scene), KNOBS, 2 * TOGETHER)
    found = again.found(KNOBS)
    assert (found.tried, found.failed) == (2 * TOGETHER, 0)


def test_what_no_process_has_begun_with_is_given_up_when_it_is_stopped(scene, tmp_path):
    """The answers that are on their way are kept; the next sitting tries as many as were wanted."""

    class Slow(Here):
        def submit(self, values):
            return super().submit(values) if self.tried < 3 else Future()

    search, _ = search_of(scene, tmp_path)
    search.run(Slow(scene), KNOBS, 32, stopped=lambda: search.done >= 2)
    assert search.done == 3
    assert not [trial for trial in search._trials() if not trial.state.is_finished()]
    search.run(Here(scene), KNOBS, TOGETHER)
    assert search.found(KNOBS).tried == TOGETHER


@pytest.mark.parametrize("points", [1, 2 * TOGETHER])
def test_the_knobs_as_they_are_are_tried_again_where_their_first_try_never_ended(scene, tmp_path, points):
    """A sitting killed in its first points leaves nothing to compare with; the next one tries the first point anew."""
    search, _ = search_of(scene, tmp_path)
    search._study.enqueue_trial({"max_requests": 0})
    for _ in range(2):
        search._ask()  # and the process is killed
    again, _ = search_of(scene, tmp_path)
    assert again.done == 0
    workers = Here(scene)
    again.run(workers, KNOBS, points)
    found = again.found(KNOBS)
    assert found.tried == points
    assert found.current.values == points_of(again)[0]
    again.run(workers, KNOBS, points)
    assert again.done == points


def test_a_point_is_replayed_once(scene, tmp_path):
    """In a space of four points the same one comes up again, and its answer is the first one's."""
    search, _ = search_of(scene, tmp_path, knobs=("max_requests=1:2",))
    workers = Here(scene)
    search.run(workers, KNOBS, 24)
    assert workers.tried <= 4
    assert search.done == 24


def test_another_question_is_another_study(scene, tmp_path):
    """Names come from the question; a study that was asked another one is not mixed with this one."""
    one, question = search_of(scene, tmp_path)
    other = question_of(scene, bounds=("ttft_p99<2s",))
    assert study_name(question.asked(*scene)) == one.name != study_name(other.asked(*scene))
    with pytest.raises(UsageError, match=r"was asked another question; give this one another name with --study"):
        search_of(scene, tmp_path, bounds=("ttft_p99<2s",), name=one.name)


def test_any_storage_of_optuna_keeps_a_study(scene, tmp_path):
    """A database URL works as a file does, and is found again."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    search, _ = search_of(scene, tmp_path, storage=url)
    search.run(Here(scene), KNOBS, 4)
    again, _ = search_of(scene, tmp_path, storage=url)
    assert (again.done, points_of(again)) == (4, points_of(search))


@pytest.mark.parametrize("storage", ["sqlite:////nowhere/study.db", "nosuchdb://x", "/nowhere/study"])
def test_a_storage_that_cannot_be_opened_is_one_line(scene, tmp_path, storage):
    """The error names it and what its library says."""
    with pytest.raises(UsageError) as error:
        search_of(scene, tmp_path, storage=storage)
    assert str(error.value).startswith(f"--storage {storage}: the study cannot be kept there: ")
    assert "\n" not in str(error.value)


def test_a_storage_that_goes_away_in_the_middle_is_one_line(scene, tmp_path):
    """What it was at is given up, and the error names the storage and what its library says."""
    where = tmp_path / "study.db"
    search, _ = search_of(scene, tmp_path, storage=f"sqlite:///{where}")

    class Gone(Here):
        def submit(self, values):
            where.unlink(missing_ok=True)
            return super().submit(values)

    with pytest.raises(UsageError, match=r"--storage sqlite:///.*: the study cannot be kept there: .*readonly"):
        search.run(Gone(scene), KNOBS, 4)


def test_a_worker_that_is_killed_is_one_line(scene, tmp_path):
    """A process that the kernel ends leaves a message, and a study that goes on."""
    search, _ = search_of(scene, tmp_path)

    class Killed(Workers):
        def submit(self, values):
            future = super().submit(values)
            for process in self._pool._processes.values():
                process.kill()
            return future

    with (
        pytest.raises(GlassgateError, match="ended from outside, perhaps for want of memory"),
        Killed(*scene, 1) as few,
    ):
        search.run(few, KNOBS, 4)
    again, _ = search_of(scene, tmp_path)
    again.run(Here(scene), KNOBS, 8)
    assert again.found(KNOBS).tried == 8


def test_several_goals_make_a_frontier(scene, tmp_path):
    """With two goals the frontier holds what trades one for the other; the first goal chooses."""
    search, question = search_of(
        scene, tmp_path, aims=(("tokens_per_second", True), ("batch_size_max", False)), bounds=()
    )
    search.run(Here(scene), KNOBS, 32)
    found = search.found(KNOBS)
    rates = [point.figures.tokens_per_second for point in found.frontier]
    assert rates == sorted(rates, reverse=True)
    assert len(found.frontier) > 1
    assert found.best.figures.tokens_per_second == pytest.approx(rates[0], rel=2e-3)
    assert question.aims[0].metric == "tokens_per_second"


def test_where_no_point_keeps_the_bounds_the_nearest_are_told(scene, tmp_path):
    """There is no best one then, and those least beyond the bounds come first."""
    search, question = search_of(scene, tmp_path, bounds=("ttft_p50<1us",))
    search.run(Here(scene), KNOBS, TOGETHER)
    found = search.found(KNOBS)
    assert (found.best, found.frontier) == (None, ())
    beyond = [question.bounds[0].excess(point.figures) for point in found.nearest]
    assert beyond == sorted(beyond)
    assert beyond[0] > 0


def test_knobs_that_cannot_be_served_fail_alone(scene, tmp_path):
    """A point that is no set of knobs is counted as failed, with the reason, and the search goes on."""
    search, _ = search_of(scene, tmp_path, knobs=("chunked_prefill_size=1:4", "max_extend_tokens=20:40"))
    search.run(Here(scene), KNOBS, TOGETHER)
    assert search.done == TOGETHER
    bad = attempt(*scene, {"chunked_prefill_size": 1})
    assert bad.figures is None
    assert "chunked_prefill_size 1 is smaller than page_size 4" in bad.why


def test_before_the_first_point_there_is_nothing_to_tell(scene, tmp_path):
    """A search stopped at once has no figures for the knobs as they are."""
    search, _ = search_of(scene, tmp_path)
    search.run(Here(scene), KNOBS, 8, stopped=lambda: True)
    with pytest.raises(NotFoundError, match="stopped before it tried them; run it again"):
        search.found(KNOBS)


def test_without_optuna_the_remedy_is_named(scene, tmp_path, monkeypatch):
    """Where Optuna is not installed the error names the extra."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"a search needs Optuna; install glassgate\[tune\]"):
        search_of(scene, tmp_path)
