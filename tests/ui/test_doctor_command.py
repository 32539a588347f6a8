"""`glassgate doctor`: each thing that can be wrong has its line with a remedy, and nothing makes it fall over."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest

from controller.decision import PassResult
from controller.engines.plugin import EngineIdentity, EngineRecord, Faults, Http, InProcess, NoWay, PluginSettings
from controller.engines.plugin.broadcast import Forwarded, leave_forwarded
from controller.engines.plugin.status import read_status, write_status
from controller.knob_requests import KnobRequest
from controller.knob_turning import answer, asked_change
from controller.knobs import SHARED_KV_CAUTION, Knobs
from controller.limits import Setting
from controller.records import Digest, encode
from controller.request import Capacity
from controller.run_directory import RunDirectory
from store.collect import collect_run
from ui.commands.doctor import FOUND_A_FAILURE
from ui.doctor import installation, running
from ui.doctor.finding import FAIL, OK, WARN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """Nothing of Glassgate is set here, and the working folder is empty."""
    for name in list(os.environ):
        if name.startswith(("GLASSGATE", "OTEL_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def engine(tmp_path):
    """Makes a rank of a live engine in this process; nobody collects it."""
    made = []

    def make(knobs=None, **more):
        identity = {"engine": "sglang", "version": "0.5.23", "model": "tiny", "setting": Setting(has_model=False),
                    "replaced": ("schedule_policy.PrefillAdder",), "pool_tokens": 100_000, **more}  # fmt: skip
        run_id = identity.pop("run_id", None)
        settings = PluginSettings(home=tmp_path / "home", collector=False, knobs=knobs or Knobs())
        made.append(EngineRecord.begin(EngineIdentity(**identity), settings, Faults("Engine"), run_id=run_id))
        return made[-1]

    yield make
    for each in made:
        each.close()


def said(run, check=None):
    """(check, state, found and remedy) of each finding about a run, or of one check."""
    found = running.examine_run(run)
    return [
        (each.check, each.state, f"{each.found} -> {each.remedy}")
        for each in found
        if check is None or each.check == check
    ]


def states(run, check):
    """How one check stands."""
    return [state for _, state, _ in said(run, check)]


def until(condition, seconds=15.0):
    """Wait for something that is to happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_without_a_run_it_looks_at_the_environment(glassgate):
    """In a fresh environment it says what is there and what to do next, with no failure."""
    done = glassgate("doctor")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert all(line.split()[0] in (OK, WARN) for line in lines)
    assert "set GLASSGATE=1" in done.stdout
    assert "no engine has recorded a run here yet" in lines[-1]
    assert "Traceback" not in done.stderr


def test_json_has_one_object_a_check(glassgate):
    """For machines each check is an object with the same four keys."""
    done = glassgate("doctor", "--json")
    found = json.loads(done.stdout)
    assert {tuple(each) for each in found} == {("check", "state", "found", "remedy")}
    assert {each["state"] for each in found} <= {OK, WARN, FAIL}


PROGRAM = """
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from controller.engines.plugin import EngineIdentity, EngineRecord, Faults, PluginSettings
    from controller.limits import Setting
    identity = EngineIdentity(engine="sglang", version="0.5.23", model=None, setting=Setting(),
                              replaced=("schedule_policy.PrefillAdder",), pool_tokens=1000)
    record = EngineRecord.begin(identity, PluginSettings(home=Path(sys.argv[2])), Faults("Engine"))
    record._clerk._recorder.passes = 7
    print(record.run.path, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def process(tmp_path):
    """An engine's process with its collector; its run. It is killed with the test."""
    environ = {**os.environ, "GLASSGATE": "1"}
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(ROOT), str(tmp_path / "home")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environ, cwd=tmp_path) as started:
        run = RunDirectory(started.stdout.readline().strip())
        yield run, started
        started.kill()
    until(lambda: not (run.path / "collector.lock").exists() or run.state == "engine_gone")


def test_a_run_that_is_well_has_no_failure(process, glassgate, tmp_path):
    """A live engine with its plug-in in force, its collector up and its journal moving is ok, check by check."""
    run, started = process
    until(lambda: (run.path / "collector.json").exists() and read_status(run.path).passes == 7)
    done = glassgate("doctor", run.path.name, "--json", GLASSGATE_HOME=str(tmp_path / "home"))
    found = [each for each in json.loads(done.stdout) if each["state"] != OK]
    assert done.returncode == 0, found
    # "engine process" may tell of another engine on this machine, and never of this one
    assert {each["check"] for each in found} <= {"engine", "switch", "engine process"}
    text = done.stdout
    for words in (
        "schedule_policy.PrefillAdder replaced for", "7 passes", "made its last pass",
        f"{run.path.name}: 0 frames behind",
        "nothing in the plug-in has failed", "by the engine's own process", "shadows none",
    ):  # fmt: skip
        assert words in text, words
    assert not [each for each in found if str(started.pid) in each["found"]]


def test_a_stopped_engine_is_told(process):
    """A process that is stopped keeps its locks, so its silence is what tells."""
    run, started = process
    until((run.path / "collector.json").exists)
    started.send_signal(signal.SIGSTOP)
    status = read_status(run.path)
    status.at_ns = time.time_ns() - 60 * 10**9
    write_status(run.path, status)
    ((_, state, words),) = said(run, "journal")
    assert state == WARN
    assert "has said nothing for 1 min" in words
    assert "rank-differences" in words


def test_a_killed_engine_is_told(process):
    """An engine that is gone without an end is a warning: its record can be read."""
    run, started = process
    started.kill()
    started.wait()
    ((_, state, words),) = said(run, "run")
    assert (state, "gone without an end" in words, "glassgate why" in words) == (WARN, True, True)


def test_the_engines_process_is_looked_at(process, tmp_path):
    """A folder called store where the engine stands, and an environment that is not this one, are told."""
    run, _ = process
    (tmp_path / "store").mkdir()
    assert [state for _, state, words in said(run, "engine process") if "holds store" in words] == [WARN]
    status = read_status(run.path)
    status.pid, status.python = 2**22 + 1, "/opt/engine/bin/python"
    write_status(run.path, status)
    words = " ".join(each[2] for each in said(run, "engine process"))
    assert "/opt/engine/bin/glassgate doctor" in words
    assert "cannot be looked at" in words


def test_without_a_collector_a_live_run_fails(engine, glassgate, tmp_path):
    """A live run that nobody collects is a failure with the command to run, and its own exit code."""
    run = engine().run
    done = glassgate("doctor", run.path.name, GLASSGATE_HOME=str(tmp_path / "home"))
    assert done.returncode == FOUND_A_FAILURE == 11
    assert "fail  collector" in done.stdout
    assert f"-> glassgate collect {run.path}" in done.stdout


def test_what_the_last_collector_said_is_shown(engine):
    """A collector that ended with an error is quoted."""
    run = engine().run
    (run.path / "collector.log").write_text("glassgate: GLASSGATE_X is no setting\n")
    ((_, state, words),) = said(run, "collector")
    assert (state, "GLASSGATE_X is no setting" in words) == (FAIL, True)


def test_a_run_without_proof_fails(tmp_path):
    """A run of an engine without a status file is not known to be in force."""
    run = RunDirectory.create(tmp_path / "home" / "runs", engine="vllm", version="0.32.0")
    assert states(run, "plug-in") == [FAIL]
    replayed = RunDirectory.create(tmp_path / "home" / "runs", engine="replay", version="1")
    assert states(replayed, "plug-in") == []


def test_a_plug_in_that_stepped_aside_fails(engine):
    """That the stock class decides is told with the reason."""
    record = engine()
    record.stand_aside("a decision failed")
    record._clerk._tell(at_once=True)
    ((_, state, words),) = said(record.run, "plug-in")
    assert (state, "a decision failed" in words) == (FAIL, True)


def test_faults_are_told_with_what_is_lost(engine):
    """Each kind of fault has a line with its count, its first error and what it costs."""
    record = engine()
    for _ in range(3):
        with record.faults.contained("hashing prefixes", "hashes are missing"):
            raise ValueError("no ids")
    record.faults.write(at_once=True)
    ((_, state, words),) = said(record.run, "faults")
    assert state == FAIL
    assert "hashing prefixes failed 3 times: ValueError: no ids; hashes are missing" in words


def test_losses_and_cautions_are_told(engine):
    """Frames that the journal could not take, and what the plug-in warns of."""
    record = engine(cautions=("speculative decoding is on",))
    status = read_status(record.run.path)
    status.losses = {"stall": 12}
    record._clerk.stop()
    write_status(record.run.path, status)
    assert "12 stall" in said(record.run, "journal")[-1][2]
    assert said(record.run, "caution") == [("caution", WARN, "speculative decoding is on -> see docs/engines.md")]


def test_ranks_that_differ_fail_and_a_missing_rank_is_told(engine):
    """A divergence is a failure that names the query; a rank that is not recorded here is a warning."""
    zero = engine(run_id="ranks001", ranks=2)
    assert states(zero.run, "ranks") == [WARN]
    one = engine(run_id="ranks001", ranks=2, rank=1, leads=False)
    assert states(zero.run, "ranks") == [OK]
    one._writer.append(encode([Digest(1, b"x" * 16)]))
    zero.passes = 0
    result = PassResult((), (), None, 0, None, 0, 0)
    zero.passed(Capacity(pool_tokens=10, free_tokens=10), result, start_ns=1, decide_ns=1, queue=0, queued_tokens=0)
    for rank in (zero, one):
        collect_run(rank.run, zero.run.path / "glassgate.db")
    found = said(zero.run, "alarms")
    assert [state for _, state, _ in found] == [FAIL]
    assert "glassgate query rank-differences" in found[0][2]


def test_knobs_that_cannot_be_turned_or_wait_are_told(engine):
    """Without a way, or with a request that nobody answers, there is a warning."""
    stuck = engine(way=NoWay("two machines"))
    assert "two machines" in said(stuck.run, "knobs")[0][2]
    slow = engine(way=Http("http://127.0.0.1:1/x", "server_args"))
    assert states(slow.run, "knobs") == [OK]
    leave_forwarded(slow.run.path / "knob-requests", Forwarded("a", time.time_ns(), 0, {}, None))
    assert "1 request without an answer" in said(slow.run, "knobs")[0][2]
    quiet = engine(way=InProcess())
    quiet._clerk.stop()
    path = quiet.run.path / "knob-requests" / quiet.run.leave_request({"who": "ada"})
    os.utime(path, (1, 1))
    assert states(quiet.run, "knobs") == [WARN]


def test_shared_kv_batching_is_warned_of(engine, monkeypatch):
    """Wherever it is on, the caution says what is to be validated first."""
    record = engine(knobs=Knobs(shared_kv_batching=True))
    assert said(record.run, "shared KV")[0][1:] == (
        WARN,
        f"shared_kv_batching is on in this run -> {SHARED_KV_CAUTION}",
    )
    turned = engine(run_id="turned01")
    assert said(turned.run, "shared KV") == []
    asked = KnobRequest("1", asked_change({"shared_kv_batching": "on"}, "ada"), None, 0)
    turned.turned(answer(asked, Knobs(), Setting(has_model=False)))
    turned.close()
    collect_run(turned.run, turned.run.path / "glassgate.db")
    assert [state for _, state, _ in said(turned.run, "shared KV")] == [WARN]
    for words in ("accept length", "output length", "host-cache load and backup", "real traffic"):
        assert words in SHARED_KV_CAUTION
    monkeypatch.setenv("GLASSGATE_SHARED_KV_BATCHING", "on")
    assert [each.state for each in installation.examine_installation() if each.check == "shared KV"] == [WARN]


@pytest.mark.parametrize(
    "name", ["plugin.json", "faults.json", "collector.json", "collector.log", "glassgate.db", "collector.lock"]
)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b"[1, 2]", None])
def test_damaged_files_make_no_traceback(engine, glassgate, tmp_path, name, content):
    """Whatever stands in a file of the run, or a folder in its place, there are findings and no error."""
    run = engine().run
    path = run.path / name
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    found = running.examine_run(run)
    assert {each.check for each in found} >= {"run", "collector", "disk"}
    assert not [each for each in found if "could not be looked at" in each.found]
    assert tmp_path.exists()
    assert glassgate


def test_a_damaged_run_json_is_one_line(engine, glassgate, tmp_path):
    """A run whose run.json cannot be read is told like any other error."""
    run = engine().run
    (run.path / "run.json").write_text("{")
    done = glassgate("doctor", run.path.name, GLASSGATE_HOME=str(tmp_path / "home"))
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    assert "run.json" in done.stdout + done.stderr


def test_an_unknown_run_has_the_usual_exit_code(glassgate):
    """A name that fits no run ends with 7, as everywhere."""
    assert glassgate("doctor", "nosuchrun").returncode == 7


def test_bad_settings_are_a_failure_and_not_the_end(glassgate):
    """A setting that cannot be is one failing line among the others."""
    done = glassgate("doctor", GLASSGATE_MAX_REQUESTS="many")
    assert done.returncode == FOUND_A_FAILURE
    assert "GLASSGATE_MAX_REQUESTS" in done.stdout
    assert len(done.stdout.splitlines()) > 5
    done = glassgate("doctor", GLASSGATE_CONFIG="/nowhere.toml")
    assert done.returncode == FOUND_A_FAILURE
    assert "/nowhere.toml" in done.stdout


def test_a_folder_called_store_where_one_stands_is_told(glassgate, tmp_path):
    """An engine started there with python -m would import that folder."""
    (tmp_path / "store").mkdir()
    done = glassgate("doctor", PYTHONSAFEPATH="1", PYTHONPATH=str(ROOT))
    assert "holds store" in done.stdout
    assert "start the engine from another folder" in done.stdout


def test_the_newest_run_of_an_engine_is_meant(engine, tmp_path):
    """Without a name it is the engine's run begun last, its first rank; a replay is passed over."""
    zero = engine(run_id="older001", ranks=2)
    engine(run_id="older001", ranks=2, rank=1, leads=False)
    RunDirectory.create(tmp_path / "home" / "runs", engine="replay", version="1", run_id="replay01")
    assert running.find_run(None, tmp_path / "home" / "runs").path == zero.run.path
    assert running.find_run("older001-1", tmp_path / "home" / "runs").path == zero.run.path
    assert running.find_run(None, tmp_path / "nowhere") is None
    assert msgspec.json.decode((zero.run.path / "plugin.json").read_bytes())["python"] == sys.executable
