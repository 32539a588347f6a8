"""The stretch of a run that is looked at, and what keeps it from being replayed."""

import sqlite3

import pytest

from controller.engines.replay import agent_sessions
from controller.knobs import Knobs
from estimator.errors import NotFoundError, RecordError, UsageError
from store.pruning import prune
from tests.controller.replay.small_engine import ask
from tests.ui.whatif.records import record, served
from ui.whatif.fidelity import fidelity_of
from ui.whatif.happened import read_happened
from ui.whatif.played import play
from ui.whatif.recorded import read_recorded
from ui.whatif.span import moment, read_span
from ui.whatif.steps import steps_of

S = 1_000_000_000
SESSIONS = {"seed": 3, "sessions": 12, "sessions_per_second": 0.3, "max_context_tokens": 30_000}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of some minutes that began at 2001-09-09T01:46:40Z."""
    return record(
        tmp_path_factory.mktemp("runs"), agent_sessions(**SESSIONS), knobs=Knobs(page_size=64, max_requests=2),
        device_tokens=60_000, host_tokens=200_000,
    )  # fmt: skip


@pytest.fixture
def recorded(run):
    """The run as its record has it."""
    return read_recorded(run.path / "glassgate.db")


@pytest.fixture
def copied(run, tmp_path):
    """A database that may be changed."""
    path = tmp_path / "copy.db"
    with sqlite3.connect(run.path / "glassgate.db") as source, sqlite3.connect(path) as target:
        source.backup(target)
    source.close()
    target.close()
    return path


def changed(path, sql):
    """The database after a statement."""
    with sqlite3.connect(path) as connection:
        connection.execute(sql)
    connection.close()
    return path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+90s", 90 * S), ("+1m30s", 90 * S), ("+2m", 120 * S), ("+0.05h", 180 * S), ("+500ms", S // 2),
        ("01:47:40", 60 * S), ("01:48", 80 * S), ("2001-09-09T01:47:40", 60 * S), ("2001-09-09 03:47:40+02:00", 60 * S),
        (5, 5),
    ],
)  # fmt: skip
def test_moments_are_read(recorded, text, found):
    """Counted from the beginning, or UTC times of day and dates; a number is one already."""
    assert moment(recorded, text) == found


def test_a_moment_without_a_sign_counts_from_the_end(recorded):
    """`2m` is two minutes before the end of the record, and the beginning where there is no more."""
    assert moment(recorded, "2m") == recorded.last_ns - 120 * S
    assert moment(recorded, "90") == recorded.last_ns - 90 * S
    assert moment(recorded, "100h") == recorded.start_ns


@pytest.mark.parametrize("text", ["", "noon", "10x", "-3m", "25:00", "1m2", "2001-13-01"])
def test_what_is_no_moment_is_refused(recorded, text):
    """One line that says how to write one."""
    if text == "1m2":
        assert moment(recorded, text) == recorded.last_ns - 62 * S
        return
    with pytest.raises(UsageError, match="is no moment of a run; write 10m"):
        moment(recorded, text)


def test_a_stretch_that_ends_before_it_begins_is_refused(recorded):
    """The error says which comes first."""
    with pytest.raises(UsageError, match="the span would begin 1 min 0 s after its end"):
        read_span(recorded, "+3m", "+2m")


def test_a_stretch_before_the_run_is_refused(recorded):
    """Moments before the run are its beginning, and between two of them there is nothing to replay."""
    with pytest.raises(UsageError, match="and the span would end where it began; give a later --until"):
        read_span(recorded, "99h", "98h")


def test_a_stretch_without_a_batch_is_refused(recorded):
    """The error says how long the run lasted."""
    with pytest.raises(NotFoundError, match="no batch was formed in that span; the run lasted"):
        read_span(recorded, recorded.last_ns - 1)


def test_only_so_much_is_replayed_to_warm_the_cache(recorded):
    """With a bound the replay begins later, with what had not ended by then, and says what is not known."""
    whole, bounded = read_span(recorded, "2m"), read_span(recorded, "2m", warm_requests=5)
    assert whole.words == "replayed from the run's start"
    assert whole.begin_ns == 0 < bounded.begin_ns < bounded.since_ns
    assert "what the cache held then is not known" in bounded.words
    assert len(bounded.requests) < len(whole.requests)
    found = fidelity_of(read_happened(recorded, bounded), play(recorded, bounded, steps_of(recorded)))
    assert found.compared > 0
    begun = [each for each in bounded.requests if each.arrival_ns < bounded.begin_ns]
    assert all(each.end_ns is None or each.end_ns >= bounded.begin_ns for each in begun)


def test_what_was_pruned_cannot_be_replayed(copied):
    """A span that begins in what was pruned is refused with what is left; a later one says what is not known."""
    dropped = prune(copied, max_bytes=copied.stat().st_size // 2).dropped
    assert dropped
    recorded = read_recorded(copied)
    with pytest.raises(
        NotFoundError, match=r"the beginning of that span was pruned; its last .* are left, give a later"
    ):
        read_span(recorded)
    with sqlite3.connect(copied) as connection:
        (first,) = connection.execute("SELECT min(start_ns) FROM passes").fetchone()
    connection.close()
    span = read_span(recorded, first)
    assert not span.whole
    assert play(recorded, span, steps_of(recorded)).passes


def test_a_run_that_was_pruned_whole_is_told_apart(copied):
    """Nothing left is another error than a part left."""
    changed(copied, "DELETE FROM passes")
    changed(
        copied,
        """INSERT INTO pruned (run, whole, first_pass, last_pass, first_ns, last_ns, passes, decisions, requests,
        remembered, at_unix_ns, why) VALUES (1, 1, 1, 9, 0, 1 << 60, 9, 9, 9, 0, 0, 'test')""",
    )
    with pytest.raises(NotFoundError, match="run one was pruned: nothing of it is left to replay"):
        read_span(read_recorded(copied))
    changed(copied, "DELETE FROM knobs")
    with pytest.raises(NotFoundError, match="run one was pruned: nothing of it is left to replay"):
        read_recorded(copied)


def test_a_run_without_hashes_cannot_be_replayed(copied):
    """Where prompts hit the cache and nothing says which, nothing can be said; where none did, it can."""
    changed(copied, "UPDATE requests SET known_tokens = NULL, like_request = NULL")
    recorded = read_recorded(copied)
    with pytest.raises(NotFoundError, match="prompt tokens hit the cache, but the record holds no prefix hashes"):
        read_span(recorded)
    changed(copied, "UPDATE requests SET device_hit_tokens = 0, host_loaded_tokens = 0")
    assert read_span(recorded).requests


def test_a_run_whose_start_is_lost_cannot_be_replayed(copied):
    """Its pool is not known then; nor is anything known without its knobs."""
    changed(copied, "UPDATE runs SET pool_tokens = NULL")
    with pytest.raises(RecordError, match="run one: the record of its start is missing"):
        read_recorded(copied)
    changed(copied, "UPDATE runs SET pool_tokens = 60000")
    changed(copied, "DELETE FROM knobs")
    with pytest.raises(RecordError, match="run one: the record of its knobs is missing"):
        read_recorded(copied)


def test_a_run_that_is_described_in_words_unknown_here_is_refused(copied):
    """Knobs or settings of another version are one line, not a traceback."""
    changed(copied, "UPDATE knobs SET knob = 'max_wishes' WHERE knob = 'max_requests'")
    with pytest.raises(RecordError, match="the record holds knobs that this Glassgate does not know"):
        read_recorded(copied)
    changed(copied, "UPDATE runs SET setting = '[1'")
    with pytest.raises(RecordError, match="cannot be read from the record"):
        read_recorded(copied)


def test_a_record_from_a_newer_version_is_refused(copied):
    """The error names both versions."""
    changed(copied, "PRAGMA user_version = 99")
    with pytest.raises(RecordError, match="schema version 99, this Glassgate reads up to"):
        read_recorded(copied)


def test_a_run_that_ends_with_requests_in_hand_is_replayed_on(tmp_path):
    """Requests whose end is not in the record run as far as they may; only what is in the record is compared."""
    run = record(tmp_path, served([ask(n, 30, 5, at=n * 1000) for n in range(20)]))
    path = run.path / "glassgate.db"
    changed(path, "UPDATE requests SET end_ns = NULL, ended = NULL, generated_tokens = NULL, first_token_ns = NULL "
                  "WHERE number >= 18")  # fmt: skip
    recorded = read_recorded(path)
    span = read_span(recorded)
    found = fidelity_of(read_happened(recorded, span), play(recorded, span, steps_of(recorded)))
    assert found.same_share == 1
    assert found.compared == 18


@pytest.mark.parametrize(
    "text", ["9" * 400, "9" * 5_000 + "h", "+9999999999999h", "0001-01-01T00:00", "9999-12-31T23:59"], ids=range(5)
)
def test_a_moment_beyond_the_record_is_at_its_edge(recorded, text):
    """Numbers without end and years before and after all runs are its start or just behind its end."""
    assert moment(recorded, text) in (recorded.start_ns, recorded.last_ns + 1)
