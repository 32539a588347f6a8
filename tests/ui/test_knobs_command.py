"""`glassgate knobs`: against a real replay in a process of its own, and against runs that are over."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.journal import DATA, JournalReader
from controller.records import KnobChange, KnobsInForce, Pass, RunEnd, RunStart, decode
from controller.run_directory import RunDirectory, list_runs
from estimator.errors import NoAnswerError, NotFoundError, StorageError
from store.knob_state import KnobState
from ui.commands.knobs import told_changes
from ui.saving import save_knobs
from ui.turning import AnswerReader, ask_for_change, default_who, turn

Run = Callable[..., subprocess.CompletedProcess[str]]


def end(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C for a process we began; its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return process.wait(30)


def has_begun(run: RunDirectory) -> bool:
    """Whether a run has recorded its knobs."""
    return bool(list(run.journal.glob("*.journal")) and records(run, KnobsInForce))


@pytest.fixture
def begin(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., RunDirectory]]:
    """Begins a replay in real time and gives its run; it is ended with the test."""
    begun: list[subprocess.Popen[bytes]] = []
    base = tmp_path / "home" / "runs"

    def start(*arguments: str) -> RunDirectory:
        known = {each.run.path for each in list_runs(base)} if base.exists() else set()
        with (tmp_path / f"replay-{len(begun)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "replay", "--pace", "1", "--model", "none", "--max-requests", "4", *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        begun.append(process)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / f"replay-{len(begun) - 1}.log").read_text()
            for each in list_runs(base) if base.exists() else []:
                if each.run.path not in known and has_begun(each.run):
                    return each.run
            time.sleep(0.02)
        raise AssertionError("no run began")

    yield start
    for process in begun:
        end(process)


def records(run: RunDirectory, kind: type) -> list:
    """The records of a kind in a run's journal."""
    with JournalReader(run.journal) as reader:
        frames = [frame for frame in reader if frame.kind == DATA]
    return [record for frame in frames for record in decode(frame.payload) if isinstance(record, kind)]


def test_a_live_run_turns_its_knobs(glassgate: Run, begin: Callable[..., RunDirectory]):
    """`set` prints before and after with the revision, the change is in force and recorded, and `get` shows it."""
    run = begin()
    name = run.path.name
    done = glassgate("knobs", "set", "max_requests=16", "max-buffer-bytes=4GiB", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["run"], told["accepted"], told["revision"], told["who"]) == (name, True, 1, default_who())
    assert told["changes"][0] == {
        "knob": "max_requests", "unit": "requests", "before": {"set_to": 4, "effective": 4},
        "after": {"set_to": 16, "effective": 16, "state": "as set", "why": ""},
    }  # fmt: skip
    assert told["changes"][1]["after"] == {
        "set_to": 4 << 30, "effective": None, "state": "dead",
        "why": "no model is named, so buffers cannot be estimated",
    }  # fmt: skip
    (change,) = records(run, KnobChange)
    assert (change.request, change.changes[0]) == (told["request"], ("max_requests", 4, 16))
    # Right behind it, before the database can have followed.
    held = json.loads(glassgate("knobs", "get", "--json").stdout)
    assert (held["run"], held["state"], held["revision"]) == (name, "live", 1)
    knobs = {each["name"]: each for each in held["knobs"]}
    assert (knobs["max_requests"]["set_to"], knobs["max_requests"]["changed_by"]) == (16, default_who())
    assert knobs["max_requests"]["bounds"] == "members of one prefill batch"
    assert knobs["enforce"]["set_to"] is True
    assert knobs["enforce"]["changed"] is None
    words = glassgate("knobs", "set", name, "enforce=off", "--who", "ann").stdout
    assert f"Run {name}, revision 2, by ann" in words
    assert "shadow mode" in words
    assert "shadow mode" in glassgate("knobs", "get", name).stdout


def test_a_refused_change_ends_with_the_reason_and_stays_in_the_record(
    glassgate: Run, begin: Callable[..., RunDirectory]
):
    """What a run cannot do ends with exit code 3 and the reason on stderr, and changes nothing."""
    run = begin()
    done = glassgate("knobs", "set", "page_size=128", "--json")
    assert done.returncode == 3
    assert "refused: page_size is fixed at 64" in done.stderr
    assert json.loads(done.stdout)["accepted"] is False
    for words, code, told in (
        (("max_requests=0",), 3, "whole number of requests from 1"),
        (("speed=2",), 3, "'speed' is no knob"),
        (("max_requests=4",), 3, "nothing would change: max_requests is 4 already"),
        (("max_requests=5", "--expect-revision", "7"), 3, "made for revision 7, and 0 is in force"),
        (("max_requests=5", "max-requests=6"), 2, "given twice"),
        ((run.path.name, "max_requests"), 2, "'max_requests' is no change"),
        ((run.path.name,), 2, "no change is given"),
        (("nosuch", "max_requests=5"), 7, "no run 'nosuch'"),
    ):
        done = glassgate("knobs", "set", *words)
        assert (done.returncode, done.stdout) == (code, ""), words
        assert told in done.stderr
    assert json.loads(glassgate("knobs", "get", "--json").stdout)["revision"] == 0
    assert [change.accepted for change in records(run, KnobChange)] == [False] * 3


def test_two_at_once_are_both_answered_one_after_the_other(begin: Callable[..., RunDirectory]):
    """Requests left at the same moment are taken in order, each under a revision of its own, whoever left them."""
    run = begin()
    reader = AnswerReader(run)
    names = [ask_for_change(run, {"max_requests": 10 + number}, f"w{number}") for number in range(12)]
    stale = ask_for_change(run, {"max_requests": 99}, "late", expect_revision=0)
    answers = [reader.wait(name) for name in names]
    assert sorted(answer.change.revision for answer in answers) == list(range(1, 13))
    for number, answer in enumerate(answers):
        assert answer.change.changes[0][2] == 10 + number
        assert {row[0]: row[2] for row in answer.in_force.knobs}["max_requests"] == 10 + number
    assert not reader.wait(stale).change.accepted
    reader.close()


def test_an_answer_comes_within_the_bound(begin: Callable[..., RunDirectory]):
    """A paced replay answers while it waits for an event that is far away."""
    run = begin("--sessions", "1", "--pace-from", "0")
    took = []
    for number in range(5):
        began = time.perf_counter()
        turned = turn(run, {"max_requests": 20 + number}, "me")
        took.append(time.perf_counter() - began)
        assert turned.change.accepted
    assert sorted(took)[2] < 0.2, took


def test_with_several_live_runs_one_must_be_named(glassgate: Run, begin: Callable[..., RunDirectory]):
    """A knob is never turned in a run picked by chance; `get` takes the one begun last and says which."""
    first, second = begin(), begin()
    done = glassgate("knobs", "set", "max_requests=9")
    assert done.returncode == 2
    assert first.path.name in done.stderr
    assert second.path.name in done.stderr
    assert glassgate("knobs", "set", first.path.name, "max_requests=9").returncode == 0
    shown = glassgate("knobs", "get")
    assert f"run {second.path.name}, live" in shown.stderr
    assert json.loads(glassgate("knobs", "get", first.path.name, "--json").stdout)["revision"] == 1


def test_garbage_in_the_folder_changes_nothing_and_stops_nothing(begin: Callable[..., RunDirectory]):
    """Files of any content, mode or kind in the folder of requests leave the run going, each with its refusal."""
    run = begin()
    folder = run.path / "knob-requests"
    (folder / "0.json").write_bytes(os.urandom(200))
    (folder / "1.json").write_text('{"format": 1, "who": "eve", "changes": {"max_requests": 1}, "left_unix_ns": 1}')
    (folder / "1.json").chmod(0o666)
    (folder / "2.json").symlink_to("/etc/hostname")
    os.mkfifo(folder / "3.json")
    (folder / "4.json").mkdir()
    assert turn(run, {"max_requests": 7}, "me").change.revision == 1
    refused = [change for change in records(run, KnobChange) if not change.accepted]
    assert len(refused) == 4
    assert all(change.why and not change.changes for change in refused)
    assert "mode 0666" in next(change.why for change in refused if change.request == "1.json")


def test_a_run_that_is_over_is_not_turned(glassgate: Run, begin: Callable[..., RunDirectory], trace: Path):
    """An ended run shows its last knobs, and a change of them ends with exit code 7."""
    glassgate("replay", str(trace), "--model", "none", "--max-requests", "3")
    done = glassgate("knobs", "set", "max_requests=9")
    assert done.returncode == 7
    assert "no run under" in done.stderr
    ended = json.loads(glassgate("knobs", "get", "--json").stdout)
    assert (ended["state"], {each["name"]: each["set_to"] for each in ended["knobs"]}["max_requests"]) == ("ended", 3)
    done = glassgate("knobs", "set", ended["run"], "max_requests=9")
    assert done.returncode == 7
    assert "has ended; only a live run's knobs can be turned" in done.stderr
    run = begin()
    assert records(run, RunEnd) == []
    assert glassgate("knobs", "set", "max_requests=9").returncode == 0


def test_what_nobody_takes_is_withdrawn(tmp_path: Path):
    """Where nobody serves a live run, the request is taken back when the wait is over, and that is said."""
    run = RunDirectory.create(tmp_path, engine="test", version="1")
    reader = AnswerReader(run)
    with pytest.raises(NoAnswerError, match=r"did not take the request within 0\.1 s, so it was withdrawn"):
        reader.wait(ask_for_change(run, {"max_requests": 2}, "me"), 0.1)
    assert run.take_requests() == []
    name = ask_for_change(run, {"max_requests": 2}, "me")
    assert len(run.take_requests()) == 1
    now = [0.0]
    with pytest.raises(NoAnswerError, match="took the request and has not answered"):
        reader.wait(name, 1, clock=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert now[0] > 1
    name = ask_for_change(run, {"max_requests": 2}, "me")
    run.end()
    with pytest.raises(NotFoundError, match="ended before it answered"):
        reader.wait(name, 1)
    with pytest.raises(NotFoundError, match="has ended"):
        ask_for_change(run, {"max_requests": 2}, "me")
    assert NoAnswerError.exit_code == 10


def test_saving_keeps_the_file_as_it_was(glassgate: Run, begin: Callable[..., RunDirectory], tmp_path: Path):
    """--save changes values in the file in force and nothing else of it: comments, order, the file's mode."""
    path = tmp_path / "mine.toml"
    path.write_text("# ours\nmax_requests = 4  # because\n\n# the rest\nenforce = true\n")
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    begin()
    done = glassgate(
        "knobs", "set", "max_requests=off", "max_buffer_bytes=4GiB", "enforce=no", "--save",
        GLASSGATE_CONFIG=str(link), GLASSGATE_ENFORCE="on",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert path.read_text() == (
        '# ours\nmax_requests = "off"  # because\n\n# the rest\nenforce = false\nmax_buffer_bytes = "4GiB"\n'
    )
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert f"saved in {path}" in done.stderr
    assert "GLASSGATE_ENFORCE is set and goes before the file" in done.stderr
    # A refusal saves nothing.
    before = path.read_text()
    assert glassgate("knobs", "set", "page_size=8", "--save", GLASSGATE_CONFIG=str(path)).returncode == 3
    assert path.read_text() == before


def test_what_was_in_force_before_is_known_or_left_out(begin: Callable[..., RunDirectory]):
    """Also where another shell turned the knob after we had looked at it: it is never told as unlimited then."""
    run = begin()
    reader = AnswerReader(run)
    reader.wait(ask_for_change(run, {"max_requests": 6}, "one"), 30)
    turned = reader.wait(ask_for_change(run, {"max_requests": 8}, "two"), 30)
    reader.close()
    looked_at = {"max_requests": KnobState("max_requests", "requests", 4, 4, "as set", "", None, None)}
    (told,) = told_changes(turned, looked_at)
    assert told["before"] == {"set_to": 6, "effective": 6}
    (told,) = told_changes(turned._replace(before=None), looked_at)
    assert told["before"] == {"set_to": 6}


def test_saving_into_a_ring_of_links_is_one_line(tmp_path: Path):
    """`read_saved` says so, and with it all that saves."""
    ring = tmp_path / "ring.toml"
    ring.symlink_to(ring.name)
    with pytest.raises(StorageError, match="cannot be read: Too many levels of symbolic links; nothing was saved"):
        save_knobs({"max_requests": "9"}, ring)


def test_saving_begins_a_file_and_says_what_it_cannot_write(
    glassgate: Run, begin: Callable[..., RunDirectory], tmp_path: Path
):
    """Without a file one is begun in the user's folder; what cannot be saved is said as such, and is in force."""
    run = begin()
    assert glassgate("knobs", "set", "max_requests=6", "--save").returncode == 0
    path = tmp_path / "config" / "glassgate" / "glassgate.toml"
    assert path.read_text() == "max_requests = 6\n"
    path.write_text("page_size = 4096\n")
    done = glassgate("knobs", "set", "chunked_prefill_size=2048", "--save")
    assert done.returncode == 4
    assert "the change is in force in run" in done.stderr
    assert "do not go together: chunked_prefill_size 2048 is smaller than page_size 4096" in done.stderr
    assert path.read_text() == "page_size = 4096\n"
    assert records(run, KnobChange)[-1].accepted


def test_passes_are_decided_under_the_revision_they_name(begin: Callable[..., RunDirectory]):
    """In a live run every pass after a change names its revision, and no batch is larger than that revision allows."""
    run = begin("--pace", "20", "--pace-from", "60", "--role", "prefill", "--device-tokens", "1M")
    for most in (1, 6, 2):
        assert turn(run, {"max_requests": most}, "me").change.accepted
        time.sleep(1.0)
    limits = {0: 4, 1: 1, 2: 6, 3: 2}
    passes = records(run, Pass)
    assert [each.revision for each in passes] == sorted(each.revision for each in passes)
    assert {each.revision for each in passes} == set(limits)
    assert all(len(each.batch) <= limits[each.revision] for each in passes)


def test_the_record_of_a_paced_run_is_true_to_the_wall_clock(begin: Callable[..., RunDirectory]):
    """In real time the Unix times of the record are those at which things were recorded, behind a warm start too."""
    run = begin("--pace-from", "100")
    least = 30
    while True:  # the warm start is over when simulated time has passed its end
        asked_ns = time.time_ns()
        turned = turn(run, {"max_requests": least}, "me")
        if turned.change.at_ns > 100 * 1_000_000_000:
            break
        least += 1
    answered_ns = time.time_ns()
    (start,) = records(run, RunStart)
    at_unix_ns = start.wall_ns + turned.change.at_ns
    slack_ns = 2_000_000_000  # a busy machine falls behind and catches up
    assert asked_ns - slack_ns < at_unix_ns < answered_ns + slack_ns
