"""`glassgate ui` without a terminal: the summary, JSON, a picture, and what it refuses."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from controller.journal import JournalReader
from store.ingest import Ingest


def test_without_a_terminal_a_summary_is_printed_and_the_way_to_the_screen_told(glassgate, recording):
    """Stdout has headline, strip, passes and alarms; stderr says how to get the screen; the code is 0."""
    run = glassgate("ui", str(recording), "--at", "+120")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert "run recording" in lines[0]
    assert lines[1].startswith("bound then kv_capacity")
    assert lines[2].startswith("5 min")
    assert "at 2026-01-01 00:02:00 UTC" in run.stdout
    assert "closed by" in run.stdout
    assert "chunk_tokens" in run.stdout
    assert "alarm" in lines[-1]
    assert run.stderr.strip() == (
        "This is no terminal: run `glassgate ui` in one for the screen, or `glassgate ui --web` for a browser."
    )
    assert "\x1b" not in run.stdout


def test_a_database_is_named_by_its_path_and_the_newest_run_by_nothing(glassgate, recording):
    """A file, a run's id in GLASSGATE_HOME, and no name show the same run."""
    home = str(recording.parents[1])
    told = [
        glassgate("ui", *names, GLASSGATE_HOME=home)
        for names in ((str(recording / "glassgate.db"),), ("recording",), ("rec",), ())
    ]
    assert [each.returncode for each in told] == [0, 0, 0, 0], [each.stderr for each in told]
    assert len({each.stdout for each in told}) == 1


def test_json_is_one_document_of_the_whole_snapshot(glassgate, recording):
    """Every panel's part is in it, and nothing is on stderr."""
    run = glassgate("ui", str(recording), "--json")
    snapshot = json.loads(run.stdout)
    assert snapshot["head"]["run"] == "recording"
    for part in ("passes", "waiting", "gates", "hits", "buffers", "knobs", "log"):
        assert snapshot[part], part
    assert run.stderr == ""


def test_a_picture_is_written_and_nothing_else_happens(glassgate, recording, tmp_path):
    """An SVG of that size that fetches nothing from anywhere."""
    run = glassgate("ui", str(recording), "--screenshot", "screen.svg", "--size", "100x30", "--at", "+120")
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert run.stderr.strip() == "written to screen.svg"
    svg = (tmp_path / "screen.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "kv_capacity" in svg
    assert "url(http" not in svg
    assert "font-face" not in svg


def test_a_run_that_was_not_collected_is_collected_first(glassgate, recording, tmp_path):
    """The journal of a run that is over is taken in before it is shown."""
    run = tmp_path / "home" / "runs" / "again"
    shutil.copytree(recording, run)
    for each in run.glob("glassgate.db*"):
        each.unlink()
    told = glassgate("ui", str(run))
    assert told.returncode == 0, told.stderr
    assert "run recording" in told.stdout
    assert (run / "glassgate.db").exists()


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (("nosuch",), 7, "no run 'nosuch' under"),
    (("--size", "9x9"), 2, "--size '9x9' is no size; write COLUMNSxLINES"),
    (("{run}", "--rank", "7"), 7, "run recording has no rank 7; its ranks are 0"),
    (("{run}", "--at", "noon"), 2, "--at: 'noon' is no time; write 12:03"),
    (("{run}", "--at", "noon", "--screenshot", "x.svg"), 2, "--at: 'noon' is no time; write 12:03"),
    (("{run}", "--at", "+1", "--beside", "{run}"), 2, "--at goes with --beside on the screen alone"),
    (("{run}", "--screenshot", "/nosuch/a.svg"), 6, "/nosuch/a.svg: No such file or directory; name a file in"),
    (("nosuch.db",), 5, "no database at nosuch.db"),
    (("--web", "what is this"), 2, "--web 'what is this' is no address; write --web=HOST:PORT"),
])  # fmt: skip
def test_what_cannot_be_shown_is_one_line_and_a_code(glassgate, recording, arguments, code, words):
    """The thing, the value and the remedy, never a traceback."""
    run = glassgate("ui", *(each.format(run=recording) for each in arguments))
    assert run.returncode == code, run.stderr
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert run.stdout == ""


def test_without_any_run_it_says_how_to_record_one(glassgate):
    """An empty home is no empty screen."""
    run = glassgate("ui")
    assert run.returncode == 7
    assert "record one with `glassgate demo` or `glassgate replay`" in run.stderr


def test_the_command_line_starts_without_textual(glassgate):
    """Only those who look at the screen wait for it."""
    code = "import sys, ui.cli, ui.commands.ui; print([each for each in sys.modules if each.startswith('textual')])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    assert "glassgate ui" in glassgate("ui", "--help").stdout


def test_a_picture_of_another_kind_and_a_missing_record_are_refused_first(glassgate, tmp_path):
    """No SVG is written under another name, and nothing is served of what is not there."""
    told = glassgate("ui", "--screenshot", str(tmp_path / "x.png"))
    assert told.returncode == 2
    assert "name one that ends in .svg" in told.stderr
    told = glassgate("ui", str(tmp_path / "nothing"), "--web=127.0.0.1:0")
    assert told.returncode != 0
    assert "the screen is at" not in told.stderr


def test_a_moment_outside_the_run_is_told(glassgate, recording, tmp_path):
    """`--at` beyond either end is shown there, and that it was moved is said, for a summary as for a picture."""
    for at, told in (("-99h", "is before the run began"), ("+99h", "is after the run's end")):
        for form in ((), ("--json",), ("--screenshot", str(tmp_path / "screen.svg"))):
            done = glassgate("ui", str(recording), "--at", at, *form)
            assert done.returncode == 0, done.stderr
            assert f"--at {at} {told}" in done.stderr
        head = json.loads(glassgate("ui", str(recording), "--at", at, "--json").stdout)["head"]
        assert head["at_ns"] == head["first_ns" if at[0] == "-" else "last_ns"]
    inside = glassgate("ui", str(recording), "--at", "+120")
    assert "--at" not in inside.stderr


@pytest.mark.parametrize("taken", ["nothing", "half"])
def test_a_run_that_was_collected_in_part_is_collected_to_its_end(glassgate, recording, tmp_path, taken):
    """A collector that was killed leaves an empty database or a part; the rest is taken in before it is shown."""
    run = tmp_path / "home" / "runs" / "again"
    shutil.copytree(recording, run)
    for each in run.glob("glassgate.db*"):
        each.unlink()
    database = run / "glassgate.db"
    if taken == "half":
        with JournalReader(run / "journal") as reader, Ingest(database, "recording") as ingest:
            frames = list(reader)
            ingest.feed(frames[: len(frames) // 2])
    else:
        database.touch()
    whole, told = (glassgate("ui", str(each), "--json") for each in (recording, run))
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["head"]["last_pass"] == json.loads(whole.stdout)["head"]["last_pass"]


def test_a_picture_of_what_cannot_be_read_is_one_line(glassgate, tmp_path):
    """The app is not begun, so that it cannot fail with more words than an operator wants."""
    (tmp_path / "empty.db").touch()
    told = glassgate("ui", "--screenshot", "x.svg", "empty.db")
    assert told.returncode == 5
    assert len(told.stderr.strip().splitlines()) == 1
    assert "empty.db" in told.stderr


def test_two_runs_beside_each_other_without_a_terminal(glassgate, recording):
    """A summary in words, or one JSON document with every row; the same run parts nowhere from itself."""
    run = glassgate("ui", str(recording), "--beside", str(recording))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == "run recording (recording): 112 batches"
    assert run.stdout.splitlines()[-1] == "112 rows are the same, 0 rows part"
    found = json.loads(glassgate("ui", str(recording), "--beside", str(recording), "--json").stdout)
    assert len(found["rows"]) == 112
    assert found["parting"] == []
    assert found["rows"][0]["left"] == found["rows"][0]["right"]


def test_what_does_not_go_with_beside_is_told(glassgate, recording, tmp_path):
    """A rank, a picture, a run that is not there and a database of a newer version are one line each."""
    newer = tmp_path / "newer.db"
    shutil.copyfile(recording / "glassgate.db", newer)
    with closing(sqlite3.connect(newer)) as database:
        database.execute("PRAGMA user_version = 99")
    for arguments, code, words in (
        (("--beside", str(recording), "--rank", "0"), 2, "--beside goes with neither --rank nor --screenshot"),
        (("--beside", "nobody"), 7, "nobody"),
        (("--beside", str(newer)), 5, "99"),
    ):
        run = glassgate("ui", str(recording), *arguments)
        assert run.returncode == code, run.stderr
        assert run.stdout == ""
        assert words in run.stderr
        assert "Traceback" not in run.stderr
