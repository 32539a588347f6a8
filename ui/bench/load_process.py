"""A load at a steady rate in a process of its own: arguments FOLDER RATE SECONDS EVERY.

It begins a run under FOLDER and decides RATE times a second for SECONDS, through the real pass, recorder and journal.
On stdout stands the run's folder, then one `Beat` as JSON every EVERY seconds, and one more at the end. SIGTERM ends
the run in good order.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from controller.journal import JournalWriter
from ui.bench.load import Load, load_run
from ui.stopping import stopped_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_SLEEP_S: Final = 0.1


class Beat(msgspec.Struct, frozen=True):
    """How a load stands. Counts are since its start, the cost is the median since the beat before."""

    decisions: int
    passes: int
    requests: int
    running: int
    late_s: float
    """How far it is behind its own schedule at this moment: what else the machine does keeps it waiting."""
    cost_us: float
    """Deciding and recording, µs a decision."""
    lost: int
    """Decisions in frames that the journal's writer counted as lost."""
    over: bool = False
    """It is the last one."""


class Paced:
    """A load held to a rate of decisions a second of the monotonic clock; what it is late by it makes up for."""

    def __init__(self, load: Load, journal: JournalWriter, rate: float) -> None:
        self._load, self._journal, self._rate = load, journal, rate
        self._stopped = False
        self._lost = 0

    def stop(self) -> None:
        """End at the next pass. A signal handler may call it."""
        self._stopped = True

    def run(self, seconds: float, every_s: float, tell: Callable[[Beat], None]) -> None:
        """Decide for so many seconds, and tell how it stands every `every_s` seconds and at the end."""
        began = due = time.monotonic()
        told = 1
        while not self._stopped:
            now = time.monotonic()
            if now - began >= told * every_s:
                told = int((now - began) / every_s) + 1
                tell(self._beat(now - due))
            if now - began >= seconds:
                break
            if due > now:
                time.sleep(min(due - now, _LONGEST_SLEEP_S))
                continue
            due += self._step() / self._rate
        tell(self._beat(time.monotonic() - due, over=True))

    def _step(self) -> int:
        """One pass; the decisions made, which count as lost where the journal did not take its frame."""
        journal = self._journal
        before = journal.losses.frames if journal.trouble is not None else 0
        made = self._load.step()
        if journal.trouble is not None and journal.losses.frames > before:
            self._lost += made
        return made

    def _beat(self, late_s: float, *, over: bool = False) -> Beat:
        load = self._load
        costs, load.costs_us = load.costs_us, []
        cost = statistics.median(costs) if costs else 0.0
        counts = load.decisions, load.passes, load.requests, load.running
        return Beat(*counts, max(0.0, late_s), cost, self._lost, over)


def main() -> None:
    """Run the load the arguments describe."""
    folder, rate, seconds, every_s = sys.argv[1:]
    run = load_run(Path(folder))
    name = run.info.run_id
    _say(str(run.path))
    with JournalWriter(run.journal, run_id=name) as journal:
        load = Load.begun(name, journal)
        paced = Paced(load, journal, float(rate))
        with stopped_by_signals(paced.stop, sys.exit):
            paced.run(float(seconds), float(every_s), _say)
        load.end()
    run.end()


def _say(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
