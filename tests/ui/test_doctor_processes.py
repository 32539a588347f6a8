"""What `glassgate doctor` says of the engines that run on a machine, with Glassgate in them or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.engines.plugin.status import InProcess, PluginStatus, write_status
from controller.run_directory import RunDirectory
from tests.waiting import wait_until
from ui.doctor.finding import FAIL, OK, WARN
from ui.doctor.processes import (
    ancestors,
    engine_of,
    engine_processes,
    environment_of,
    examine_processes,
    left_behind,
    same_environment,
)

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


@pytest.fixture
def server(tmp_path):
    """Starts what looks like an engine's server, in a folder and environment of its own, with a child."""
    module = tmp_path / "sglang" / "launch_server.py"
    module.parent.mkdir()
    module.write_text(CHILD)
    (tmp_path / "where").mkdir()
    started = []

    def start(**environ):
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("GLASSGATE", "SGLANG"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", "--port", "1"],
            env={**bare, "PYTHONPATH": str(tmp_path), **environ}, cwd=tmp_path / "where",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "1\n"
        return process

    yield start
    for process in started:
        process.communicate("\n")


def said(base, pid, **keywords):
    """(state, found and remedy) of what is said of one process."""
    found = [(each.state, f"{each.found} -> {each.remedy}") for each in examine_processes(base, **keywords)]
    return [each for each in found if f"process {pid}" in each[1]]


def child_of(pid):
    """The process that another one started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - a file of the kernel
        return int(file.read().split()[0])


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("python3 -m sglang.launch_server --port 1", "sglang"),
        ("/opt/bin/sglang serve model", "sglang"),
        ("/opt/bin/python /opt/bin/vllm serve model", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server", "vllm"),
        ("vim sglang.launch_server.py", None),
        ("python -m sglang.bench_serving", None),
        ("sglang::scheduler", None),
        ("vllm", None),
        ("", None),
    ],
)
def test_an_engine_is_known_by_its_command_line(line, engine):
    """The ways in which an operator starts a server, and nothing that only looks like one."""
    assert engine_of(line.split(" ")) == engine


def test_an_engine_without_glassgate_is_told_why(server, tmp_path):
    """Switched off is a warning; a filter, or a folder that shadows ours, is a failure with its remedy."""
    off = server()
    assert [pid for pid, _ in engine_processes() if pid == off.pid] == [off.pid]
    assert child_of(off.pid) not in [pid for pid, _ in engine_processes()]
    ((state, words),) = said(tmp_path / "runs", off.pid)
    assert (state, "GLASSGATE was not set" in words) == (WARN, True)
    filtered = server(GLASSGATE="1", SGLANG_PLUGINS="other")
    ((state, words),) = said(tmp_path / "runs", filtered.pid)
    assert (state, "SGLANG_PLUGINS=other keeps SGLang" in words) == (FAIL, True)
    (tmp_path / "where" / "store").mkdir()
    shadowed = server(GLASSGATE="1")
    ((state, words),) = said(tmp_path / "runs", shadowed.pid)
    assert (state, "holds store" in words, "from another folder" in words) == (FAIL, True, True)
    (tmp_path / "where" / "store").rmdir()
    ((state, words),) = said(tmp_path / "runs", shadowed.pid)
    assert (state, "look for 'glassgate' in its log" in words) == (WARN, True)
    odd = server(GLASSGATE="perhaps")
    assert said(tmp_path / "runs", odd.pid)[0][0] == FAIL
    # Asked about one run, doctor does not fail for another engine.
    assert said(tmp_path / "runs", odd.pid, one_run=True)[0][0] == WARN


def test_an_engine_whose_scheduler_is_recorded_is_ok(server, tmp_path):
    """A run of a process that the server started stands for the server."""
    process = server(GLASSGATE="1")
    run = RunDirectory.create(tmp_path / "runs", engine="sglang", version="0.5.23", run_id="proc0001")
    scheduler = child_of(process.pid)
    assert ancestors(scheduler)[0] == process.pid
    write_status(run.path, PluginStatus("sglang", "0.5.23", "1", scheduler, 1, 0, "", 1, True, (), InProcess()))
    ((state, words),) = said(tmp_path / "runs", process.pid)
    assert (state, "recorded in run proc0001" in words) == (OK, True)
    run.release()
    assert said(tmp_path / "runs", process.pid)[0][0] == WARN


def test_an_environment_that_was_written_over_is_not_trusted(tmp_path, monkeypatch):
    """A process that shows a title of its own has no environment left to be read."""
    monkeypatch.setattr("ui.doctor.processes._PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"VLLM::EngineCore\0\0\0")
    assert environment_of(7) is None
    (tmp_path / "7" / "environ").write_bytes(b"PATH=/bin\0GLASSGATE=1\0")
    assert environment_of(7) == {"PATH": "/bin", "GLASSGATE": "1"}
    assert environment_of(8) is None


def test_two_names_of_one_interpreter_are_one_environment():
    """An engine started with `python` runs in the environment of a command that names `python3.11` of that folder."""
    assert same_environment("/venv/bin/python", "/venv/bin/python3.11")
    assert not same_environment("/venv/bin/python", "/other/bin/python")
    assert same_environment("", "/other/bin/python")


def test_a_part_of_an_engine_that_outlived_its_server_is_told(tmp_path):
    """The EngineCore of vLLM goes on where its API server is killed; the doctor names it and what to do."""
    title = "VLLM::EngineCore"
    orphan = subprocess.Popen([title, "60"], executable="/bin/sleep")  # its parent runs another program, as init does
    child = subprocess.Popen([title, "-c", "input()"], executable=sys.executable, stdin=subprocess.PIPE)
    try:
        for each in (orphan, child):  # the kernel tells the title a moment after the program has begun
            wait_until(lambda: Path(f"/proc/{each.pid}/cmdline").read_text().startswith(title))  # noqa: B023 - at once
        found = [each.pid for each in left_behind()]
        assert orphan.pid in found
        assert child.pid not in found
        ((state, words),) = said(tmp_path, orphan.pid)
        assert state == WARN
        assert words.endswith(
            f"outlived its server: no request reaches it, and it keeps its memory -> kill {orphan.pid}"
        )
    finally:
        orphan.kill()
        orphan.wait()
        child.communicate(b"\n")
