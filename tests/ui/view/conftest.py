"""Views of the committed recording, whole and cut short, with a clock that stands still."""

import sqlite3

import pytest

from controller.journal import JournalReader
from store.ingest import Ingest
from tests.ui.view.showing import ALL, S, StillClock
from tests.ui.view.story import Story
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View


@pytest.fixture
def clock():
    """A clock that stands still."""
    return StillClock()


@pytest.fixture(scope="session")
def frames(recording):
    """The frames of the recording's journal."""
    with JournalReader(recording / "journal") as reader:
        return list(reader)


@pytest.fixture(scope="session")
def sql(recording):
    """Ask the recording's database in SQL; the rows."""
    connection = sqlite3.connect(recording / "glassgate.db")
    yield lambda text, *values: connection.execute(text, values).fetchall()
    connection.close()


@pytest.fixture
def open_view(recording, clock):
    """Open a view of what a name stands for, the recording by default."""
    opened = []

    def view(name=None):
        source = Source.open(str(recording if name is None else name), recording.parent)
        opened.append(View(source, clock))
        return opened[-1]

    yield view
    for each in opened:
        each.close()


@pytest.fixture
def show(open_view):
    """A whole answer from the recording at a number of seconds, None for its end, with every part."""
    view = open_view()

    def answer(seconds=None, *, panels=ALL, **more):
        at_ns = None if seconds is None else round(seconds * S)
        return view.answer(Ask(panels=panels, at_ns=at_ns, **more), whole=True)

    return answer


@pytest.fixture
def growing(tmp_path, frames):
    """A database that holds the first frames of the recording: call it to let it hold so many."""
    path = tmp_path / "growing.db"
    taken = 0

    def grow(count):
        nonlocal taken
        with Ingest(path, "recording") as ingest:
            ingest.feed(frames[taken:count])
        taken = count
        return path

    grow(1)
    return grow


@pytest.fixture
def story(tmp_path):
    """A run told record by record, into a database of its own."""
    return Story(tmp_path / "story.db")
