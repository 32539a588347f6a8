"""The knobs of a run as they stand."""

from controller.journal import DATA, Frame, JournalReader, JournalWriter
from controller.knobs import KNOB_SPECS
from controller.records import KnobChange, KnobsInForce, RunStart, encode
from store.ingest import Ingest
from store.knob_state import knobs_of

MS = 1_000_000
WALL_NS = 1_700_000_000_000_000_000


def frame(records):
    """A frame of some records."""
    return Frame(0, DATA, encode(records), 1, 0)


def start(run="r"):
    """The first record of a run whose clock stood at 5 ms."""
    return RunStart(run, "replay", "1", 0, "", "", 5 * MS, WALL_NS, True, 1000, 0, 8, 900, {})


def in_force(at_ns, revision, most):
    """All knobs in force with one of them as given."""
    rows = [
        (spec.name, spec.unit, *((most, most) if spec.name == "max_requests" else (True, True)), "as set", "")
        for spec in reversed(KNOB_SPECS)
        if spec.name in ("max_requests", "enforce")
    ]
    return KnobsInForce(at_ns, revision, tuple(rows))


def test_the_last_revision_counts_and_who_made_it(database):
    """The knobs are those of the last revision, in their order, with the last accepted change of each."""
    records = [
        start(), in_force(5 * MS, 0, 4), in_force(7 * MS, 1, 8), in_force(9 * MS, 2, 9),
        KnobChange(7 * MS, "ann", 1, (("max_requests", 4, 8),), accepted=True),
        KnobChange(9 * MS, "bob", 2, (("max_requests", 8, 9),), accepted=True),
        KnobChange(11 * MS, "eve", 2, (("max_requests", 9, 1), ("enforce", True, False)), accepted=False, why="no"),
    ]  # fmt: skip
    with Ingest(database, "r") as ingest:
        ingest.feed([frame(records)])
    found = knobs_of(database, "r")
    assert found.revision == 2
    most, enforce = found.knobs
    assert (most.name, most.set_to, most.changed_wall_ns, most.changed_by) == (
        "max_requests", 9, WALL_NS + 4 * MS, "bob",
    )  # fmt: skip
    assert (enforce.name, enforce.set_to, enforce.effective, enforce.changed_by) == ("enforce", True, True, None)


def test_what_the_journal_holds_beyond_the_database_counts_too(database, tmp_path):
    """A change that is in the journal and not yet in the database is seen, a refused or damaged record is not."""
    with JournalWriter(tmp_path / "journal", run_id="r") as journal:
        journal.append(encode([start(), in_force(5 * MS, 0, 4)]))
        with Ingest(database, "r") as ingest, JournalReader(journal.folder) as reader:
            ingest.feed(reader.poll())
        journal.append(encode([KnobChange(7 * MS, "ann", 1, (("max_requests", 4, 8),), accepted=True)]))
        journal.append(encode([in_force(7 * MS, 1, 8)]))
        journal.append(encode([KnobChange(8 * MS, "bob", 1, (("max_requests", 8, 9),), accepted=False, why="no")]))
        journal.append(b"no record")
    assert knobs_of(database, "r").revision == 0
    found = knobs_of(database, "r", tmp_path / "journal")
    assert (found.revision, found.knobs[0].set_to, found.knobs[0].changed_by) == (1, 8, "ann")
    assert found.knobs[0].changed_wall_ns == WALL_NS + 2 * MS


def test_a_record_without_knobs_has_none(database, tmp_path):
    """Where the record does not hold the knobs there are none, and a journal that cannot be read adds nothing."""
    with Ingest(database, "r") as ingest:
        ingest.feed([frame([start()])])
    assert knobs_of(database, "r", tmp_path / "nowhere") == (None, ())
