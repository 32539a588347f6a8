"""The journal's end as it was seen, and how long something has stood behind a place."""

from controller.journal import JournalWriter
from tests.ui.view.showing import S
from ui.view.lag import JournalEnd


def test_lag_counts_from_when_it_was_seen_to_grow(tmp_path):
    """What was there before the first look is of unknown age; what came after has stood there since it was seen."""
    with JournalWriter(tmp_path / "journal", run_id="x") as journal:
        journal.append(b"one")
        end = JournalEnd(tmp_path / "journal")
        end.look(1 * S)
        (segment,) = (tmp_path / "journal").glob("*.journal")
        size = segment.stat().st_size
        assert end.since_ns(1, size, 2 * S) == 0
        assert end.since_ns(1, size - 1, 2 * S) is None
        assert end.bytes_behind(1, size - 1) == 1
        journal.append(b"two")
        end.look(5 * S)
        journal.append(b"three")
        end.look(7 * S)
        assert end.since_ns(1, size, 10 * S) == 5 * S
        assert end.since_ns(1, segment.stat().st_size, 10 * S) == 0


def test_a_journal_that_is_not_there_is_not_behind(tmp_path):
    """Without a journal there is nothing behind any place."""
    end = JournalEnd(tmp_path / "nothing")
    end.look(1)
    assert (end.bytes_behind(1, 0), end.since_ns(1, 0, 2)) == (0, 0)
