"""A run's folder removed while engine, collector and screen are at work."""

import shutil
import signal
import sqlite3
import time
from contextlib import ExitStack, closing

from store.check import check
from tests.faults import plan
from tests.faults.accounting import read_store, stored_end
from tests.faults.processes import Engine, Place, Screen, until


def test_a_run_directory_removed_under_a_live_run(tmp_path):
    """Nobody fails with a traceback or hangs; a database elsewhere keeps what it took, once, and the next run works."""
    draw = plan.draw("removed")
    tally = plan.Tally(
        16, "a run directory removed under a live run", "`rm -r` of the run's folder under engine, collector "
        "and screen, "
        "at a random moment; the database is kept elsewhere",
    )  # fmt: skip
    for number in plan.each_round(0.1):
        place = Place(tmp_path / str(number))
        database = place.path / "kept.db"
        with ExitStack() as held:
            engine = held.enter_context(Engine(place, hold=False, pause_ms=20, lose=True, segment_bytes=1 << 14))
            collector = held.enter_context(place.start("collect", str(engine.run.path), "--database", str(database)))
            until(lambda: stored_end(database), "rows")  # noqa: B023
            screen = Screen(place, str(database)) if draw.random() < 0.5 else None
            if screen is not None:
                held.callback(screen.close)
                until(lambda: "Batches" in screen.text, "the screen")  # noqa: B023
            time.sleep(draw.random() / 2)
            shutil.rmtree(engine.run.path, ignore_errors=True)
            kept = stored_end(database)
            at = engine.acknowledged[0]
            engine.goes_on(300)
            engine.end()
            tally.count("frames the engine decided after it", engine.acknowledged[0] - at)
            collector.send_signal(signal.SIGTERM)
            collector.ended(0, 5)
            if screen is not None:
                assert screen.process.poll() is None, screen.text[-2000:]
        store = read_store(database, "run")
        assert store.end >= kept
        assert store.doubled == 0
        assert all(each.sound for each in check(database))
        tally.add(None)
        tally.decisions += store.count
        appended, lost = engine.acknowledged
        tally.count("of them lost with the folder, counted by the engine", lost)
        tally.count(
            "of them written into a file that was removed, which nobody could read", appended - lost - store.end
        )
    tally.note()


def test_a_replays_directory_removed(tmp_path):
    """`glassgate replay` ends with a documented code and one line when its folder goes; its database keeps the rest."""
    draw = plan.draw("removed replay")
    tally = plan.Tally(
        17, "a run directory removed under `glassgate replay`", "`rm -r` of the run's folder at a random moment; its "
        "database in the folder, or elsewhere",
    )  # fmt: skip
    for number in plan.each_round(0.1):
        place = Place(tmp_path / str(number))
        database = place.path / "kept.db"
        more = ("--database", str(database)) if number % 2 else ()
        with place.start("replay", "--sessions", "60", "--pace", "500", *more) as replay:
            run = place.first_run()
            time.sleep(draw.random() / 2)
            shutil.rmtree(run.path, ignore_errors=True)
            replay.ended(0, 5, 6)
        tally.count(f"ended with code {replay.returncode}")
        tally.add(None)
        if more and database.exists():
            with closing(sqlite3.connect(database)) as connection:
                assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        place.say("replay", "--sessions", "2")
    tally.note()
