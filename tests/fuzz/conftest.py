"""A room for the fuzz targets, and the helpers beside these tests importable, which importlib mode leaves to us."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A finished run and a folder to work in, the same for every target."""
    from samples import make_room  # noqa: PLC0415 - importable only now

    kept = dict(os.environ)
    folder = tmp_path_factory.mktemp("fuzz")
    cwd = Path.cwd()
    os.chdir(folder)
    try:
        yield make_room(folder)
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(kept)
