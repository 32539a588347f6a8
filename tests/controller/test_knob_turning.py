"""Requests for a knob change: what may be asked, and the answer whoever serves the run gives."""

import json
import os
import re
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.knob_requests import MAX_REQUEST_BYTES, MOST_AT_ONCE, KnobRequest, leave_request, take_requests
from controller.knob_turning import FIXED, LONGEST_NAME, answer, asked_change
from controller.knobs import KNOB_SPECS, Knobs
from controller.limits import Setting, effective
from controller.records import decode, encode
from controller.run_directory import RunDirectory
from estimator.errors import KnobError

KNOBS = Knobs(max_requests=8, max_extend_tokens=4096, page_size=64, revision=3)


def asked(changes, who="ann", **more):
    """A request as it is taken."""
    return KnobRequest("1.json", asked_change(changes, who, **more), None, 0)


def raw(content):
    """A request whose content nobody checked when it was left."""
    return KnobRequest("1.json", content, None, 0)


def content(**more):
    """A sound content with some of it set otherwise."""
    return {"format": 1, "who": "ann", "changes": {"max_requests": 4}, "left_unix_ns": 1} | more


def test_an_accepted_request_changes_what_it_names_and_nothing_else():
    """All changes of one request come into force together, under the next revision, with old and new recorded."""
    found = answer(asked({"max_requests": "16", "max_buffer_bytes": "4GiB", "enforce": "off"}), KNOBS, Setting())
    assert found.accepted
    assert found.knobs == KNOBS.changed({"max_requests": 16, "max_buffer_bytes": 4 << 30, "enforce": False})
    assert found.limits == effective(found.knobs, Setting())
    record = found.record(77)
    assert (record.at_ns, record.who, record.revision, record.request) == (77, "ann", 4, "1.json")
    assert record.changes == (
        ("max_requests", 8, 16), ("max_buffer_bytes", None, 4 << 30), ("enforce", True, False),
    )  # fmt: skip
    assert (record.accepted, record.why) == (True, "")


def test_a_knob_that_has_the_value_already_is_no_change():
    """Of several knobs those that differ are changed; a request in which none differs is refused with what is set."""
    found = answer(asked({"max_requests": 8, "max_extend_tokens": "off"}), KNOBS, Setting())
    assert found.changes == (("max_extend_tokens", 4096, None),)
    same = answer(asked({"max_requests": 8, "enforce": "on", "max_cached_tokens": -1}), KNOBS, Setting())
    assert same.why == (
        "nothing would change: max_requests is 8 already, enforce is on already, max_cached_tokens is unlimited already"
    )
    assert (same.knobs, same.revision) == (None, 3)


@pytest.mark.parametrize(
    ("content", "why", "changes"),
    [
        ({"page_size": 128}, r"page_size is fixed at 64 for a run: the KV pool .*; 128 takes effect in another run",
         (("page_size", 64, 128),)),
        ({"chunked_prefill_size": 128}, "divided by data_parallel 4 is less than one page of 64 tokens",
         (("chunked_prefill_size", 8192, 128),)),
        ({"chunked_prefill_size": 32}, "smaller than page_size 64", (("chunked_prefill_size", 8192, 32),)),
        ({"max_requests": 0, "enforce": False}, "max_requests is 0; it is a whole number of requests from 1",
         (("enforce", True, False),)),
        ({"speed": 3}, "'speed' is no knob; the knobs are shared_kv_batching", ()),
        ({"max_buffer_bytes": "4 parsecs"}, "write whole bytes or a size", ()),
        ({"enforce": 1}, "enforce is 1; it is on or off", ()),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_refused_with_the_reason(content, why, changes):
    """A refused request leaves no knobs to put in force; the record has what could be read of it and the reason."""
    whole = {"format": 1, "who": "ann", "changes": content, "left_unix_ns": 1}
    found = answer(raw(whole), KNOBS, Setting(data_parallel=4))
    assert not found.accepted
    assert (found.knobs, found.limits, found.revision, found.changes) == (None, None, 3, changes)
    assert re.search(why, found.why)


@pytest.mark.parametrize(
    "bad",
    [
        {}, content(format=2), content(format="1"), content(who=""), content(who="x" * (LONGEST_NAME + 1)),
        content(changes={}), content(changes=[]), content(changes={"max_requests": [4]}), content(extra=1),
        content(left_unix_ns=None), content(changes={"max_requests": 4.5}), content(expect_revision="3"),
        content(changes={str(number): 1 for number in range(len(KNOB_SPECS) + 1)}),
    ],
)  # fmt: skip
def test_a_request_of_another_shape_is_refused_as_such(bad):
    """What is no request of this format is refused as one, in the name of the user whose file it was."""
    found = answer(raw(bad), KNOBS, Setting())
    assert not found.accepted
    assert "is not one" in found.why
    assert "glassgate knobs set" in found.why
    assert found.who == "user 0"


def test_a_request_made_for_another_revision_is_refused():
    """Who looked at one revision does not change another one by mistake."""
    assert answer(asked({"max_requests": 4}, expect_revision=3), KNOBS, Setting()).accepted
    found = answer(asked({"max_requests": 4}, expect_revision=2), KNOBS, Setting())
    assert found.why == "it was made for revision 2, and 3 is in force; look at the knobs and ask again"
    assert found.changes == (("max_requests", 8, 4),)


def test_an_engine_says_which_knobs_it_cannot_turn():
    """A knob that an engine names as fixed is refused with the engine's own words; others are not held up by it."""
    fixed = {**FIXED, "chunked_prefill_size": "SGLang sizes its CUDA graphs by it"}
    found = answer(asked({"chunked_prefill_size": 4096}), KNOBS, Setting(), fixed)
    assert "fixed at 8,192 for a run: SGLang sizes its CUDA graphs by it; 4,096" in found.why
    assert answer(asked({"max_requests": 4}), KNOBS, Setting(), fixed).accepted
    assert answer(asked({"max_requests": 4, "chunked_prefill_size": 8192}), KNOBS, Setting(), fixed).accepted


@pytest.mark.parametrize(
    ("changes", "who", "why"),
    [
        ({}, "ann", "no change was asked for"),
        ({"max_requests": "many"}, "ann", "max_requests is 'many'"),
        ({"speed": 1}, "ann", "'speed' is no knob"),
        ({"max_requests": 1}, "", "1 to 120 printable"),
        ({"max_requests": 1}, "a\x1b[31m", "1 to 120 printable"),
        ({"max_requests": 1}, "\ud800", "1 to 120 printable"),
    ],
)
def test_what_cannot_be_asked_is_an_error_where_it_is_asked(changes, who, why):
    """A bad request is never left: it fails with the reason in the hands of whoever asks."""
    with pytest.raises(KnobError, match=why):
        asked_change(changes, who)


def test_values_are_left_as_numbers(tmp_path):
    """A request holds values as the knobs have them, whatever way they were written, and who left it and when."""
    leave_request(tmp_path, asked_change({"max_buffer_bytes": "1KiB", "max_requests": "off", "enforce": "no"}, "ann"))
    (request,) = take_requests(tmp_path)
    assert request.content.pop("left_unix_ns") > 1_700_000_000 * 10**9
    changes = {"max_buffer_bytes": 1024, "max_requests": None, "enforce": False}
    assert request.content == {"format": 1, "who": "ann", "changes": changes}
    assert request.uid == os.geteuid()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "format": st.just(1) | JSON,
        "who": st.text(max_size=LONGEST_NAME + 5) | JSON,
        "changes": st.dictionaries(
            st.sampled_from([spec.name for spec in KNOB_SPECS]) | st.text(max_size=8),
            JSON | st.integers(-2, 1 << 52) | st.sampled_from(["off", "4GiB", "on"]),
            max_size=4,
        ),
        "left_unix_ns": st.integers() | JSON,
        "expect_revision": st.none() | st.integers(0, 5) | st.integers(),
    },
)


@given(NEARLY, st.integers(1, 8))
@settings(deadline=None)
def test_no_request_raises_and_every_answer_can_be_recorded(content, ranks):
    """Any content has an answer: sound knobs under the next revision or a reason, and a record that reads back."""
    setting = Setting(data_parallel=ranks)
    found = answer(raw(content), KNOBS, setting)
    if found.accepted:
        assert found.knobs.revision == found.revision == KNOBS.revision + 1
        assert found.limits == effective(found.knobs, setting)
        assert {name for name, _, _ in found.changes} <= set(content["changes"])
        assert found.knobs.page_size == KNOBS.page_size
    else:
        assert found.why
        assert found.revision == KNOBS.revision
    (back,) = decode(encode([found.record(5)]))
    assert back == found.record(5)
    assert (back.why + back.who).isprintable()


@given(st.binary(max_size=200) | NEARLY.map(lambda each: json.dumps(each).encode()), st.sampled_from([0o600, 0o644]))
@settings(deadline=None, max_examples=60)
def test_any_bytes_in_the_folder_are_taken_and_answered(tmp_path_factory, text, mode):
    """Whatever a file in the folder holds, it is taken once, its answer is a record, and knobs change only if valid."""
    folder = tmp_path_factory.mktemp("requests")
    path = folder / "0001.json"
    path.write_bytes(text)
    path.chmod(mode)
    (request,) = take_requests(folder)
    assert list(folder.iterdir()) == []
    found = answer(request, KNOBS, Setting())
    encode([found.record(0)])
    if found.accepted:
        wanted = Knobs.parse(json.loads(text)["changes"], KNOBS)
        assert found.knobs.as_dict() == wanted.as_dict() != KNOBS.as_dict()


def test_a_file_name_of_any_bytes_can_be_recorded(tmp_path):
    """A request under a name that is no text, or that would steer a terminal, is taken under a printable one."""
    for name in (b"a\xff\xfe.json", b"b\x1b[2J.json", "ü.json".encode()):
        (tmp_path / os.fsdecode(name)).write_bytes(b"nonsense")
    taken = take_requests(tmp_path)
    assert [each.name for each in taken] == ["a??.json", "b?[2J.json", "ü.json"]
    for request in taken:
        encode([answer(request, KNOBS, Setting()).record(0)])


def test_others_may_not_turn_knobs(tmp_path):
    """A request that others could have written is answered with whose it is and its mode, and changes nothing."""
    name = leave_request(tmp_path, asked_change({"max_requests": 4}, "ann"))
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    (tmp_path / name).chmod(0o622)
    (request,) = take_requests(tmp_path)
    found = answer(request, KNOBS, Setting())
    assert (found.accepted, found.who) == (False, f"user {os.geteuid()}")
    assert "mode 0622; it must be the engine's user's own" in found.why


def test_a_folder_full_of_requests_is_taken_in_pieces(tmp_path):
    """One look takes a bounded number, the oldest; the rest come with the next ones, in order."""
    names = [leave_request(tmp_path, {"n": number}) for number in range(MOST_AT_ONCE + 5)]
    first, second = take_requests(tmp_path), take_requests(tmp_path)
    assert [each.name for each in (*first, *second)] == names
    assert len(first) == MOST_AT_ONCE


def test_a_request_can_be_taken_back_until_it_is_taken(tmp_path):
    """Who withdraws a request learns whether it was in time."""
    run = RunDirectory.create(tmp_path, engine="replay", version="1")
    withdrawn = run.leave_request({"n": 1})
    assert run.withdraw_request(withdrawn)
    assert run.take_requests() == []
    taken = run.leave_request({"n": 2})
    assert [each.name for each in run.take_requests()] == [taken]
    assert not run.withdraw_request(taken)


def test_a_request_too_long_is_answered(tmp_path):
    """A request beyond the bound on its size is refused with both sizes."""
    (tmp_path / "1.json").write_bytes(b" " * (MAX_REQUEST_BYTES + 1))
    (tmp_path / "1.json").chmod(0o600)
    (request,) = take_requests(tmp_path)
    assert f"has {MAX_REQUEST_BYTES + 1} bytes, the limit is {MAX_REQUEST_BYTES}" in answer(
        request, KNOBS, Setting()
    ).why  # fmt: skip
