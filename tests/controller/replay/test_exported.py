"""Traces that Glassgate exported: what their first line says, and the keys that a plain trace lacks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay import KnobsAt, open_trace
from controller.engines.replay.mooncake import ExportedRow, Mooncake, read_slowly
from controller.engines.replay.trace_lines import BadLineError
from controller.knobs import Knobs
from estimator.errors import InputError

HEAD = {
    "format": 1, "engine": "replay", "version": "1", "run": "abc", "knobs": {"page_size": 64},
    "setting": {"slots": 7}, "device_tokens": 1000, "host_tokens": 0,
}  # fmt: skip
LINE = {"timestamp": 3, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}


def written(path, *lines, head=HEAD):
    """A trace of ours."""
    first, *rest = lines or (LINE,)
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**first, "glassgate": head}, *rest)))
    return path


def read(path):
    """All requests of a trace."""
    with open_trace(path) as workload:
        return list(workload)


def test_the_first_line_says_how_the_run_was_served(tmp_path):
    """Knobs, setting and knobs turned on the way come back; the first line is a request all the same."""
    head = {**HEAD, "changes": [{"at_ns": 5, "knobs": {"max_requests": 3}, "after_passes": 2}], "grain": 512}
    path = written(tmp_path / "t", head=head)
    with open_trace(path) as workload:
        exported = workload.exported
        assert len(list(workload)) == 1
    assert exported.started() == Knobs(page_size=64)
    assert exported.served().slots == 7
    assert exported.turned() == (KnobsAt(5, 2, {"max_requests": 3}, "trace"),)
    assert exported.steps() is exported.estimator() is None


def test_a_plain_trace_comes_from_no_run(tmp_path):
    """Without our key there is nothing to say, and our other keys mean nothing."""
    path = tmp_path / "t"
    path.write_text(json.dumps({**LINE, "arrival_ns": "noon", "known_length": -1, "like": 5}) + "\n")
    with open_trace(path) as workload:
        assert workload.exported is None
        (request,) = workload
    assert (request.arrival_ns, request.blocks) == (0, (0, 1))


def test_times_of_ours_are_exact_and_count_from_where_the_trace_begins(tmp_path):
    """Nanoseconds are kept, and a first request that came late comes late again."""
    path = written(
        tmp_path / "t",
        {**LINE, "arrival_ns": 3_000_001},
        {**LINE, "timestamp": 9, "leaves_ns": 12, "max_output_length": 90, "ignore_eos": True, "id": "x"},
    )
    one, two = read(path)
    assert (one.arrival_ns, one.id) == (3_000_001, "r0")
    assert (two.arrival_ns, two.leaves_ns, two.max_new_tokens, two.ignore_eos, two.id) == (9_000_000, 12, 90, True, "x")
    with open_trace(path, speed=2.0) as workload:
        assert [each.arrival_ns for each in workload] == [1_500_000, 4_500_000]


def test_blocks_of_the_output_and_unknown_ones(tmp_path):
    """Ids of the output follow those of the prompt; where nothing is known there are none."""
    one, two = read(written(
        tmp_path / "t",
        {**LINE, "output_length": 800, "output_hash_ids": [7], "known_length": 1400},
        {**LINE, "known_length": 0},
    ))  # fmt: skip
    assert (one.blocks, two.blocks) == ((0, 1, 7), ())


def test_small_blocks_are_rebuilt_from_what_lines_share(tmp_path):
    """With a finer grain two lines have the blocks in common that they share whole, whatever their ids say."""
    one, two, three = read(written(
        tmp_path / "t", LINE, {**LINE, "like": 0, "shared_length": 70, "known_length": 610},
        {**LINE, "like": 1, "shared_length": 600}, head={**HEAD, "grain": 32},
    ))  # fmt: skip
    assert [len(each.blocks) for each in (one, two, three)] == [19, 20, 19]
    assert one.blocks[:2] == two.blocks[:2]
    assert not set(one.blocks[2:]) & set(two.blocks)
    assert three.blocks[:18] == two.blocks[:18]
    assert three.blocks[18] not in two.blocks


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ({**HEAD, "format": 2}, "format version 2, this Glassgate reads up to 1; use the one that exported it"),
        ({"format": "x"}, "format"),
        ({key: value for key, value in HEAD.items() if key != "knobs"}, "knobs"),
        ({**HEAD, "knobs": {"page_size": 0}}, "page_size is 0"),
        ({**HEAD, "knobs": {"speed": 1}}, "'speed' is no knob"),
        ({**HEAD, "setting": {"sloots": 1}}, "sloots"),
        ({**HEAD, "setting": {"slots": 0}}, "slots 0"),
        ({**HEAD, "step_time": {"pace": 1}}, "step_time"),
        ({**HEAD, "geometry": {"layers": 1}, "context": {}}, "geometry"),
        ({**HEAD, "device_tokens": 0}, "device_tokens"),
        ([], "object"),
    ],
)
def test_a_first_line_that_cannot_be_is_named(tmp_path, head, told):
    """File, line, key and what is wrong, before anything is replayed."""
    with pytest.raises(InputError, match=r"t:1: glassgate: ") as error:
        open_trace(written(tmp_path / "t", head=head))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("max_output_length", 19, "max_output_length: 19 is below output_length 20"),
        ("known_length", 621, "known_length: 621 is above input_length and output_length together"),
        ("known_length", -1, "known_length: -1 is not a whole number >= 0"),
        ("arrival_ns", "noon", 'arrival_ns: "noon" is not a whole number >= 0'),
        ("ignore_eos", 1, "ignore_eos: 1 is not true or false"),
        ("output_hash_ids", 5, "output_hash_ids: 5 is not a list of block ids"),
        ("like", 4, "like: 4 is no earlier line"),
    ],
)
def test_a_bad_key_of_ours_is_named(tmp_path, key, value, told):
    """Field, value and what was expected."""
    path = written(tmp_path / "t", LINE, {**LINE, key: value}, head={**HEAD, "grain": 32})
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value) == f"{path}:2: {told}"


def test_too_many_small_blocks_are_refused(tmp_path):
    """A length that no memory holds in blocks is a bad line."""
    line = {**LINE, "output_length": 1 << 40, "known_length": 1 << 35}
    with pytest.raises(InputError, match="known_length: 34359738368 is more than 4194304 blocks of 1 tokens"):
        read(written(tmp_path / "t", line, head={**HEAD, "grain": 1}))


VALUES = st.one_of(
    st.integers(-1, 700), st.booleans(), st.none(), st.text(max_size=3), st.floats(0, 9), st.just([1, 2]), st.just([])
)
OURS = ("arrival_ns", "leaves_ns", "max_output_length", "known_length", "output_hash_ids", "like", "shared_length",
        "ignore_eos")  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(OURS), VALUES, max_size=2))
def test_fast_and_slow_reading_of_ours_agree(changes):
    """What the typed decoder takes, the slow reader takes alike."""
    text = json.dumps({**LINE, **changes}).encode()
    try:
        fast = Mooncake(1.0, 512)._decode(text)
    except ValueError:
        return
    try:
        assert read_slowly(text, ExportedRow) == fast
    except BadLineError:
        pytest.fail("the slow reader refuses what the typed decoder takes")


@pytest.mark.parametrize("knob", ['"\\ud800"', "[" * 50_000 + "]" * 50_000, "9" * 5_000], ids=range(3))
def test_a_first_line_that_no_reader_can_hold_is_told(tmp_path, knob):
    """Half a surrogate pair, nesting without end, and a number with more digits than can be read."""
    path = written(tmp_path / "t", head={**HEAD, "knobs": {"page_size": "here"}})
    path.write_text(path.read_text().replace('"here"', knob))
    with pytest.raises(InputError):
        read(path)
