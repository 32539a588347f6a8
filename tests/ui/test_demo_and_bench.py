"""`glassgate demo` and `glassgate bench`."""

import json
import os
import subprocess
from collections.abc import Callable

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_demo_shows_what_stopped_the_batches_and_why_one_request_waited(glassgate: Run):
    """The demo ends with the stops, the slowest waits and the life of the slowest request."""
    done = glassgate("demo", "--sessions", "40")
    assert done.returncode == 0, done.stderr
    for words in ("What stopped the batches", "Who waited longest", "glassgate why s", "entered pass"):
        assert words in done.stdout


def test_the_demo_makes_each_soft_gate_bind(glassgate: Run):
    """In the demo as it ships every gate an operator can set closes passes, so that each can be looked at."""
    summary = json.loads(glassgate("demo", "--json").stdout)
    assert {"request_count", "kv_capacity", "extend_tokens", "cached_tokens", "buffer_bytes", "input_tokens"} <= set(
        summary["closed_by"]
    )


def test_bench_measures_each_stage(glassgate: Run):
    """The benchmark gives a positive figure with its unit for deciding, recording, replaying and keeping."""
    done = glassgate("bench", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert all(row["value"] > 0 and row["unit"] for row in rows)
    names = " ".join(row["what"] for row in rows)
    for words in (
        "decision, batch of 16",
        "record of a decision",
        "replay: ",
        "journal to SQLite",
        "what if: ",
        "search: 8 points",
    ):
        assert words in names


def test_output_into_a_closed_pipe_is_no_error(command: tuple[str, ...], environment: dict[str, str]):
    """`glassgate query | head` ends quietly when the reader goes first."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*command, "query"], env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
