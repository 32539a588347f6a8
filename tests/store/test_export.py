"""Export: every table whole in a file, Parquet or CSV, and nothing half-written."""

import csv
import stat
import sys

import pyarrow.parquet
import pytest

from controller.vocabulary import Gate
from estimator.errors import NotFoundError, StorageError, UsageError
from store import export as exporting
from store.database import reading
from store.export import EXPORTED, FORMATS, export
from store.ingest import Ingest


@pytest.fixture
def recorded(database, world):
    """A database with two runs of different length."""
    for name, passes in (("one", 30), ("two", 70)):
        engine = world(name)
        for number in range(passes):
            engine.arrive(f"{name}-{number}", number, 100 + number)
            engine.step(number + 0.5)
        engine.end(300)
        engine.into(database)
    return database


def rows_of(file):
    """The rows of an exported file as tuples of text, '' for none."""
    if file.suffix == ".csv":
        with file.open(newline="") as text:
            return [tuple(row) for row in csv.reader(text)][1:]
    table = pyarrow.parquet.read_table(file)
    return [tuple("" if value is None else str(value) for value in row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("form", FORMATS)
def test_every_row_of_every_table_is_exported(recorded, tmp_path, monkeypatch, form):
    """The files hold, table by table, every row in the order of its key, however many batches it takes."""
    monkeypatch.setattr(exporting, "_BATCH_ROWS", 7)
    files = export(recorded, tmp_path / "out", form=form)
    assert [each.table for each in files] == list(EXPORTED)
    with reading(recorded) as connection:
        for table, file, rows in files:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_xinfo({table})")]
            found = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
            wanted = {tuple("" if value is None else str(value) for value in row) for row in found}
            assert rows == len(found)
            assert set(rows_of(file)) == wanted
            assert len(rows_of(file)) == len(found)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"{name}.{form}" for name in EXPORTED)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()} == {0o600}


def test_parquet_keeps_the_kinds_of_columns(recorded, tmp_path):
    """Whole numbers are 64-bit integers and words strings, also in tables without rows."""
    export(recorded, tmp_path)
    kinds = {field.name: str(field.type) for field in pyarrow.parquet.read_schema(tmp_path / "decisions.parquet")}
    assert (kinds["observed"], kinds["checks"]) == ("int64", "string")
    assert pyarrow.parquet.read_table(tmp_path / "smoke.parquet").num_rows == 0


def test_one_run_can_be_exported_alone(recorded, tmp_path):
    """With a run named, the rows are those of the run, and words are exported whole."""
    files = {each.table: each.rows for each in export(recorded, tmp_path, form="csv", run="one")}
    assert (files["runs"], files["passes"], files["requests"], files["gates"]) == (1, 30, 30, len(Gate))
    with pytest.raises(NotFoundError, match="no run 'three'"):
        export(recorded, tmp_path / "other", form="csv", run="three")


def test_rows_written_meanwhile_have_their_parents(database, world, tmp_path, monkeypatch):
    """While a run goes on, every decision that was exported has its pass and its request in the export too."""
    monkeypatch.setattr(exporting, "_BATCH_ROWS", 5)
    engine = world()
    for number in range(60):
        engine.arrive(f"r{number}", number, 100)
        engine.step(number + 0.5)
    frames = engine.frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[:20])
        real, fed = exporting._export_table, iter(frames[20:])

        def slow(connection, table, *rest):
            done = real(connection, table, *rest)
            ingest.feed([next(fed)])
            return done

        monkeypatch.setattr(exporting, "_export_table", slow)
        export(database, tmp_path, form="csv")
    decisions, passes, requests = (rows_of(tmp_path / f"{name}.csv") for name in ("decisions", "passes", "requests"))
    assert {row[1] for row in decisions} <= {row[1] for row in passes}
    assert {row[3] for row in decisions} <= {row[1] for row in requests}
    assert len(requests) > len(decisions)


def test_an_export_does_not_overwrite(recorded, tmp_path):
    """Files that are there already are left alone, and the export says so."""
    export(recorded, tmp_path, form="csv")
    with pytest.raises(UsageError, match=r"holds knobs\.csv, .* already"):
        export(recorded, tmp_path, form="csv")


def test_two_forms_do_not_share_a_folder(recorded, tmp_path):
    """An export of another form, perhaps of another time or run, is not put between the files of one."""
    export(recorded, tmp_path, form="csv")
    with pytest.raises(UsageError, match=r"holds knobs\.csv, .* already; name another folder"):
        export(recorded, tmp_path, form="parquet")
    assert not list(tmp_path.glob("*.parquet"))


def test_parquet_without_its_library_is_one_line(recorded, tmp_path, monkeypatch):
    """Without pyarrow Parquet is refused with the extra that brings it, and CSV works."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"install glassgate\[export\], or export with --format csv"):
        export(recorded, tmp_path)
    assert list(tmp_path.glob("*.parquet")) == []
    assert export(recorded, tmp_path, form="csv")


def test_a_folder_that_cannot_be_written_is_told(recorded, tmp_path):
    """A folder that cannot be made is one line with the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="name a writable folder"):
        export(recorded, tmp_path / "file" / "out", form="csv")


def test_a_disk_that_fills_up_leaves_no_half_file(recorded, tmp_path, monkeypatch):
    """When writing fails in the middle, the file at hand is not there and the error says why."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting._CsvWriter, "write", full)
    with pytest.raises(StorageError, match="No space left on device; free space"):
        export(recorded, tmp_path, form="csv")
    assert list(tmp_path.glob("*.csv*")) == []
    assert list(tmp_path.glob(".*.part")) == []


def test_an_unknown_form_is_refused(recorded, tmp_path):
    """A form that there is not is refused with those there are."""
    with pytest.raises(UsageError, match="it is one of parquet, csv"):
        export(recorded, tmp_path, form="xlsx")
