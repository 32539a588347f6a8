"""The records of a journal: they read back as they were written, under tags that keep their meaning."""

import msgspec
import pytest

from controller.records import (
    Abort,
    Arrival,
    Digest,
    Finish,
    KnobChange,
    KnobsInForce,
    LoadDone,
    Pass,
    Preempt,
    PrefixHashes,
    Record,
    Repeat,
    Retract,
    RunEnd,
    RunStart,
    Smoke,
    StepEnd,
    decode,
    encode,
)

SAMPLES = [
    RunStart(
        "run-1", "replay", "0.1.0", 0, "", "deepseek-v3.2", 5, 1_700_000_000_000_000_000, True, 1_000_000, 0, 2048,
        999_998, {"context_parallel": True, "lanes": 4, "role": "prefill", "new_token_ratio": 0.7}, "{}",
    ),
    KnobsInForce(5, 0, (("max_requests", "requests", None, None, "off", ""), ("enforce", "", True, True, "", ""))),
    Arrival(1, "request-ü", 7, 5000, 128, (2**32 - 1, 5), "00-1-2-01", 0, 4096, 5000, True),
    Pass(1, 8, 900, 0, 2, 5100, 1, ((1, 0, 5000, 0, 0, 0),), 8, 7, 123, (1, 2), (10, 20, 30, 4), (5, -6),
         ((1, 0, -1, -1, 0),), ((40, 10),)),
    Repeat(1, 4, 3, 9, 11, 1, 3, 3, (5, 6, 4, 7), (1, 1, 1, 1), 2, 1, 0, True),
    StepEnd(1, 8, 20, (1,)),
    Finish(1, 30, 128),
    Abort(1, 30, "client left"),
    Retract(1, 25, 10, 5010),
    Preempt(1, 25, 2),
    LoadDone(1, 9, 640),
    KnobChange(12, "operator", 1, (("max_requests", None, 4),), True, "", "0042-7-ab.json"),
    Smoke(2, "cuda:0", 1 << 30, 1 << 30, 1 << 31, 1 << 35, False, "out of memory"),
    RunEnd(40, "end of workload", 1, 1),
    Digest(3, b"\x00\xff" * 8),
    PrefixHashes(1, (2**32 - 1, 5), 0, 4096, 5128),
]  # fmt: skip

TAGS = {
    "RunStart": 1, "KnobsInForce": 2, "Arrival": 3, "Pass": 4, "Repeat": 5, "StepEnd": 6, "Finish": 7, "Abort": 8,
    "Retract": 9, "Preempt": 10, "LoadDone": 11, "KnobChange": 12, "Smoke": 13, "RunEnd": 14,
    "Digest": 15, "PrefixHashes": 16,
}  # fmt: skip


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_reads_back_as_it_was_written(record):
    """Encoding and decoding a record gives the same record of the same kind."""
    (back,) = decode(encode([record]))
    assert back == record
    assert type(back) is type(record)


def test_a_frame_holds_several_records_in_order():
    """Records written in one frame come back in the order in which they were written."""
    assert decode(encode(SAMPLES)) == SAMPLES


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_tag_keeps_its_meaning(record):
    """A record is an array whose first element is its tag, and the tag of each kind never changes."""
    (array,) = msgspec.msgpack.decode(encode([record]))
    assert array[0] == TAGS[type(record).__name__]


def test_every_kind_of_record_is_sampled():
    """No kind of record escapes these tests."""
    kinds = {kind.__name__ for kind in Record.__subclasses__()}
    assert kinds == set(TAGS) == {type(record).__name__ for record in SAMPLES}


def test_an_older_record_without_later_fields_stays_readable():
    """Fields with defaults may be missing at the end of a record, as they are in one written before they existed."""
    array = msgspec.msgpack.decode(encode([SAMPLES[3]]))[0]
    (back,) = decode(msgspec.msgpack.encode([array[:-1]]))
    assert back == msgspec.structs.replace(SAMPLES[3], lanes=())


def test_a_newer_record_with_more_fields_stays_readable():
    """Elements a reader does not know at the end of a record are passed over."""
    array = msgspec.msgpack.decode(encode([SAMPLES[6]]))[0]
    assert decode(msgspec.msgpack.encode([[*array, "later"]])) == [SAMPLES[6]]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"nonsense", msgspec.msgpack.encode([[99, 1]]),
                                     msgspec.msgpack.encode([[7, "one", 2, 3]]), msgspec.msgpack.encode({"a": 1}),
                                     encode(SAMPLES)[:-1]])  # fmt: skip
def test_what_is_no_record_is_a_decode_error(payload):
    """A payload that is not whole records of known kinds is a DecodeError and nothing else."""
    with pytest.raises(msgspec.DecodeError):
        decode(payload)
