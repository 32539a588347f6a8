"""Frames in, rows out: all of them, once, whatever happens on the way."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controller.journal.frames import DATA, LOSS, SEGMENT, Cursor, Frame
from controller.journal.losses import Loss
from controller.records import (
    Arrival,
    KnobChange,
    LoadDone,
    Pass,
    Preempt,
    Repeat,
    Smoke,
    StepEnd,
    decode,
    encode,
)
from store import ingest as ingesting
from store.ingest import Ingest
from store.queries import run_query

ROOT = Path(__file__).resolve().parents[2]


def rows(database, sql, **options):
    """What a query answers, as dicts."""
    return run_query(database, sql, **options).as_dicts()


def frame(records, seq=0, offset=0, kind=DATA, segment=1):
    """A frame of some records, or of raw bytes."""
    payload = records if isinstance(records, bytes) else encode(records)
    return Frame(seq, kind, payload, segment, offset)


def long_run(world, passes):
    """A world in which a request arrives before each pass."""
    engine = world()
    for number in range(passes):
        engine.arrive(f"request-{number}", number, 1000)
        engine.step(number + 0.5)
    return engine


def test_a_decision_is_kept_whole(database, world):
    """A decision's row has outcome, gate, reason, observed, limit, short by, unit, host-hit plan and all its checks."""
    engine = world(max_extend_tokens=8192, chunked_prefill_size=None)
    engine.arrive("a", 0, 8000)
    engine.arrive("b", 1, 1000, device_tokens=128, unlocked_tokens=128, host_tokens=256, resident_tokens=300)
    engine.step(2)
    engine.into(database)
    row = rows(database, "SELECT * FROM v_decisions WHERE request_id = 'b'")[0]
    wanted = {
        "outcome": "wait", "gate": "extend_tokens", "reason": "limit", "observed": 8000 + 640, "limit_value": 8192,
        "short_by": 448, "unit": "tokens", "prompt_tokens": 1000, "device_hit_tokens": 128, "extend_tokens": 616,
        "host_hit": "planned", "host_status": "planned", "resident_tokens": 300, "matched_tokens": 256,
        "host_loaded_tokens": 0, "pass": 1, "position": 1, "at": "2023-11-14T22:13:20.002Z",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    checks = rows(
        database, "SELECT gate, verdict, observed, limit_value FROM checks WHERE request = 1 ORDER BY gate_number"
    )
    decision = decode(engine.frames()[0].payload)[-1].decisions[1]
    assert [(each["gate"], each["verdict"]) for each in checks][3:6] == [
        ("kv_capacity", "pass"), ("extend_tokens", "refuse"), ("cached_tokens", "not_evaluated"),
    ]  # fmt: skip
    assert [each["observed"] for each in checks] == list(decision[18:44:3])
    assert checks[4]["limit_value"] == 8192
    assert checks[5]["limit_value"] is None


def test_a_pass_is_kept_whole(database, world):
    """A pass's row has its queue, its batch's sums, what closed it and the capacity before and after."""
    engine = world(chunked_prefill_size=4096)
    engine.arrive("a", 0, 3000, device_tokens=512, unlocked_tokens=512)
    engine.arrive("b", 0, 9000, host_tokens=256, resident_tokens=256)
    engine.arrive("c", 0, 9000)
    engine.step(1, free=100_000)
    engine.into(database)
    (row,) = rows(database, "SELECT * FROM v_passes")
    (record,) = (each for each in decode(engine.frames()[0].payload) if isinstance(each, Pass))
    assert row["members"] == len(record.batch) == 2
    assert row["cut"] == 1
    assert row["extend_tokens"] == sum(member[2] for member in record.batch)
    assert (row["device_hit_tokens"], row["host_loaded_tokens"], row["cached_tokens"]) == (512, 256, 768)
    assert (row["queue"], row["not_reached"], row["closed_gate"], row["closed_reason"]) == (
        3,
        1,
        "chunk_tokens",
        "budget",
    )
    assert (row["free_tokens"], row["quota_after"], row["room_after"]) == (100_000, *record.after)
    members = rows(database, "SELECT request_id, outcome, extend_tokens, host_loaded_tokens FROM members")
    assert [(each["request_id"], each["outcome"]) for each in members] == [("a", "admit"), ("b", "admit_chunk")]
    assert sum(each["extend_tokens"] for each in members) == row["extend_tokens"]
    assert members[1]["host_loaded_tokens"] == 256


def test_a_request_is_told_in_one_row(database, world):
    """A request's row has its arrival, first look, admission, first token and end, each as first recorded."""
    engine = world()
    engine.arrive("a", 1, 900, 20, device_tokens=64, unlocked_tokens=64)
    engine.step(2, free=100)
    engine.step(3, free=10_000)
    engine.first_token("a", 9)
    engine.retract("a", 10, 905)
    engine.step(11)
    engine.first_token("a", 12)
    engine.finish("a", 20, 17)
    engine.frames()
    engine.into(database)
    (row,) = rows(database, "SELECT * FROM v_requests")
    wanted = {
        "id": "a", "arrival_ns": 1_000_000, "prompt_tokens": 900, "output_tokens": 20, "first_pass": 1,
        "first_look_ns": 2_000_000, "admit_pass": 2, "admit_ns": 3_000_000, "wait_ns": 2_000_000,
        "cached_tokens": 64, "first_token_ns": 9_000_000, "ttft_ns": 8_000_000, "end_ns": 20_000_000,
        "ended": "finish", "generated_tokens": 17, "retractions": 1,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_the_rest_of_the_record_is_kept(database):
    """Knob changes, smoke allocations, steps, finished loads and preemptions have their rows."""
    records = [
        Arrival(7, "a", 1, 10, 1),
        KnobChange(2, "ann", 1, (("max_requests", None, 8), ("enforce", True, False)), accepted=True),
        KnobChange(3, "bob", 1, (), accepted=False, why="no such knob", request="0042.json"),
        Smoke(4, "cuda:0", 100, 120, 120, 500, passed=True),
        StepEnd(-1, 5, 6, ()),
        LoadDone(7, 7, 64),
        Preempt(7, 8, 3),
    ]
    with Ingest(database, "r") as ingest:
        ingest.feed([frame(records)])
    changes = rows(database, "SELECT who, knob, old, new, accepted, why, request FROM v_knob_changes ORDER BY knob")
    assert [tuple(each.values()) for each in changes] == [
        ("bob", None, None, None, 0, "no such knob", "0042.json"),
        ("ann", "enforce", 1, 0, 1, "", ""), ("ann", "max_requests", None, 8, 1, "", ""),
    ]  # fmt: skip
    assert rows(database, "SELECT device, reserved_bytes, passed FROM smoke")[0] == {
        "device": "cuda:0", "reserved_bytes": 120, "passed": 1,
    }  # fmt: skip
    assert rows(database, "SELECT pass, start_ns, end_ns FROM steps") == [{"pass": 0, "start_ns": 5, "end_ns": 6}]
    assert rows(database, "SELECT request, tokens FROM loads") == [{"request": 7, "tokens": 64}]
    assert rows(database, "SELECT kind, by_request FROM retractions") == [{"kind": "preempt", "by_request": 3}]


def test_repeats_are_cumulative(database, world):
    """However often a repeat frame is written, the refusal is counted once, as its last frame has it."""
    engine = world()
    engine.arrive("a", 0, 5000)
    for number in range(40):
        engine.step(1 + 100 * number, free=1000 + number)
    engine.recorder.end_repeats()
    engine.into(database)
    written = [each for f in engine.frames() for each in decode(f.payload) if isinstance(each, Repeat)]
    assert len(written) > 2
    (row,) = rows(database, "SELECT * FROM v_repeats")
    assert (row["first_pass"], row["last_pass"], row["count"], row["ended"]) == (1, 40, 39, 1)
    assert (row["limit_first"], row["limit_last"], row["limit_least"], row["limit_greatest"]) == (
        1001,
        1039,
        1001,
        1039,
    )
    assert (row["gate"], row["reason"], row["request_id"]) == ("kv_capacity", "pool", "a")


def test_an_earlier_repeat_frame_does_not_overwrite_a_later_one(database):
    """A cumulative frame that counts less than what is kept changes nothing."""
    later = Repeat(1, 9, 8, 1, 9, 0, 3, 3, (1,) * 4, (2,) * 4, 1, 0, 0, ended=True)
    earlier = Repeat(1, 4, 3, 1, 4, 0, 3, 3, (1,) * 4, (2,) * 4, 1, 0, 0, ended=False)
    with Ingest(database, "r") as ingest:
        ingest.feed([frame([later]), frame([earlier], 1, 500)])
    assert rows(database, "SELECT count, last_pass FROM repeats") == [{"count": 8, "last_pass": 9}]


def test_every_row_has_its_parents(database, world):
    """The foreign keys the schema declares hold in what ingest wrote, also where frames before were lost."""
    engine = long_run(world, 30)
    frames = engine.frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[5:])
        ingest.feed([frame([LoadDone(999, 5, 1), Preempt(998, 6, 997)], 30, 10_000_000)])
        assert ingest._connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_several_runs_and_ranks_share_a_database(database, world):
    """Runs and ranks are kept apart, however their frames alternate."""
    one, two = long_run(world, 6), long_run(world, 4)
    with Ingest(database, "one") as first, Ingest(database, "two") as second, Ingest(database, "two", 1) as third:
        first.feed(one.frames()[:3])
        second.feed(two.frames())
        first.feed(one.frames()[3:])
        third.feed(two.frames())
    counts = rows(
        database, "SELECT r.name, r.rank, count(*) AS n FROM passes p JOIN runs r ON r.id = p.run GROUP BY r.id"
    )
    assert [tuple(each.values()) for each in counts] == [("one", 0, 6), ("two", 0, 4), ("two", 1, 4)]


def test_a_restart_neither_loses_nor_doubles(database, world):
    """Stopped and opened again between any two frames, the database ends up the same."""
    frames = long_run(world, 20).frames()
    for cut in range(len(frames) + 1):
        path = database.with_name(f"{cut}.db")
        with Ingest(path, "run-1") as ingest:
            ingest.feed(frames[:cut])
        with Ingest(path, "run-1") as ingest:
            begin = ingest.cursor.seq if ingest.cursor else 0
            assert begin == cut
            ingest.feed(frames[begin:])
        assert rows(path, "SELECT count(*) AS n, count(DISTINCT pass) AS passes FROM decisions") == [
            {"n": 20, "passes": 20}
        ]
        assert rows(path, "SELECT * FROM losses") == []


def test_a_killed_ingest_goes_on_where_its_last_transaction_ended(database, tmp_path, world):
    """After kill -9 in the middle of ingest, the next one finishes with every pass there once and nothing lost."""
    program = (
        "import sys, pickle\n"
        "from pathlib import Path\n"
        "from controller.journal.frames import Frame\n"
        "from store import ingest\n"
        "ingest.CHUNK_BYTES = 2000\n"
        "frames = [Frame(*each) for each in pickle.loads(Path(sys.argv[2]).read_bytes())]\n"
        "with ingest.Ingest(Path(sys.argv[1]), 'run-1') as taking:\n"
        "    frames = frames[taking.cursor.seq if taking.cursor else 0:]\n"
        "    for begin in range(0, len(frames), 25):\n"
        "        taking.feed(frames[begin:begin + 25])\n"
        "        print('.', flush=True)\n"
    )
    frames = long_run(world, 3000).frames()
    kept = tmp_path / "frames"
    kept.write_bytes(pickle.dumps([tuple(each) for each in frames]))
    seen = []
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", program, database, kept], cwd=ROOT, stdout=subprocess.PIPE)
        with process:
            process.stdout.read(24)
            os.kill(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        seen += [each["n"] for each in rows(database, "SELECT count(*) AS n FROM passes")]
    assert 0 < seen[0] < seen[1] < seen[2] < 3000
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[ingest.cursor.seq :])
    found = rows(
        database, "SELECT count(*) AS n, max(number) AS last, (SELECT count(*) FROM decisions) AS d FROM passes"
    )
    assert found == [{"n": 3000, "last": 3000, "d": 3000}]
    assert rows(database, "SELECT * FROM losses") == []


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1 no msgpack",
        encode([]) + b"more",
        encode([Pass(1, 2, 3, 0, 1, 1, 0, (), -1, -1, -1, (), (1, 2), (3, 4), ())]),
        encode([Pass(1, 2, 3, 0, 1, 1, 0, (), -1, -1, -1, (), (1, 2, 3, 4), (3, 4), ((1, 2, 3),))]),
        encode([Pass(1, 2, 3, 0, 1, 1, 0, (), -1, -1, -1, (), (1, 2, 3, 4), (3, 4), ((1, 9, *range(42)),))]),
        encode([Pass(1, 2, 3, 0, 1, 1, 0, (), -1, -1, -1, (), (1, 2, 3, 4), (3, 4), ((1, 3, *range(50, 63)),))]),
        encode([Pass(1, 2, 3, 0, 1, 1, 0, ((1, 0),), -1, -1, -1, (), (1, 2, 3, 4), (3, 4), ())]),
        encode([Arrival(1, "a", 1 << 63, 1, 1)]),
    ],
)
def test_a_frame_that_makes_no_sense_costs_itself_alone(database, world, payload):
    """A frame whose records cannot be read is counted as a loss, says where it stood, and its neighbours are kept."""
    frames = long_run(world, 5).frames()
    frames[2] = frames[2]._replace(payload=payload)
    with Ingest(database, "run-1") as ingest:
        assert ingest.feed(frames) == 5
    assert rows(database, "SELECT group_concat(number) AS n FROM passes") == [{"n": "1,2,4,5"}]
    losses = rows(database, "SELECT reason, frames, segment, byte_offset, detail FROM losses WHERE reason != 'missing'")
    assert [(each["reason"], each["frames"], each["byte_offset"]) for each in losses] == [
        ("unreadable", 1, frames[2].offset)
    ]
    assert losses[0]["detail"].startswith("frame 2: ")


def test_a_pass_told_twice_is_kept_once_and_counted(database, world):
    """A frame whose passes are in the store already is counted as a conflict, and its neighbours are kept."""
    frames = long_run(world, 3).frames()
    again = frames[1]._replace(seq=3, offset=frames[2].cursor.offset)
    with Ingest(database, "run-1") as ingest:
        ingest.feed([*frames, again])
    assert rows(database, "SELECT count(*) AS n FROM decisions") == [{"n": 3}]
    assert rows(database, "SELECT reason, frames FROM losses") == [{"reason": "conflict", "frames": 1}]


def test_gaps_in_the_journal_are_counted(database, world):
    """Sequence numbers no frame carried and bytes nobody could read are one loss row; an unbroken journal has none."""
    frames = long_run(world, 9).frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed(frames[:2])
        ingest.feed(frames[2:4])
        assert rows(database, "SELECT * FROM losses") == []
        ingest.feed(frames[6:])
    bytes_gone = frames[6].offset - frames[3].cursor.offset
    assert rows(database, "SELECT reason, frames, bytes FROM losses") == [
        {"reason": "missing", "frames": 2, "bytes": bytes_gone}
    ]


def test_losses_the_writer_stated_are_not_counted_twice(database, world):
    """Frames a LOSS frame speaks for are counted under its reason alone; those at the bound where missing."""
    frames = long_run(world, 9).frames()
    stated = Loss("full", 2, 900, 4, 5, 100, 200, {}).encode()
    bound = Loss("bound", 50, 9000, 0, 49, 1, 2, {"sqlite": 0}).encode()
    place = frames[3].cursor.offset
    told = [
        Frame(6, LOSS, stated, 1, place),
        Frame(6, LOSS, bound, 1, place + 32 + len(stated)),
    ]
    after = frames[6]._replace(offset=told[1].cursor.offset)
    with Ingest(database, "run-1") as ingest:
        ingest.feed([Frame(0, SEGMENT, b"{}", 1, 0)._replace(offset=0), *[f._replace(segment=2) for f in frames[:4]]])
        ingest.feed([f._replace(segment=2) for f in (*told, after)])
    losses = rows(database, "SELECT reason, frames, first_ns, last_ns FROM losses")
    assert [tuple(each.values()) for each in losses] == [("full", 2, 100, 200), ("bound", 0, 1, 2)]


def test_a_journal_whose_beginning_is_gone_is_told_as_missing(database, world):
    """A store that begins after the first segments went counts what it never saw."""
    frames = long_run(world, 9).frames()
    with Ingest(database, "run-1") as ingest:
        ingest.feed([f._replace(segment=4, offset=f.offset - frames[5].offset) for f in frames[5:]])
    assert rows(database, "SELECT reason, frames FROM losses") == [{"reason": "missing", "frames": 5}]


def test_a_large_feed_is_cut_into_transactions(database, world, monkeypatch):
    """Frames beyond one transaction's worth are written in several, and all of them are."""
    monkeypatch.setattr(ingesting, "CHUNK_BYTES", 1000)
    frames = long_run(world, 50).frames()
    chunks = list(ingesting._chunks(iter(frames)))
    assert len(chunks) > 5
    assert [each for chunk in chunks for each in chunk] == frames
    with Ingest(database, "run-1") as ingest:
        ingest.feed(iter(frames))
        assert ingest.cursor == Cursor(1, frames[-1].cursor.offset, 50)
    assert rows(database, "SELECT count(*) AS n FROM passes") == [{"n": 50}]
