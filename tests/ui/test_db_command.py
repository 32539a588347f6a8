"""`glassgate db`: check, stats, prune and export on a real record."""

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
OLD = Path(__file__).resolve().parents[1] / "store" / "version_1.sql"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A home with one recorded replay, and the replay's summary."""
    folder = tmp_path_factory.mktemp("replayed")
    lines = [
        {"timestamp": 40 * number, "input_length": 512 * length - 7, "output_length": 20,
         "hash_ids": [1_000 * (number % 20) + block for block in range(length)]}
        for number in range(200) for length in [2 + number // 20]
    ]  # fmt: skip
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GLASSGATE")}
    words = ("replay", "trace.jsonl", "--device-tokens", "20000", "--host-tokens", "60k", "--page-size", "64", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "ui", *words], env={**bare, "GLASSGATE_HOME": str(folder / "home")}, cwd=folder,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return folder / "home", json.loads(done.stdout)


@pytest.fixture
def recorded(replayed: tuple[Path, dict], tmp_path: Path) -> dict:
    """The summary of a recorded replay, in a home of this test's own."""
    home, summary = replayed
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "file").touch()
    return {**summary, "database": str(tmp_path / "home" / Path(summary["database"]).relative_to(home))}


def test_a_sound_database_is_checked(glassgate: Run, recorded: dict):
    """`db check` finds the newest run's database sound, in words and as JSON."""
    told = glassgate("db", "check")
    assert told.returncode == 0, told.stderr
    assert "every page and index is sound" in told.stdout
    found = json.loads(glassgate("db", "check", "--database", recorded["database"], "--json").stdout)
    assert all(each["sound"] for each in found)
    assert {each["what"] for each in found} >= {"integrity", "foreign keys", "schema version", "write-ahead log"}


def test_an_unsound_database_ends_with_its_code(glassgate: Run, recorded: dict):
    """`db check` of a database with orphans prints what it found and ends with code 5."""
    with sqlite3.connect(recorded["database"]) as connection:
        connection.execute("DELETE FROM passes WHERE number = 1")
    done = glassgate("db", "check", "--database", recorded["database"])
    assert done.returncode == 5
    assert "wrong" in done.stdout
    assert done.stderr.startswith("glassgate: database ")
    assert "foreign keys" in done.stderr


def test_an_older_database_is_carried_forward(glassgate: Run, tmp_path: Path):
    """A database of version 1 is refused with the command that carries it forward, which does."""
    old = tmp_path / "old.db"
    with sqlite3.connect(old) as connection:
        connection.executescript(OLD.read_text())
    refused = glassgate("query", "stops", "--database", "old.db")
    assert refused.returncode == 5
    assert "glassgate db check --carry-forward" in refused.stderr
    assert glassgate("db", "check", "--carry-forward", "--database", "old.db").returncode == 0
    assert json.loads(glassgate("query", "stops", "--database", "old.db", "--json").stdout)
    missing = glassgate("db", "check", "--carry-forward", "--database", "nowhere.db")
    assert (missing.returncode, (tmp_path / "nowhere.db").exists()) == (5, False)


def test_stats_add_up(glassgate: Run, recorded: dict):
    """`db stats` gives rows and bytes by table, and bytes a decision."""
    held = json.loads(glassgate("db", "stats", "--json").stdout)
    rows = {each["table"]: each["rows"] for each in held["tables"]}
    assert rows["requests"] == recorded["requests"]
    assert held["file_bytes"] == Path(recorded["database"]).stat().st_size
    assert f"{held['bytes_a_decision']:,.0f} bytes a decision" in glassgate("db", "stats").stderr


def test_pruning_is_planned_and_done(glassgate: Run, recorded: dict, tmp_path: Path):
    """`db prune --dry-run` drops nothing; without it the database shrinks, `query pruned` and `why` say what went."""
    database = tmp_path / "copy.db"
    shutil.copy(recorded["database"], database)
    bound = database.stat().st_size * 3 // 4
    plan = json.loads(
        glassgate("db", "prune", "--max-size", str(bound), "--dry-run", "--json", "--database", "copy.db").stdout
    )
    assert (plan["dry_run"], database.stat().st_size > bound) == (True, True)
    first = json.loads(glassgate("query", "SELECT id FROM requests LIMIT 1", "--database", "copy.db", "--json").stdout)
    done = glassgate("db", "prune", "--max-size", str(bound), "--database", "copy.db")
    assert done.returncode == 0, done.stderr
    assert "larger than" in done.stdout
    assert database.stat().st_size <= bound
    gone = json.loads(glassgate("query", "pruned", "--database", "copy.db", "--json").stdout)
    assert gone[-1]["first_pass"] == plan["dropped"][0]["first_pass"] == 1
    why = glassgate("why", first[0]["id"], "--database", "copy.db")
    assert why.returncode == 7
    assert "was pruned on" in why.stderr
    assert glassgate("db", "check", "--database", "copy.db").returncode == 0


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_an_export_has_every_request(glassgate: Run, recorded: dict, tmp_path: Path, form: str):
    """`db export` writes a file for each table, with every row."""
    done = glassgate("db", "export", "--format", form, "--into", "out", "--json")
    assert done.returncode == 0, done.stderr
    rows = {each["table"]: each["rows"] for each in json.loads(done.stdout)}
    assert rows["requests"] == recorded["requests"]
    file = tmp_path / "out" / f"requests.{form}"
    if form == "csv":
        with file.open(newline="") as text:
            assert len(list(csv.DictReader(text))) == rows["requests"]
    else:
        assert pyarrow.parquet.read_table(file).num_rows == rows["requests"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("check", "--database", "nowhere.db"), 5, "no database at nowhere.db"),
        (("prune",), 2, "give --keep-days, --max-size or both"),
        (("prune", "--max-size", "large"), 2, "is no size in whole bytes; write for instance 500MiB"),
        (("prune", "--keep-days", "-1"), 2, "-1"),
        (("export", "--into", "file/x"), 6, "name a writable folder"),
        (("export",), 2, "--into"),
        (("export", "--into", "x", "--format", "xlsx"), 2, "xlsx"),
        (("stats", "--run", "ffff0000"), 7, "ffff0000"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    glassgate: Run, recorded: dict, arguments: tuple[str, ...], code: int, words: str
):
    """What cannot be done gives one line, the documented code, and no traceback."""
    done = glassgate("db", *arguments)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert Path(recorded["database"]).exists()


def test_prune_makes_no_database_where_there_is_none(glassgate, tmp_path):
    """A mistyped path is refused as it is by the other commands, and nothing stands there afterwards."""
    for arguments in (("--keep-days", "1"), ("--max-size", "1GiB", "--dry-run")):
        done = glassgate("db", "prune", "--database", "typo.db", *arguments)
        assert done.returncode == 5, done.stderr
        assert not (tmp_path / "typo.db").exists()
    for days in ("nan", "inf", "1e300", "1000000"):
        done = glassgate("db", "prune", "--keep-days", days, "--database", "typo.db")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
