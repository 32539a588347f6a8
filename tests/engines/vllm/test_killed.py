"""Kill -9 of a real vLLM's scheduler in the middle of traffic, again and again."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from server import Load, Server

from controller.engines.plugin import read_status
from controller.liveness import is_held
from controller.run_directory import list_runs
from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.processes import until

if TYPE_CHECKING:
    from pathlib import Path


def test_killed_again_and_again(environment: dict[str, str], tiny_model: Path, port: int, tmp_path: Path) -> None:
    """What the journal holds is in the store once, to the last pass; whoever got an answer is in it as admitted."""
    draw = plan.draw("vllm")
    tally = plan.Tally(
        21, "`kill -9` of a real vLLM", "its API server under traffic of 8 clients, the process that schedules "
        "killed at a "
        "random moment; its collector ends by itself", unit="kills",
    )  # fmt: skip
    for number in range(3 if plan.LONG else 1):
        home = tmp_path / str(number)
        home.mkdir()
        chosen = {**environment, "GLASSGATE": "1", "GLASSGATE_HOME": str(home), "GLASSGATE_MAX_REQUESTS": "4"}
        arguments = ("--max-num-batched-tokens", "256", "--max-num-seqs", "6", "--num-gpu-blocks-override", "120")
        with Server(tiny_model, port, chosen, home, *arguments) as server:
            run = list_runs(home / "runs")[0].run
            status = read_status(run.path)
            assert status is not None
            with Load(server) as load:
                until(lambda: len(load.answers) >= 10, "answers", 300)
                time.sleep(3 * draw.random())
                os.kill(status.pid, signal.SIGKILL)
                assert server.ends_within(120)
        until(lambda: not is_held(run.path / "collector.lock"), "the end of the collector", 300)  # noqa: B023
        journal, store = read_journal(run.journal), read_store(run.path / "glassgate.db", run.path.name)
        tally.add(balance(journal, store))
        assert journal.missing() == 0
        known, admitted = journal.requests(), journal.admitted()
        assert {known[f"{answer['id']}-0"] for answer in load.answers} <= admitted
        tally.count("answers of the engine, each from a request that the store has as admitted", len(load.answers))
    tally.note()
