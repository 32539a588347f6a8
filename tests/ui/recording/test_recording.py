"""The committed recording: it holds what the screen's tests need, and the product makes it again."""

import dataclasses
import importlib.util
import sqlite3
from pathlib import Path

import msgspec

from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.records import Pass, RunStart, decode
from controller.run_directory import RunDirectory

HERE = Path(__file__).parent


def script():
    """The script beside the recording."""
    spec = importlib.util.spec_from_file_location("make_recording", HERE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(run):
    """Every record of a run, without the real time that deciding took and what the engine says of itself."""
    with JournalReader(run / "journal") as reader:
        found = [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]
    return [plain(each) for each in found]


def plain(record):
    """A record without what may differ between two makings of the same run."""
    if isinstance(record, Pass):
        return msgspec.structs.replace(record, decide_ns=0)
    return msgspec.structs.replace(record, setting={}) if isinstance(record, RunStart) else record


def test_the_product_makes_the_same_recording_again(tmp_path):
    """Making it anew gives the same records and the same run.json but for when and by which process it was made."""
    made = script().make(tmp_path)
    assert records(made.path) == records(HERE / "run")
    fixed = {"started": "", "pid": 0, "ended": ""}
    assert dataclasses.replace(made.info, **fixed) == dataclasses.replace(RunDirectory(HERE / "run").info, **fixed)


def test_it_holds_what_the_screen_shows(recording):
    """Several gates close passes, and every kind of event the screen has a place for is in it."""
    with sqlite3.connect(recording / "glassgate.db") as database:
        one = {
            name: database.execute(sql).fetchone()[0]
            for name, sql in {
                "gates": "SELECT count(DISTINCT closed_gate) FROM passes",
                "refused": "SELECT count(*) FROM decisions WHERE outcome = 4",
                "cut": "SELECT count(*) FROM decisions WHERE outcome = 1",
                "loaded": "SELECT count(*) FROM decisions WHERE host_hit = 1",
                "skips": "SELECT count(DISTINCT host_hit) FROM decisions WHERE host_hit BETWEEN 2 AND 7",
                "failed loads": "SELECT count(checks_before_load_failure) FROM decisions",
                "accepted": "SELECT count(*) FROM knob_changes WHERE accepted",
                "not accepted": "SELECT count(*) FROM knob_changes WHERE NOT accepted",
                "repeats": "SELECT count(*) FROM repeats",
                "alarms": "SELECT count(*) FROM alarms",
                "retractions": "SELECT count(*) FROM retractions",
                "smoke": "SELECT count(*) FROM smoke",
            }.items()
        }
    database.close()
    assert one.pop("gates") >= 5
    assert all(one.values()), one


def test_it_is_small():
    """It takes less than 150 kB in the repository."""
    assert sum(path.stat().st_size for path in (HERE / "run").rglob("*") if path.is_file()) < 150_000
