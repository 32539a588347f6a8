"""What the store asks of SQLite stays a range of an index, so that it costs the same in a large database."""

import re

import pytest

from store import looks, why
from store.database import reading
from store.named import NAMED
from store.schema import TABLE_NAMES
from ui.view import alarms, happened

WHY_SQL = {name: getattr(module, name) for module in (why, looks) for name in dir(module) if name.endswith("_SQL")}

SMALL = {
    "gates", "reasons", "outcomes", "verdicts", "host_hits", "parts", "runs", "smoke", "losses", "knob_changes",
    "knobs", "alarm_kinds", "alarms", "alarm_watch", "pruned", "rank_marks",
}  # fmt: skip
"""Tables that do not grow with the decisions of a run."""


LARGE = set(TABLE_NAMES) - SMALL


def plan(connection, sql):
    """What SQLite would do for a statement."""
    named = re.findall(r":([a-z]+)", sql)
    values = dict.fromkeys(named, 1) if named else ("1",) * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def scans(connection, sql):
    """The large tables a statement would read from end to end."""
    named = re.findall(r"(?:FROM|JOIN) (\w+)(?: (?!ON|WHERE|GROUP|LEFT|JOIN|CROSS|INDEXED)(\w+))?", sql)
    tables_by_alias = {alias or table: table for table, alias in named}
    scanned = [step.split()[1] for step in plan(connection, sql) if step.startswith("SCAN ")]
    return [each for each in scanned if tables_by_alias.get(each, each) in LARGE]


@pytest.fixture
def recorded(database, world):
    """A database with a small run in it."""
    engine = world()
    for number in range(50):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
    engine.into(database)
    return database


def test_why_reads_ranges_of_indexes_alone(recorded):
    """No statement of `why` reads a growing table from end to end, or sorts what it reads."""
    assert len(WHY_SQL) >= 11
    with reading(recorded) as connection:
        for name, sql in WHY_SQL.items():
            assert scans(connection, sql) == [], name
            assert not [step for step in plan(connection, sql) if "TEMP B-TREE FOR ORDER BY" in step], name


def test_named_queries_read_one_run_alone(recorded):
    """No named query reads a growing table beyond the run asked about; `runs`, which is about all, counts by ranges."""
    with reading(recorded) as connection:
        for name, query in NAMED.items():
            assert scans(connection, query.sql) == [], name


def test_a_scan_would_be_seen(recorded):
    """The check above does see a statement that reads a table from end to end."""
    with reading(recorded) as connection:
        assert scans(connection, "SELECT * FROM decisions WHERE outcome = 3") == ["decisions"]
        assert scans(connection, "SELECT d.gate FROM decisions d WHERE d.outcome = 3") == ["d"]


def test_every_index_is_used(recorded):
    """Each index of the schema is in the plan of a named query, of `why` or of the screen."""
    statements = (
        *WHY_SQL.values(),
        *(query.sql for query in NAMED.values()),
        happened.ABORTED_SQL,
        happened.BACK_SQL,
        alarms.OPEN_SQL,
    )
    with reading(recorded) as connection:
        steps = " ".join(step for sql in statements for step in plan(connection, sql))
        made = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name GLOB '[a-z]*'"
        indexes = [name for (name,) in connection.execute(made)]
    assert len(indexes) > 8
    assert [each for each in sorted(indexes) if not re.search(rf"INDEX {each}\b", steps)] == []
