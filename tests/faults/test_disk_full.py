"""A disk that is full: while a run begins, records, ends, is collected, asked to change, and exported."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from store.check import check
from tests.faults import plan
from tests.faults.accounting import balance, is_prefix, read_journal, read_store, stored_end
from tests.faults.disk import small_disk
from tests.faults.processes import Engine, Place, until
from tests.store.receivers import Receiver

REPLAY = ("replay", "--sessions", "40" if plan.LONG else "10", "--seed", "3", "--max-extend-tokens", "32768",
          "--device-tokens", "150000", "--host-tokens", "400000", "--page-size", "64", "--json")  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path):
    """A small disk of 64 MiB."""
    with small_disk(tmp_path / "disk", 64 << 20) as found:
        yield found


def test_a_replay_on_a_disk_of_any_size(tmp_path):
    """Whatever a disk has room for is recorded, code 6 and one line tell the rest, and the record can be collected.

    The sizes go from nothing to enough, so that the disk is full at each stage: the folder, the journal, the database,
    its log, the end mark.
    """
    draw = plan.draw("sizes")
    whole = Place(tmp_path / "whole")
    summary = json.loads(whole.say(*REPLAY).stdout)
    decisions = read_journal(Path(summary["journal"])).decisions()
    size = sum(each.stat().st_size for each in Path(summary["journal"]).parent.rglob("*") if each.is_file())
    tally = plan.Tally(6, "disk full under a replay", "")
    sizes = [4096, *(draw.randrange(4096, 2 * size) for _ in range(plan.rounds(0.2))), 8 * size]
    for number, room in enumerate(sizes):
        beside = ("--database", str(tmp_path / f"{number}.db")) if number % 2 else ()
        with small_disk(tmp_path / str(number), max(4096, room // 4096 * 4096)) as disk:
            place = Place(disk.path)
            limited = None if disk.mounted else room
            done = place.say(*REPLAY, *beside, codes=(0, 6), limit_bytes=limited)
            assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("glassgate: "), done.stderr
            tally.count("ended with code 6", done.returncode == 6)
            if disk.mounted:
                disk.resize(64 << 20)
            found = place.listed()
            if not found:
                tally.add(None)
                tally.count("no run begun")
                continue
            run = found[0].run
            place.catch_up(run.path)
            journal = read_journal(run.journal)
            database = Path(beside[1]) if beside else run.path / "glassgate.db"
            tally.add(balance(journal, read_store(database, run.path.name)))
            assert journal.missing() == 0
            assert is_prefix(journal.decisions(), decisions)
            assert all(each.sound for each in check(database))
            tally.how = f"`glassgate replay` on disks of random sizes ({disk.how}), the database there too or elsewhere"
    tally.note()


def test_an_engine_on_a_disk_that_fills_and_empties(place, disk):
    """An engine goes on without room; what it could not write is counted, told, and never more than that."""
    draw = plan.draw("engine")
    tally = plan.Tally(
        7, "disk full under an engine's journal", f"a live engine's run folder ({disk.how}) full and free by "
        "turns, with "
        "collector and OTLP endpoint beside it",
    )  # fmt: skip
    database = place.path / "kept.db"
    with ExitStack() as held:
        receiver = held.enter_context(Receiver())
        endpoint = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{receiver.port}/v1/traces"}
        engine = held.enter_context(
            Engine(
                place, folder=str(disk.path / "runs"), pause_ms=10, lose=True, segment_bytes=1 << 16,
            )
        )  # fmt: skip
        words = ("collect", str(engine.run.path), "--database", str(database))
        collector = held.enter_context(place.start(*words, **endpoint))
        until(lambda: stored_end(database), "rows")  # begun, since without room it refuses to begin
        for _ in plan.each_round(0.1):
            engine.goes_on(draw.randrange(20, 200))
            disk.fill(engine.pid, collector.pid)
            lost = engine.acknowledged[1]
            until(lambda: engine.acknowledged[1] > lost, "a loss")  # noqa: B023 - of this round
            engine.goes_on(draw.randrange(20, 200))
            disk.free(engine.pid, collector.pid)
            written = engine.acknowledged
            until(lambda: sum_written(engine) > written[0] - written[1], "a frame that is written")  # noqa: B023
            tally.times += 1
        assert engine.end() == ""
        collector.ended()
        appended, lost = engine.acknowledged
        place.catch_up(engine.run.path, "--database", str(database), **endpoint)
        spans = set(receiver.ids("prefill.decision"))
        journal = read_journal(engine.run.journal)
    store = read_store(database, "run")
    found = balance(journal, store)
    assert (store.end, store.losses) == (appended, {"full": lost})
    assert journal.stated == {"full": lost}
    tally.decisions, tally.lost_frames = found.decisions, found.lost_frames
    tally.remark = f"of {appended:,} frames"
    assert spans == place.decision_spans("--database", str(database))
    tally.count("spans of decisions", len(spans))
    tally.note()


def sum_written(engine: Engine) -> int:
    """Frames written so far."""
    appended, lost = engine.acknowledged
    return appended - lost


def test_a_database_on_a_disk_that_fills_and_empties(place, disk):
    """A collector whose database has no room says so, goes on when there is room, and has lost nothing."""
    draw = plan.draw("database")
    tally = plan.Tally(
        8,
        "disk full under the database",
        f"the database's disk ({disk.how}) full and free by turns beside a live engine",
    )
    database = disk.path / "glassgate.db"
    with ExitStack() as held:
        engine = held.enter_context(Engine(place, pause_ms=10, segment_bytes=1 << 18))
        words = ("collect", str(engine.run.path), "--database", str(database))
        collector = held.enter_context(place.start(*words))
        until(lambda: stored_end(database), "rows")
        for _ in plan.each_round(0.1):
            until(lambda: engine.ahead_of(database) < 50 + draw.randrange(200), "the database")
            disk.fill(collector.pid)
            at = engine.acknowledged[0]
            engine.goes_on(500)
            # Told once, until something else is to be told.
            until(lambda: disk.word in collector.err.read_text(), "the word of it")
            disk.free(collector.pid)
            tally.add(balance(read_journal(engine.run.journal), read_store(database, "run"), complete=False))
            until(lambda: stored_end(database) > at + 500, "the database to go on")  # noqa: B023
        assert engine.end() == ""
        assert disk.word in collector.ended()
        assert all(each.sound for each in check(database))
        found = balance(read_journal(engine.run.journal), read_store(database, "run"))
    assert found.lost_frames == 0
    tally.decisions = found.decisions
    tally.note()


def test_commands_on_a_full_disk(place, disk):
    """What a command cannot write it says with code 6, in one line, and leaves no part of a file behind."""
    tally = plan.Tally(9, "disk full under a command", f"({disk.how})", unit="commands")
    if not disk.mounted:
        pytest.skip("a full disk for whole commands needs a tmpfs, which this user may not mount: NOT TESTED HERE")
    recorded = json.loads(place.say(*REPLAY).stdout)
    journal, store = read_journal(Path(recorded["journal"])), read_store(Path(recorded["database"]), recorded["run"])
    disk.fill()
    target = str(disk.path / "export")
    words = [
        ("db", "export", "--format", "csv", "--into", target),
        ("db", "export", "--into", target),
        ("trace", "export", "-o", str(disk.path / "trace.jsonl.gz")),
        ("collect", recorded["run"], "--once", "--database", str(disk.path / "other.db")),
        ("ui", recorded["run"], "--screenshot", str(disk.path / "screen.svg")),
        ("replay", "--sessions", "2", "--database", str(disk.path / "replayed.db")),
    ]
    for each in words:
        done = place.say(*each, codes=(6,))
        assert done.stderr.count("glassgate: ") == 1, done.stderr
        tally.add(None)
    begun = Place(disk.path)
    begun.say("replay", "--sessions", "2", codes=(6,))
    tally.add(None)
    left = [each for each in disk.path.rglob("*") if each.is_file() and each.stat().st_size and each.name != ".ballast"]
    assert left == []
    tally.decisions = balance(journal, store).decisions
    tally.how = "`db export`, `trace export`, `collect`, `ui --screenshot`, `replay` onto a full " + disk.how[2:]
    tally.note()
