"""`glassgate whatif` and `glassgate tune` as a user runs them."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.engines.plugin.settings import read_settings

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64", "--role", "prefill")
PLANTED = ("--max-extend-tokens", "1024", "--prefill-tokens-per-second", "1000000", "--role", "prefill",
           "--device-tokens", "1M", "--model", "llama-3.1-8b")  # fmt: skip


@pytest.fixture
def recorded(glassgate: Run, trace: Path) -> dict:
    """The summary of a recorded run."""
    return json.loads(glassgate("replay", str(trace), *SMALL, "--max-requests", "1", "--json").stdout)


def planted(glassgate: Run, tmp_path: Path) -> dict:
    """A run whose extend limit is too small: short prompts come fast and each step costs 5 ms."""
    path = tmp_path / "planted.jsonl"
    path.write_text("".join(
        json.dumps({"timestamp": number * 3, "input_length": 600 + number % 7, "output_length": 1,
                    "hash_ids": [2 * number, 2 * number + 1]}) + "\n"
        for number in range(300)
    ))  # fmt: skip
    done = glassgate("replay", str(path), *PLANTED[:2], *PLANTED[4:], "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_side_by_side(glassgate: Run, recorded: dict):
    """The fidelity comes first, on stderr; the table holds all three columns, the change and what parts."""
    done = glassgate("whatif", recorded["run"], "--set", "max_requests=off", "--set", "max_extend_tokens=16k")
    assert done.returncode == 3  # tokens are whole numbers
    done = glassgate("whatif", recorded["run"], "--set", "max_requests=off", "--set", "max_extend_tokens=16384")
    assert done.returncode == 0, done.stderr
    assert "fidelity 1.00: all 200 passes reproduced exactly" in done.stderr
    wanted = (
        "recorded", "replayed", "what if", "change", "TTFT, p99", "queue, p50", "batches closed by", "request_count",
        "host hits used", "peak of buffers", "its limit", "smoke reached", "refused for good", "as recorded, then",
    )  # fmt: skip
    for words in wanted:
        assert words in done.stdout, words
    knob = next(line for line in done.stdout.splitlines() if line.startswith("max_requests"))
    assert knob.split() == ["max_requests", "1", "off"]


def test_where_nothing_closed_a_batch_no_table_says_so(glassgate: Run, trace: Path):
    """A run in which each pass took the whole queue has no empty table of what closed them."""
    assert glassgate("replay", str(trace), "--device-tokens", "unbounded", "--chunked-prefill-size", "1000000",
                     "--max-prefill-tokens", "1000000", "--json").returncode == 0  # fmt: skip
    done = glassgate("whatif", "--set", "max_requests=4096")
    assert done.returncode == 0, done.stderr
    assert "TTFT, p99" in done.stdout
    assert "batches closed by" not in done.stdout


def test_json_has_everything(glassgate: Run, recorded: dict):
    """One document with the figures of all three, the fidelity, the changes and where they part."""
    found = json.loads(glassgate("whatif", "--set", "max_requests=4", "--since", "2m", "--json").stdout)
    assert found["run"] == recorded["run"]
    assert found["fidelity"]["exact"]
    assert found["changes"] == {"max_requests": {"recorded": 1, "new": 4}}
    assert found["what_if"]["batch_size_max"] > found["replayed"]["batch_size_max"] == 1
    assert found["parted"]


def test_without_a_change_only_the_fidelity_is_to_see(glassgate: Run, recorded: dict):
    """The table has two columns then, and the steps may be fitted or a preset's."""
    done = glassgate("whatif", recorded["run"], "--model", "fitted")
    assert done.returncode == 0, done.stderr
    assert "what if" not in done.stdout
    assert "fitted to 200 prefill steps: off by" in done.stderr


def test_a_what_if_is_kept_as_a_run(glassgate: Run, recorded: dict):
    """With --keep the replay under the new knobs is a run that decides what the what-if told, warm-up and all."""
    arguments = ("whatif", recorded["run"], "--set", "max_requests=4", "--since", "+3s", "--json")
    found = json.loads(glassgate(*arguments, "--keep").stdout)
    again = glassgate("whatif", found["kept"], "--since", "+3s", "--json")
    assert "fidelity 1.00" in again.stderr
    kept = json.loads(again.stdout)
    assert kept["recorded"]["batch_size_max"] == found["what_if"]["batch_size_max"] > 1
    assert kept["recorded"]["ttft_p99"] == found["what_if"]["ttft_p99"]
    assert kept["recorded"]["stops"] == found["what_if"]["stops"]
    assert json.loads(glassgate(*arguments).stdout)["kept"] is None


def test_below_the_floor_no_conclusion_is_drawn(glassgate: Run, recorded: dict):
    """Steps that are not the run's make a replay that is not believed: its code is 12 and there is no table."""
    wrong = ("whatif", recorded["run"], "--set", "max_requests=4", "--model", "l4-llama-8b")
    done = glassgate(*wrong)
    assert done.returncode == 12
    assert done.stdout == ""
    assert "no conclusion can be drawn" in done.stderr
    assert glassgate(*wrong, "--min-fidelity", "0").returncode == 0


BAD = (
    (("--set", "max_requests"), 2, "--set 'max_requests' is no KNOB=VALUE"),
    (("--set", "=3"), 2, "is no KNOB=VALUE"),
    (("--set", "max_requests=1", "--set", "max_requests=2"), 2, "--set names max_requests twice"),
    (("--set", "wishes=3"), 3, "'wishes' is no knob; the knobs are"),
    (("--set", "max_requests=zero"), 3, "max_requests is 'zero'"),
    (("--since", "yesterday"), 2, "'yesterday' is no moment of a run"),
    (("--since", "1us"), 2, "'1us' is no moment"),
    (("--since", "1ms"), 7, "no batch was formed in that span"),
    (("--model", "magic"), 2, "--model is 'magic'"),
    (("nobody",), 7, "no run 'nobody'"),
    (("--database", "nothing.db"), 5, "no database at nothing.db"),
    (("--min-fidelity", "nan"), 2, "not a number in a range"),
)


def test_what_cannot_be_is_one_line(glassgate: Run, recorded: dict):
    """The code of the kind of mistake, and its line last on stderr; nothing on stdout and never a traceback."""
    assert recorded
    for number, (arguments, code, told) in enumerate(BAD):
        done = glassgate(("whatif", "tune")[number % 2], *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert told in done.stderr.strip().splitlines()[-1]


def test_of_several_ranks_one_is_looked_at(glassgate: Run, recorded: dict):
    """The lowest unless another is named, and it is said which; one that is not there is an error that says so."""
    with sqlite3.connect(recorded["database"]) as connection:
        connection.execute("INSERT INTO runs (name, rank) SELECT name, 3 FROM runs")
    connection.close()
    done = glassgate("whatif", "--database", recorded["database"])
    assert done.returncode == 0, done.stderr
    assert f"run {recorded['run']} (replay, rank 0 of 0, 3): " in done.stderr
    for command in (("whatif",), ("tune",), ("trace", "export")):
        done = glassgate(*command, "--database", recorded["database"], "--rank", "3")
        assert (done.returncode, done.stdout) == (5, "")
        assert "the record of its start is missing" in done.stderr
        assert glassgate(*command, "--database", recorded["database"], "--rank", "1").returncode == 7


def test_a_record_from_a_newer_version_is_refused(glassgate: Run, recorded: dict):
    """The error names both versions."""
    with sqlite3.connect(recorded["database"]) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = glassgate("whatif", "--database", recorded["database"])
    assert done.returncode == 5
    assert "schema version 99" in done.stderr


def test_tune_finds_a_planted_bottleneck_and_it_is_confirmed(glassgate: Run, tmp_path: Path):
    """The extend limit is raised and nothing else; the file it writes makes the next replay as fast as was told."""
    before = planted(glassgate, tmp_path)
    (tmp_path / "mine.toml").write_text("# kept\nmax_requests = 64\n")
    done = glassgate(
        "tune", before["run"], "--maximise", "tokens_per_second", "--subject-to", "ttft_p99<5s", "--subject-to",
        "peak_buffer<4GiB", "--points", "16", "--jobs", "2", "-o", "mine.toml",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in ("The frontier of 16 points", "chosen: max_extend_tokens", "without it tokens_per_second",
                  "most batches were stopped by extend_tokens", "recorded", "what if"):  # fmt: skip
        assert words in done.stdout, words
    config = (tmp_path / "mine.toml").read_text()
    assert config.startswith("# kept\nmax_requests = 64\nmax_extend_tokens = ")
    read = read_settings(environ={"GLASSGATE_CONFIG": str(tmp_path / "mine.toml")})
    assert read.knobs.max_requests == 64
    assert read.knobs.max_extend_tokens != 1024  # a plug-in reads the same file
    again = json.loads(glassgate(
        "replay", str(tmp_path / "planted.jsonl"), *PLANTED[4:], "--json", GLASSGATE_CONFIG=str(tmp_path / "mine.toml")
    ).stdout)  # fmt: skip
    assert again["ttft_seconds"]["p99"] < 0.8 * before["ttft_seconds"]["p99"]
    assert again["batch_size"]["p50"] > before["batch_size"]["p50"]


def test_what_tune_tells_is_what_is_served_under_its_file(glassgate: Run, tmp_path: Path):
    """Points, figures, what each change is worth; served again under the file every figure is as it was foretold."""
    before = planted(glassgate, tmp_path)
    done = glassgate("tune", "--points", "8", "--knob", "max_extend_tokens=1024:65536", "--json")
    found = json.loads(done.stdout)
    assert found["tried"] == 8
    assert [each["knob"] for each in found["chosen"]["changes"]] == ["max_extend_tokens"]
    assert found["confirmed"]["what_if"]["tokens_per_second"] == found["chosen"]["figures"]["tokens_per_second"]
    assert found["config"].endswith("glassgate-tuned.toml")
    assert found["frontier"]
    tuned = glassgate("replay", str(tmp_path / "planted.jsonl"), *PLANTED[4:], GLASSGATE_CONFIG="glassgate-tuned.toml")
    assert tuned.returncode == 0, tuned.stderr
    served = json.loads(glassgate("whatif", "--json").stdout)["recorded"]
    assert served == found["confirmed"]["what_if"]
    assert served["ttft_p99"] < 0.8 * found["confirmed"]["recorded"]["ttft_p99"]
    again = glassgate("tune", before["run"], "--points", "8", "--knob", "max_extend_tokens=1024:65536", "--json")
    assert "8 points tried before" in again.stderr
    assert json.loads(again.stdout)["frontier"] == found["frontier"]


def test_where_no_point_keeps_the_bounds_nothing_is_written(glassgate: Run, tmp_path: Path):
    """It is said that none does, with those that come nearest."""
    planted(glassgate, tmp_path)
    done = glassgate("tune", "--points", "8", "--subject-to", "ttft_p50<1us", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "none of 8 points keeps ttft_p50<1us" in done.stdout
    assert "Nearest to the bounds" in done.stdout
    assert not (tmp_path / "glassgate-tuned.toml").exists()


BAD_SEARCHES = (
    (("--maximise", "wishes"), 2, "'wishes' is no figure"),
    (("--maximise", "ttft_p99", "--minimise", "ttft_p99"), 2, "a figure is a goal twice"),
    (("--subject-to", "ttft_p99"), 2, "is no bound"),
    (("--knob", "page_size"), 2, "cannot be searched"),
    (("--storage", "nosuch://x"), 2, "the study cannot be kept there"),
    (("--points", "0"), 2, "points"),
)


def test_a_search_that_cannot_be_is_one_line(glassgate: Run, recorded: dict):
    """The code of the kind of mistake, and its line last on stderr."""
    assert recorded
    for arguments, code, told in BAD_SEARCHES:
        done = glassgate("tune", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert told in done.stderr.strip().splitlines()[-1]


def test_ctrl_c_keeps_the_study_and_the_next_time_goes_on(
    glassgate: Run, command: tuple[str, ...], environment: dict[str, str], tmp_path: Path
):  # fmt: skip
    """Interrupted in the middle it ends with what it has and code 130; the same command takes it up."""
    before = planted(glassgate, tmp_path)
    study = Path(before["database"]).with_name(f"{before['run']}.tune")
    process = subprocess.Popen(
        [*command, "tune", "--points", "5000", "--jobs", "1"], env=environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (study.exists() and '"figures"' in study.read_text()):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the workers too
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "the study is kept, and the same command goes on from" in errors
    assert "The frontier of" in out
    again = glassgate("tune", "--points", "1", "--jobs", "1")
    assert again.returncode == 0, again.stderr
    assert " points tried before, 1 wanted" in again.stderr
    assert " 0 points tried before" not in again.stderr
