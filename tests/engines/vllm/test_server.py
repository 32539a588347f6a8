"""A real API server under real HTTP traffic: what an operator does to it, and what is left when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import bare
import pytest
from server import Load, Server

from controller.decision import Decision
from controller.engines.plugin import read_faults, read_status
from controller.engines.plugin.collector import collector_log
from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.liveness import is_held
from controller.records import Arrival, Pass, decode
from controller.run_directory import RunDirectory, list_runs, ranks_of
from store.queries import run_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 600
"""How long a collector at low priority may take on a machine with more to do; nothing waits longer than it has to."""

HOST_CACHE = {
    "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 64 << 20, "spec_name": "HostSpec", "spec_module_path": "host_offload",
    },
}  # fmt: skip


class Operator:
    """Somebody with the glassgate command, and the run of the server."""

    def __init__(self, environment: dict[str, str], folder: Path, home: Path, run: RunDirectory | None = None) -> None:
        self._environment, self._folder = environment, folder
        self.run = run or next(listed.run for listed in list_runs(home / "runs"))

    @property
    def database(self) -> Path:
        """What the collector beside the engine writes."""
        return self.run.path / "glassgate.db"

    def says(self, *arguments: str, code: int = 0) -> str:
        """What the command prints, which ends with that code."""
        command = [sys.executable, "-P", "-m", "estimator.launch", *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query on the collected database."""
        return run_query(self.database, sql, limit=100_000).as_dicts()

    def one(self, sql: str) -> Any:
        """The one value of a query."""
        (row,) = self.rows(sql)
        (value,) = row.values()
        return value

    def until(self, found: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait until the record says so."""
        end = time.monotonic() + seconds
        while not found():
            assert time.monotonic() < end, f"run {self.run.path.name}, {self.run.state}: {self._collector_says()}"
            time.sleep(0.2)

    def _collector_says(self) -> str:
        """The end of what the collector beside the engine wrote."""
        log = collector_log(self.run.path)
        return log.read_text()[-2000:] if log.exists() else "no collector wrote anything"

    def sees(self, count: int) -> None:
        """Wait until so many requests have arrived in the engine, by its journal."""
        self.until(lambda: len(self.journal()[1]) >= count)

    def journal(self) -> tuple[list[Pass], dict[int, str]]:
        """Every pass in the journal, and the id of each request by its number."""
        with JournalReader(self.run.journal) as reader:
            records = [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]
        names = {each.number: each.id for each in records if isinstance(each, Arrival)}
        return [each for each in records if isinstance(each, Pass)], names


@pytest.fixture
def operator_environment(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a server with the plug-in on: limits that bind, and a smoke allocation that must pass."""
    return {
        **environment,
        "GLASSGATE": "1",
        "GLASSGATE_MAX_REQUESTS": "4",
        "GLASSGATE_MAX_BUFFER_BYTES": "16MiB",
        "GLASSGATE_SMOKE": "require",
    }


def test_a_server_under_traffic(
    operator_environment: dict[str, str], tiny_model: Path, port: int, tmp_path: Path, home: Path
) -> None:
    """Requests add up with /metrics, knobs turn under load, and no dead collector or dead engine loses a pass.

    One server for all of it, since it takes half a minute to start. Its worker is a process of its own.
    """
    arguments = (
        "--max-num-batched-tokens", "256", "--max-num-seqs", "6", "--block-size", "32", "--num-gpu-blocks-override",
        "120", "--distributed-executor-backend", "mp",
    )  # fmt: skip
    with Server(tiny_model, port, operator_environment, tmp_path, *arguments) as server:
        operator = Operator(operator_environment, tmp_path, home)
        _starts_in_force(operator, server)
        _adds_up(operator, server)
        _turns_knobs_under_load(operator, server)
        _outlives_its_collector(operator, server)
        _is_killed_under_load(operator, server)


def _starts_in_force(operator: Operator, server: Server) -> None:
    """The plug-in proves that it is in force, in the engine's own process, with a collector beside it."""
    status = read_status(operator.run.path)
    assert status is not None
    assert status.in_force
    assert status.replaced == ("vllm.v1.core.sched.scheduler.Scheduler",)
    assert status.collector_pid
    assert read_faults(operator.run.path) == []
    assert "0 failed" in operator.says("doctor", operator.run.path.name)
    # The smoke allocation was made by the worker, whose process is not the scheduler's.
    operator.until(lambda: operator.database.exists() and operator.rows("SELECT passed FROM smoke"))
    assert operator.rows("SELECT device, asked_bytes, passed FROM smoke") == [
        {"device": "cpu", "asked_bytes": 16 << 20, "passed": 1}
    ]
    assert "Worker_" in server.log.read_text() or "Worker pid" in server.log.read_text()


def _adds_up(operator: Operator, server: Server) -> None:
    """What clients were answered, what the engine counts and what is stored are the same requests and tokens."""
    with Load(server) as load:
        load.serves(60)
    assert not load.failures
    answers = load.answers
    operator.until(lambda: operator.one("SELECT count(*) FROM requests WHERE ended = 'finish'") == len(answers))
    stored = {row["id"]: row for row in operator.rows("SELECT * FROM requests")}
    assert len(stored) == len(answers) == int(server.metric("vllm:request_success_total"))
    for answer in answers:
        row = stored[answer["id"] + "-0"]
        usage = answer["usage"]
        assert (row["prompt_tokens"], row["generated_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert operator.one("SELECT sum(prompt_tokens) FROM requests") == int(server.metric("vllm:prompt_tokens_total"))
    assert operator.one("SELECT sum(device_hit_tokens) FROM requests") == int(
        server.metric("vllm:prefix_cache_hits_total")
    )
    assert operator.one("SELECT max(members) FROM passes WHERE number > 0") <= 6
    assert "request_slots" in operator.says("query", "stops", "--run", operator.run.path.name)


def _turns_knobs_under_load(operator: Operator, server: Server) -> None:
    """A limit set by an operator is in force from one pass on; one that vLLM fixed is refused with the reason."""
    name = operator.run.path.name
    _crowd(operator, server)
    with Load(server) as load:
        load.serves(20)
        told = operator.says("knobs", "set", name, "max_requests=1", "--who", "operator", "--wait", "120")
        assert "max_requests" in told
        load.serves(40)
        refused = operator.says("knobs", "set", name, "page_size=64", "--wait", "120", code=3)
        assert "page_size is fixed at 32" in refused
    assert not load.failures
    _crowd(operator, server)
    joined = (
        "SELECT max(n) FROM (SELECT count(*) AS n FROM decisions d "
        "JOIN passes p ON p.run = d.run AND p.number = d.pass "
        "WHERE d.outcome IN (0, 1) AND d.done_tokens = 0 AND p.revision = {} GROUP BY d.pass)"
    )
    operator.until(lambda: operator.rows("SELECT number FROM passes WHERE revision = 1"))
    operator.until(lambda: operator.one("SELECT count(*) FROM requests WHERE end_ns IS NULL") == 0)
    assert operator.one(joined.format(0)) > 1
    assert operator.one(joined.format(1)) == 1
    kept = operator.one(
        "SELECT count(*) FROM v_decisions d JOIN passes p ON p.run = d.run AND p.number = d.pass "
        "WHERE d.gate = 'request_count' AND d.limit_value = 1 AND p.revision = 1"
    )
    assert kept > 0
    changes = operator.rows("SELECT who, knob, new, accepted FROM knob_changes ORDER BY id")
    assert changes[0] == {"who": "operator", "knob": "max_requests", "new": 1, "accepted": 1}
    assert changes[1]["accepted"] == 0


def _crowd(operator: Operator, server: Server) -> None:
    """Many requests at once to free slots, so that a limit on those that join binds."""
    known = len(operator.journal()[1])
    server.complete_at_once(bare.prompts(12), lambda: operator.sees(known + 12))


def _outlives_its_collector(operator: Operator, server: Server) -> None:
    """A collector that was killed is started again by hand and catches up with everything, told once."""
    status = read_status(operator.run.path)
    assert status is not None
    os.kill(status.collector_pid, signal.SIGKILL)
    operator.until(lambda: operator.run.state == "collector_gone")
    with Load(server) as load:
        load.serves(30)
    assert not load.failures
    served = int(server.metric("vllm:request_success_total"))
    assert operator.one("SELECT count(*) FROM requests WHERE ended = 'finish'") < served

    def catches_up() -> bool:
        operator.says("collect", str(operator.run.path), "--once")
        return bool(operator.one("SELECT count(*) FROM requests WHERE ended = 'finish'") == served)

    operator.until(catches_up)
    passes, _ = operator.journal()
    assert operator.one("SELECT count(*) FROM passes") == len(passes)
    assert operator.rows("SELECT * FROM losses") == []


def _is_killed_under_load(operator: Operator, server: Server) -> None:
    """After kill -9 of the engine the record can be asked about up to the very last pass."""
    status = read_status(operator.run.path)
    assert status is not None
    with Load(server) as load:
        load.serves(20)
        os.kill(status.pid, signal.SIGKILL)
        assert server.ends_within(SECONDS)
    assert load.failures
    assert operator.run.state == "engine_gone"
    operator.says("collect", str(operator.run.path), "--once")
    passes, names = operator.journal()
    last = passes[-1]
    assert operator.one("SELECT max(number) FROM passes") == last.number
    assert operator.one("SELECT count(*) FROM passes") == len(passes)
    name = names[Decision.read(last.decisions[-1]).number]
    told = operator.says("why", name, "--run", operator.run.path.name)
    assert name in told
    life = json.loads(operator.says("why", name, "--run", operator.run.path.name, "--json"))
    assert life["id"] == name
    assert life["end_ns"] is None


def test_answers_over_http_are_the_stock_servers(
    environment: dict[str, str], tiny_model: Path, port: int, tmp_path: Path, home: Path
) -> None:
    """Under limits that bind and with a host cache clients are answered as by the stock server, and all of it is told.

    Each gate stands in the store with its numbers; one host hit is loaded, another is too short, and said to be.
    """
    arguments = (
        "--max-num-batched-tokens", "512", "--max-num-seqs", "6", "--block-size", "32", "--num-gpu-blocks-override",
        "60", "--max-model-len", "1024", "--dtype", "float32", "--kv-transfer-config", json.dumps(HOST_CACHE),
    )  # fmt: skip
    limits = {"request_count": 2, "extend_tokens": 400, "cached_tokens": 96, "buffer_bytes": 500_000}
    ours = {
        **environment, "GLASSGATE": "1", "GLASSGATE_MAX_REQUESTS": "2", "GLASSGATE_MAX_EXTEND_TOKENS": "400",
        "GLASSGATE_MAX_CACHED_TOKENS": "96", "GLASSGATE_MAX_BUFFER_BYTES": "500000",
        "GLASSGATE_LOAD_BACK_THRESHOLD": "200",
    }  # fmt: skip
    with Server(tiny_model, port, environment, tmp_path, *arguments) as server:
        stock = _answers(server, lambda: None)
    with Server(tiny_model, port, ours, tmp_path, *arguments) as server:
        operator = Operator(ours, tmp_path, home)
        answered = _answers(server, lambda: operator.sees(len(stock)))
        assert _agree(stock, answered) > 0.9 * sum(len(each) for each in stock)
        finished = "SELECT count(*) FROM requests WHERE ended = 'finish'"
        operator.until(lambda: operator.one(finished) == len(stock))
        assert server.metric("vllm:request_success_total") == len(stock)
        loaded = operator.one("SELECT sum(host_loaded_tokens) FROM requests")
        assert loaded == operator.one("SELECT sum(tokens) FROM loads") > 0
        assert loaded == server.metric("vllm:external_prefix_cache_hits_total")
    held = operator.rows(
        "SELECT gate, min(observed) AS least, max(limit_value) AS most FROM v_decisions "
        "WHERE outcome = 'wait' AND reason = 'limit' GROUP BY gate"
    )
    assert {row["gate"]: row["most"] for row in held} == limits
    assert all(row["least"] > row["most"] for row in held)
    skipped = operator.rows("SELECT DISTINCT matched_tokens FROM v_decisions WHERE host_hit = 'below_threshold'")
    assert skipped
    assert all(0 < row["matched_tokens"] < 200 for row in skipped)
    assert read_faults(operator.run.path) == []


def _answers(server: Server, arrived: Callable[[], object]) -> list[list[tuple[str, float]]]:
    """Of each answer its tokens, each with how clear it was of the next best one (natural log of the odds).

    Long prompts and short ones that share nothing come one by one, twice, so that the second time the host has them;
    then many at once, all of which have `arrived` before the first is taken up.
    """
    apart = [bare.tokens(400 if number % 2 else 100, 50 + number) for number in range(12)]
    asked = {"logprobs": 2, "return_tokens_as_token_ids": True}
    answers = [server.complete(prompt, 6, **asked) for prompt in [*apart, *apart]]
    answers.append(server.complete_at_once(bare.prompts(60), arrived, 6, **asked))
    told = []
    for answer in answers:
        for choice in sorted(answer["choices"], key=lambda each: each["index"]):
            found = choice["logprobs"]
            best = [sorted(each.values())[-2:] for each in found["top_logprobs"]]
            told.append([(token, most - next_) for token, (next_, most) in zip(found["tokens"], best, strict=True)])
    return told


def _agree(some: list[list[tuple[str, float]]], others: list[list[tuple[str, float]]]) -> int:
    """How many tokens are the same, up to where the model itself could not tell two of them apart; all must be."""
    agreed = 0
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        for (token, clear), (same, _) in zip(one, other, strict=True):
            if clear < 1e-3:
                break
            assert token == same
            agreed += 1
    return agreed


def test_a_bad_setting_stops_the_server(
    environment: dict[str, str], tiny_model: Path, port: int, tmp_path: Path, home: Path
) -> None:
    """A server that cannot follow its settings does not start, and its log ends with one line that says why."""
    wrong = {**environment, "GLASSGATE": "1", "GLASSGATE_MAX_REQUESTS": "0"}
    with pytest.raises(AssertionError) as ended, Server(tiny_model, port, wrong, tmp_path):
        pass
    last = str(ended.value).strip().splitlines()[-1]
    assert last.startswith("glassgate: GLASSGATE_MAX_REQUESTS: max_requests is 0")
    assert not home.exists()


def test_a_server_that_is_stopped_ends_its_runs(
    environment: dict[str, str], tiny_model: Path, port: int, tmp_path: Path, home: Path
) -> None:
    """Two data-parallel engines are ranks of one run, turn a knob both, and end in good order when they are stopped.

    vLLM kills their processes in doing so.
    """
    arguments = ("--data-parallel-size", "2", "--block-size", "32", "--num-gpu-blocks-override", "100")
    with Server(tiny_model, port, {**environment, "GLASSGATE": "1"}, tmp_path, *arguments) as server:
        with Load(server) as load:
            load.serves(60)
        assert not load.failures
        first = next(listed.run for listed in list_runs(home / "runs") if listed.run.info.rank == 0)
        operator = Operator(environment, tmp_path, home, first)
        operator.says("knobs", "set", first.path.name, "max_requests=2", "--wait", "120")
        operator.until(lambda: len(operator.rows("SELECT * FROM knob_changes WHERE accepted")) == 2)
    # One collector has taken both into one database, and ends by itself.
    operator.until(lambda: not is_held(first.path / "collector.lock"))
    assert [(run.info.rank, run.state) for run in ranks_of(first)] == [(0, "ended"), (1, "ended")]
    served = operator.rows("SELECT run, count(*) AS n FROM requests WHERE ended = 'finish' GROUP BY run")
    assert [row["n"] > 0 for row in served] == [True, True]
    assert sum(row["n"] for row in served) == len(load.answers)
    assert [row["rank_group"] for row in operator.rows("SELECT rank_group FROM runs ORDER BY rank")] == ["dp0", "dp1"]
