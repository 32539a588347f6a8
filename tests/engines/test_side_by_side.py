"""`make side-by-side`: what needs no engine is measured, and an engine that is not there is said to be left out."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_what_is_not_installed_is_left_out_loudly(tmp_path: Path):
    """Without engines the table has our record against a span and against SQLite, and stderr names what is missing."""
    done = subprocess.run(
        [sys.executable, str(HERE / "side_by_side.py"), "--quick", "--rounds", "2", "--engines", str(tmp_path),
         "--json", str(tmp_path / "lines.json")],
        cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("sglang", "vllm"):
        assert f"NOT MEASURED: {name}" in done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    assert [row[0].split(",")[0].strip() for row in rows] == [
        "OpenTelemetry span in the scheduler thread",
        "sqlite3 executemany in the scheduler thread",
        "plain sqlite3 executemany beside the engine",
    ]
    lines = json.loads((tmp_path / "lines.json").read_text())
    assert all(line["theirs_us"] > 0 and line["ours_us"] > 0 for line in lines)
    assert all(line["ratio"]["rounds"] == 2 for line in lines)
    assert all(line["ratio"]["lower"] <= line["ratio"]["median"] <= line["ratio"]["upper"] for line in lines)


def test_a_bench_that_fails_ends_the_run(tmp_path: Path):
    """An engine's bench that ends with an error is told with its code and its words, and no table is printed."""
    for name in ("sglang", "vllm"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / ".ready").touch()
        python = tmp_path / name / "bin" / "python"
        python.write_text("#!/bin/sh\necho broken bench >&2\nexit 3\n")
        python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(HERE / "side_by_side.py"), "--quick", "--rounds", "1", "--engines", str(tmp_path)],
        cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the bench of sglang ended with code 3" in done.stderr
    assert "broken bench" in done.stderr
    assert not done.stdout
