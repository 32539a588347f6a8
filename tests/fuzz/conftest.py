"""A room for the fuzz targets, and the helpers beside these tests importable, which importlib mode leaves to us."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> object:
    """A finished run and a folder to work in, the same for every target."""
    from samples import make_room  # noqa: PLC0415 - importable only now

    with mock.patch.dict(os.environ):
        return make_room(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture
def room(furnished: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """The room, stood in for as long as a test takes; what it does to the environment ends with it."""
    monkeypatch.chdir(furnished.folder)
    with mock.patch.dict(os.environ, {"GLASSGATE_HOME": str(furnished.home)}):
        yield furnished
