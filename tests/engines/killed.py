"""Kill -9 of a real engine's scheduler under traffic, and what its record is then held to."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from controller.liveness import is_held
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.processes import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized
    from random import Random

    from controller.run_directory import RunDirectory
    from tests.faults.plan import Tally


def kill_under_traffic(pid: int, answers: Sized, draw: Random) -> None:
    """Kill a process at a random moment of the 3 s behind the tenth answer."""
    until(lambda: len(answers) >= 10, "answers", 300)
    time.sleep(3 * draw.random())
    os.kill(pid, signal.SIGKILL)


def hold_record(run: RunDirectory, answered: Iterable[Any], tally: Tally) -> None:
    """Once the collector has ended by itself: all of the journal is in the store, once, and who was answered in it.

    `answered` are the ids of the requests that a client got an answer to.
    """
    until(lambda: not is_held(run.path / "collector.lock"), "the end of the collector", 300)
    journal, store = read_journal(run.journal), read_store(run.path / "glassgate.db", run.info.run_id)
    tally.add(balance(journal, store))
    assert journal.missing() == 0
    known, admitted = journal.requests(), journal.admitted()
    numbers = [known[each] for each in answered]
    assert set(numbers) <= admitted
    tally.count("answers of the engine, each from a request that the store has as admitted", len(numbers))
