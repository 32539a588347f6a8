"""Two screens that turn one knob at the same time."""

import json
import re
import sqlite3
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from controller.run_directory import RunDirectory
from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.child import ask_for_knobs
from tests.faults.processes import Child, Place, Screen, until

_KNOB_CHANGE = 12
_REPLAY = ("replay", "--sessions", "1000000", "--pace", "20", "--page-size", "64", "--max-requests", "8")


def changes_of(run: RunDirectory) -> list[Any]:
    """Every answer to a request for a change, as the journal has it: who, revision, changes, accepted, why, request."""
    return [record[2:8] for record in read_journal(run.journal).records(_KNOB_CHANGE)]


def live_run(place: Place) -> RunDirectory:
    """The run of the replay, with its database."""
    run = place.first_run()
    until((run.path / "glassgate.db").exists, "the database")
    return run


def finish(engine: Child, run: RunDirectory, tally: plan.Tally) -> None:
    """End the run, and hold its knob changes and decisions in the store against those in the journal."""
    engine.send_signal(2)
    engine.ended(130)
    journal, store = read_journal(run.journal), read_store(run.path / "glassgate.db", run.path.name)
    tally.decisions = balance(journal, store).decisions
    changes = changes_of(run)
    with closing(sqlite3.connect(run.path / "glassgate.db")) as connection:
        rows = connection.execute("SELECT who, revision, knob, new, accepted, request FROM knob_changes").fetchall()
    assert Counter(rows) == Counter(
        (who, revision, name, new, accepted, request)
        for who, revision, changed, accepted, _, request in changes
        for name, _, new in changed
    )
    requests = [change[5] for change in changes]
    assert len(set(requests)) == len(requests), "one request was answered twice"
    accepted = [change[1] for change in changes if change[3]]
    assert accepted == list(range(1, len(accepted) + 1)), accepted
    tally.count("accepted", len(accepted))
    tally.count("refused with the reason", len(changes) - len(accepted))
    tally.note()


def lines_of(path: Path) -> list[str]:
    """The lines that are whole in a file."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def test_two_ask_at_once(place):
    """Of two changes made on the same revision exactly one is accepted, each is answered once, and all is kept once."""
    tally = plan.Tally(
        13, "two screens ask for one knob at once", "two processes make the screen's own call at the same "
        "moment, on the "
        "revision both have seen",
    )  # fmt: skip
    with ExitStack() as held:
        engine = held.enter_context(place.start(*_REPLAY))
        run = live_run(place)
        both = []
        for which in range(2):
            questions, answers = (place.path / f"{what}-{which}" for what in ("asked", "answered"))
            asked = held.enter_context(questions.open("w"))
            held.enter_context(place.child(ask_for_knobs, str(run.path), str(questions), str(answers)))
            until(answers.exists, "the process that asks")
            both.append((asked, answers))
        revision = 0
        for number in plan.each_round():
            for which, (asked, _) in enumerate(both):
                print(json.dumps([9 + 2 * number + which, revision, f"screen {which}"]), file=asked, flush=True)
            told = [
                json.loads(until(lambda: lines_of(answered)[number:], "an answer")[0])  # noqa: B023 - of this round
                for _, answered in both
            ]
            assert sorted(accepted for accepted, _, _ in told) == [False, True], told
            revision = next(number for accepted, number, _ in told if accepted)
            tally.times += 1
        assert len(changes_of(run)) == 2 * tally.times
        finish(engine, run, tally)


def test_two_screens(place):
    """Two screens in terminals of their own, each with a draft for one knob, confirmed at the same moment."""
    tally = plan.Tally(
        14, "two screens turn one knob", "two `glassgate ui` in terminals turn one switch over and confirm it at "
        "the same moment",
    )  # fmt: skip
    with ExitStack() as held:
        engine = held.enter_context(place.start(*_REPLAY))
        run = live_run(place)
        screens = [Screen(place, str(run.path)) for _ in range(2)]
        for each in screens:
            held.callback(each.close)
        for each in screens:
            until(lambda: "Batches" in each.text, "the screen")  # noqa: B023 - this one
            each.type("6", "enforce")
        for _ in plan.each_round(0.1):
            answered = len(changes_of(run))
            begins = [len(each.text) for each in screens]
            for each in screens:
                each.press("x")
                each.type("\r", "->")
                each.type("a", "Turn knobs")
            for each in screens:
                each.press("y")
            until(lambda: len(changes_of(run)) == answered + 2, "both answers")  # noqa: B023
            for each, begin in zip(screens, begins, strict=True):
                until(lambda: re.search("accepted as|refused:", each.text[begin:]), "the word of it")  # noqa: B023
            told = [change[3] for change in changes_of(run)[-2:]]
            assert told != [True, True], "both were accepted on one revision"
            tally.times += 1
        assert any(change[3] for change in changes_of(run))
        finish(engine, run, tally)
