"""A run followed to its end, here or by `glassgate collect`, and its journal and its database side by side."""

import os
import subprocess
import sys

from controller.journal import DATA, JournalReader
from controller.records import Pass, Repeat, decode
from store.follow import Follower, Plan
from store.queries import run_query
from store.standing import read_standings


def plan_for(runs, **more):
    """Collect into the database in each run's own folder."""
    return Plan(runs=runs, database=lambda run: run.path / "glassgate.db", **{"shutdown_seconds": 2.0, **more})


def follow(runs, *, said=None, **more):
    """Follow to the end, and return the follower."""
    follower = Follower(plan_for(runs, **more), (said if said is not None else []).append)
    follower.follow()
    return follower


def in_journal(run):
    """What the journal holds: decisions by pass, and the greatest count of each repeat."""
    passes, repeats = {}, {}
    with JournalReader(run.journal) as reader:
        for frame in reader:
            for record in decode(frame.payload) if frame.kind == DATA else []:
                if isinstance(record, Pass):
                    passes[record.number] = [decision[:2] for decision in record.decisions]
                elif isinstance(record, Repeat):
                    repeats[record.first_pass] = record.count
    return passes, repeats


def in_database(run, database=None):
    """The same, from the database."""
    database = database or run.path / "glassgate.db"
    passes = {number: [] for (number,) in run_query(database, "SELECT number FROM passes").rows}
    for number, *decision in run_query(
        database, "SELECT pass, request, outcome FROM decisions ORDER BY pass, position"
    ).rows:
        passes[number].append(tuple(decision))
    return passes, dict(run_query(database, "SELECT first_pass, count FROM repeats").rows)


def seq(run):
    """How far SQLite is: the number of the next frame."""
    return sum(each.seq for each in read_standings(run, run.path / "glassgate.db") if each.sink == "sqlite")


def collector(run, *more, **environment):
    """`glassgate collect` in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "GLASSGATE"))}
    return subprocess.Popen(
        [sys.executable, "-m", "ui", "collect", str(run), *more],
        env={**clean, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
