"""The run directory: one run's things in one place, whole, private, and with its liveness in plain sight."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controller.knob_requests import MAX_REQUEST_BYTES
from controller.liveness import LivenessLock, is_held
from controller.run_directory import RunDirectory, default_base, list_runs
from estimator.errors import NotFoundError, RecordError, StorageError, UsageError

ROOT = Path(__file__).resolve().parents[2]


def create(base, **options):
    """Begin a run of the replay engine."""
    return RunDirectory.create(base, **{"engine": "replay", "version": "0.1.0", **options})


def other_process(program, *arguments):
    """Start a Python process and return it once it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_run_is_described_in_its_run_json(tmp_path):
    """run.json says what runs, since when, where and with what, and is read back as it was given."""
    run = create(
        tmp_path, model="deepseek-v3.2", rank=0, context={"tp_size": 8}, knobs={"max_requests": None, "page_size": 64}
    )
    info = RunDirectory(run.path).info
    assert (info.engine, info.version, info.model, info.rank) == ("replay", "0.1.0", "deepseek-v3.2", 0)
    assert (info.context, info.knobs) == ({"tp_size": 8}, {"max_requests": None, "page_size": 64})
    assert (info.pid, info.ended, info.end_reason) == (os.getpid(), None, None)
    assert info.started.endswith("Z")
    assert run.path == tmp_path / info.run_id
    assert len(info.run_id) == 8
    assert int(info.run_id, 16) >= 0
    assert run.journal.is_dir()
    assert json.loads((run.path / "run.json").read_text())["knobs"] == {"max_requests": None, "page_size": 64}
    assert (run.path / "run.json").read_text().count("\n") > 10


def test_ranks_of_one_run_share_its_id(tmp_path):
    """Ranks above 0 have a folder of their own beside rank 0's, which the bare id finds."""
    runs = [create(tmp_path, run_id="1a2b3c4d", rank=rank) for rank in range(3)]
    assert [run.path.name for run in runs] == ["1a2b3c4d", "1a2b3c4d-1", "1a2b3c4d-2"]
    assert {run.info.run_id for run in runs} == {"1a2b3c4d"}
    assert RunDirectory.find("1a2b3c4d", tmp_path).info.rank == 0
    assert RunDirectory.find("1a2b3c4d-2", tmp_path).info.rank == 2


def test_who_collects_already_is_told_with_what_to_do(tmp_path):
    """Beside another collector one of the two can be ended; an engine that collects its own run is left alone."""
    run = create(tmp_path)
    me = rf"collector.lock is held by process {os.getpid()}, "
    with run.hold_collector_lock(), pytest.raises(StorageError, match=me + "which serves the run .*: query that"):
        run.hold_collector_lock()
    run.release()
    with run.hold_collector_lock(), pytest.raises(StorageError, match="one collector is enough: query its database"):
        run.hold_collector_lock()


def test_states_from_beginning_to_end(tmp_path):
    """A run is live while its engine holds its lock, then ended or, without an end mark, engine_gone."""
    run = create(tmp_path)
    assert RunDirectory(run.path).state == "live"
    run.release()
    assert RunDirectory(run.path).state == "engine_gone"
    with run.hold_engine_lock():
        assert run.state == "live"
        with run.hold_collector_lock():
            assert run.state == "live"
        assert run.state == "collector_gone"
        with run.hold_collector_lock():
            assert run.state == "live"
        run.end("drained")
    assert run.state == "ended"
    assert run.info.end_reason == "drained"
    assert run.info.ended >= run.info.started


def test_a_killed_engine_is_seen_to_be_gone(tmp_path):
    """The lock goes with the process, even by kill -9, and even if a child it forked lives on."""
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from controller.run_directory import RunDirectory\n"
        "run = RunDirectory.create(Path(sys.argv[1]), engine='replay', version='1', run_id='aaaa0000')\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = other_process(program, tmp_path)
    run = RunDirectory.find("aaaa", tmp_path)
    assert run.state == "live"
    assert run.info.pid == process.pid
    process.kill()
    process.wait()
    assert run.state == "engine_gone"
    process.stdin.close()
    process.stdout.close()


def test_a_lock_has_one_holder_and_names_it(tmp_path):
    """A second engine or collector is refused with the process that holds the lock."""
    run = create(tmp_path)
    with pytest.raises(StorageError, match=rf"engine.lock is held by process {os.getpid()}; end that process first"):
        run.hold_engine_lock()
    with LivenessLock(tmp_path / "lock") as lock:
        assert is_held(tmp_path / "lock")
        lock.release()
        lock.release()
        assert not is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "never made")


def test_looking_does_not_get_in_the_way_of_taking(tmp_path):
    """A lock can be taken while others keep looking whether it is held."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from controller.liveness import is_held\n"
        "is_held(Path(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "while True: is_held(Path(sys.argv[1]))\n"
    )
    path = tmp_path / "lock"
    LivenessLock(path).release()
    process = other_process(program, path)
    try:
        for _ in range(50):
            LivenessLock(path).release()
    finally:
        process.kill()
        process.communicate()


def test_runs_are_found_by_id_beginning_or_path(tmp_path):
    """An id, a beginning that fits one run, and a path each find the run; anything else is an error with its remedy."""
    for run_id in ("aaaa0001", "aaaa0002", "bbbb0001"):
        create(tmp_path, run_id=run_id)
    for rank in (1, 12):
        create(tmp_path, run_id="bbbb0001", rank=rank)
    assert RunDirectory.find("bb", tmp_path).path.name == "bbbb0001"
    assert RunDirectory.find("bbbb0001-12", tmp_path).info.rank == 12
    assert RunDirectory.find("aaaa0002", tmp_path).info.run_id == "aaaa0002"
    assert RunDirectory.find(str(tmp_path / "aaaa0001"), tmp_path / "elsewhere").info.run_id == "aaaa0001"
    with pytest.raises(UsageError, match=r"'aaaa' fits 2 runs \(aaaa0001, aaaa0002\); give more digits"):
        RunDirectory.find("aaaa", tmp_path)
    for name in ("cccc", ""):
        with pytest.raises(NotFoundError, match=rf"no run '{name}' under .*; name an id"):
            RunDirectory.find(name, tmp_path)
    with pytest.raises(NotFoundError, match="no run 'aaaa' under"):
        RunDirectory.find("aaaa", tmp_path / "missing")
    with pytest.raises(RecordError, match=r"is no run: it holds no run.json"):
        RunDirectory.find(str(tmp_path), tmp_path)
    with pytest.raises(RecordError, match=r"gone is no run: there is nothing there; name a run's folder"):
        RunDirectory(tmp_path / "gone")


def test_the_list_shows_every_run_the_latest_first(tmp_path):
    """Runs are listed with their states, and one whose run.json is damaged with its error, not left out."""
    for run_id in ("aaaa0001", "aaaa0002", "aaaa0003"):
        create(tmp_path, run_id=run_id)
    create(tmp_path, run_id="aaaa0004").end()
    (tmp_path / "aaaa0002" / "run.json").write_text("{")
    (tmp_path / "a file").write_text("")
    listed = list_runs(tmp_path)
    assert [run.run.path.name for run in listed] == ["aaaa0004", "aaaa0003", "aaaa0001", "aaaa0002"]
    # The runs that were not kept in a variable let go of their locks only with their process.
    assert [run.state for run in listed] == ["ended", "live", "live", None]
    assert [run.error is None for run in listed] == [True, True, True, False]
    assert "aaaa0002/run.json is not a run's: " in listed[3].error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is not a run's: "),
        ('{"format": 1}', "is not a run's: .*missing"),
        ("\xff\xfe", "is not a run's: "),
        (
            '{"format": 2, "anything": 1}',
            "has format version 2, this Glassgate reads up to 1; use the one that wrote it",
        ),
    ],
)
def test_a_run_json_that_is_not_ours_is_named(tmp_path, content, message):
    """A damaged run.json, or one of a newer version, is one clear line."""
    run = create(tmp_path)
    (run.path / "run.json").write_text(content, encoding="latin-1")
    with pytest.raises(RecordError, match=rf"run.json {message}"):
        _ = run.info


def test_only_the_owner_may_look(tmp_path):
    """Every folder made is 0700 and every file 0600, whatever the umask."""
    before = os.umask(0)
    try:
        run = create(tmp_path / "state" / "runs")
        run.hold_collector_lock().release()
        run.leave_request({"max_requests": 4})
        run.end()
    finally:
        os.umask(before)
    made = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in made} == {True: 0o700, False: 0o600}
    assert len({stat.S_IMODE(path.stat().st_mode) for path in made}) == 2
    assert sorted(path.name for path in run.path.iterdir()) == [
        "collector.lock", "engine.lock", "journal", "knob-requests", "run.json",
    ]  # fmt: skip


def test_requests_are_taken_once_in_the_order_they_were_left(tmp_path):
    """The engine takes each request once, oldest first, and leaves nothing behind."""
    run = create(tmp_path)
    assert run.take_requests() == []
    names = [RunDirectory(run.path).leave_request({"max_requests": number}) for number in range(5)]
    taken = run.take_requests()
    assert [request.name for request in taken] == names
    assert [request.content for request in taken] == [{"max_requests": number} for number in range(5)]
    assert [request.error for request in taken] == [None] * 5
    assert run.take_requests() == []
    assert list((run.path / "knob-requests").iterdir()) == []


def test_a_request_that_cannot_be_read_is_taken_with_its_error(tmp_path):
    """Bad requests never stop the engine nor the requests behind them, and are not lost without a word."""
    run = create(tmp_path)
    folder = run.path / "knob-requests"
    for name, content, mode in (
        ("1.json", b"{", 0o600),
        ("2.json", b"[1]", 0o600),
        ("3.json", b"\xff", 0o600),
        ("4.json", b" " * (MAX_REQUEST_BYTES + 1), 0o600),
        ("5.json", b"{}", 0o622),
        ("6.json", b"[" * 60_000, 0o600),
        ("7.json", b'{"max_requests": 1}', 0o600),
        (".8.json.1.tmp", b"{}", 0o600),
        ("9.txt", b"{}", 0o600),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)
    (folder / "0.json").symlink_to(run.path / "run.json")
    os.mkfifo(folder / "05.json", 0o600)
    taken = {request.name: request for request in run.take_requests()}
    assert {name: bool(request.error) for name, request in taken.items()} == {
        "0.json": True, "05.json": True, "1.json": True, "2.json": True, "3.json": True, "4.json": True,
        "5.json": True, "6.json": True, "7.json": False,
    }  # fmt: skip
    assert taken["7.json"].content == {"max_requests": 1}
    assert "mode 0622; it must be the engine's user's own" in taken["5.json"].error
    assert f"{MAX_REQUEST_BYTES + 1} bytes, the limit is {MAX_REQUEST_BYTES}" in taken["4.json"].error
    assert sorted(path.name for path in folder.iterdir()) == [".8.json.1.tmp", "9.txt"]


def test_the_default_base_follows_the_environment(tmp_path, monkeypatch):
    """GLASSGATE_HOME comes first, then an absolute XDG_STATE_HOME, then the home folder."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("GLASSGATE_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_base() == Path("/home/someone/.local/state/glassgate/runs")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_base() == Path("/home/someone/.local/state/glassgate/runs")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_base() == Path("/state/glassgate/runs")
    monkeypatch.setenv("GLASSGATE_HOME", str(tmp_path))
    assert default_base() == tmp_path / "runs"
    assert list_runs() == []
    run = RunDirectory.create(engine="replay", version="1")
    assert run.path.parent == tmp_path / "runs"
    assert [listed.run.path for listed in list_runs()] == [run.path]
    assert RunDirectory.find(run.info.run_id[:5]).path == run.path


def test_a_folder_that_cannot_be_used_is_one_clear_line(tmp_path):
    """A base that cannot be made, a run that is there already and a base to list that is missing are StorageErrors."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be kept at .*: Not a directory; free space or name a writable"):
        create(tmp_path / "file" / "runs")
    create(tmp_path, run_id="aaaa0001")
    with pytest.raises(StorageError, match=r"run aaaa0001 cannot be kept at .*: Directory not empty; "):
        create(tmp_path, run_id="aaaa0001")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for missing in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(StorageError, match=rf"the runs in {missing} cannot be listed: .*; name a readable folder"):
            list_runs(missing)


@pytest.fixture
def own_folder():
    """A folder of a user whom permissions bind: root becomes nobody for the length of a test."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


def test_a_read_only_folder_is_one_clear_line(own_folder):
    """In a folder without write permission no run is begun, no end marked and no request left, each a StorageError."""
    tmp_path = own_folder
    run = create(tmp_path / "runs")
    for folder in (tmp_path / "runs", run.path, run.path / "knob-requests"):
        folder.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            create(tmp_path / "runs")
        with pytest.raises(StorageError, match="Permission denied"):
            run.leave_request({})
        with pytest.raises(StorageError, match="Permission denied"):
            run.end()
    finally:
        for folder in (tmp_path / "runs", run.path, run.path / "knob-requests"):
            folder.chmod(0o700)


def test_a_read_only_file_system_is_one_clear_line(tmp_path):
    """On a file system mounted read-only no run is begun, and a run there can still be read."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if not mount or not umount:
        pytest.skip("there is no mount command here")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run([mount, "-t", "tmpfs", "tmpfs", disk], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {mounted.stderr.strip()}")
    try:
        create(disk, run_id="aaaa0001").release()
        subprocess.run([mount, "-o", "remount,ro", disk], check=True)
        with pytest.raises(StorageError, match=r"cannot be kept at .*: Read-only file system; free space or name"):
            create(disk)
        assert [(run.info.run_id, run.state) for run in list_runs(disk)] == [("aaaa0001", "engine_gone")]
        with pytest.raises(StorageError, match=r"no request can be left in .*: Read-only file system"):
            RunDirectory.find("aaaa", disk).leave_request({})
    finally:
        subprocess.run([umount, "-l", disk], check=True)


def test_a_full_disk_leaves_the_old_run_json(tmp_path, monkeypatch):
    """When the end cannot be written, run.json stays as it was, no scrap is left, and the lock is free."""
    run = create(tmp_path)
    before = (run.path / "run.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StorageError, match="cannot be marked: No space left on device; free space"):
            run.end()
        with pytest.raises(StorageError, match=r"no request can be left in .*: No space left"):
            run.leave_request({"max_requests": 1})
    assert (run.path / "run.json").read_bytes() == before
    assert run.state == "engine_gone"
    assert [path.name for path in run.path.rglob(".*")] == []
