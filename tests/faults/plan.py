"""How much is tried: a short form in every run of the tests, a long one by `make faults`, and what is noted of it.

FAULTS_ROUNDS  rounds of each kill; 2 is the short form
FAULTS_MINUTES no test begins another round after so many; its note says how many there were
FAULTS_SEED    the seed of every random choice
FAULTS_NOTES   a file to which each test adds a line with its figures
"""

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.accounting import Balance

SHORT_ROUNDS = 2
ROUNDS = int(os.environ.get("FAULTS_ROUNDS", SHORT_ROUNDS))
SEED = int(os.environ.get("FAULTS_SEED", "1"))
MINUTES = float(os.environ.get("FAULTS_MINUTES", "inf"))
LONG = ROUNDS > SHORT_ROUNDS


def rounds(share: float = 1.0) -> int:
    """Rounds of a fault that costs more, or less, than a kill."""
    return max(SHORT_ROUNDS, round(ROUNDS * share)) if LONG else ROUNDS


def each_round(share: float = 1.0) -> Iterator[int]:
    """The numbers of the rounds, as many as there are minutes for."""
    began = time.monotonic()
    for number in range(rounds(share)):
        if number >= SHORT_ROUNDS and time.monotonic() - began > 60 * MINUTES:
            return
        yield number


def draw(name: str) -> random.Random:
    """The random choices of one test."""
    return random.Random(f"{SEED} {name}")  # noqa: S311 - to be had again, not to be secret


@dataclass
class Tally:
    """What one test tried and what became of it; a row of the table in docs/reliability.md."""

    place: int
    """Its place in the table."""
    fault: str
    how: str
    unit: str = "rounds"
    times: int = 0
    decisions: int = 0
    lost_frames: int = 0
    doubled: int = 0
    remark: str = ""
    extra: dict[str, int] = field(default_factory=dict)
    """Other counts, told after the remark."""
    began: float = field(default_factory=time.monotonic)

    def add(self, found: Balance | None) -> None:
        """One more time; None where the fault left nothing to compare."""
        self.times += 1
        if found is not None:
            self.decisions += found.decisions
            self.lost_frames += found.lost_frames
            self.doubled += found.doubled

    def count(self, what: str, number: int = 1) -> None:
        """Add to another count."""
        self.extra[what] = self.extra.get(what, 0) + number

    def note(self) -> None:
        """Add the row to the file of notes, if one is asked for; and say it."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        row = {"test": test, "rounds": ROUNDS, "seed": SEED, "seconds": time.monotonic() - self.began, **self.__dict__}
        print(json.dumps(row))  # noqa: T201 - pytest shows it with -rA, and where a later assertion fails
        path = os.environ.get("FAULTS_NOTES")
        if path:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
