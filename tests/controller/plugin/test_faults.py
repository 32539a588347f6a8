"""Faults of a plug-in: said once, counted, kept beside the run, and never the engine's trouble."""

import json
import logging

import pytest

from controller.engines.plugin import Faults, read_faults


def fail(faults, what="recording", error=None, times=1):
    """Something fails."""
    for _ in range(times):
        with faults.contained(what, "the record goes on without it"):
            raise error or ValueError("bad")


def test_the_first_of_a_kind_is_logged_with_what_is_lost_and_the_rest_is_counted(caplog, tmp_path):
    """A thousand failures of one kind are one log line, a count, the first error and where it came from."""
    faults = Faults("SGLang")
    with caplog.at_level(logging.ERROR, "glassgate"):
        fail(faults, times=1000)
        fail(faults, "hashing", KeyError("x"))
    assert [record.message.partition(" failed")[0] for record in caplog.records] == [
        "glassgate: recording",
        "glassgate: hashing",
    ]
    assert "the record goes on without it" in caplog.records[0].message
    assert "SGLang serves on" in caplog.records[0].message
    faults.keep_in(tmp_path)
    recording, hashing = read_faults(tmp_path)
    assert (recording.count, recording.error, recording.lost) == (
        1000,
        "ValueError: bad",
        "the record goes on without it",
    )
    assert "in fail" in recording.trace
    assert (hashing.count, hashing.error) == (1, "KeyError: 'x'")
    assert recording.first_ns <= recording.last_ns


def test_faults_before_the_run_has_a_folder_are_kept(tmp_path):
    """What failed before is written once the folder is known, and what fails later too."""
    faults = Faults("vLLM")
    fail(faults)
    faults.keep_in(tmp_path)
    assert [each.what for each in read_faults(tmp_path)] == ["recording"]
    fail(faults, "another")
    assert [each.what for each in read_faults(tmp_path)] == ["recording", "another"]


def test_a_folder_that_cannot_be_written_is_no_further_fault(tmp_path):
    """Faults that cannot be written down are still counted, and nothing is raised."""
    faults = Faults("vLLM")
    faults.keep_in(tmp_path / "not" / "there")
    fail(faults, times=2)
    assert faults.count("recording") == 2


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", json.dumps({"pid": 1, "faults": [{"what": 1}]}).encode()])
def test_a_file_that_cannot_be_read_holds_no_faults(tmp_path, content):
    """Whatever stands in the file, reading it raises nothing."""
    if content is not None:
        (tmp_path / "faults.json").write_bytes(content)
    assert read_faults(tmp_path) == []


def test_what_ends_a_process_is_not_contained():
    """An exit or an interrupt goes through."""
    faults = Faults("vLLM")
    with pytest.raises(SystemExit):
        fail(faults, error=SystemExit(1))
    assert len(faults) == 0
