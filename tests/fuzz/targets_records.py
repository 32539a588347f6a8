"""Targets: what lies in a run's folder, as damage or somebody else may have left it there."""

import json
import shutil
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from mutate import SCALARS, bytes_like, json_like, mutate_value
from target import Aim, Room, target

from controller.engines.plugin.broadcast import find_forwarded, list_forwarded
from controller.engines.plugin.faults import read_faults
from controller.engines.plugin.status import read_status
from controller.journal import JournalReader, read_cursor, read_cursors
from controller.journal.frames import DATA, LOSS, MAGIC, SEGMENT, frame_builder, parse_frames
from controller.journal.segments import segment_name
from controller.knob_requests import take_requests
from controller.knob_turning import answer, asked_change
from controller.knobs import Knobs
from controller.limits import Setting
from controller.records import decode
from controller.run_directory import RunDirectory, list_runs, ranks_of
from store.collect import Collector
from store.named import NAMED
from store.queries import run_query
from store.span_ids import _request_trace
from store.spans import _caller
from store.standing import read_standings
from store.why import why
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View

MARK = MAGIC + b"\x01\x02\x03\x04"
RUN_JSON: dict[str, Any] = {
    "run_id": "fuzz", "engine": "replay", "version": "0.1.0", "model": None, "rank": 0,
    "started": "2026-03-01T12:00:00Z",
    "pid": 1, "context": {"database": "x.db", "plugin": {"a": 1}}, "knobs": {"max_requests": 8}, "ended": None,
    "end_reason": None, "format": 1,
}  # fmt: skip
CURSOR: dict[str, Any] = {"segment": 1, "offset": 100, "seq": 3}
HEADER: dict[str, Any] = {
    "format": 1, "run_id": "fuzz", "rank": 0, "segment": 1, "first_seq": 0, "monotonic_ns": 1, "wall_ns": 2,
    "lost": {},
}  # fmt: skip
LOST: dict[str, Any] = {
    "reason": "full", "frames": 3, "lost_bytes": 100, "first_seq": 1, "last_seq": 3, "first_ns": 1, "last_ns": 2,
    "sinks": {"sqlite": 1},
}  # fmt: skip
STATUS: dict[str, Any] = {
    "engine": "sglang", "version": "0.5.23", "pid": 1, "rank": 0, "knobs": {"type": "http",
    "url": "http://127.0.0.1:1"},
    "in_force": True, "losses": {"full": 1}, "cautions": ["a"], "at_ns": 1,
}  # fmt: skip
FAULTS: dict[str, Any] = {"pid": 1, "faults": [{"what": "a", "count": 1, "lost": "b", "trace": "c", "error": "d"}]}
FORWARDED: dict[str, Any] = {
    "name": "1.json", "at_unix_ns": 1, "uid": 0, "content": {"format": 1}, "error": None, "why": "",
}  # fmt: skip
STANDING: dict[str, Any] = {"sinks": {"sqlite": {"failures": 1, "last_error": "x", "delivered": 3}}}


def fresh(room: Room, name: str) -> Any:
    """An empty folder of that name in the room."""
    folder = room.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def new_run(room: Room, name: str = "runs") -> RunDirectory:
    """A run's folder with nothing in its journal."""
    folder = fresh(room, name) / "fuzz"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({**RUN_JSON, "context": {}}))
    (folder / "journal").mkdir()
    (folder / "knob-requests").mkdir()
    return RunDirectory(folder)


def journal_bytes(room: Room) -> tuple[bytes, bytes, list[bytes]]:
    """The sample run's first segment: its sync mark, the beginning of its bytes, and the payloads in it."""
    segment = min((room.run / "journal").glob("*.journal"))
    content = segment.read_bytes()[:20_000]
    mark = MAGIC + bytes.fromhex(segment.stem.split("-")[1])
    frames = parse_frames(content, mark, 1, 0, 0, at_end=True).frames
    return mark, content, [frame.payload for frame in frames if frame.kind == DATA]


@target("journal: bytes", cost=2, is_bytes=True)
def journal_of_bytes(room: Room) -> Aim:
    """A damaged segment: what is handed over is as it was written, in order, and no place is passed twice."""
    mark, content, payloads = journal_bytes(room)
    known = set(payloads)

    def parse(damaged: bytes) -> None:
        folder = fresh(room, "journal-bytes")
        (folder / segment_name(1, mark)).write_bytes(damaged)
        with JournalReader(folder) as reader:
            frames = list(reader)
        data = [frame for frame in frames if frame.kind == DATA]
        assert [frame.seq for frame in data] == sorted({frame.seq for frame in data})
        assert all(frame.payload in known for frame in data)
        held = sum(len(frame.payload) + 32 for frame in frames)
        assert held + reader.skipped.damaged_bytes + reader.tail_bytes == len(damaged)

    return Aim(bytes_like(content), parse)


@target("journal: own frames", cost=2)
def journal_own_frames(room: Room) -> Aim:
    """Frames with good checksums whose content is not what the journal writes, in any order, of any kind."""
    head, lost = json_like(HEADER), json_like(LOST)
    kinds = st.one_of(
        st.tuples(st.just(SEGMENT), head), st.tuples(st.just(LOSS), lost), st.tuples(st.just(DATA),
        st.binary(max_size=9)),
        st.tuples(st.integers(0, 255), st.binary(max_size=9)),
    )  # fmt: skip
    frame = st.tuples(kinds, st.one_of(st.none(), st.integers(0, 2**64 - 1)))

    def parse(frames: list[tuple[tuple[int, bytes], int | None]]) -> None:
        folder = fresh(room, "journal-own")
        content = b"".join(
            frame_builder(MARK, kind)(payload, number if seq is None else seq)
            for number, ((kind, payload), seq) in enumerate(frames)
        )
        (folder / segment_name(1, MARK)).write_bytes(content)
        (folder / segment_name(2, MARK)).write_bytes(content)
        with JournalReader(folder) as reader:
            for each in reader:
                assert each.cursor
            if reader.header is not None:
                assert isinstance(reader.header.wall_time(1), int)

    return Aim(st.lists(frame, max_size=5), parse)


@target("records: bytes", is_bytes=True)
def records_bytes(room: Room) -> Aim:
    """The payload of a frame: records, or one of the errors that readers count a lost frame by."""
    payloads = journal_bytes(room)[2]

    def parse(payload: bytes) -> None:
        with suppress(msgspec.DecodeError):
            decode(payload)

    return Aim(bytes_like(*payloads[:40]), parse)


@st.composite
def odd_records(draw: Any, payloads: list[bytes]) -> list[bytes]:
    """The frames of a short run, a few of whose records hold numbers and names that no engine writes."""
    random = Random(draw(st.integers(0, 2**48)))  # noqa: S311 - a fuzzer's, not a secret's
    made = []
    for payload in payloads[:30]:
        value = msgspec.msgpack.decode(payload)
        if random.random() < 0.2:
            value = mutate_value(value, random)
        try:
            made.append(msgspec.msgpack.encode(value))
        except (OverflowError, UnicodeEncodeError, RecursionError, ValueError):
            made.append(payload)
    return made


@target("records: odd values, collected and asked", cost=60)
def records_odd(room: Room) -> Aim:
    """A record that is well-formed and makes no sense is taken in or counted as lost, and can still be asked about."""
    payloads = journal_bytes(room)[2]
    number = 0

    def parse(frames: list[bytes]) -> None:
        nonlocal number
        number += 1
        run = new_run(room, "odd")
        build = frame_builder(MARK, DATA)
        head = frame_builder(MARK, SEGMENT)(json.dumps({**HEADER, "run_id": "fuzz"}).encode(), 0)
        content = head + b"".join(build(payload, seq) for seq, payload in enumerate(frames))
        (run.journal / segment_name(1, MARK)).write_bytes(content)
        database = run.path / "glassgate.db"
        with Collector(run, database) as collector:
            assert collector.poll() == len(frames) + 1
        for name in NAMED:
            run_query(database, name)
        view = View(Source.open(str(database), run.path.parent))
        try:
            view.answer(
                Ask(panels=frozenset({"live", "waiting", "gates", "hits", "buffers", "knobs", "log"})), whole=True
            )
        finally:
            view.close()
        why(database, "s0.t0")

    return Aim(odd_records(payloads), parse)


@target("run.json and the files beside it", cost=6, is_bytes=True)
def state_files(room: Room) -> Aim:
    """The small files of a run's folder: each is read, or said to be what it is not."""
    inputs = json_like(RUN_JSON, CURSOR, STATUS, FAULTS, FORWARDED, STANDING)

    def parse(content: bytes) -> None:
        run = new_run(room, "files")
        folder = run.path
        for name in ("plugin.json", "faults.json", "collector.json"):
            (folder / name).write_bytes(content)
        (folder / "journal" / "cursors").mkdir()
        (folder / "journal" / "cursors" / "sqlite").write_bytes(content)
        (folder / "knob-requests" / "forwarded").mkdir()
        (folder / "knob-requests" / "forwarded" / "7.json").write_bytes(content)
        read_status(folder)
        read_faults(folder)
        read_cursors(folder / "journal")
        list_forwarded(folder / "knob-requests")
        find_forwarded(folder / "knob-requests", 7)
        read_standings(run, run.path / "glassgate.db")
        (folder / "run.json").write_bytes(content)
        for listed in list_runs(folder.parent):
            assert listed.error is not None or listed.info is not None
        with suppress(FileNotFoundError):
            read_cursor(folder / "journal", "sqlite")
        assert run.state
        ranks_of(run)

    return Aim(inputs, parse)


REQUEST = asked_change({"max_requests": 8, "max_buffer_bytes": "4GiB", "enforce": "off"}, "me", expect_revision=0)


@target("knob request", cost=2, is_bytes=True)
def knob_request(room: Room) -> Aim:
    """A file left for a run's engine: it is answered, and the answer can be written down."""

    def parse(content: bytes) -> None:
        folder = fresh(room, "requests")
        path = folder / "1.json"
        path.write_bytes(content)
        path.chmod(0o600)
        (taken,) = take_requests(folder)
        answered = answer(taken, Knobs(), Setting())
        record = msgspec.msgpack.encode([answered.record(1)])
        assert decode(record)
        assert answered.accepted or answered.why

    return Aim(json_like(REQUEST), parse)


TRACEPARENTS = (
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-00000000000000000000000000000000-b7ad6b7169203331-00",
    "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
)  # fmt: skip


@target("traceparent")
def traceparent(room: Room) -> Aim:
    """What a client sends as its trace: both readers of it agree on whether it names one, and on which."""
    del room
    odd = st.sampled_from([each for each in SCALARS if isinstance(each, str)])
    inputs = st.one_of(bytes_like(*(each.encode() for each in TRACEPARENTS)).map(lambda b: b.decode("latin-1")), odd)

    def parse(text: str) -> None:
        caller = _caller(text)
        trace = _request_trace("run", None, text)
        assert trace == (None if caller is None else f"{caller.trace_id:032x}"), (caller, trace)

    return Aim(inputs, parse)
