"""Tests against real engines.

Each engine's folder runs in that engine's environment, by `make engines`; elsewhere it is left out, and
`test_engines.py` says so.
"""

import os
import sys
from pathlib import Path

import pytest

from controller.engines.plugin import SUPPORTED, fit
from tests.engines.support.http_server import free_port

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folder of an engine that is not installed here, and what is no test."""
    if collection_path.parent == HERE and collection_path.name == "support":
        return True
    for name, engine in SUPPORTED.items():
        if collection_path.is_relative_to(HERE / name) and fit(engine).installed is None:
            return True
    return None


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny model: the one made with the environment, else one made now."""
    made = Path(sys.prefix) / "tiny-model"
    if (made / "config.json").is_file():
        return made
    import tiny_model as maker  # noqa: PLC0415 - from support, which an engine's environment alone can import

    folder = tmp_path_factory.mktemp("tiny-model")
    maker.make(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for this test's runs."""
    return tmp_path / "home"


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of an engine's server: nothing of Glassgate from outside, one thread, nothing fetched."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("GLASSGATE", "OTEL_"))}
    support = str(HERE / "support")
    return {
        **bare,
        "GLASSGATE_HOME": str(home),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONPATH": os.pathsep.join(each for each in (support, bare.get("PYTHONPATH")) if each),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@pytest.fixture
def port() -> int:
    """A port of this machine that nobody else has."""
    return free_port()
