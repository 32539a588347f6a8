"""What the view asks of SQLite are ranges of indexes, what it remembers is bounded, and it needs no terminal."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ui.view
from store.database import reading
from tests.ui.view.showing import ALL, S
from ui.view.memory import Bounded
from ui.view.moment import BUCKETS
from ui.view.snapshot import MOST_ROWS, Ask

MODULES = [f"ui.view.{path.stem}" for path in Path(ui.view.__file__).parent.glob("*.py") if path.stem != "__init__"]
STATEMENTS = {
    f"{name}.{attribute}": getattr(import_module(name), attribute)
    for name in MODULES
    for attribute in dir(import_module(name))
    if attribute.endswith("_SQL") and isinstance(getattr(import_module(name), attribute), str)
}
SMALL = {"knob_changes", "losses", "smoke", "pruned", "runs", "alarms", "cursors"}
"""Tables that do not grow with the decisions of a run."""
WHOLE = {"ui.view.beside.REQUESTS_SQL"}
"""What reads all of one run: two runs are joined by their requests' ids; the reader then waits ten times as long."""
LARGE = ("passes", "decisions", "requests", "repeats", "steps", "retractions", "loads")


def plan(connection, sql):
    """What SQLite would do for a statement."""
    named = re.findall(r":([a-z]+)", sql)
    values = dict.fromkeys(named, 1) if named else ("1",) * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_growing_table_from_end_to_end(recording, name):
    """Every statement of the view searches large tables by an index or a key, and by more than the run alone."""
    sql = STATEMENTS[name]
    aliases = dict(re.findall(rf"({'|'.join(LARGE)}) (?!ON|WHERE|GROUP|ORDER|LEFT|JOIN|CROSS|INDEXED)([a-z])\b", sql))
    large = {*LARGE, *aliases.values()}
    with reading(recording / "glassgate.db") as connection:
        steps = plan(connection, sql)
    assert steps
    assert [step for step in steps if step.startswith("SCAN ") and step.split()[1] in large] == []
    # Of a key that begins with the run, the least and the greatest are found at its ends.
    of_run = [step for step in steps if step.endswith("PRIMARY KEY (run=?)") and step.split()[1] in large]
    assert name in WHOLE or all(re.search(r"(min|max)\(|ORDER BY number( DESC)? LIMIT 1", sql) for _ in of_run)


def test_the_statements_were_found():
    """The check above looks at what the modules really have."""
    assert len(STATEMENTS) > 50


def test_bounded_lets_go_of_what_was_used_last_of_all():
    """Not more than so many values are kept; one that was used lately stays."""
    held = Bounded(3)
    for number in range(3):
        held.put(number, str(number))
    assert held.get(0) == "0"
    held.put(3, "3")
    assert len(held) == 3
    assert held.get(1) is None
    assert held.get(0) == "0"


def test_a_long_run_does_not_grow_the_memory(story, open_view):
    """Twenty windows' worth of passes, followed as they come, leave no more behind than a few windows of stretches."""
    view = open_view(story.into())
    at = 0
    for _ in range(60):
        for _ in range(40):
            at += 2.5
            name = f"r{at}"
            story.arrive(name, at)
            story.passed(at + 0.5, enter=[name])
            story.stepped(story.passes, at + 0.5, at + 1, name)
        story.into()
        answer = view.answer(Ask(panels=ALL), whole=True)
    assert answer.head.ttft.count > 100
    memory = view._opened._memories[1]
    window = memory.window
    assert len(window._buckets) <= 5 * BUCKETS
    assert len(window._pending) <= 1
    assert len(memory.batches) <= 4 * MOST_ROWS
    assert answer.head.passes_in_window == sum(cell.passes for cell in answer.head.strip) <= 121


def test_a_refusal_of_hours_costs_no_more_than_its_window(story, open_view):
    """A refusal that repeats for a day is spread over the stretches of the window alone."""
    story.arrive("a", 1)
    story.passed(2, wait=["a"])
    story.repeat("a", 3, 86_400, 86_398)
    view = open_view(story.into())
    answer = view.answer(Ask(panels=ALL), whole=True)
    assert len(view._opened._memories[1].window._buckets) <= 2 * BUCKETS
    assert 290 <= answer.head.passes_in_window <= 300
    assert answer.head.last_pass == 1 + 86_398
    assert answer.waiting.rows[0].attempts == 1 + 86_398
    assert answer.head.binding.stop.gate == "kv_capacity"
    middle = view.answer(Ask(panels=ALL, at_ns=40_000 * S), whole=True)
    assert middle.head.last_pass == pytest.approx(40_000, abs=2)
    assert middle.waiting.rows[0].attempts == middle.head.last_pass
    assert 290 <= middle.head.passes_in_window <= 300


def test_a_clock_that_was_set_back_spoils_nothing(story, open_view):
    """Passes that begin before their predecessor are shown, and counted where they began."""
    for number in range(20):
        story.arrive(f"a{number}", 1)
        story.passed(100 + number if number < 10 else 50 + number, enter=[f"a{number}"])
    view = open_view(story.into())
    answer = view.answer(Ask(panels=ALL), whole=True)
    assert [row.number for row in answer.passes] == list(range(20, 0, -1))
    assert answer.head.passes_in_window == 20


def test_the_view_needs_no_terminal():
    """Importing every module of the view imports neither Textual nor the app."""
    code = f"""import sys, importlib
for name in {MODULES!r}: importlib.import_module(name)
print([name for name in sys.modules if name.startswith(('textual', 'ui.app'))])"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
