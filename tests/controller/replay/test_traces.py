"""Readers of Mooncake and Azure traces."""

import gzip
import json
import os
import threading
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay import mooncake, trace_lines
from controller.engines.replay.trace_lines import BadLineError, checked_id
from controller.engines.replay.traces import open_trace
from controller.engines.replay.workload import WorkloadRequest
from estimator.errors import InputError, UsageError

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "traces"
needs_traces = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the public traces are not in {SHARED}")

GOOD = {"timestamp": 5, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROW = "2023-11-16 18:17:03.9799600,4808,10"


def line(**changes: Any) -> str:
    """Return the good line with fields changed; a field set to `...` is left out."""
    return json.dumps({key: value for key, value in {**GOOD, **changes}.items() if value is not ...})


def write(path: Path, *lines: str | bytes) -> Path:
    """Write the lines to the path and return it."""
    path.write_bytes(b"".join((text.encode() if isinstance(text, str) else text) + b"\n" for text in lines))
    return path


def read(path: Path, **options: Any) -> list[WorkloadRequest]:
    """Return all requests of a trace."""
    with open_trace(path, **options) as workload:
        return list(workload)


def test_mooncake_line_becomes_a_request(tmp_path: Path) -> None:
    """Lengths, ids of 512-token blocks and times in ns from the first request come out as the lines have them."""
    path = write(tmp_path / "t", line(), line(timestamp=7, hash_ids=[0, 2], input_length=600))
    with open_trace(path) as workload:
        assert workload.name == "t"
        assert workload.block_tokens == 512
        assert list(workload) == [
            WorkloadRequest("r0", 0, 1000, 20, (0, 1)),
            WorkloadRequest("r1", 2_000_000, 600, 20, (0, 2)),
        ]
        assert workload.position() == 1.0
        assert workload.skipped.count == 0


def test_azure_row_becomes_a_request_that_shares_nothing(tmp_path: Path) -> None:
    """An Azure row has lengths and a time kept to 100 ns, and no blocks."""
    path = write(tmp_path / "t", HEADER, ROW + "\r", "2023-11-16 18:17:04.0319601,3180,8\r")
    assert read(path) == [WorkloadRequest("r0", 0, 4808, 10), WorkloadRequest("r1", 52_000_100, 3180, 8)]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.gz", "t"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", [(line(),), (HEADER, ROW)])
def test_format_is_chosen_by_content(tmp_path: Path, name: str, packed: bool, lines: tuple[str, ...]) -> None:
    """A file's name says nothing: JSON, CSV and gzip are told by what is in it."""
    path = write(tmp_path / name, *lines)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert [request.id for request in read(path)] == ["r0"]


def test_columns_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    """Columns may stand in any order and beside others; a zone offset is taken off."""
    path = write(
        tmp_path / "t",
        b"\xef\xbb\xbfGeneratedTokens,extra,timestamp,ContextTokens,request_id",
        '7,"a,b",2024-05-10T00:00:00+00:00,100.0,alpha',
        "8,,2024-05-10T01:00:01.5+01:00,200,",
    )
    assert read(path) == [WorkloadRequest("alpha", 0, 100, 7), WorkloadRequest("r1", 1_500_000_000, 200, 8)]


def test_ids_are_the_lines_own_or_the_data_line_number(tmp_path: Path) -> None:
    """A line's id or request_id is kept; without one the data line's number is used, blank and bad lines apart."""
    path = write(tmp_path / "t", "", line(id="a"), "   ", line(request_id=7), "{", line(), line(id=None))
    assert [request.id for request in read(path, skip_bad_lines=True)] == ["a", "7", "r3", "r4"]


def test_whole_floats_and_fractions_of_a_millisecond_are_taken(tmp_path: Path) -> None:
    """Lengths may be written as whole floats, and a timestamp may be finer than a millisecond."""
    path = write(tmp_path / "t", line(timestamp=1.0), line(timestamp=1.25, input_length=1000.0, output_length=2e1))
    assert read(path)[1] == WorkloadRequest("r1", 250_000, 1000, 20, (0, 1))


def test_blocks_past_the_prompt_are_taken_as_output(tmp_path: Path) -> None:
    """Block ids may go on over the output, as far as it reaches."""
    path = write(tmp_path / "t", line(output_length=100, hash_ids=[0, 1, 2]))
    assert read(path)[0].blocks == (0, 1, 2)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("garbage", 'line: "garbage" is not JSON (Expecting value); expected one object a line'),
        ('{"timestamp": 1', 'line: "{\\"timestamp\\": 1" is not JSON (Expecting \',\' delimiter)'),
        ("[1, 2]", "line: [1, 2] is not a JSON object"),
        ("7", "line: 7 is not a JSON object"),
        (line() + " x", "is not JSON (Extra data)"),
        ("[" * 200_000, "is not JSON (RecursionError)"),
        (line()[:-1] + ', "x": ' + "[" * 200_000, "is not JSON (RecursionError)"),
        (b'{"timestamp": 1, "x": "\xff"}', "line: byte 24 is not UTF-8"),
        (line(timestamp=...), "timestamp: is missing; expected milliseconds >= 0"),
        (line(input_length=...), "input_length: is missing; expected a whole number >= 1"),
        (line(output_length=...), "output_length: is missing; expected a whole number >= 1"),
        (line(hash_ids=...), "hash_ids: is missing; expected a list of block ids"),
        (line(timestamp=True), "timestamp: true is not a number of milliseconds >= 0"),
        (line(timestamp="5"), 'timestamp: "5" is not a number of milliseconds >= 0'),
        (line(timestamp=-1), "timestamp: -1 is not a number of milliseconds >= 0"),
        (line(timestamp=float("nan")), "timestamp: NaN is not a number of milliseconds >= 0"),
        (line(timestamp=float("inf")), "timestamp: Infinity is above the limit of 9007199254740992"),
        (line(timestamp=2**53 + 1), "timestamp: 9007199254740993 is above the limit of 9007199254740992"),
        (line(timestamp=0), "timestamp: 0 is earlier than the request before it; sort the trace by arrival"),
        (line(input_length=-3), "input_length: -3 is not a whole number >= 1"),
        (line(input_length=0), "input_length: 0 is not a whole number >= 1"),
        (line(input_length=1.5), "input_length: 1.5 is not a whole number >= 1"),
        (line(input_length=True), "input_length: true is not a whole number >= 1"),
        (line(input_length=None), "input_length: null is not a whole number >= 1"),
        (line(input_length=float("nan")), "input_length: NaN is not a whole number >= 1"),
        (line(input_length=float("inf")), "input_length: Infinity is not a whole number >= 1"),
        (line(input_length=2**40 + 1), "input_length: 1099511627777 is above the limit of 1099511627776"),
        (line(input_length=10**30), "input_length: 1000000000000000000000000000000 is above the limit"),
        (line().replace("1000", "9" * 5000), "is not JSON (ValueError)"),
        (line(output_length=0), "output_length: 0 is not a whole number >= 1"),
        (line(output_length="20"), 'output_length: "20" is not a whole number >= 1'),
        (line(hash_ids=7), "hash_ids: 7 is not a list of block ids"),
        (line(hash_ids=[0, "x"]), 'hash_ids[1]: "x" is not a whole number >= 0'),
        (line(hash_ids=[0, -1]), "hash_ids[1]: -1 is not a whole number >= 0"),
        (line(hash_ids=[0, 2**63]), "hash_ids[1]: 9223372036854775808 is above the limit of 9223372036854775807"),
        (line(hash_ids=[0]), "hash_ids: 1 ids do not cover input_length 1000; expected 2 of 512 tokens each"),
        (line(hash_ids=[0, 1, 2]), "hash_ids: 3 ids do not cover input_length 1000; expected 2 of 512 tokens each"),
        (line(hash_ids=[], output_length=30), "hash_ids: 0 ids do not cover input_length 1000; expected 2 to 3 of 512"),
        (line(id=""), 'id: "" is not a name of 1 to 200 printable characters'),
        (line(id=1.5), "id: 1.5 is not a name of 1 to 200 printable characters"),
        (line(id="a\x1b[2J"), 'id: "a\\u001b[2J" is not a name of 1 to 200 printable characters'),
        (line(id="a\nb"), 'id: "a\\nb" is not a name of 1 to 200 printable characters'),
        (line(request_id="x" * 201), "is not a name of 1 to 200 printable characters"),
        (line(request_id=True), "request_id: true is not a name of 1 to 200 printable characters"),
    ],
)
def test_bad_mooncake_line_is_named_or_counted(tmp_path: Path, bad: str | bytes, message: str) -> None:
    """A bad line is an error with file, line, field and value, or with skip_bad_lines one counted line."""
    path = write(tmp_path / "t.jsonl", line(), bad, line(timestamp=9))
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:2: ")
    assert message in text
    assert text.isprintable()
    assert len(text) < 300 + len(str(path))
    with open_trace(path, skip_bad_lines=True) as workload:
        assert [request.id for request in workload] == ["r0", "r2"]
        assert workload.skipped.count == 1
        assert workload.skipped.problems == [text]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("2023-11-16 18:17:04,1", "line: has 2 columns, expected 3 as in the header"),
        (ROW + ",9", "line: has 4 columns, expected 3 as in the header"),
        ("yesterday,1,1", 'TIMESTAMP: "yesterday" is not a time like 2023-11-16 18:17:03.9799600'),
        ("2023-02-30 00:00:00,1,1", 'TIMESTAMP: "2023-02-30 00:00:00" is not a date'),
        ("2023-11-16 24:00:00,1,1", 'TIMESTAMP: "2023-11-16 24:00:00" is not a time of day'),
        ("0000-11-16 18:17:04,1,1", 'TIMESTAMP: "0000-11-16 18:17:04" is not a date'),
        ("2023-11-15 18:17:04,1,1", "is earlier than the request before it"),
        ("2123-11-16 18:17:04,1,1", "is more than 1099511627776 ms after the trace's first request"),
        ("2023-11-16 18:17:04,-1,1", "ContextTokens: -1 is not a whole number >= 1"),
        ("2023-11-16 18:17:04,0,1", "ContextTokens: 0 is not a whole number >= 1"),
        ("2023-11-16 18:17:04,,1", 'ContextTokens: "" is not a whole number >= 1'),
        ("2023-11-16 18:17:04,1_0,1", 'ContextTokens: "1_0" is not a whole number >= 1'),
        ("2023-11-16 18:17:04,\u0661,1", 'ContextTokens: "\\u0661" is not a whole number >= 1'),
        ("2023-11-16 18:17:04,nan,1", 'ContextTokens: "nan" is not a whole number >= 1'),
        ("2023-11-16 18:17:04,2000000000000,1", "ContextTokens: 2000000000000 is above the limit of 1099511627776"),
        ("2023-11-16 18:17:04," + "9" * 5000 + ",1", "is not a whole number >= 1"),
        ("2023-11-16 18:17:04,1,1.5", 'GeneratedTokens: "1.5" is not a whole number >= 1'),
        ('2023-11-16 18:17:04,"1,1', "is not a CSV row (unexpected end of data)"),
        ("2023-11-16 18:17:04," + "9" * 200_000 + ",1", "is not a CSV row (field larger than field limit"),
        (b"2023-11-16 18:17:04,1,\xff", "line: byte 23 is not UTF-8"),
    ],
)
def test_bad_azure_row_is_named_or_counted(tmp_path: Path, bad: str | bytes, message: str) -> None:
    """A bad row is an error with file, line, column and value, or with skip_bad_lines one counted line."""
    path = write(tmp_path / "t.csv", HEADER, ROW, bad, "2023-11-16 19:17:03,1,1")
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:3: ")
    assert message in text
    with open_trace(path, skip_bad_lines=True) as workload:
        assert [request.id for request in workload] == ["r0", "r2"]
        assert workload.skipped.problems == [text]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), ": is empty; a trace holds at least one request"),
        (("", "  "), ": is empty; a trace holds at least one request"),
        ((HEADER,), ": holds no request"),
        (("TIMESTAMP,ContextTokens",), ":1: GeneratedTokens: the header"),
        (("TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens",), ":1: ContextTokens: the header"),
        (("time,in,out", "1,2,3"), ':1: line: "time,in,out" begins no trace; expected Mooncake JSON'),
        (("[", line(), "]"), ":1: line: "),
        ((b"\x00\x01\x02",), ":1: line: "),
    ],
)
def test_what_is_no_trace_is_an_error(tmp_path: Path, lines: tuple[str | bytes, ...], message: str) -> None:
    """A file without requests, or of another kind, is refused with its name and what was expected."""
    path = write(tmp_path / "t", *lines)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_trace_of_bad_lines_only_is_an_error_even_when_they_are_skipped(tmp_path: Path) -> None:
    """With every line skipped there is no workload, and the error says what the first line lacks."""
    path = write(tmp_path / "t", line(input_length=0), line(input_length=0))
    with pytest.raises(
        InputError, match=r"holds no request; the first of 2 bad lines is .*t:1: input_length: 0 is not"
    ):
        read(path, skip_bad_lines=True)


def test_a_bad_first_line_can_be_skipped(tmp_path: Path) -> None:
    """A trace whose first line is garbage is still told by the lines behind it."""
    path = write(tmp_path / "t", "garbage", line())
    assert [request.id for request in read(path, skip_bad_lines=True)] == ["r1"]
    with pytest.raises(InputError, match=r"t:1: line: \"garbage\" is not JSON"):
        read(path)


@pytest.mark.parametrize("name", ["", "absent", "with\0nul"])
def test_missing_file_or_folder_is_an_error(tmp_path: Path, name: str) -> None:
    """A path that cannot be opened as a file is an error that names it, at once."""
    with pytest.raises(InputError, match="cannot be read"):
        open_trace(f"{tmp_path}/{name}")


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """A file the system refuses to open is an error that gives the system's reason."""
    path = tmp_path / "t"
    path.symlink_to(path)
    with pytest.raises(InputError, match=r"cannot be read \(Too many levels of symbolic links\)"):
        open_trace(path)


def test_truncated_gzip_is_an_error_after_what_could_be_read(tmp_path: Path) -> None:
    """A gzip file cut short yields what is whole, then an error or, when skipping, one counted problem."""
    packed = gzip.compress("\n".join(line(timestamp=i, id=f"{i * 7919 % 10007}") for i in range(20_000)).encode())
    path = tmp_path / "t.gz"
    path.write_bytes(packed[: len(packed) // 2])
    seen: list[WorkloadRequest] = []
    with open_trace(path) as workload, pytest.raises(InputError, match="the file is damaged or cut short"):
        seen.extend(workload)
    count = len(seen)
    assert 1000 < count < 20_000
    with open_trace(path, skip_bad_lines=True) as workload:
        assert len(list(workload)) == count
        assert workload.skipped.count == 1


@pytest.mark.parametrize("level", [0, 9])
def test_a_gzip_file_cut_short_yields_every_whole_line(tmp_path: Path, level: int) -> None:
    """Also of a file shorter than one block of the compressor, every line that can be unpacked is a request."""
    text = "\n".join(line(timestamp=i, id=f"{i * 7919 % 10007}") for i in range(200)).encode()
    packed = gzip.compress(text, level)
    path = tmp_path / "t.gz"
    for kept in (len(packed) // 2, len(packed) - 9, len(packed) - 1):
        path.write_bytes(packed[:kept])
        whole = zlib.decompressobj(31).decompress(packed[:kept]).count(b"\n")
        assert whole
        with open_trace(path, skip_bad_lines=True) as workload:
            assert len(list(workload)) >= whole
            assert workload.skipped.count == 1


def test_several_gzip_files_in_one_are_one_trace(tmp_path: Path) -> None:
    """As gzip itself has it, what was packed in parts is read as one, zeros behind it are passed over."""
    path = tmp_path / "t.gz"
    path.write_bytes(
        b"".join(gzip.compress(f"{line(timestamp=i, id=str(i))}\n".encode()) for i in range(9)) + bytes(512)
    )
    with open_trace(path) as workload:
        assert [each.id for each in workload] == [str(i) for i in range(9)]


@pytest.mark.parametrize("damage", [b"\x1f\x8b", b"\x1f\x8bgarbage", gzip.compress(b"")[:-4]])
def test_broken_gzip_is_an_error(tmp_path: Path, damage: bytes) -> None:
    """A file that begins like gzip and is none is an error."""
    path = tmp_path / "t"
    path.write_bytes(damage)
    with pytest.raises(InputError, match="the file is damaged or cut short"):
        read(path)


def test_overlong_line_is_one_bad_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the limit is not held in memory, costs that line only, and later lines keep their number."""
    monkeypatch.setattr(trace_lines, "MAX_LINE_BYTES", 256)
    path = write(tmp_path / "t", line(), "{" + " " * 1000 + "}", line(timestamp=9), line(input_length=0))
    with open_trace(path, skip_bad_lines=True) as workload:
        assert [request.id for request in workload] == ["r0", "r2"]
        assert workload.skipped.problems == [
            f"{path}:2: line: is longer than 256 bytes; one request is one line",
            f"{path}:4: input_length: 0 is not a whole number >= 1",
        ]


def test_limit_ends_the_trace(tmp_path: Path) -> None:
    """With a limit the workload ends after so many requests and never sees the lines behind them."""
    path = write(tmp_path / "t", line(), line(), "garbage")
    assert [request.id for request in read(path, limit=2)] == ["r0", "r1"]


def test_speed_divides_arrival_times(tmp_path: Path) -> None:
    """Speed 2 halves every arrival time and changes nothing else."""
    path = write(tmp_path / "t", line(timestamp=0), line(timestamp=1000))
    assert [request.arrival_ns for request in read(path, speed=2.0)] == [0, 500_000_000]


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"limit": -1}, {"speed": 0.0}, {"speed": float("nan")}, {"speed": 1e9}]
)
def test_senseless_options_are_usage_errors(tmp_path: Path, options: dict[str, Any]) -> None:
    """A limit below one and a speed that is no sensible factor are refused."""
    with pytest.raises(UsageError, match=r"^(limit|speed): "):
        open_trace(write(tmp_path / "t", line()), **options)


def test_a_workload_closed_early_releases_its_file(tmp_path: Path) -> None:
    """Closing a trace that nothing was read from, or only a part, leaves no file open and yields nothing more."""
    path = write(tmp_path / "t", line(), line())
    for taken in (0, 1):
        workload = open_trace(path)
        for _ in range(taken):
            next(iter(workload))
        workload.close()
        assert list(workload) == []


def test_a_pipe_is_read_as_it_comes(tmp_path: Path) -> None:
    """A named pipe is a trace of unknown length."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    feeder = threading.Thread(target=lambda: path.write_text(line() + "\n" + line() + "\n"))
    feeder.start()
    with open_trace(path) as workload:
        assert workload.position() is None
        assert [request.id for request in workload] == ["r0", "r1"]
    feeder.join()


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 1500),
    st.integers(2**39, 2**65),
    st.floats(),
    st.integers(1, 1024).map(float),
    st.text("ab\x1b", max_size=3),
    st.lists(st.one_of(st.integers(-1, 9), st.floats(0, 2), st.none()), max_size=3),
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from([*GOOD, "id", "request_id"]), values, max_size=2))
def test_fast_and_slow_reading_agree(changes: dict[str, Any]) -> None:
    """What the typed decoder takes, the slow reader takes alike, so that both have one idea of a good line."""
    text = json.dumps({**GOOD, **changes}).encode()
    try:
        slow = mooncake.read_slowly(text)
    except BadLineError:
        slow = None
    parser = mooncake.Mooncake(1.0)
    try:
        fast = parser._decode(text)
    except ValueError:
        return
    for field in ("id", "request_id"):
        value = getattr(fast, field)
        if value is not None:
            try:
                setattr(fast, field, checked_id(field, value))
            except BadLineError:
                assert slow is None
                return
    assert fast == slow


@needs_traces
def test_mooncake_conversation_has_its_published_figures() -> None:
    """The public conversation trace reads as 12,031 requests, and an unbounded cache hits 37.36 % of its tokens."""
    seen: set[int] = set()
    count = prompt = output = longest = hit_tokens = full_block_tokens = hit_blocks = blocks = 0
    with open_trace(SHARED / "mooncake_conversation.jsonl") as workload:
        for request in workload:
            chain = request.blocks
            known = next((i for i, block in enumerate(chain) if block not in seen), len(chain))
            seen.update(chain)
            count += 1
            prompt += request.prompt_tokens
            output += request.output_tokens
            longest = max(longest, request.prompt_tokens)
            hit_tokens += min(request.prompt_tokens, known * 512)
            full_block_tokens += min(request.prompt_tokens // 512, known) * 512
            hit_blocks += known
            blocks += len(chain)
    assert (count, request.arrival_ns // 1_000_000, longest, len(seen)) == (12_031, 3_536_999, 126_195, 182_790)
    assert (prompt // count, round(output / count, 1)) == (12_035, 342.6)
    assert (hit_blocks, blocks) == (105_710, 288_500)
    assert round(hit_tokens / prompt, 4) == 0.3736
    assert round(full_block_tokens / prompt, 4) == 0.3734


@needs_traces
def test_azure_code_trace_reads_whole() -> None:
    """All 4,000 requests of the public Azure trace are read, in order and without blocks."""
    requests = read(SHARED / "azure_code_2023.csv")
    assert len(requests) == 4000
    assert all(request.blocks == () for request in requests)
    assert all(a.arrival_ns <= b.arrival_ns for a, b in pairwise(requests))


def test_timestamps_may_be_milliseconds_since_1970(tmp_path: Path) -> None:
    """Arrivals count from the first request, so that a trace may carry wall-clock milliseconds."""
    path = write(tmp_path / "t", line(timestamp=1_700_000_000_000), line(timestamp=1_700_000_000_250))
    with open_trace(path) as workload:
        assert [request.arrival_ns for request in workload] == [0, 250_000_000]
