"""Kill -9 of a real SGLang's scheduler in the middle of traffic, again and again."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from serving import HOST_CACHE, Server

from controller.liveness import is_held
from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.processes import until

if TYPE_CHECKING:
    from pathlib import Path


def test_killed_again_and_again(environment: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    """What the journal holds is in the store once, to the last pass; whoever got an answer is in it as admitted."""
    draw = plan.draw("sglang")
    tally = plan.Tally(
        20, "`kill -9` of a real SGLang", "its server under traffic of 8 clients, the process that schedules "
        "killed at a "
        "random moment; its collector ends by itself", unit="kills",
    )  # fmt: skip
    for number in range(3 if plan.LONG else 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        chosen = {**environment, "GLASSGATE": "1", "GLASSGATE_HOME": str(folder / "home")}
        with Server(tiny_model, folder, chosen, *HOST_CACHE) as server:
            run = server.run
            with server.load() as answers:
                until(lambda: len(answers) >= 10, "answers", 300)
                time.sleep(3 * draw.random())
                os.kill(server.status.pid, signal.SIGKILL)
                until(lambda: server.process.poll() is not None, "the server's end", 300)
        until(lambda: not is_held(run.path / "collector.lock"), "the end of the collector", 300)  # noqa: B023
        journal, store = read_journal(run.journal), read_store(run.path / "glassgate.db", run.info.run_id)
        tally.add(balance(journal, store))
        assert journal.missing() == 0
        known, admitted = journal.requests(), journal.admitted()
        assert {known[answer["meta_info"]["id"]] for answer in answers} <= admitted
        tally.count("answers of the engine, each from a request that the store has as admitted", len(answers))
    tally.note()
