"""Beside: our record of a decision and what others would put in its place, turn about in one process."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import ExitStack, closing
from enum import StrEnum
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.journal import JournalWriter
from controller.recorder import Recorder
from store.collect import collect_run
from store.telemetry_bench import scheduler_spans
from ui.bench.load import Load, load_run
from ui.bench.measure import Spread, take_turns
from ui.bench.scene import CAPACITY, NullJournal, candidates, limits_for, one_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.run_directory import RunDirectory

DECISIONS: Final = 10
"""Of a pass."""
BLOCK: Final = 5
"""Passes of a turn."""
_COLUMNS: Final = 20
_BULK: Final = 20_000
"""Rows of one transaction where a collector would write them, as many as ours has."""


class Way(StrEnum):
    """How a scheduler's thread can keep a decision."""

    ENCODED = "record of a decision, encoded"
    APPENDED = "record of a decision, appended to the journal"
    SPAN = "OpenTelemetry span in the scheduler thread"
    STATEMENT = "sqlite3 executemany in the scheduler thread"


class Stored(StrEnum):
    """How decisions get into a database."""

    OURS = "journal to SQLite, with indexes, requests and checks"
    PLAIN = "plain sqlite3 executemany, 20 integers a row"


def beside_us(rounds: int) -> dict[Way, Spread]:
    """Microseconds a decision to keep passes of ten decisions, by each way, in turns of five passes each.

    Ours holds every decision with its checks and the pass it belongs to, in one append. The span has 12 attributes and
    is queued for an exporter that does nothing. The statement inserts ten rows of 20 integers into a table without an
    index and commits, with a write-ahead log that is not synced.
    """
    result = one_pass(limits_for(DECISIONS - 1), candidates(DECISIONS), None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassgate-bench-")))
        journal = stack.enter_context(JournalWriter(folder / "journal", run_id="bench"))
        spans = stack.enter_context(scheduler_spans())
        table = stack.enter_context(closing(plain_table(folder / "plain.db")))

        def record(recorder: Recorder) -> Callable[[], object]:
            return lambda: recorder.passed(CAPACITY, result, start_ns=0, decide_ns=0, queue=DECISIONS, queued_tokens=0)

        ways: dict[Way, Callable[[], object]] = {
            Way.ENCODED: record(Recorder(NullJournal())),
            Way.APPENDED: record(Recorder(journal)),
            Way.SPAN: lambda: spans(DECISIONS),
            Way.STATEMENT: lambda: insert(table, DECISIONS),
        }
        works = {way: (partial(_repeat, work, BLOCK), BLOCK * DECISIONS) for way, work in ways.items()}
        return take_turns(works, rounds)


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


def plain_table(path: Path) -> sqlite3.Connection:
    """A database whose one table has 20 integers a row and no index."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    names = ", ".join(f"c{number} INTEGER" for number in range(_COLUMNS))
    connection.execute(f"CREATE TABLE decisions ({names})")
    return connection


def insert(connection: sqlite3.Connection, rows: int) -> None:
    """Insert so many rows in one transaction."""
    marks = ", ".join("?" * _COLUMNS)
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO decisions VALUES ({marks})", [tuple(range(_COLUMNS))] * rows)  # noqa: S608
    connection.execute("COMMIT")


def storing_us(rounds: int) -> dict[Stored, Spread]:
    """Microseconds a decision to bring a journal of 20,000 into a database, and to insert as many plain rows, in turns.

    Ours begins with an empty database each time and keeps requests, passes, decisions with every check, and alarms,
    with indexes. The statement inserts 20 integers a row into a table without an index, in one transaction.
    """
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassgate-bench-")))
        run = load_run(base)
        stack.callback(run.release)
        decisions = _journalled(run, _BULK)
        table = stack.enter_context(closing(plain_table(base / "plain.db")))
        names = count()

        def collect() -> None:
            path = base / f"{next(names)}.db"
            collect_run(run, path)
            for each in base.glob(f"{path.name}*"):
                each.unlink()

        works: dict[Stored, tuple[Callable[[], object], int]] = {
            Stored.OURS: (collect, decisions),
            Stored.PLAIN: (lambda: insert(table, decisions), decisions),
        }
        return take_turns(works, rounds)


def _journalled(run: RunDirectory, least: int) -> int:
    """Write a load's journal, and return how many decisions that was."""
    name = run.info.run_id
    with JournalWriter(run.journal, run_id=name, on_full="raise", stall="wait") as journal:
        load = Load.begun(name, journal)
        load.run_to(least)
        load.end()
    return load.decisions
