"""Clocks that jump: the wall clock and the monotonic one of an engine, and the wall clock of a collector."""

import json
from contextlib import ExitStack

from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.child import glassgate_with_jumping_clock
from tests.faults.processes import Engine, until

_HOUR = 3_600_000_000_000


def test_clocks_that_jump(place):
    """Every decision is kept once, whatever clocks say; a clock of the record that went back is told."""
    draw = plan.draw("clocks")
    tally = plan.Tally(
        15, "clock jumps", "the engine's clocks jump by up to 20 hours, back and forth (an injected clock), and the "
        "collector's wall clock by up to 12 days, back and forth", unit="jumps of the engine",
    )  # fmt: skip
    back_and_forth = [[20 + draw.randrange(380), draw.randrange(20 * _HOUR)] for _ in range(plan.rounds(0.5))]
    jumps = [*sorted(back_and_forth), [410, 20 * _HOUR], [420, 10 * _HOUR]]
    with ExitStack() as held:
        engine = held.enter_context(Engine(place, pause_ms=100, jumps=jumps, segment_bytes=1 << 14))
        words = ["collect", str(engine.run.path), "--prometheus", "0"]
        collector = held.enter_context(place.child(glassgate_with_jumping_clock, plan.SEED, *words))
        until(lambda: engine.acknowledged[0] > 500, "frames")
        engine.end()
        collector.ended(timeout=120)
        database = engine.run.path / "glassgate.db"
        found = balance(read_journal(engine.run.journal), read_store(database, "run"))
        losses = json.loads(place.say("query", "losses", "--limit", "10000", "--json").stdout)
    assert found.lost_frames == 0
    told_of = [each for each in losses if each["reason"] == "clock"]
    assert told_of
    tally.count("times the record tells of a clock that went back", len(told_of))
    tally.times, tally.decisions = len(jumps), found.decisions
    said = json.loads(place.say("db", "check", "--database", str(database), "--json").stdout)
    assert all(each["sound"] for each in said)
    tally.note()
