"""The format of a `decide` case: what it may hold, what comes back, and errors that name what is wrong."""

import copy
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.case import decide
from estimator.errors import GlassgateError, InputError, KnobError

FULL = {
    "context_parallel": True,
    "data_parallel": 2,
    "knobs": {"shared_kv_batching": True, "max_requests": 4, "max_extend_tokens": 65_536, "max_buffer_bytes": "4GiB",
              "chunked_prefill_size": 8192, "max_prefill_tokens": 16_384, "page_size": 64, "enforce": False},
    "model": "deepseek-v3.2",
    "run": {"kv_dtype": "fp8", "tp": 8},
    "capacity": {"pool_tokens": 1_000_000, "free_tokens": 200_000, "evictable_tokens": 50_000, "running_slots": 128,
                 "lanes": [{"free_pages": 4000, "evictable_pages": 10}, {"free_pages": 4000}]},
    "running": [{"id": "r1", "remaining_output_tokens": 800, "ignore_eos": True}],
    "new_token_ratio": 0.5,
    "active_chunk": {"id": "L", "prompt_tokens": 9000, "done_tokens": 8192, "output_tokens": 16, "first_lane": 0},
    "queue": [
        {"id": "a", "prompt_tokens": 3000, "device_hit_tokens": 64, "device_hit_locked": True, "host_hit_tokens": 640,
         "output_tokens": 128, "ignore_eos": True, "first_lane": 0, "host_load": "owner_lane"},
        {"id": "b", "prompt_tokens": 2_000_000},
        {"id": "c", "prompt_tokens": 100},
    ],
}  # fmt: skip


def failure(case):
    """The one line of the error a case causes."""
    with pytest.raises(GlassgateError) as caught:
        decide(case)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_empty_case_is_an_empty_pass():
    """Any key may be left out; with nothing in it the case runs on the engine's defaults."""
    answer = decide({})
    assert (answer["batch"], answer["decisions"], answer["closed_by"], answer["not_reached"]) == ([], [], None, [])
    assert answer["estimate"] is None


@pytest.mark.parametrize("key", FULL)
def test_any_key_may_be_left_out(key):
    """A full case without any one of its keys still runs."""
    case = {name: value for name, value in FULL.items() if name != key}
    assert "decisions" in decide(case)


@pytest.mark.parametrize("key", FULL["queue"][0].keys() - {"id", "prompt_tokens"})
def test_any_key_of_a_request_but_its_length_may_be_left_out(key):
    """A request without any one of its optional keys still runs."""
    request = {name: value for name, value in FULL["queue"][0].items() if name != key}
    assert "decisions" in decide({**FULL, "queue": [request]})


def test_the_answer_is_plain_data():
    """The answer can be printed as JSON and read back unchanged."""
    answer = decide(FULL)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_the_answer_has_the_documented_keys():
    """The answer, its members, decisions, checks and host hits have the keys the design lists."""
    answer = decide(FULL)
    assert answer.keys() >= {"batch", "decisions", "closed_by", "not_reached", "estimate"}
    assert all(
        member.keys() == {"id", "outcome", "extend_tokens", "cached_tokens", "host_loaded_tokens"}
        for member in answer["batch"]
    )
    for decision in answer["decisions"]:
        assert decision.keys() >= {
            "id", "outcome", "gate", "reason", "observed", "limit", "short_by", "unit", "checks", "host_hit",
        }  # fmt: skip
        assert decision["host_hit"].keys() >= {"status", "reason"}
        assert all(
            check.keys() == {"gate", "verdict", "observed", "limit", "short_by", "unit"} for check in decision["checks"]
        )


def test_the_answer_of_a_full_case_is_accounted_for():
    """Each request of a full case stands in the decisions or in not_reached, the chunk first in both lists."""
    answer = decide(FULL)
    assert [member["id"] for member in answer["batch"]] == ["L", "a", "c"]
    assert [(d["id"], d["outcome"]) for d in answer["decisions"]] == [
        ("L", "admit"), ("a", "admit"), ("b", "refuse"), ("c", "admit"),
    ]  # fmt: skip
    assert answer["not_reached"] == []


def test_the_case_itself_is_left_as_it_was():
    """Deciding changes nothing in the case it was given."""
    case = copy.deepcopy(FULL)
    decide(case)
    assert case == FULL


def test_without_free_tokens_everything_not_evictable_is_free():
    """A pool of 1,000 with 300 evictable and no word on free tokens has 700 free."""
    case = {"capacity": {"pool_tokens": 1000, "evictable_tokens": 300}, "queue": [{"id": "a", "prompt_tokens": 1}]}
    check = decide(case)["decisions"][0]["checks"][3]
    assert (check["gate"], check["limit"]) == ("kv_capacity", 1000)


def test_a_pool_grows_to_what_is_said_to_be_in_it():
    """A case that names more free tokens than the default pool has a pool of that size."""
    queue = [{"id": "a", "prompt_tokens": 3_000_000}]
    assert decide({"capacity": {"free_tokens": 4_000_000}, "queue": queue})["decisions"][0]["outcome"] != "refuse"


def test_hits_on_the_same_evictable_tokens_are_locked_once():
    """What an earlier member's device hit locked is no longer evictable, so a later hit on it takes no further room."""
    request = {"prompt_tokens": 500, "device_hit_tokens": 300, "output_tokens": 0}
    case = {
        "capacity": {"pool_tokens": 10_000, "free_tokens": 2000, "evictable_tokens": 300},
        "queue": [{"id": "a", **request}, {"id": "b", **request}],
    }
    limits = [decision["checks"][3]["limit"] for decision in decide(case)["decisions"]]
    assert limits == [2300 - 300, 2300 - 300 - 200 - 1]


def test_what_a_request_has_generated_is_no_output_to_come():
    """Of a retracted request only the tokens still to generate are part of what it needs."""
    request = {"id": "a", "prompt_tokens": 500, "output_tokens": 100, "generated_tokens": 60}
    check = decide({"queue": [request]})["decisions"][0]["checks"][3]
    assert check["observed"] == 500 + 40 + 1


@pytest.mark.parametrize(
    ("path", "case"),
    [
        ("contxt_parallel", {"contxt_parallel": True}),
        ("max_reqests", {"knobs": {"max_reqests": 4}}),
        ("free_token", {"capacity": {"free_token": 4}}),
        ("pages", {"capacity": {"lanes": [{"pages": 4}]}}),
        ("remaining", {"running": [{"remaining": 4}]}),
        ("device_hit", {"queue": [{"id": "a", "prompt_tokens": 5, "device_hit": 4}]}),
        ("done", {"active_chunk": {"id": "L", "prompt_tokens": 5, "done_tokens": 4, "done": 4}}),
        ("kv_type", {"model": "deepseek-v3.2", "run": {"kv_type": "fp8"}}),
    ],
)
def test_an_unknown_key_is_an_error_that_names_it(path, case):
    """A key that is not part of the format is refused wherever it stands, and the error names it."""
    assert path in failure(case)


@pytest.mark.parametrize(
    ("words", "case"),
    [
        (["queue[0].prompt_tokens", "-4"], {"queue": [{"id": "a", "prompt_tokens": -4}]}),
        (["queue[1].prompt_tokens", "'x'"],
         {"queue": [{"id": "a", "prompt_tokens": 1}, {"id": "b", "prompt_tokens": "x"}]}),
        (["queue[0].prompt_tokens", "0"], {"queue": [{"id": "a", "prompt_tokens": 0}]}),
        (["queue[0].id", "7"], {"queue": [{"id": 7, "prompt_tokens": 5}]}),
        (["queue[0]", "prompt_tokens"], {"queue": [{"id": "a"}]}),
        (["queue[0].host_load", "lost"], {"queue": [{"id": "a", "prompt_tokens": 5, "host_load": "lost"}]}),
        (["new_token_ratio", "7"], {"new_token_ratio": 7}),
        (["new_token_ratio", "nan"], {"new_token_ratio": float("nan")}),
        (["data_parallel", "0"], {"data_parallel": 0}),
        (["capacity.running_slots", "0"], {"capacity": {"running_slots": 0}}),
        (["capacity.lanes[1].free_pages", "-1"], {"capacity": {"lanes": [{}, {"free_pages": -1}]}}),
        (["context_parallel", "'yes'"], {"context_parallel": "yes"}),
        (["active_chunk", "done_tokens"], {"active_chunk": {"id": "L", "prompt_tokens": 5}}),
        (["L", "5 of 5"], {"active_chunk": {"id": "L", "prompt_tokens": 5, "done_tokens": 5}}),
        (["'a'", "prompt of 5", "at least one token"],
         {"queue": [{"id": "a", "prompt_tokens": 5, "device_hit_tokens": 3, "host_hit_tokens": 2}]}),
        (["'a'", "twice"], {"queue": [{"id": "a", "prompt_tokens": 5}, {"id": "a", "prompt_tokens": 6}]}),
        (["'a'", "twice"], {"queue": [{"id": "a", "prompt_tokens": 5}],
                            "active_chunk": {"id": "a", "prompt_tokens": 5, "done_tokens": 4}}),
        (["first_lane", "'a'", "2"], {"queue": [{"id": "a", "prompt_tokens": 5, "first_lane": 2}],
                                      "capacity": {"lanes": [{}, {}]}}),
        (["free_tokens 60", "evictable_tokens 41", "pool_tokens 100"],
         {"capacity": {"pool_tokens": 100, "free_tokens": 60, "evictable_tokens": 41}}),
        (["deepseek-v9"], {"model": "deepseek-v9"}),
    ],
)  # fmt: skip
def test_an_error_names_the_key_and_the_value(words, case):
    """An error about a case says where it is wrong and what stands there."""
    text = failure(case)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("case", [[], None, 3, "case", [{}]])
def test_a_case_is_an_object(case):
    """Anything but an object is refused as a case."""
    with pytest.raises(InputError, match="the case is"):
        decide(case)


def test_knob_errors_and_case_errors_are_told_apart():
    """A bad knob in a case is a KnobError, anything else an InputError, each with its exit code."""
    with pytest.raises(KnobError):
        decide({"knobs": {"page_size": 0}})
    with pytest.raises(InputError):
        decide({"queue": 3})
    assert (KnobError.exit_code, InputError.exit_code) == (3, 4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def places(value, path=()):
    """Every place in a case where something may stand."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLACES = list(places(FULL))


def put(holder, path, value):
    """Put a value where a path leads, or where an earlier one has cut the path off."""
    for key, following in itertools.pairwise(path):
        inner = holder[key]
        if not (isinstance(inner, dict) and following in inner) and not (
            isinstance(inner, list) and isinstance(following, int) and following < len(inner)
        ):
            holder[key] = value
            return
        holder = inner
    holder[path[-1]] = value


@given(case=JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_gives_an_answer_or_an_error_of_ours(case):
    """Whatever JSON stands where a case should, nothing but a GlassgateError comes out."""
    try:
        answer = decide(case)
    except GlassgateError as error:
        assert str(error)  # noqa: PT017 - either outcome is right
    else:
        assert answer["batch"] == []


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_case_with_anything_in_it_gives_an_answer_or_an_error_of_ours(data):
    """A full case in which any JSON stands in up to three places is decided or refused with a GlassgateError."""
    case = {"case": copy.deepcopy(FULL)}
    for path in data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        put(case, ("case", *path), data.draw(JSON))
    try:
        answer = decide(case["case"])
    except GlassgateError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
    else:
        queue = case["case"].get("queue", [])
        looked_at = len(answer["decisions"]) - (case["case"].get("active_chunk") is not None)
        assert looked_at + len(answer["not_reached"]) == len(queue)


def test_one_id_that_stands_twice_among_very_many_is_found():
    """Without comparing each with each, which would take minutes."""
    queue = [{"id": f"r{number}", "prompt_tokens": 1} for number in range(100_000)]
    with pytest.raises(InputError, match="'r99999' stands twice"):
        decide({"queue": [*queue, queue[-1]]})


def test_the_largest_numbers_of_a_case_make_an_answer():
    """Everything at its bound is still computed with and told."""
    found = decide({"capacity": {"pool_tokens": 1 << 50}, "queue": [{"id": "a", "prompt_tokens": 1 << 50}]})
    assert json.loads(json.dumps(found))["decisions"]


def test_half_a_surrogate_pair_is_told():
    """A text that Python holds and no file can is refused like any other value."""
    with pytest.raises(InputError):
        decide({"queue": [{"id": "a", "prompt_tokens": 1, "host_load": "\ud800"}]})
