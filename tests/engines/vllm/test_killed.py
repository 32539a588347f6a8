"""Kill -9 of a real vLLM's scheduler in the middle of traffic, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server import Load, Server

from controller.engines.plugin import read_status
from controller.run_directory import list_runs
from tests.engines.killed import hold_record, kill_under_traffic
from tests.faults import plan

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
                kill_under_traffic(status.pid, load.answers, draw)
                assert server.ends_within(120)
        hold_record(run, (f"{answer['id']}-0" for answer in load.answers), tally)
    tally.note()
