"""Check and stats: a sound database is said to be sound, and what is wrong with another is found."""

import sqlite3

import pytest

from store.check import check, stats
from store.database import open_for_writing


def found(database):
    """What was found, by what was looked at."""
    return {each.what: each for each in check(database)}


@pytest.fixture
def recorded(database, world):
    """A database with a small run."""
    engine = world()
    for number in range(200):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
    engine.end(300)
    return engine.into(database)


def test_a_sound_database_is_sound(recorded):
    """Everything that is looked at is sound, and the sizes are told."""
    findings = found(recorded)
    assert all(each.sound for each in findings.values())
    assert findings["size"].found.startswith(f"{recorded.stat().st_size / 1024:.2f} KiB")
    assert list(findings) == [
        "integrity", "foreign keys", "application id", "schema version", "size", "write-ahead log"
    ]  # fmt: skip


def test_rows_without_parents_are_found(recorded):
    """A decision whose pass is gone is found and named."""
    with sqlite3.connect(recorded) as connection:
        connection.execute("DELETE FROM passes WHERE number = 7")
    finding = found(recorded)["foreign keys"]
    assert (finding.sound, finding.found) == (False, "1 row: decisions without its passes")


def test_a_broken_index_is_found(recorded):
    """An index that does not say what its table says makes the database unsound."""
    with sqlite3.connect(recorded) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, '(id)', '(why)') WHERE name = 'requests_id'")
    finding = found(recorded)["integrity"]
    assert not finding.sound
    assert "requests_id" in finding.found


def test_damaged_pages_are_found(recorded):
    """A database whose pages were overwritten is found unsound, and its foreign keys are not looked at."""
    content = bytearray(recorded.read_bytes())
    content[20 * 4096 : 24 * 4096] = b"\xff" * (4 * 4096)
    recorded.write_bytes(content)
    findings = found(recorded)
    assert not findings["integrity"].sound
    assert (findings["foreign keys"].sound, findings["foreign keys"].found) == (False, "not looked at")


def test_stats_add_up(recorded):
    """Rows and bytes by table are those of the file, and a decision's bytes are the file's by its decisions."""
    held = stats(recorded)
    by_name = {each.table: each for each in held.tables}
    assert (by_name["decisions"].rows, by_name["passes"].rows, by_name["runs"].rows) == (200, 200, 1)
    assert held.decisions == 200
    assert held.file_bytes == recorded.stat().st_size
    assert held.bytes_a_decision == pytest.approx((held.file_bytes - held.free_bytes) / 200)
    counted = sum(each.table_bytes + each.index_bytes for each in held.tables)
    assert 0.7 * held.file_bytes < counted <= held.file_bytes
    assert held.tables[0].table == "decisions"


def test_stats_of_an_empty_database(database):
    """A database without decisions has no bytes a decision."""
    open_for_writing(database).close()
    assert stats(database).bytes_a_decision is None
