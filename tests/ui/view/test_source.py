"""What a name stands for, the runs beside it, and what is said where there is nothing yet."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError, NotFoundError, RecordError, StorageError, UsageError
from store.collect import collect_run
from tests.ui.view.showing import S, StillClock
from tests.ui.view.story import Story
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View


@pytest.fixture
def base(tmp_path):
    """A folder for runs."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def two(base, recording):
    """The recording as two runs of that folder, the second of them begun later."""
    for name in ("first", "second"):
        shutil.copytree(recording, base / name)
        for made in (base / name).glob("glassgate.db*"):
            made.unlink()
        text = (base / name / "run.json").read_text().replace('"recording"', f'"{name}"', 1)
        (base / name / "run.json").write_text(text.replace('"started": "20', f'"started": "{2 + (name == "second")}0'))
        collect_run(base / name, base / name / "glassgate.db")
    return base


def shown(source, ask=None, **more):
    """One answer, after one that leaves the folder of runs alone."""
    view = View(source, StillClock())
    answer = view.answer(ask or Ask(), whole=True, **more)
    view.close()
    return answer


def test_no_name_is_the_run_begun_last(two):
    """Without a name the newest run of the folder is shown."""
    assert shown(Source.open(None, two)).head.run == "second"


def test_of_the_ranks_of_the_run_begun_last_the_first_is_shown(base):
    """Every rank begins at a moment of its own; without a name it is the first rank, which records whole passes."""
    ranks = [RunDirectory.create(base, engine="test", version="1", run_id="ranks", rank=rank) for rank in range(2)]
    assert ranks[0].info.started < ranks[1].info.started
    assert Source.open(None, base).place.rank == 0
    assert Source.open("ran", base).place.rank == 0
    assert Source.open("ranks-1", base).place.rank == 1
    for each in ranks:
        each.release()


@pytest.mark.parametrize("name", ["first", "fir"])
def test_a_run_is_named_by_id_or_its_beginning(two, name):
    """A run's id and the unique beginning of one stand for it."""
    assert shown(Source.open(name, two)).head.run == "first"


def test_a_run_and_a_database_are_named_by_path(two, tmp_path):
    """A run's folder, its database, and a database that lies apart can be named; the last knows no folder."""
    for path in (two / "first", two / "first" / "glassgate.db"):
        answer = shown(Source.open(str(path), two))
        assert (answer.head.run, answer.head.presence) == ("first", "ended")
    apart = tmp_path / "apart.db"
    shutil.copyfile(two / "first" / "glassgate.db", apart)
    answer = shown(Source.open(str(apart), tmp_path / "nothing"), Ask(panels=frozenset({"knobs"})))
    assert (answer.head.run, answer.head.presence) == ("first", "ended")
    assert "apart" in answer.knobs.why_not


@pytest.mark.parametrize(
    ("name", "error"),
    [("nobody", NotFoundError), ("apart.db", RecordError), ("/nowhere/at/all", RecordError), ("", NotFoundError)],
)
def test_what_is_not_there_is_an_error_that_says_so(two, name, error):
    """A name that stands for nothing raises an error of ours that has the name in it."""
    with pytest.raises(error) as raised:
        Source.open(name, two)
    assert str(name) in str(raised.value)


def test_a_beginning_of_several_and_an_empty_folder_are_errors(two, base, tmp_path):
    """A beginning that fits two runs, and a folder without runs, are told with a remedy."""
    shutil.copytree(two / "first", two / "first-too")
    with pytest.raises(UsageError, match="fits 2 runs"):
        Source.open("fir", base)
    with pytest.raises(NotFoundError, match="no run is recorded under"):
        Source.open(None, tmp_path / "empty")


def test_the_runs_of_other_databases_can_be_switched_to(two):
    """Every run of the folder is offered; asked as its choice says, the same view shows it, and goes back again."""
    view = View(Source.open("first", two), StillClock())
    start = Ask(at_ns=5 * S, open_pass=3)
    answer = view.answer(start, whole=True)
    assert [(choice.run, choice.key, choice.passes is None) for choice in answer.runs] == [
        ("first", 1, False),
        ("second", 0, True),
    ]
    there = view.answer(answer.runs[1].asked(start), whole=True)
    assert there.head.run == "second"
    assert there.ask.at_ns is None
    assert {choice.run for choice in there.runs} == {"first", "second"}
    back = next(choice for choice in there.runs if choice.run == "first")
    assert view.answer(back.asked(there.ask), whole=True).head.run == "first"
    view.close()


def test_ranks_in_one_database_are_choices_of_their_own(tmp_path):
    """Two ranks of a run in one database are offered side by side, and each is shown as itself."""
    for rank in (0, 1):
        story = Story(tmp_path / "ranks.db", rank=rank)
        story.arrive(f"on-{rank}", 1)
        story.passed(2, enter=[f"on-{rank}"])
        story.into()
    view = View(Source.open(str(tmp_path / "ranks.db"), tmp_path), StillClock())
    answer = view.answer(Ask())
    assert [(choice.run, choice.rank) for choice in answer.runs] == [("story", 0), ("story", 1)]
    for choice in answer.runs:
        shown_rank = view.answer(choice.asked(Ask()))
        assert shown_rank.head.rank == choice.rank
        assert shown_rank.passes[0].members[0].request == f"on-{choice.rank}"
    view.close()


def test_a_run_without_a_database_says_what_is_missing(base):
    """A live run of which nothing was collected gives an empty state with a remedy, and is shown once it is there."""
    run = RunDirectory.create(base, engine="test", version="1", run_id="fresh")
    view = View(Source.open("fresh", base), StillClock())
    empty = view.answer(Ask())
    assert "glassgate collect fresh" in empty.missing
    assert (empty.head.run, empty.head.presence, empty.head.queue) == ("fresh", "live", None)
    (run.path / "glassgate.db").touch()
    assert view.answer(Ask()).missing == empty.missing
    (run.path / "glassgate.db").unlink()
    story = Story(run.path / "glassgate.db", "fresh")
    story.arrive("a", 1)
    story.into()
    assert view.answer(Ask()).missing == ""
    assert view.answer(Ask()).head.queue is None
    view.close()
    run.release()


def test_a_record_without_a_pass_has_no_older_ones_to_list(tmp_path):
    """Before its first pass, and on a rank that keeps digests alone, nobody has counted who waits."""
    story = Story(tmp_path / "young.db", "young")
    story.into()
    answer = shown(Source.open(str(story.path), tmp_path), Ask(panels=frozenset({"waiting"})))
    assert (answer.waiting.total, answer.waiting.unnamed) == (0, 0)


def test_a_database_without_the_run_says_so(base):
    """A run whose database holds other runs alone is missing there."""
    run = RunDirectory.create(base, engine="test", version="1", run_id="fresh")
    Story(run.path / "glassgate.db", "other").into()
    answer = shown(Source.open("fresh", base))
    assert "nothing of run fresh" in answer.missing
    run.release()


def test_an_empty_database_is_an_error(tmp_path):
    """A database without any run is told as that."""
    story = Story(tmp_path / "empty.db")
    story.into()
    with closing(sqlite3.connect(story.path)) as database, database:
        database.execute("DELETE FROM runs")
    with pytest.raises(NotFoundError, match="holds no run"):
        shown(Source.open(str(story.path), tmp_path))


def test_an_unreadable_folder_of_runs_only_costs_the_choices(two, monkeypatch):
    """Where the runs cannot be listed, the run that was named is shown all the same."""
    source = Source.open("first", two)

    def refuse(_base):
        raise StorageError("cannot be listed")

    monkeypatch.setattr("ui.view.source.list_runs", refuse)
    answer = shown(source)
    assert answer.head.run == "first"
    assert [choice.run for choice in answer.runs] == ["first"]
    assert issubclass(StorageError, GlassgateError)
