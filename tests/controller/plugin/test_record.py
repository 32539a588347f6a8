"""EngineRecord: what a plug-in records is there after any end, and nothing it does fails or holds up its engine."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from array import array
from pathlib import Path

import msgspec
import pytest

from controller.engines.plugin import Faults, read_faults, read_status
from controller.engines.plugin.record import EngineRecord
from controller.knob_requests import KnobRequest
from controller.knob_turning import FORMAT, answer
from controller.records import Arrival, Digest, KnobChange, KnobsInForce, Pass, PrefixHashes, RunEnd, RunStart
from controller.run_directory import RunDirectory, ranks_of
from estimator.batch import BatchEstimator
from estimator.geometry import Geometry

ROOT = Path(__file__).resolve().parents[3]


def until(condition, seconds=10.0):
    """Wait for something that is to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def kinds(records):
    """The kinds of records, in order."""
    return [type(record) for record in records]


def test_a_record_begins_with_the_run_and_its_knobs_and_ends_in_good_order(engine, records_of):
    """Start, knobs in force, arrival, pass and end stand in the journal, and the run is marked as ended."""
    one = engine(group="dp0")
    one.record.arrived(1, "req-1", 100, 16)
    one.step(100)
    run = one.record.run
    assert run.state == "live"
    one.record.close("stopped")
    records = records_of(run)
    assert kinds(records) == [RunStart, KnobsInForce, Arrival, Pass, RunEnd]
    start, end = records[0], records[-1]
    assert (start.engine, start.version, start.rank, start.group, start.simulated) == (
        "sglang",
        "0.5.23",
        0,
        "dp0",
        False,
    )
    assert start.largest_prompt_tokens > 99_000
    assert (end.reason, end.passes, end.requests) == ("stopped", 1, 1)
    assert (run.state, run.info.end_reason) == ("ended", "stopped")
    assert len(one.faults) == 0


def test_the_other_ranks_record_digests_alone(engine, records_of):
    """Rank 1 shares the run's id and writes a digest a pass, no arrival, no knobs and no whole pass."""
    zero, one = (
        engine(run_id="shared1", ranks=2),
        engine(run_id="shared1", rank=1, ranks=2, leads=False),
    )
    for rank in (zero, one):
        rank.record.arrived(1, "req-1", 100, 16)
        rank.step(100)
        rank.record.close()
    assert kinds(records_of(one.record.run)) == [RunStart, Digest, RunEnd]
    assert [each.path.name for each in ranks_of(one.record.run)] == ["shared1", "shared1-1"]
    named = one.record.run.info.context["database"]
    assert Path(named) == zero.record.run.path.resolve() / "glassgate.db"
    assert "database" not in zero.record.run.info.context


def test_processes_of_one_engine_share_the_id_that_was_announced(engine, monkeypatch):
    """The id travels in GLASSGATE_RUN; a variable left over from an earlier run gives way to a new id."""
    monkeypatch.setenv("GLASSGATE_RUN", "an-id.7")
    first = engine()
    second = engine()
    assert first.record.run.path.name != second.record.run.path.name
    assert second.record.run.path.name == os.environ["GLASSGATE_RUN"]


def test_prefix_hashes_come_later_and_tell_shared_prefixes(engine, records_of):
    """Token ids are hashed by the clerk: who shares how much with whom is told, hashes for the rest, and no ids."""
    one = engine()
    tokens = list(range(50_000, 51_600))
    one.record.arrived(1, "a", 1600, 16, tokens=tokens)
    one.record.arrived(2, "b", 1100, 16, tokens=[*tokens[:600], *range(500)])
    one.record.arrived(3, "short", 511, 16, tokens=tokens[:511])
    one.record.knows(3, tokens[:511], range(7))
    one.record.close()
    found = [r for r in records_of(one.record.run) if isinstance(r, PrefixHashes)]
    told = [(r.number, len(r.hashes), r.like, r.shared_tokens, r.known_tokens) for r in found]
    assert told == [(1, 3, -1, 0, 1600), (2, 1, 1, 600, 1100), (3, 0, 1, 511, 511), (3, 1, -1, 0, 518)]
    journal = b"".join(path.read_bytes() for path in one.record.run.journal.iterdir() if path.is_file())
    assert array("I", tokens[:2]).tobytes() not in journal
    assert msgspec.msgpack.encode(tokens[:2])[1:] not in journal


def test_what_waits_for_no_pass_is_written_within_a_second(engine, records_of):
    """An arrival in an idle engine reaches the journal without any pass."""
    one = engine()
    one.record.arrived(1, "lonely", 100, 16)
    until(lambda: any(isinstance(r, Arrival) for r in records_of(one.record.run)))


def test_the_status_file_says_that_the_plug_in_is_in_force(engine):
    """Engine, version, replaced classes, process, passes and cautions can be read beside the run while it lives."""
    one = engine(cautions=("mind this",), ranks=2)
    run = one.record.run
    status = read_status(run.path)
    assert (status.engine, status.engine_version, status.pid, status.ranks) == ("sglang", "0.5.23", os.getpid(), 2)
    assert (status.replaced, status.cautions, status.in_force) == (
        ("schedule_policy.PrefillAdder",),
        ("mind this",),
        True,
    )
    for _ in range(3):
        one.step(100)
    until(lambda: read_status(run.path).passes == 3)
    one.record.stand_aside("a decision failed")
    one.record.close()
    status = read_status(run.path)
    assert (status.in_force, status.why_not) == (False, "a decision failed")


def test_a_home_that_cannot_be_written_costs_the_record_and_nothing_else(tmp_path, engine):
    """Where no run folder can be made every call does nothing but count passes, and the fault is there."""
    (tmp_path / "file").write_text("")
    one = engine(settings={"home": tmp_path / "file"})
    assert one.record.run is None
    one.record.arrived(1, "a", 100, 16, tokens=[1] * 600)
    one.step(100)
    one.record.turned(answer(KnobRequest("x", None, "unreadable"), one.record.knobs, one.record._setting))
    one.record.stand_aside("why")
    one.record.close()
    assert one.record.passes == 1
    assert one.faults.count("beginning the record") == 1


def test_what_cannot_be_recorded_is_counted_and_does_not_spoil_what_follows(engine, records_of):
    """A record that cannot be written is dropped and counted beside the run; the passes around it are recorded."""
    one = engine()
    for _ in range(3):
        one.record.note(object())
        one.step(100)
        one.step(100)
    assert one.record.passes == 6
    one.record.close()
    (fault,) = read_faults(one.record.run.path)
    assert (fault.what, fault.count) == ("recording", 3)
    assert "object" in fault.error
    assert [r.number for r in records_of(one.record.run) if isinstance(r, Pass)] == [1, 2, 3, 4, 5, 6]


def request(name="0001-req.json", **changes):
    """A request as it is taken from the run's folder."""
    content = {"format": FORMAT, "who": "ada", "changes": changes, "left_unix_ns": 1}
    return KnobRequest(name, content, None, os.getuid())


def test_a_turned_knob_is_in_force_and_recorded_before_the_next_pass(engine, records_of):
    """An accepted request is recorded with who asked and its name, then the knobs, then passes of the new revision."""
    one = engine()
    said = answer(request(max_requests=2), one.record.knobs, one.record._setting)
    one.record.turned(said)
    assert one.record.knobs.max_requests == 2
    assert len(one.step(100, 100, 100).batch) == 2
    one.record.close()
    records = records_of(one.record.run)[2:]
    assert kinds(records) == [KnobChange, KnobsInForce, Pass, RunEnd]
    assert (records[0].who, records[0].request, records[0].changes) == (
        "ada",
        "0001-req.json",
        (("max_requests", None, 2),),
    )
    assert records[1].revision == records[2].revision == 1


def test_a_refused_request_changes_nothing_and_is_recorded(engine, records_of):
    """A request that cannot be followed leaves the knobs as they are and says why in the record."""
    one = engine()
    one.record.turned(answer(request(page_size=128), one.record.knobs, one.record._setting))
    one.record.close()
    change = next(r for r in records_of(one.record.run) if isinstance(r, KnobChange))
    assert (change.accepted, change.revision, one.record.knobs.page_size) == (False, 0, 64)
    assert "page_size" in change.why


PROGRAM = """
    import os, signal, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from controller.engines.plugin import EngineIdentity, EngineRecord, Faults, PluginSettings
    from controller.limits import Setting
    from controller.records import Finish
    settings = PluginSettings(home=Path(sys.argv[2]), collector=False)
    identity = EngineIdentity(engine="sglang", version="1", model=None, setting=Setting(), replaced=(),
                              pool_tokens=1000)
    record = EngineRecord.begin(identity, settings, Faults("Engine"))
    print(record.run.path, flush=True)
"""


def run_program(tmp_path, rest):
    """An engine process that does as told after its record began; its exit code and its run."""
    program = textwrap.dedent(PROGRAM) + textwrap.dedent(rest)
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT), str(tmp_path / "home")], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, RunDirectory(done.stdout.split()[0])


def test_a_process_that_exits_ends_its_run(tmp_path, records_of):
    """Without a word from the plug-in the record ends in good order when the process does."""
    code, run = run_program(tmp_path, "record.arrived(1, 'a', 10, 1)")
    assert (code, run.state) == (0, "ended")
    assert kinds(records_of(run)) == [RunStart, KnobsInForce, Arrival, RunEnd]


def test_a_child_of_multiprocessing_ends_its_run(tmp_path):
    """A forked worker of multiprocessing leaves without atexit, and its record is ended all the same."""
    rest = """
        import multiprocessing
        def work():
            other = EngineRecord.begin(identity, settings, Faults("Child"), run_id="child001")
            other.arrived(1, "a", 10, 1)
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start(); process.join()
        assert process.exitcode == 0
    """
    code, run = run_program(tmp_path, rest)
    assert code == 0
    assert RunDirectory(run.path.parent / "child001").state == "ended"


def test_a_process_that_is_told_to_end_ends_its_run(tmp_path, records_of):
    """SIGTERM, where nobody else handles it, ends the record in good order, and the process as it would have ended."""
    rest = """
        record.arrived(1, "a", 10, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            record.note(Finish(1, 1, 1))
    """
    code, run = run_program(tmp_path, rest)
    assert (code, run.state, run.info.end_reason) == (-signal.SIGTERM, "ended", "SIGTERM")
    assert kinds(records_of(run))[-1] is RunEnd


def test_an_engines_own_handler_of_sigterm_is_left_alone(tmp_path):
    """Where the engine handles SIGTERM itself, its handler stays, and the record ends with the exit it leads to."""
    rest = """
        record.close()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        record = EngineRecord.begin(identity, settings, Faults("Engine"), run_id="own00001")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    """
    code, run = run_program(tmp_path, rest)
    assert code == 3
    assert RunDirectory(run.path.parent / "own00001").info.end_reason == "finished"


def test_a_forked_child_writes_nothing_into_its_parents_record(tmp_path, records_of):
    """In a forked process the record is closed: the parent's journal holds the parent's records alone."""
    rest = """
        pid = os.fork()
        if pid == 0:
            record.arrived(2, "child", 10, 1)
            record.note(Finish(2, 1, 1))
            record.close()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        record.arrived(1, "parent", 10, 1)
    """
    code, run = run_program(tmp_path, rest)
    assert (code, run.state) == (0, "ended")
    assert [r.id for r in records_of(run) if isinstance(r, Arrival)] == ["parent"]


def test_a_killed_process_leaves_what_it_appended(tmp_path, records_of):
    """After kill -9 the run looks gone, and everything up to the last append can be read."""
    rest = """
        record.arrived(1, "a", 10, 1)
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    code, run = run_program(tmp_path, rest)
    assert (code, run.state) == (-signal.SIGKILL, "engine_gone")
    assert [r.id for r in records_of(run) if isinstance(r, Arrival)] == ["a"]


def test_a_plug_in_needs_nothing_heavy():
    """What a plug-in stands on imports no torch, OpenTelemetry, SQLite, pydantic or command line."""
    program = (
        "import sys; import controller.engines.plugin, estimator.entry\n"
        "heavy = {'torch', 'opentelemetry', 'sqlite3', 'pydantic', 'click', 'rich', 'textual', 'store', 'ui'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("reason", ["finished", "stopped"])
def test_closing_twice_is_closing_once(engine, records_of, reason):
    """A record that is closed takes nothing more and is ended once."""
    one = engine()
    one.record.close(reason)
    one.record.close("again")
    one.record.arrived(1, "late", 10, 1)
    assert kinds(records_of(one.record.run)).count(RunEnd) == 1
    assert one.record.run.info.end_reason == reason


def test_a_record_can_be_begun_only_once_under_a_name(engine, tmp_path):
    """A rank whose folder is there already keeps nothing rather than another's record, and says so."""
    engine(run_id="same0001")
    second = engine(run_id="same0001")
    assert second.record.run is None
    assert second.faults.count("beginning the record") == 1
    assert isinstance(second.record, EngineRecord)
    assert isinstance(second.faults, Faults)
    assert (tmp_path / "home" / "runs" / "same0001").is_dir()


def test_the_start_says_what_the_model_is(engine, records_of):
    """With an estimator its model's dimensions are recorded, so that a replay estimates as the engine did."""
    found = BatchEstimator.for_model("llama-3.1-8b")
    one = engine(estimator=found)
    one.record.close()
    (start,) = [r for r in records_of(one.record.run) if isinstance(r, RunStart)]
    assert Geometry(**json.loads(start.setting["geometry"])) == found.geometry
