"""Kill -9 of a real SGLang's scheduler in the middle of traffic, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving import HOST_CACHE, Server

from tests.engines.killed import hold_record, kill_under_traffic
from tests.faults import plan

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
                kill_under_traffic(server.status.pid, answers, draw)
                assert server.ends_within(300)
        hold_record(run, (answer["meta_info"]["id"] for answer in answers), tally)
    tally.note()
