"""`glassgate bench --plot`: curves measured, kept as CSV and drawn as SVG."""

import csv
import os
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from estimator.errors import InputError
from ui.bench.curves import Point
from ui.bench.data import DataFile
from ui.bench.growth import SNAPSHOT, WHY, growth
from ui.bench.measure import Measurement, Spread, take_turns
from ui.bench.plots import CURVES, draw
from ui.bench.soak import Sample

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_each_curve_is_measured_and_drawn(glassgate: Run, tmp_path: Path):
    """Of each curve there are data and a picture, and the data say of every point over how many rounds it is."""
    folder = tmp_path / "plots"
    done = glassgate("bench", "--plot", str(folder), "--quick", "--decisions", "2000")
    assert done.returncode == 0, done.stderr
    for name in CURVES:
        with (folder / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == Point._fields
        assert all(0 < float(row["lower"]) <= float(row["median"]) <= float(row["upper"]) for row in rows)
        assert all(int(row["rounds"]) >= 1 for row in rows)
        picture = ET.parse(folder / f"{name}.svg").getroot()  # noqa: S314 - made by ourselves
        assert picture.tag.endswith("svg")
    assert "bytes/decision" in done.stdout
    before = (folder / "queue.svg").read_bytes()
    again = glassgate("bench", "--plot", str(folder), "--redraw")
    assert again.returncode == 0, again.stderr
    assert (folder / "queue.svg").read_bytes() == before, "the same data give the same picture"


def test_a_growing_store_answers_at_every_size():
    """Each size is asked for everything, and the way there is told with what it left on disk."""
    found = list(growth(12_000, lambda _line: None))
    points = [each for each in found if isinstance(each, Point)]
    assert {point.x for point in points} == {10_000, 12_000}
    for size in (10_000, 12_000):
        assert {WHY, SNAPSHOT, "stops", "slowest-waits"} <= {point.series for point in points if point.x == size}
    told = [each for each in found if isinstance(each, Measurement)]
    assert len(told) == 6
    assert all(each.value > 0 for each in told)


def test_a_soak_is_drawn(tmp_path: Path):
    """The samples of a soak become one picture."""
    with DataFile(tmp_path / "soak.csv", Sample) as file:
        for at in range(1, 20):
            file.add(Sample(*[at] * len(Sample._fields)))
    assert draw(tmp_path) == [tmp_path / "soak.svg"]


def test_pictures_ask_nobody_for_anything(tmp_path: Path):
    """A picture names no font file, script or host, so that a page with it loads nothing from elsewhere."""
    with DataFile(tmp_path / "queue.csv", Point) as file:
        file.add(Point("queue", "decided", 10, 1.0, 0.9, 1.1, 5, "us"))
        file.add(Point("queue", "decided", 100, 1.0, 0.9, 1.1, 5, "us"))
    (picture,) = draw(tmp_path)
    for element in ET.parse(picture).iter():  # noqa: S314 - made by ourselves
        assert not element.tag.endswith(("script", "image", "font-face"))
        for name, value in element.attrib.items():
            assert not (name.endswith("href") and not value.startswith("#")), value


def test_nothing_to_draw_is_said(tmp_path: Path):
    """A folder without data is an error that names it."""
    with pytest.raises(InputError, match="holds no measurement to draw"):
        draw(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{columns}\nqueue\n", "line 2: too many or too few fields"),
        ("{columns}\nqueue,decided,1,2,3,4,5,us,more\n", "line 2: too many or too few fields"),
        ("{columns}\nqueue,decided,1,2,3,4,5,us\nqueue,decided,many,2,3,4,5,us\n", "line 3: a field that is no number"),
        ("{columns}\nqueue,decided,1,inf,3,4,5,us\n", "line 2: a field that is no number"),
        ("a,b\n1,2\n", "has the columns .*, not curve, series, x, median"),
        ("\udcff\n", "cannot be read as CSV"),
    ],
)
def test_data_that_is_none_of_ours_is_said(tmp_path: Path, content: str, why: str):
    """Lines that are cut, other columns and words for numbers name the file, what is wrong, and what to do."""
    data = content.format(columns=",".join(Point._fields)).encode(errors="surrogateescape")
    (tmp_path / "queue.csv").write_bytes(data)
    with pytest.raises(InputError, match=rf"queue\.csv.* {why}.*; measure again, or restore it"):
        draw(tmp_path)


def test_data_that_cannot_be_read_is_said_in_words(tmp_path: Path):
    """A folder that is a link to itself, one that is a file, and a pipe in a file's place."""
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "file").write_text("")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "queue.csv")
    for name, why in (
        ("ring", "Too many levels of symbolic links"), ("file", "Not a directory"), ("pipe", "it is no regular file"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=rf"{name}/queue\.csv cannot be read: {why}; measure again"):
            draw(tmp_path / name)


def test_options_that_need_a_folder_say_so(glassgate: Run):
    """`--redraw` without a folder is a mistake in the arguments."""
    done = glassgate("bench", "--redraw")
    assert done.returncode == 2
    assert "--plot FOLDER" in done.stderr


def test_without_the_library_nothing_is_measured(glassgate: Run, tmp_path: Path):
    """Where the extra is not installed, that is said before anything is measured, with the remedy."""
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('gone', name='matplotlib')\n")
    done = glassgate("bench", "--plot", str(tmp_path / "plots"), "--soak", "60", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "pip install 'glassgate[plot]'" in done.stderr
    assert not (tmp_path / "plots").exists()


def test_works_take_turns():
    """In each round every work has its turn, two rounds warm up, and a spread holds its quartiles."""
    calls: list[str] = []
    taken = take_turns({name: (lambda name=name: calls.append(name), 1) for name in "ab"}, 3)
    assert calls == list("ab" * 5)
    assert {spread.rounds for spread in taken.values()} == {3}
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == (7.0, 7.0, 7.0, 1)
