"""The database locked by somebody else, and two collectors on one run."""

import time
from contextlib import ExitStack

from store.check import check
from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store, stored_end
from tests.faults.child import hold_lock
from tests.faults.processes import Child, Engine, until

LOCKED_SECONDS = 30.0 if plan.LONG else 2.0


def locked(place, database, statement: str) -> Child:
    """A process that holds a lock on a database until it is killed."""
    process = place.child(hold_lock, str(database), statement)
    until(lambda: process.out.read_text() == "locked\n", "the lock")
    return process


def test_a_locked_database(place):
    """A collector waits for whoever holds the database, the engine does not; nothing is lost, and the wait is told."""
    tally = plan.Tally(
        11, "the database locked", f"another process holds a write transaction for {LOCKED_SECONDS:.0f} s, beside a "
        "collector and beside `glassgate replay --pace`", unit="locks",
    )  # fmt: skip
    with ExitStack() as held:
        engine = held.enter_context(Engine(place, pause_ms=50, segment_bytes=1 << 18))
        database = engine.run.path / "glassgate.db"
        collector = held.enter_context(place.start("collect", str(engine.run.path)))
        replay = held.enter_context(place.start("replay", "--sessions", "1000000", "--pace", "20", "--page-size", "64"))
        runs = until(lambda: [each.run for each in place.listed() if each.run.path.name != "run"], "the replay")
        replayed = runs[0].path / "glassgate.db"
        for statement in ("BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"):
            until(lambda: stored_end(replayed) and stored_end(database), "both databases")
            with locked(place, database, statement), locked(place, replayed, statement):
                stood, at, began = stored_end(database), engine.acknowledged[0], time.monotonic()
                while time.monotonic() < began + LOCKED_SECONDS:
                    time.sleep(0.05)
                assert stored_end(database) == stood
                assert engine.acknowledged[0] > at
            until(lambda: stored_end(database) > stood and engine.ahead_of(database) < 500, "the collector")  # noqa: B023
            tally.times += 2
        replay.send_signal(2)
        replay.ended(130)
        engine.end()
        assert "is locked by another writer" in collector.ended()
        found = balance(read_journal(engine.run.journal), read_store(database, "run"))
        other = balance(read_journal(runs[0].journal), read_store(replayed, runs[0].path.name))
        assert found.lost_frames == other.lost_frames == 0
    tally.decisions = found.decisions + other.decisions
    tally.note()


def test_two_collectors_on_one_run(place):
    """One collects, the other is refused by name or waits its turn; whichever is killed, nothing comes twice."""
    draw = plan.draw("two collectors")
    tally = plan.Tally(
        12, "two collectors on one run", "two started at once on a live run, one by its name and one by its "
        "folder; the "
        "one that has it is killed, and the other has to take over or is started again",
    )  # fmt: skip
    with ExitStack() as held:
        engine = held.enter_context(Engine(place, pause_ms=100, segment_bytes=1 << 18))
        database = engine.run.path / "glassgate.db"
        for _ in plan.each_round(0.25):
            with ExitStack() as both:
                words = [("collect", str(engine.run.path)), ("collect", str(place.runs))]
                draw.shuffle(words)
                by = {each[1]: both.enter_context(place.start(*each)) for each in words}
                until(lambda: holder(engine) in {each.pid for each in by.values()}, "a collector")  # noqa: B023
                by_name, by_folder = by[str(engine.run.path)], by[str(place.runs)]
                if holder(engine) == by_name.pid:
                    by_name.kill()
                    until(lambda: holder(engine) == by_folder.pid, "the other one")  # noqa: B023
                    tally.count("taken over by the other")
                else:
                    assert f"is held by process {by_folder.pid}" in by_name.ended(6)
                    tally.count("refused with code 6")
                stood = stored_end(database)
                until(lambda: stored_end(database) > stood, "rows")  # noqa: B023
                by_folder.kill()
            tally.add(balance(read_journal(engine.run.journal), read_store(database, "run"), complete=False))
        engine.end()
        place.catch_up(engine.run.path)
        found = balance(read_journal(engine.run.journal), read_store(database, "run"))
        assert all(each.sound for each in check(database))
    assert found.lost_frames == 0
    tally.decisions = found.decisions
    tally.note()


def holder(engine: Engine) -> int:
    """The process that says it collects the run; 0 if none does."""
    try:
        return int((engine.run.path / "collector.lock").read_text() or 0)
    except (FileNotFoundError, ValueError):
        return 0
