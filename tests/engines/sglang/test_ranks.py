"""Two ranks of one server: each decides for itself, alike; and starts that are refused, on every rank together."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
from typing import TYPE_CHECKING

import pytest
from conftest import server_environment
from http_server import START_SECONDS, HttpServer, free_port
from serving import PAGE, POOL, Server, command_of, records_of, tokens

from controller.engines.plugin import read_status
from controller.records import Digest, KnobsInForce, Pass
from controller.run_directory import ranks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TWO = ("--tp-size", "2")
TRACED = ("--enable-trace", "--otlp-traces-endpoint", "127.0.0.1:9")
"""The engine carries the trace of each request; where it would send its own spans to, nobody listens."""


@pytest.fixture(scope="module")
def two(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two ranks with an admin key, a limit on buffers that fits, traces, and the engine's test retractions.

    What can never fit is refused.
    """
    folder = tmp_path_factory.mktemp("two")
    environment = server_environment(folder, on="1", max_buffer_bytes="64MiB", can_never="on") | {
        "SGLANG_CPU_OMP_THREADS_BIND": "0|1", "SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "16",
    }  # fmt: skip
    with Server(tiny_model, folder, environment, *TWO, *TRACED, "--admin-api-key", "of-the-test") as server:
        yield server


def compared(two: Server) -> list[Pass]:
    """The passes of the first rank, once each of them was compared with the second's and no rank differs."""
    first, second = ranks_of(two.run)
    two.until(lambda: read_status(second.path).passes == read_status(first.path).passes, "the same passes")
    whole = records_of(first, Pass)
    done = f"SELECT 1 FROM rank_marks WHERE compared >= {whole[-1].number}"
    two.until(lambda: two.ask(done), "the comparison of every pass")
    assert two.ask("SELECT count(*) FROM alarms WHERE alarm = 'ranks_differ'") == [(0,)]
    return whole


def test_knobs_change_under_load_on_two_ranks_and_no_rank_differs(two):
    """Under load limits come and go on both ranks at the same pass; each pass of the second has the first's digest."""
    with two.load(clients=6, output=6) as answers:
        for turn in range(6):
            two.set_knobs(max_requests=1 + turn % 3, max_extend_tokens=128 * (1 + turn % 2))
            time.sleep(0.4)
    assert two.generate("after", tokens(40, 3), 4)["output_ids"]
    first, second = ranks_of(two.run)
    whole = compared(two)
    digests = records_of(second, Digest)
    statuses = [read_status(each.path) for each in (first, second)]
    assert [(each.leads, each.ranks, each.group) for each in statuses] == [(True, 2, "dp0"), (False, 2, "dp0")]
    assert records_of(second, Pass) == []
    assert len([each for each in digests if each.digest]) == len(whole) > 20
    assert [each.revision for each in records_of(first, KnobsInForce)] == list(range(7))
    bound = "SELECT 1 FROM decisions d JOIN gates g ON g.id = d.gate WHERE g.gate = 'request_count' AND d.outcome = 3"
    assert two.until(lambda: two.ask(bound), "a limit that bound")
    assert len(answers) > 10


def test_what_can_never_fit_leaves_both_ranks_alike(two):
    """Every rank lets the same request go in the same pass; its client is told, the others are served."""
    others = [(f"beside-{number}", tokens(40, 4_000 + number), 4) for number in range(4)]
    found = two.burst([("never-two", tokens(POOL - 11, 77), 4), *others])
    assert found["never-two"]["error"].code == 400
    assert all(len(found[name]["output_ids"]) == 4 for name, _, _ in others)
    refused = "SELECT 1 FROM requests WHERE id = 'never-two' AND ended = 'can_never'"
    two.until(lambda: two.ask(refused), "the refusal")
    compared(two)


def test_the_requests_own_trace_is_in_the_record(two):
    """With tracing on in the engine a request's queue span stands in the trace that its client sent."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    two.generate("traced", tokens(40, 5), 4, traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    kept = two.until(lambda: two.ask("SELECT traceparent FROM requests WHERE id = 'traced'"), "the request")
    assert kept[0][0].split("-")[1] == trace


def test_the_admin_key_guards_the_knobs(two):
    """Without the engine's admin key its endpoint turns no knob; the collector has it, and it is written nowhere."""
    assert two.status.way.needs_key
    with pytest.raises(urllib.error.HTTPError) as refused:
        two.post("/set_internal_state", {"server_args": {"glassgate_max_requests": 1}})
    assert refused.value.code == 401
    two.set_knobs(max_requests=5)
    kept = [each for each in two.home.rglob("*") if each.is_file() and b"of-the-test" in each.read_bytes()]
    assert kept == []


def test_the_smoke_allocation_of_every_rank_is_recorded(two):
    """Each rank allocated what the limit allows, on its own device, before it served."""
    rows = two.until(lambda: two.ask("SELECT asked_bytes, passed, device FROM smoke"), "the smoke allocations")
    assert rows == [(64 << 20, 1, "cpu")] * 2


def test_retractions_are_recorded_with_what_they_gave_back(two):
    """Running requests that the engine puts back into its queue are retractions, with tokens generated and given back.

    One is put aside at every sixteenth step, perhaps before its first token is out. With nobody else on its prompt it
    gives back what it holds, in whole pages.
    """
    answers = two.burst([(f"back-{number}", tokens(60, 3_000 + number), 40) for number in range(6)])
    assert all(len(answer["output_ids"]) == 40 for answer in answers.values())
    done = "SELECT count(*) FROM requests WHERE id LIKE 'back-%' AND ended = 'finish'"
    two.until(lambda: two.ask(done)[0][0] == 6, "the end of the burst")
    ((every,),) = two.ask("SELECT count(*) FROM retractions")
    assert 2 * every == two.metric("sglang:num_retracted_requests_total")  # each rank counts
    rows = two.ask("SELECT kind, generated_tokens, freed_tokens FROM v_retractions WHERE request_id LIKE 'back-%'")
    assert rows
    for kind, generated, freed in rows:
        assert kind == "retract"
        assert 0 <= generated <= 40
        assert freed % PAGE == 0
        assert 60 - PAGE < freed < 60 + generated + 2 * PAGE


def refused_start(model: Path, folder: Path, environment: dict[str, str], *flags: str) -> str:
    """What a server says that does not start."""
    server = HttpServer(command_of(model, free_port(), *flags), folder, environment, 0, "")
    try:
        assert server.ends_within(START_SECONDS), server.log.read_text()[-4000:]
    finally:
        server.stop()
    assert server.process.returncode != 0
    return server.log.read_text()


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
