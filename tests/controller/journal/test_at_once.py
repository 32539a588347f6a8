"""A write during which no other thread runs is otherwise a write like any other."""

import errno
import os

import pytest

from controller.journal import JournalWriter
from controller.journal.at_once import write_at_once


def test_every_byte_arrives(tmp_path):
    """Bytes of every value, zeros among them, are written whole and in order, and their number comes back."""
    data = bytes(range(256)) * 3
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    assert [write_at_once(descriptor, each) for each in (data, b"", b"\0")] == [768, 0, 1]
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == data + b"\0"


def test_a_failure_is_an_os_error(tmp_path):
    """What the system refuses is raised with its number and words."""
    (tmp_path / "file").touch()
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as refused:
        write_at_once(descriptor, b"x")
    os.close(descriptor)
    assert refused.value.errno == errno.EBADF


@pytest.mark.parametrize(("stall", "write"), [("lose", write_at_once), ("wait", os.write)])
def test_an_engines_writer_writes_at_once(tmp_path, stall, write):
    """A writer beside an engine's threads does; one that may wait for its disk lets others run meanwhile."""
    with JournalWriter(tmp_path, run_id="run", stall=stall) as journal:
        assert journal._write == write
