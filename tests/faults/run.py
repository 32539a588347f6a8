"""The long form of the fault tests, and the table of what came of it.

    python -m tests.faults.run [--rounds 200] [--minutes N] [--seed N] [--jobs N] [--only WORDS] ...

It runs each test of this folder in a process of its own with so many rounds, kills each real engine that is installed
under FOLDER, and rewrites the table in docs/reliability.md from what the tests noted. Where a test fails the table
stays as it was; with a file of notes the next call with the same rounds and seed goes on where it ended.
"""

import argparse
import datetime as dt
import json
import math
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
ENGINES = ("sglang", "vllm")
PYTEST = (sys.executable, "-m", "pytest")


def main() -> int:
    """Run everything; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description="Faults done on purpose, many times; rewrites docs/reliability.md.")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each kill (200)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="of every random choice")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="no test begins a round after so many (no limit)"
    )
    parser.add_argument("--engines", type=Path, default=ROOT / ".engines", help="where `make engines` put them")
    parser.add_argument("--no-engines", action="store_true", help="leave the real engines out")
    parser.add_argument("--notes", type=Path, help="keep there what the tests note, and do not do again what is there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests at the same time (one a core)")
    parser.add_argument("--only", default="", help="tests by name, as pytest's -k has it; the table is not rewritten")
    asked = parser.parse_args()
    say(f"faults: --rounds {asked.rounds} --seed {asked.seed}")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        notes = asked.notes.absolute() if asked.notes else Path(folder) / "notes"
        done = {row["test"] for row in rows_of(notes, asked.rounds, asked.seed)}
        environment = {
            **os.environ,
            "FAULTS_ROUNDS": str(asked.rounds),
            "FAULTS_SEED": str(asked.seed),
            "FAULTS_MINUTES": str(asked.minutes),
            "FAULTS_NOTES": str(notes),
        }
        commands = [[*PYTEST, each] for each in tests_of(asked.only) if each not in done]
        left_out = []
        for engine in () if asked.no_engines or asked.only else ENGINES:
            command = kill_engine(engine, asked.engines / engine)
            if command is None:
                left_out.append(engine)
            elif not any(each.startswith(command[-1]) for each in done):
                commands.append(command)
        failed = sum(pool.map(lambda command: run(command, environment), commands))
        rows = rows_of(notes, asked.rounds, asked.seed)
    for row in rows:
        say(json.dumps(row))
    if failed:
        say(f"faults: failed, so {PAGE.relative_to(ROOT)} stays as it was; try again with --seed {asked.seed}")
        return 1
    if asked.only:
        return 0
    rewrite(rows, asked.seed, asked.rounds, left_out)
    return 0


def say(line: str) -> None:
    """Tell it at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def rows_of(notes: Path, rounds: int, seed: int) -> list[dict[str, Any]]:
    """What the tests noted with so many rounds and that seed; of a test that ran twice the last."""
    rows = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()] if notes.exists() else []
    return list({row["test"]: row for row in rows if (row["rounds"], row["seed"]) == (rounds, seed)}.values())


def tests_of(words: str) -> list[str]:
    """The tests of this folder that have such words in their names."""
    command = [*PYTEST, "tests/faults", "--collect-only", "-q", *(["-k", words] if words else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def run(command: list[str], environment: dict[str, str]) -> int:
    """Run one test to its end; 1 if it failed, which is told with all that it said."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    word = "failed" if done.returncode else "passed"
    say(f"faults: {word} in {time.monotonic() - began:.0f} s: {command[-1]}")
    if done.returncode:
        say(done.stdout + done.stderr)
    return int(done.returncode != 0)


def kill_engine(engine: str, environment_of: Path) -> list[str] | None:
    """The test that kills a real engine, in its own environment; None, said loudly, where it is not installed."""
    if not (environment_of / ".ready").exists():
        say(f"\n######## NOT TESTED: kill -9 of {engine}\n######## it is not under {environment_of}; `make engines`\n")
        return None
    python = str(environment_of / "bin" / "python")
    return [python, "-m", "pytest", "-c", "tests/engines/pytest.ini", "--rootdir", ".",
            f"tests/engines/{engine}/test_killed.py"]  # fmt: skip


def rewrite(rows: list[dict[str, Any]], seed: int, rounds: int, left_out: list[str]) -> None:
    """Put the figures between the marks of the page."""
    lines = [
        f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d} by `make faults ROUNDS={rounds} SEED={seed}` in "
        f"{sum(row['seconds'] for row in rows) / 60:,.0f} minutes of tests, with Python {platform.python_version()} on "
        f"a virtual machine with {os.cpu_count()} {platform.machine()} cores that other work kept busy."
        + "".join(f" {each} was not installed." for each in left_out),
        "",
        "| fault | how | times | decisions compared | frames lost, all counted | told twice | what else was seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda each: each["place"]):
        seen = [row["remark"], *(f"{what}: {count:,}" for what, count in row["extra"].items())]
        lines.append(
            f"| {row['fault']} | {row['how']} | {row['times']:,} {row['unit']} | {row['decisions']:,} | "
            f"{row['lost_frames']:,} | {row['doubled']:,} | {'; '.join(each for each in seen if each)} |"
        )
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")
    say(f"faults: {PAGE.relative_to(ROOT)} has the figures")


if __name__ == "__main__":
    sys.exit(main())
