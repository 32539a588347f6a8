"""What `glassgate doctor` says of the environment: engines, names, entry points, endpoint, room."""

import importlib.metadata
import os
import socket

import pytest

from controller.engines.plugin import supported
from ui.doctor import installation
from ui.doctor.finding import FAIL, OK, WARN, examine


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """Nothing of Glassgate is set here, and the working folder is empty."""
    for name in list(os.environ):
        if name.startswith(("GLASSGATE", "OTEL_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GLASSGATE_HOME", str(tmp_path / "home"))


def installed(monkeypatch, **versions):
    """Have engines of these versions installed here."""

    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(supported, "version", version)


def checks(name):
    """(state, found and remedy) of one check of this environment."""
    return [
        (each.state, f"{each.found} -> {each.remedy}")
        for each in installation.examine_installation()
        if each.check == name
    ]


def test_an_engine_of_another_version_fails_with_the_version_to_install(monkeypatch):
    """An unknown version is named with those that were tested."""
    installed(monkeypatch, sglang="0.6.0", vllm="0.32.0+cpu")
    (bad, good) = checks("engine")
    assert (bad[0], good[0]) == (FAIL, OK)
    assert "0.6.0" in bad[1]
    assert "sglang==0.5.23" in bad[1]


def test_entry_points_and_filters_are_looked_at(monkeypatch):
    """An engine that does not list the plug-in, or was told not to load it, fails."""
    installed(monkeypatch, sglang="0.5.23")
    point = type("Point", (), {"name": "glassgate", "value": "estimator.entry:sglang"})()
    monkeypatch.setattr(installation, "entry_points", lambda group: [point] if group == "sglang.srt.plugins" else [])
    assert [state for state, _ in checks("entry point")] == [OK]
    monkeypatch.setenv("SGLANG_PLUGINS", "a,b")
    assert [state for state, _ in checks("entry point")] == [FAIL]
    monkeypatch.setenv("SGLANG_PLUGINS", "a, glassgate")
    assert [state for state, _ in checks("entry point")] == [OK]
    monkeypatch.setattr(installation, "entry_points", lambda **_: [])
    assert [state for state, _ in checks("entry point")] == [FAIL]


def test_another_owner_of_a_name_of_ours_fails(monkeypatch):
    """A distribution that also brings a package called store is named."""
    monkeypatch.setattr(
        installation, "packages_distributions", lambda: {"store": ["glassgate", "store-sdk"], "ui": ["glassgate"]}
    )
    ((state, words),) = checks("names")
    assert (state, "store-sdk" in words) == (FAIL, True)


def test_a_working_folder_that_was_removed_is_told(monkeypatch, tmp_path):
    """It is a finding with a remedy, not a check that broke."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    told = "the folder that this shell stands in was removed -> cd to one that is there"
    assert checks("working folder") == [(FAIL, told)]


def test_the_otlp_endpoint_is_tried(monkeypatch):
    """Somebody who listens is ok, a closed port fails, and an address that is none fails."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        assert [state for state, _ in checks("OTLP")] == [OK]
    ((state, words),) = checks("OTLP")
    assert (state, f"127.0.0.1:{port}" in words) == (FAIL, True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://")
    assert [state for state, _ in checks("settings") if state == FAIL] == [FAIL]


def test_little_room_is_told(monkeypatch, tmp_path):
    """Less than a journal takes is a warning, almost none a failure."""
    for free, state in ((100 << 30, OK), (3 << 30, WARN), (1 << 20, FAIL)):
        usage = type("Usage", (), {"free": free})()
        monkeypatch.setattr(installation.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert [each.state for each in installation.disk_room(tmp_path, "runs")] == [state]


def test_a_check_that_breaks_is_a_finding():
    """A check that raises what nobody thought of is told as such."""

    def look():
        raise RuntimeError("boom")
        yield

    (finding,) = examine("thing", look)
    assert (finding.check, finding.state) == ("thing", FAIL)
    assert "RuntimeError: boom" in finding.found
