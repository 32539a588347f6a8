"""The count that a test makes by itself: raw frames of a journal against rows of a database.

Nothing of the journal's reader, the records or the store is used here, so that a defect there cannot hide itself.
"""

import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Decisions = dict[tuple[int, int], tuple[int, ...]]
"""By pass and position: request, outcome, gate, reason, observed, limit; gate to limit are -1 where none stopped it."""

_HEADER = struct.Struct("<8sBBHIQI")
_DATA, _LOSS = 1, 3
_ARRIVAL, _PASS, _REPEAT = 3, 4, 5


class Journal(NamedTuple):
    """What the sound frames of a journal hold."""

    frames: dict[int, bytes]
    """Payloads of data frames by number."""
    stated: dict[str, int]
    """Frames that the writer says it lost, by reason; what went at the bound is not among them."""

    @property
    def end(self) -> int:
        """The number behind the last data frame."""
        return max(self.frames, default=-1) + 1

    def missing(self, end: int | None = None) -> int:
        """Numbers before `end` that no sound frame carries."""
        end = self.end if end is None else end
        return end - sum(number < end for number in self.frames)

    def decisions(self, end: int | None = None) -> Decisions:
        """Every decision of the frames before a number."""
        found: Decisions = {}
        for record in self.records(_PASS, end):
            for position, decision in enumerate(record[15]):
                stopped = decision[2:6] if decision[2] >= 0 else (-1,) * 4
                key = record[1], position
                assert key not in found, f"pass {key[0]} is in the journal twice"
                found[key] = (*decision[:2], *stopped)
        return found

    def repeats(self, end: int | None = None) -> dict[int, int]:
        """How often the refusal of a pass was repeated, by that pass."""
        found: dict[int, int] = {}
        for record in self.records(_REPEAT, end):
            found[record[1]] = max(record[3], found.get(record[1], 0))
        return found

    def requests(self) -> dict[str, int]:
        """The number of each request by its id."""
        return {record[2]: record[1] for record in self.records(_ARRIVAL)}

    def admitted(self) -> set[int]:
        """The requests that entered a batch, whole or in part."""
        return {told[0] for told in self.decisions().values() if told[1] in (0, 1)}

    def records(self, tag: int, end: int | None = None) -> list[Any]:
        """Records of one tag, as they stand."""
        frames = [payload for number, payload in sorted(self.frames.items()) if end is None or number < end]
        return [record for payload in frames for record in msgspec.msgpack.decode(payload) if record[0] == tag]


class Store(NamedTuple):
    """What a database holds of one run."""

    decisions: Decisions
    repeats: dict[int, int]
    losses: dict[str, int]
    """Frames by reason."""
    end: int
    """The number of the next frame."""
    doubled: int
    """Frames that brought what was there already, and decisions told of one request twice in one pass."""

    @property
    def count(self) -> int:
        """Decisions, repeats of a refusal included."""
        return len(self.decisions) + sum(self.repeats.values())


class Balance(NamedTuple):
    """One comparison, as it goes into the table."""

    decisions: int
    """In the journal, repeats of a refusal included."""
    stored: int
    lost_frames: int
    doubled: int


def read_journal(folder: Path) -> Journal:
    """Every sound frame of a journal's segments, found by its mark, its two checksums and its rising number."""
    frames: dict[int, bytes] = {}
    stated: dict[str, int] = {}
    expected = 0
    for path in sorted(folder.glob("*.journal")):
        content = path.read_bytes()
        mark = b"\xabGLJ" + bytes.fromhex(path.stem.split("-")[1])
        at = content.find(mark)
        while at >= 0:
            found = _frame(content, at)
            if found is None or found[1] < expected:
                at = content.find(mark, at + 1)
                continue
            kind, number, payload = found
            if kind == _DATA:
                frames[number] = payload
                expected = number + 1
            elif kind == _LOSS:
                loss = msgspec.json.decode(payload)
                if loss["reason"] != "bound":
                    stated[loss["reason"]] = stated.get(loss["reason"], 0) + loss["frames"]
            at = content.find(mark, at + 32 + len(payload))
    return Journal(frames, stated)


def _frame(content: bytes, at: int) -> tuple[int, int, bytes] | None:
    """Kind, number and payload of the sound frame at a place."""
    if at + _HEADER.size > len(content):
        return None
    _, _, kind, _, size, number, check = _HEADER.unpack_from(content, at)
    begin = at + _HEADER.size
    if zlib.crc32(content[at : begin - 4]) != check or begin + size + 4 > len(content):
        return None
    payload = content[begin : begin + size]
    sound = struct.unpack_from("<I", content, begin + size)[0] == zlib.crc32(payload, check)
    return (kind, number, payload) if sound else None


def read_store(database: Path, run: str, rank: int = 0) -> Store:
    """What a database holds of a run."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20)) as connection:
        connection.execute("BEGIN")
        (number,) = connection.execute("SELECT id FROM runs WHERE name = ? AND rank = ?", (run, rank)).fetchone()
        of_run = {"run": number}
        rows = connection.execute(
            "SELECT pass, position, request, outcome, coalesce(gate, -1), coalesce(reason, -1), "
            "coalesce(observed, -1), coalesce(limit_value, -1) FROM decisions WHERE run = :run",
            of_run,
        ).fetchall()
        twice = connection.execute(
            "SELECT count(*) - count(DISTINCT pass || ' ' || request) FROM decisions WHERE run = :run", of_run
        ).fetchone()[0]
        repeats = dict(connection.execute("SELECT first_pass, count FROM repeats WHERE run = :run", of_run))
        losses = dict(
            connection.execute("SELECT reason, sum(frames) FROM losses WHERE run = :run GROUP BY reason", of_run)
        )
        place = connection.execute("SELECT seq FROM cursors WHERE run = :run", of_run).fetchone()
    doubled = twice + losses.get("conflict", 0)
    return Store({row[:2]: row[2:] for row in rows}, repeats, losses, place[0] if place else 0, doubled)


def stored_end(database: Path) -> int:
    """The number of the next frame of the one run in a database; 0 while it cannot be read."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as connection:
            row = connection.execute("SELECT seq FROM cursors").fetchone()
    except sqlite3.OperationalError:
        return 0
    return row[0] if row else 0


def balance(journal: Journal, store: Store, *, complete: bool = True) -> Balance:
    """Hold a store against the journal it came from; raise AssertionError where they do not agree.

    With `complete` the store must have come to the journal's end, else only what lies before its place is compared.
    """
    end = store.end
    if complete:
        assert end == journal.end, f"the store stands at frame {end}, the journal ends at {journal.end}"
    told, kept = journal.decisions(end), store.decisions
    assert kept == told, _difference(told, kept)
    assert store.repeats == journal.repeats(end)
    lost = sum(frames for reason, frames in store.losses.items() if reason not in ("torn_end", "damaged_end"))
    assert lost == journal.missing(end), f"the store counts {store.losses}, the journal misses {journal.missing(end)}"
    assert store.doubled == 0, f"{store.doubled} told twice"
    return Balance(len(told) + sum(journal.repeats(end).values()), store.count, lost, store.doubled)


def _difference(told: Decisions, kept: Decisions) -> str:
    """The first of what the one has and the other has not."""
    missing, extra = sorted(told.keys() - kept.keys()), sorted(kept.keys() - told.keys())
    other = [key for key in sorted(told.keys() & kept.keys()) if told[key] != kept[key]]
    return (
        f"journal {len(told)} decisions, store {len(kept)}; only in the journal {missing[:3]}, only in the store "
        f"{extra[:3]}, different {[(key, told[key], kept[key]) for key in other[:2]]}"
    )


def is_prefix(short: Decisions, whole: Decisions) -> bool:
    """Whether the decisions of a run that was cut short are those that the whole run began with."""
    last = max((number for number, _ in short), default=0)
    return short == {key: value for key, value in whole.items() if key[0] <= last}
