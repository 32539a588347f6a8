"""`glassgate why` and `glassgate query` on real records."""

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from store.named import Column
from store.queries import Answer
from store.runs import StoredRun
from ui.output import print_answer

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64")


@pytest.fixture
def recorded(glassgate: Run, trace: Path) -> dict:
    """The summary of a recorded replay."""
    done = glassgate("replay", str(trace), *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    summary: dict = json.loads(done.stdout)
    return summary


def test_why_tells_the_life_of_a_request(glassgate: Run, recorded: dict):
    """`why` tells what a request waited for and how it entered, in words and as JSON that agree."""
    slowest = json.loads(glassgate("query", "slowest-waits", "--limit", "1", "--json").stdout)[0]
    told = glassgate("why", slowest["request"])
    assert told.returncode == 0
    assert f"request {slowest['request']} of run {recorded['run']}" in told.stdout
    for words in ("waited", "behind", "looked at", "entered pass", "computed"):
        assert words in told.stdout
    life = json.loads(glassgate("why", slowest["request"], "--json").stdout)
    assert life["waited_ns"] == slowest["wait_ns"]


@pytest.mark.parametrize(
    "name", ["stops", "host-hit-skips", "slowest-waits", "batches", "estimate-vs-smoke", "can-never", "runs", "knobs"]
)
def test_every_named_query_answers_in_every_form(glassgate: Run, recorded: dict, name: str):
    """A named query prints a table, JSON and CSV with the same number of rows."""
    table, as_json, as_csv = (glassgate("query", name, *form) for form in ((), ("--json",), ("--csv",)))
    assert [done.returncode for done in (table, as_json, as_csv)] == [0, 0, 0], table.stderr
    rows = json.loads(as_json.stdout)
    assert len(list(csv.DictReader(io.StringIO(as_csv.stdout)))) == len(rows)
    assert recorded["passes"] > 0


@pytest.mark.parametrize(
    ("simulated", "after_ms", "shown"),
    [
        (0, 250, "22:13:20.250"),
        (None, 250, "22:13:20.250"),
        (0, 7_200_000, "2023-11-15T00:13:20.000Z"),
        (1, 250, "250 ms"),
    ],
)
def test_a_moment_is_told_by_the_clock_on_the_wall(
    capsys: pytest.CaptureFixture[str], simulated: int | None, after_ms: int, shown: str
):
    """A moment of a real run is shown in UTC, on another day with that; of a simulated one as the time into it."""
    hour = 3_600_000_000_000
    run = StoredRun(1, "r", 0, hour, 1_700_000_000_000_000_000, simulated, 2 * hour, None, None)
    print_answer(Answer("x", (Column("at_ns", "at"),), [(hour + after_ms * 1_000_000,)], run=run))
    assert capsys.readouterr().out.split(maxsplit=1)[1].strip() == shown


def test_query_alone_lists_the_questions(glassgate: Run):
    """Without a name the named queries are listed, even where nothing is recorded."""
    done = glassgate("query", "--json")
    assert done.returncode == 0
    assert {"stops", "host-hit-skips", "slowest-waits", "batches", "estimate-vs-smoke"} <= {
        row["name"] for row in json.loads(done.stdout)
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("query", "stosp"), 7, "stops"),
        (("query", "DELETE FROM passes"), 2, "read"),
        (("query", "ATTACH 'x.db' AS x"), 2, "read"),
        (("query", "SELECT 1; DROP TABLE passes"), 2, "SQL"),
        (("query", "SELEC 1"), 2, "SQL"),
        (("query", "stops", "--run", "ffff0000"), 7, "ffff0000"),
        (("query", "stops", "--csv", "--json"), 2, "choose one"),
        (("query", "stops", "--limit", "-1"), 2, "'--limit': -1"),
        (("why", "r20000"), 7, "r20000"),
        (("why", "r1", "--database", "nowhere.db"), 5, "nowhere.db"),
    ],
)
def test_a_bad_question_is_one_line(glassgate: Run, recorded: dict, arguments: tuple[str, ...], code: int, words: str):
    """A question that cannot be answered gives one line, the documented code, and no traceback."""
    done = glassgate(*arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert Path(recorded["database"]).exists()


def test_a_database_that_is_not_ours_is_said(glassgate: Run, tmp_path: Path):
    """A file that is no database, and one that is not Glassgate's, are told apart from an empty record."""
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 40)
    assert glassgate("query", "stops", "--database", "text.db").returncode == 5
    none = glassgate("query", "stops")
    assert none.returncode == 7
    assert "glassgate replay" in none.stderr
