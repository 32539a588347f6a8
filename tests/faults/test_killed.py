"""Kill -9 of the replay engine, the collector and the screen, at random moments."""

import json
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.liveness import is_held
from store.check import check
from tests.faults import plan
from tests.faults.accounting import Decisions, balance, is_prefix, read_journal, read_store, stored_end
from tests.faults.processes import Engine, Place, Screen, until
from tests.store.receivers import Receiver

REPLAY = ("replay", "--sessions", "25" if plan.LONG else "15", "--seed", "7", "--max-extend-tokens", "32768",
          "--device-tokens", "150000", "--host-tokens", "400000", "--page-size", "64", "--json")  # fmt: skip

KEYS = ("1", "2", "3", "4", "5", "6", "7", "8", "l", "p", "\t", " ", "[", "]", "{", "}")
"""What is pressed on a screen that is to be killed: panels, rows, moments; nothing that leaves or changes a knob."""


def journal_bytes(runs: Path) -> int:
    """Bytes in the journals of a folder of runs."""
    return sum(each.stat().st_size for each in runs.glob("*/journal/*.journal"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Decisions, int, float]:
    """What the replay decides when nobody kills it, the bytes of its journal, and the seconds it takes."""
    place = Place(tmp_path_factory.mktemp("whole"))
    began = time.monotonic()
    summary = json.loads(place.say(*REPLAY).stdout)
    took = time.monotonic() - began
    journal = read_journal(Path(summary["journal"]))
    store = read_store(Path(summary["database"]), summary["run"])
    balance(journal, store)
    assert store.count == sum(summary["decisions"]["by_outcome"].values())
    return journal.decisions(), journal_bytes(place.runs), took


def test_a_killed_replay_engine(whole, tmp_path):
    """What a killed engine left is the beginning of the same run unkilled, and all of it gets into its database."""
    draw = plan.draw("replay")
    decisions, size, took = whole
    tally = plan.Tally(
        1, "`kill -9` of the replay engine", "`glassgate replay`, killed as its journal reaches a random size, or at a "
        "random moment of its start; then `collect --once`",
    )  # fmt: skip
    for number in plan.each_round():
        place = Place(tmp_path / str(number))
        with place.start(*REPLAY) as engine:
            if draw.random() < 0.2:
                time.sleep(draw.random() * took)
            else:
                wanted = draw.randrange(1, size)
                until(
                    lambda: journal_bytes(place.runs) >= wanted or engine.poll() is not None,  # noqa: B023 - now
                    "the journal",
                )
                time.sleep(draw.random() * 0.01)
            engine.kill()
        found = place.listed()
        if not found:
            tally.count("killed before there was a run")
            tally.add(None)
            continue
        (listed,) = found
        tally.count("ended before the kill", listed.state == "ended")
        place.catch_up(listed.run.path)
        journal = read_journal(listed.run.journal)
        database = listed.run.path / "glassgate.db"
        tally.add(balance(journal, read_store(database, listed.run.path.name)))
        assert journal.missing() == 0
        assert is_prefix(journal.decisions(), decisions)
        assert all(each.sound for each in check(database))
        shutil.rmtree(place.path)
    tally.note()


def test_a_killed_collector(place):
    """At every kill the database holds exactly what lies before its place; at the end everything, and every span."""
    draw = plan.draw("collector")
    tally = plan.Tally(
        2, "`kill -9` of the collector", "`glassgate collect` beside a live engine, with an OTLP endpoint, killed "
        "in its start, or within 0.3 s of taking hold of the run or of its first rows; the database is compared "
        "each time",
    )  # fmt: skip
    with ExitStack() as held:
        receiver = held.enter_context(Receiver())
        endpoint = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{receiver.port}/v1/traces"}
        engine = held.enter_context(Engine(place, pause_ms=200))
        database = engine.run.path / "glassgate.db"
        for _ in plan.each_round():
            with place.start("collect", str(engine.run.path), **endpoint) as collector:
                which = draw.random()
                if which < 0.4:
                    until(lambda: is_held(engine.run.path / "collector.lock"), "the collector")
                elif which < 0.9:
                    at = stored_end(database)
                    until(lambda: stored_end(database) > at, "rows")  # noqa: B023 - of this round
                time.sleep(0.3 * draw.random())
                assert collector.poll() is None, collector.communicate()
                collector.kill()
            if not stored_end(database):
                tally.add(None)
                tally.count("killed before its first transaction")
                continue
            store = read_store(database, "run")
            tally.add(balance(read_journal(engine.run.journal), store, complete=False))
        engine.kill()
        appended, _ = engine.acknowledged
        place.catch_up(engine.run.path, "--shutdown-seconds", "100", **endpoint)
        spans = receiver.ids("prefill.decision")
    journal, store = read_journal(engine.run.journal), read_store(database, "run")
    assert store.end >= appended
    tally.decisions = balance(journal, store).decisions
    assert all(each.sound for each in check(database))
    wanted = place.decision_spans()
    assert len(wanted) == len(store.decisions)
    assert set(spans) == wanted
    tally.count("spans of decisions", len(wanted))
    tally.count("of them sent once more under the same id", len(spans) - len(wanted))
    tally.note()


def test_a_killed_screen(place):
    """A killed screen leaves the database sound and the run going on; at the end everything is there once."""
    draw = plan.draw("screen")
    tally = plan.Tally(
        3, "`kill -9` of the screen", "`glassgate ui` in a terminal on a live `glassgate replay --pace`, with random "
        "keys, killed in its start or within a second of showing the run; each time the database is checked",
    )  # fmt: skip
    with place.start(*REPLAY[:2], "1000000", *REPLAY[3:], "--pace", "5", "--max-requests", "8") as engine:
        run = place.first_run()
        database = run.path / "glassgate.db"
        until(lambda: stored_end(database), "rows")
        for _ in plan.each_round():
            screen = Screen(place, str(run.path))
            try:
                if draw.random() < 0.7:
                    until(lambda: "Batches" in screen.text, "the screen")  # noqa: B023 - this one
                ends = time.monotonic() + draw.random()
                while time.monotonic() < ends:
                    time.sleep(min(0.2, max(0.0, ends - time.monotonic())))
                    screen.press(draw.choice(KEYS))
                tally.count("killed while it showed the run", "Batches" in screen.text)
                assert screen.process.poll() is None, screen.text[-2000:]
            finally:
                screen.close()
            tally.times += 1
            assert all(each.sound for each in check(database))
            assert engine.poll() is None
        engine.send_signal(signal.SIGINT)
        engine.ended(130)
    journal, store = read_journal(run.journal), read_store(database, run.path.name)
    found = balance(journal, store)
    tally.decisions = found.decisions
    assert journal.missing() == 0
    tally.note()
