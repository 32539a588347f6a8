"""Figures in README and docs/performance.md are those of the data beside them."""

import csv
import json
from pathlib import Path

import pytest

from ui.bench.soak import Sample, drifts

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured"
README = {
    "`add_one_req`, all gates recorded": "sglang: all enter, radix tree, call",
    "a whole scheduling pass of 64 requests, in the journal on disk": "sglang: all enter, radix tree, pass",
    "`schedule()`, nine tenths of its slots taken": "vllm: at 9 tenths of the slots, all",
    "`schedule()`, a queue at all times": "vllm: a queue at all times, all",
    "a span a decision in the scheduler's thread": "OpenTelemetry span in the scheduler thread, a decision",
    "`executemany` of 20 integers a decision in the scheduler's thread": "sqlite3 executemany in the scheduler thread, "
    "a decision",
}


def rows(page: str) -> list[list[str]]:
    """The cells of every line of a table on a page."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def ratio(value: float) -> str:
    """A ratio as the pages say it."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


@pytest.fixture(scope="module")
def lines() -> dict[str, dict]:
    """What `make side-by-side` found last, by what was compared."""
    return {line["what"]: line for line in json.loads((MEASURED / "side-by-side.json").read_text(encoding="utf-8"))}


def test_the_readme_has_the_ratios_that_were_measured(lines: dict[str, dict]):
    """Each ratio of the README is the median of the last run."""
    said = {row[1]: row[2] for row in rows("README.md") if len(row) == 3 and row[1] in README}
    assert said == {words: ratio(lines[what]["ratio"]["median"]) for words, what in README.items()}


def test_the_page_has_every_comparison(lines: dict[str, dict]):
    """The table of docs/performance.md holds each line of the data, with its medians and quartiles."""
    said = {tuple(row) for row in rows("docs/performance.md")}
    for what, line in lines.items():
        spread = line["ratio"]
        quartiles = f"{ratio(spread['median'])} ({ratio(spread['lower'])} to {ratio(spread['upper'])})"
        assert (what, f"{line['theirs_us']:,.2f}", f"{line['ours_us']:,.2f}", quartiles) in said


def test_the_page_has_the_answers_by_size():
    """What a query takes at each size is the median in the data."""
    with (MEASURED / "store.csv").open(encoding="utf-8") as file:
        known = {(row["series"], row["x"]): float(row["median"]) for row in csv.DictReader(file)}
    sizes = ("10000", "100000", "1000000", "10000000")
    said = {row[0].strip("`"): row[1:] for row in rows("docs/performance.md") if len(row) == 5}
    listed = {name for name, _ in known} & set(said)
    assert {"why", "overtakes", "slowest-waits"} <= listed
    for name in listed:
        values = [known[name, size] for size in sizes]
        assert said[name] == [f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in values]


def test_the_page_has_the_hour_that_was_measured():
    """Each line of the hour's table is what the samples come to."""
    with (MEASURED / "soak.csv").open(encoding="utf-8") as file:
        samples = [Sample(*(float(row[name]) for name in Sample._fields)) for row in csv.DictReader(file)]
    found = {each.what: each for each in drifts(samples)}
    said = {row[0]: row[1:] for row in rows("docs/performance.md") if len(row) == 6}
    for words, what, scale, digits in (
        ("memory of the engine, MiB", "engine memory", 1 << 20, 1),
        ("memory of the collector, MiB", "collector memory", 1 << 20, 1),
        ("journal, MiB", "journal", 1 << 20, 1),
        ("database, MiB", "database", 1 << 20, 1),
        ("its write-ahead log, MiB", "write-ahead log", 1 << 20, 1),
        ("age of the newest thing in the database, s", "lag of the database", 1, 3),
        ("the engine behind its own schedule, s", "behind its own schedule", 1, 3),
        ("processes of the whole machine that wanted to run", "load of the machine", 1, 1),
    ):
        values = (*found[what].quarters, found[what].greatest)
        assert said[words] == [f"{value / scale:.{digits}f}" for value in values], words
