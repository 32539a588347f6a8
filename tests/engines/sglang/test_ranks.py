"""Two ranks of one server: each decides for itself, alike; and starts that are refused, on every rank together."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from conftest import server_environment
from serving import FLAGS, Server, tokens

from controller.engines.plugin import read_status
from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.records import Digest, KnobsInForce, Pass, decode
from controller.run_directory import ranks_of

if TYPE_CHECKING:
    from pathlib import Path

    from controller.run_directory import RunDirectory

TWO = ("--tp-size", "2")


def records(run: RunDirectory, kind: type) -> list:
    """Every record of a kind in a rank's journal."""
    with JournalReader(run.journal) as reader:
        found = [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]
    return [record for record in found if isinstance(record, kind)]


def test_knobs_change_under_load_on_two_ranks_and_no_rank_differs(tiny_model, tmp_path):
    """Under load limits come and go on both ranks at the same pass; each pass of the second has the first's digest."""
    environment = server_environment(tmp_path, on="1") | {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with Server(tiny_model, tmp_path, environment, *TWO) as server:
        with server.load(clients=6, output=6) as answers:
            for turn in range(6):
                server.set_knobs(max_requests=1 + turn % 3, max_extend_tokens=128 * (1 + turn % 2))
                time.sleep(0.4)
        served = len(answers)
        assert server.generate("after", tokens(40, 3), 4)["output_ids"]
        first, second = sorted(ranks_of(server.run), key=lambda run: run.info.rank)
        statuses = [read_status(each.path) for each in (first, second)]
        server.until(lambda: read_status(second.path).passes == read_status(first.path).passes, "the same passes")
        whole, digests = records(first, Pass), records(second, Digest)
        assert [each.leads for each in statuses] == [True, False]
        assert [each.ranks for each in statuses] == [2, 2]
        assert records(second, Pass) == []
        assert len([each for each in digests if each.digest]) == len(whole) > 20
        assert [each.revision for each in records(first, KnobsInForce)] == list(range(7))
        bound = server.until(
            lambda: server.ask(
                "SELECT count(*) FROM decisions d JOIN gates g ON g.id = d.gate WHERE g.gate = 'request_count' "
                "AND d.outcome = 3"
            )[0][0],
            "a limit that bound",
        )  # fmt: skip
        assert bound > 0
        time.sleep(2)  # the collector compares what it has of both
        assert server.ask("SELECT count(*) FROM alarms WHERE alarm = 'ranks_differ'") == [(0,)]
        assert served > 10


def refused_start(model: Path, folder: Path, environment: dict[str, str], *flags: str) -> str:
    """What a server says that does not start."""
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(model), "--host", "127.0.0.1", "--port", "0",
        *FLAGS, *flags,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_a_start_is_refused_on_every_rank_when_one_cannot_hold_the_buffers(tiny_model, tmp_path):
    """With smoke required and a limit larger than memory both ranks end, and say what did not fit and what to set."""
    environment = server_environment(tmp_path, on="1", smoke="require", max_buffer_bytes="900TiB")
    said = refused_start(tiny_model, tmp_path, environment | {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}, *TWO)
    refusals = [line for line in said.splitlines() if "the start is refused" in line]
    assert len(refusals) == 2, said[-4000:]
    assert all("2 of 2 ranks" in line for line in refusals)
    assert not list((tmp_path / "home").glob("runs/*/run.json"))


def test_a_bad_setting_stops_the_start_with_its_name(tiny_model, tmp_path):
    """A knob that cannot be is told by its variable before anything is loaded."""
    environment = server_environment(tmp_path, on="1", max_requests="-3")
    said = refused_start(tiny_model, tmp_path, environment)
    assert re.search(r"glassgate: .*GLASSGATE_MAX_REQUESTS.*-3", said), said[-3000:]


BREAKS = """
import importlib.abc
import importlib.util
import sys

class Breaks(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "controller.engines.sglang.sheet":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            write, done = module.Sheet.write, []

            def breaks(self, queue):
                done.append(1)
                if len(done) > 3:
                    raise ZeroDivisionError("a fault of the test")
                return write(self, queue)

            module.Sheet.write = breaks

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Breaks())
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder that makes Glassgate fail in the fourth pass of a process that has it on its path."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BREAKS)
    return folder


def test_when_something_of_ours_fails_the_stock_class_serves_on(tiny_model, tmp_path, broken):
    """The engine answers on, the fault is logged once with what is lost, and doctor tells of it."""
    environment = server_environment(tmp_path, on="1") | {"PYTHONPATH": str(broken)}
    with Server(tiny_model, tmp_path, environment) as server:
        for number in range(8):
            assert len(server.generate(f"r-{number}", tokens(50, number), 4)["output_ids"]) == 4
        server.until(lambda: not server.status.in_force, "the word that it stands aside")
        assert "ZeroDivisionError" in server.status.why_not
        assert server.log.read_text().count("glassgate: sglang.pass failed") == 1
        told = subprocess.run(
            [sys.executable, "-m", "estimator.launch", "doctor"], env=server_environment(tmp_path),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "a fault of the test" in told.stdout
