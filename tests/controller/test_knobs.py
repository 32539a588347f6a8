"""Knobs: defaults, how values are written, what is refused, revisions."""

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.case import decide
from controller.knobs import KNOB_SPECS, Knobs, parse_bytes
from estimator.errors import GlassgateError, KnobError

GIB = 1 << 30
LIMITS = ["max_requests", "max_extend_tokens", "max_cached_tokens", "max_buffer_bytes", "chunked_prefill_size"]
WHOLE = ["max_prefill_tokens", "page_size", "load_back_threshold"]
SWITCHES = ["shared_kv_batching", "enforce"]


def test_defaults_limit_nothing_that_the_engine_does_not():
    """Without a word from the operator every soft limit is off and the switch for shared KV batching too."""
    assert Knobs().as_dict() == {
        "shared_kv_batching": False,
        "max_requests": None,
        "max_extend_tokens": None,
        "max_cached_tokens": None,
        "max_buffer_bytes": None,
        "buffer_safety_percent": None,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 16384,
        "page_size": 1,
        "load_back_threshold": 10,
        "enforce": True,
    }


def test_every_knob_is_described():
    """Each knob has a spec with a unit and words for what it bounds, under the same name and in the same order."""
    assert [spec.name for spec in KNOB_SPECS] == list(Knobs().as_dict())
    assert all(spec.unit and spec.bounds for spec in KNOB_SPECS)


def test_knobs_are_immutable():
    """A knob cannot be set on knobs that are in force."""
    with pytest.raises(FrozenInstanceError):
        Knobs().max_requests = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("4GiB", 4 * GIB), ("4 GiB", 4 * GIB), (" 4gib ", 4 * GIB), ("512MiB", 512 << 20), ("8KiB", 8192),
        ("1TiB", 1 << 40), ("1.5GB", 1_500_000_000), ("2MB", 2_000_000), ("3kB", 3000), ("1TB", 10**12),
        ("800000000", 800_000_000), ("800B", 800), (4 * GIB, 4 * GIB), ("1,000,000", 1_000_000), ("1_000", 1000),
        ("0.5GiB", GIB // 2),
    ],
)  # fmt: skip
def test_byte_sizes_are_read_as_people_write_them(written, read):
    """A size is whole bytes or a number with a binary or decimal unit, in any case, with or without a blank."""
    assert parse_bytes(written) == read
    assert Knobs.parse({"max_buffer_bytes": written}).max_buffer_bytes == read


@pytest.mark.parametrize(
    "written", ["4 parsecs", "GiB", "-4GiB", "1.5", "0.3B", "four", "", "1e9", "4GiB4", "9" * 5000, True, [1]]
)
def test_what_is_no_size_is_refused(written):
    """A size in an unknown unit, below zero or in parts of a byte is an error that shows it and a remedy."""
    with pytest.raises(KnobError, match=r"max_buffer_bytes is .*4GiB"):
        parse_bytes(written, "max_buffer_bytes")


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("written", [None, -1, "-1", "none", "None", "null", "unlimited", "off", " OFF "])
def test_a_limit_can_be_unset(name, written):
    """None, -1 and the words for it make a limit unlimited."""
    assert getattr(Knobs.parse({name: written}, Knobs(max_requests=5, max_buffer_bytes=7)), name) is None


@pytest.mark.parametrize("name", LIMITS + WHOLE)
def test_a_number_is_read_from_a_text(name):
    """A number may come as a text, as it does from the environment or a command line."""
    assert getattr(Knobs.parse({name: "4096"}), name) == 4096
    assert getattr(Knobs.parse({name: 4096}), name) == 4096


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize(
    ("written", "read"),
    [
        (True, True), (False, False), ("on", True), ("off", False), ("True", True), ("false", False), ("yes", True),
        ("no", False), ("1", True), ("0", False),
    ],
)  # fmt: skip
def test_a_switch_is_read_as_people_write_it(name, written, read):
    """A switch is true or false, on or off, yes or no, 1 or 0."""
    assert getattr(Knobs.parse({name: written}), name) is read


@pytest.mark.parametrize("name", LIMITS + WHOLE)
@pytest.mark.parametrize(
    "value",
    [-2, 1.5, "many", True, [], {}, 1 << 60, float("nan"), float("inf"), "9" * 5000, 10**5000],
    ids=lambda value: str(value)[:8] if not isinstance(value, int) or value < 1 << 61 else "a number too long to print",
)
def test_a_number_out_of_range_names_the_knob(name, value):
    """What is no whole number in range is an error of one line that names the knob."""
    with pytest.raises(KnobError, match=name) as caught:
        Knobs.parse({name: value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", [*LIMITS, "max_prefill_tokens", "page_size"])
def test_zero_is_no_limit_and_no_size(name):
    """A limit of zero would stop an engine, so the least value is one."""
    with pytest.raises(KnobError, match=rf"{name} is 0; .*from 1 "):
        Knobs.parse({name: 0})


def test_a_threshold_of_zero_is_allowed():
    """Every host hit may be worth loading."""
    assert Knobs.parse({"load_back_threshold": 0}).load_back_threshold == 0


@pytest.mark.parametrize("name", ["max_prefill_tokens", "page_size", "load_back_threshold"])
def test_a_whole_knob_cannot_be_unset(name):
    """Knobs that are no limits have no unlimited."""
    with pytest.raises(KnobError, match=name):
        Knobs.parse({name: None})


@pytest.mark.parametrize("value", [2, "maybe", None, 1.0, []])
@pytest.mark.parametrize("name", SWITCHES)
def test_what_is_neither_on_nor_off_is_refused(name, value):
    """A switch set to anything else is an error that names it and says what it may be."""
    with pytest.raises(KnobError, match=rf"{name} is .*on or off"):
        Knobs.parse({name: value})


def test_an_unknown_knob_is_named_with_those_there_are():
    """An unknown name is an error that shows it and lists the knobs."""
    with pytest.raises(KnobError, match=r"'max_reqests' is no knob; .*max_requests"):
        Knobs.parse({"max_reqests": 3})


def test_a_chunk_holds_at_least_a_page():
    """A chunk smaller than a page is refused with a remedy, and one of just a page is not."""
    with pytest.raises(KnobError, match="chunked_prefill_size 63 is smaller than page_size 64"):
        Knobs(chunked_prefill_size=63, page_size=64)
    assert Knobs(chunked_prefill_size=64, page_size=64).chunked_prefill_size == 64


def test_knobs_are_parsed_on_top_of_others():
    """What is not named keeps its value."""
    base = Knobs(max_requests=5, page_size=16)
    parsed = Knobs.parse({"max_requests": "7"}, base)
    assert (parsed.max_requests, parsed.page_size) == (7, 16)


def test_a_change_is_the_next_revision():
    """Changed knobs have the next revision number; the old ones stay as they were."""
    base = Knobs()
    changed = base.changed({"max_requests": 3}).changed({"max_requests": None})
    assert (base.revision, changed.revision) == (0, 2)
    assert changed.max_requests is None


def test_a_bad_change_changes_nothing():
    """A change with one bad value is refused whole."""
    with pytest.raises(KnobError, match="page_size"):
        Knobs().changed({"max_requests": 3, "page_size": 0})


@pytest.mark.parametrize("revision", [-1, 1.5, True])
def test_a_revision_is_a_count(revision):
    """A revision that is no whole number from zero is refused."""
    with pytest.raises(KnobError, match="revision"):
        Knobs(revision=revision)


def test_a_knob_error_has_its_own_exit_code():
    """A bad knob is told apart from other bad input by its exit code."""
    assert issubclass(KnobError, GlassgateError)
    assert KnobError.exit_code == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(values=st.dictionaries(st.sampled_from([*LIMITS, *WHOLE, *SWITCHES]), JSON, max_size=4))
def test_any_values_give_knobs_or_a_knob_error(values):
    """Whatever stands where a knob's value should, the answer is valid knobs or a KnobError of one line."""
    try:
        knobs = Knobs.parse(values)
    except KnobError as error:
        assert str(error)  # noqa: PT017 - either outcome is right
    else:
        assert Knobs.parse(knobs.as_dict()) == knobs


@given(size=st.integers(0, 1 << 50))
def test_any_whole_number_of_bytes_is_read_back(size):
    """A size written as a number, as a text, or in bytes is that size."""
    assert parse_bytes(size) == parse_bytes(str(size)) == parse_bytes(f"{size}B") == size


def test_the_safety_percent_multiplies_what_the_gate_sees():
    """buffer_safety_percent raises the estimate that buffer_bytes compares, rounded up, and is never below 100."""
    case = {"model": "llama-3.1-8b", "queue": [{"id": "a", "prompt_tokens": 4096}]}
    peaks = [
        decide({**case, "knobs": {"buffer_safety_percent": percent}})["estimate"]["peak_bytes"]
        for percent in (None, 100, 150)
    ]
    assert peaks[0] == peaks[1]
    assert peaks[2] == -(-peaks[0] * 3 // 2)
    with pytest.raises(KnobError, match="buffer_safety_percent is 99"):
        Knobs(buffer_safety_percent=99)
