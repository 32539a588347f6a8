"""What another user may have put into a run's folder, or before it, is not followed, waited for or believed."""

import errno
import json
import os
import stat
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

from controller.journal import JournalReader, JournalWriter, read_cursor, read_cursors
from controller.journal.frames import FORMAT, MAGIC, MAX_PAYLOAD_BYTES
from controller.knob_requests import leave_request, take_requests
from controller.liveness import LivenessLock, is_held
from controller.run_directory import RunDirectory
from controller.whole_file import MOST_READ_BYTES, decode_json, read_json, read_small, write_whole
from estimator.errors import RecordError, StorageError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
STRANGER = 54_321


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that is live."""
    return RunDirectory.create(tmp_path / "runs", engine="test", version="1")


@needs_root
@pytest.mark.parametrize(("uid", "mode"), [(STRANGER, 0o600), (STRANGER, 0o644), (0, 0o620), (0, 0o602), (0, 0o666)])
def test_a_knob_request_that_somebody_else_could_have_written_is_refused(run: RunDirectory, uid: int, mode: int):
    """Of another user, or writable by a group or by all: it is taken away, told by its owner, and changes nothing."""
    path = run.path / "knob-requests" / run.leave_request({"format": 1})
    os.chown(path, uid, -1)
    path.chmod(mode)
    (taken,) = run.take_requests()
    assert taken.content is None
    assert taken.uid == uid
    assert f"belongs to user {uid} with mode {mode:04o}" in (taken.error or "")
    assert run.take_requests() == []


def test_a_knob_request_that_is_a_link_or_a_pipe_is_refused(run: RunDirectory, tmp_path: Path):
    """A link is not followed and a pipe not waited for."""
    good = tmp_path / "good.json"
    write_whole(good, json.dumps({"format": 1}).encode())
    folder = run.path / "knob-requests"
    (folder / "1.json").symlink_to(good)
    os.mkfifo(folder / "2.json", 0o600)
    (folder / "3.json").mkdir()
    taken = run.take_requests()
    assert [each.content for each in taken] == [None, None]  # a folder cannot be removed, so it is left alone
    assert all(each.error for each in taken)
    assert good.exists()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"[" * 60_000, b'{"a":' * 9_000, b'{"a": "\\ud800"}', b"\xff", b"{" + b" " * 65_536],
    ids=range(7),
)
def test_a_knob_request_that_is_no_object_is_refused(tmp_path: Path, text: bytes):
    """Nesting without end, halves of surrogate pairs, other bytes and more than a request holds."""
    write_whole(tmp_path / "1.json", text)
    (taken,) = take_requests(tmp_path)
    assert taken.content is None
    assert taken.error


def test_a_folder_of_requests_that_is_a_link_is_not_written(tmp_path: Path):
    """Nobody is made to write where a link leads."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "knob-requests").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="link"):
        leave_request(tmp_path / "knob-requests", {"format": 1})
    assert list(elsewhere.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_written(tmp_path: Path):
    """Taking a lock writes the holder's number; a link would have it written over another file."""
    victim = tmp_path / "victim"
    victim.write_text("what was here")
    (tmp_path / "collector.lock").symlink_to(victim)
    with pytest.raises(StorageError, match=r"collector\.lock"):
        LivenessLock(tmp_path / "collector.lock")
    assert victim.read_text() == "what was here"


def test_a_lock_that_is_a_pipe_is_not_waited_for(tmp_path: Path):
    """Looking at a pipe in the place of a lock comes back."""
    os.mkfifo(tmp_path / "engine.lock")
    assert is_held(tmp_path / "engine.lock") in (True, False)


def test_a_scrap_that_is_a_link_is_not_written(tmp_path: Path):
    """The name under which a file is begun can be foreseen; a link of that name leads nowhere."""
    victim = tmp_path / "victim"
    victim.write_text("what was here")
    (tmp_path / f".cursor.{os.getpid()}.tmp").symlink_to(victim)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        write_whole(tmp_path / "cursor", b"new")
    assert victim.read_text() == "what was here"


@needs_root
def test_another_users_run_is_read_and_not_collected(tmp_path: Path):
    """Its files say where a database is, so nobody else writes there."""
    run = RunDirectory.create(tmp_path / "runs", engine="test", version="1")
    run.end()
    assert run.stranger is None
    for path in (run.path, run.path / "run.json"):
        os.chown(path, STRANGER, -1)
        assert run.stranger == STRANGER
        with pytest.raises(StorageError, match=f"belongs to user {STRANGER}"):
            run.hold_collector_lock()
        os.chown(path, 0, -1)
    run.hold_collector_lock().release()
    assert run.info.end_reason == "finished"


@pytest.mark.parametrize("name", ["run.json", "engine.lock", "collector.lock"])
def test_the_files_of_a_run_are_its_owners_alone(run: RunDirectory, name: str):
    """Whatever the umask, nobody else reads or writes them."""
    with run.hold_collector_lock():
        assert stat.S_IMODE((run.path / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_a_small_file_is_read_to_a_bound_and_never_waited_for(tmp_path: Path):
    """A huge one, a folder, a device and a pipe are an OSError at once."""
    (tmp_path / "huge").write_bytes(b" " * (MOST_READ_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "huge", tmp_path, Path("/dev/zero"), tmp_path / "pipe", tmp_path / "none"):
        with pytest.raises(OSError, match=r"."):
            read_small(path)
    (tmp_path / "small").write_bytes(b'{"a": 1}')
    assert read_json(tmp_path / "small", dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'"\xff"', b'"\\ud800"', b"1e999", b"9" * 5_000, b"", b"NaN"], ids=range(7)
)
def test_json_that_is_none_has_one_error(text: bytes):
    """Whoever reads a file that may be damaged has one kind of failure to think of."""
    with pytest.raises(msgspec.DecodeError):
        decode_json(text, dict[str, int])


@pytest.mark.parametrize(
    "content",
    [
        "[" * 5_000,
        '{"segment": 1e999, "offset": 0, "seq": 0}',
        "9" * 5_000,
        "x" * 2_000_000,
        '{"segment": 0, "offset": 99999999999999999999, "seq": 0}',
    ],
    ids=range(5),
)
def test_a_cursor_that_is_none_is_told(tmp_path: Path, content: str):
    """It names the file and the remedy; to the journal it is a sink that has read nothing."""
    (tmp_path / "cursors").mkdir()
    (tmp_path / "cursors" / "sqlite").write_text(content)
    with pytest.raises(RecordError, match="cursor"):
        read_cursor(tmp_path, "sqlite")
    assert read_cursors(tmp_path)["sqlite"] == (0, 0, 0)


def test_a_segment_that_is_a_pipe_is_told(tmp_path: Path):
    """A reader does not wait for whoever made it."""
    os.mkfifo(tmp_path / "00000001-00000000.journal")
    with pytest.raises(RecordError, match="no regular file"):
        JournalReader(tmp_path)


def test_a_run_json_without_bound_is_told(run: RunDirectory):
    """It is read to a bound, and nested without end it is an error like any other."""
    for content in (b"[" * 100_000, b'{"format": 1, "a": ' + b"[" * 100_000, b" " * (MOST_READ_BYTES + 1)):
        (run.path / "run.json").write_bytes(content)
        with pytest.raises(RecordError, match=r"run\.json"):
            _ = run.info


def test_a_header_that_states_more_than_a_frame_holds_is_damage(tmp_path: Path):
    """A sound header with a length above the limit has nobody read gigabytes to find its end."""
    with JournalWriter(tmp_path, run_id="run", rank=0) as writer:
        writer.append(b"one")
    (segment,) = tmp_path.glob("*.journal")
    mark = MAGIC + bytes.fromhex(segment.stem.split("-")[1])
    head = mark + bytes((FORMAT, 1, 0, 0)) + (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "little") + (7).to_bytes(8, "little")
    forged = head + crc32(head).to_bytes(4, "little") + b"x" * 100
    with segment.open("ab") as file:
        file.write(forged)
    with JournalReader(tmp_path) as reader:
        assert [frame.payload for frame in reader if frame.kind == 1] == [b"one"]
        assert reader.tail == "corrupt"
        assert reader.tail_bytes == len(forged)
