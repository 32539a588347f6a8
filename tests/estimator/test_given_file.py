"""A file that somebody hands over is read to a bound, and what is wrong with its JSON is one plain error."""

import io
import sys
from pathlib import Path

import pytest

from estimator.case import read_cases
from estimator.context import MOST, RunContext
from estimator.errors import LONGEST_WORDS, InputError, UsageError, one_line, shown
from estimator.geometry import MOST_DIMENSION, Geometry
from estimator.given_file import read_given, read_given_json
from estimator.presets import model
from estimator.sizes import Request, check_requests

HUGE = 10**4_000


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "\x00", "", "{", '{"a": NaN}', '{"a": 1, "a": 2}', '["\\ud800"]'],
    ids=range(9),
)
def test_what_is_no_json_is_told(tmp_path: Path, text: str):
    """Nesting without end, numbers too long to read and keys that stand twice, like any other fault."""
    path = tmp_path / "case.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"case\.json"):
        read_given_json(path)
    with pytest.raises(InputError, match=r"case\.json"):
        read_cases(path)


def test_bytes_that_are_no_text_are_told(tmp_path: Path):
    """Bytes that are no UTF-8 name the file."""
    path = tmp_path / "case.json"
    path.write_bytes(b'{"a": "\xed\xa0\x80"}')
    with pytest.raises(InputError, match=r"case\.json"):
        read_given_json(path)


@pytest.mark.parametrize("name", ["/dev/zero", "a\0b", ".", "/nowhere/at/all"])
def test_what_cannot_be_read_whole_is_told(name: str):
    """A device without end, a name that cannot be one, a folder and nothing at all."""
    with pytest.raises(InputError):
        read_given(name, most=1 << 20)


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """`-` is read to the same bound."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" " * 2_000)))
    with pytest.raises(InputError, match="has more than"):
        read_given("-", most=1_000)


def test_one_key_that_stands_twice_among_very_many_is_found(tmp_path: Path):
    """Without comparing each with each, which would take minutes."""
    keys = ",".join(f'"k{number}": 0' for number in range(200_000))
    (tmp_path / "keys.json").write_text(f'{{{keys}, "k199999": 1}}')
    with pytest.raises(InputError, match="'k199999' stands twice"):
        read_given_json(tmp_path / "keys.json")


def test_an_error_is_one_line_of_bounded_length_that_steers_no_terminal():
    """Whatever stands in it: the beginning and the remedy at its end are kept."""
    told = str(UsageError("what \x1b[31m it is\n" + "x" * 1_000_000 + "\ud800; the remedy"))
    assert told.isprintable()
    assert len(told) <= LONGEST_WORDS
    assert told.startswith("what \\x1b[31m it is ")
    assert told.endswith("; the remedy")
    assert one_line("plain words") == "plain words"
    assert shown(HUGE * HUGE) == "a value too long to show"


def test_dimensions_and_settings_without_bound_are_told():
    """No model or run has numbers that can neither be computed with nor printed."""
    base = {"hidden_size": 1, "intermediate_size": 1, "num_attention_heads": 1, "vocab_size": 1, "num_hidden_layers": 1,
            "max_position_embeddings": 1, "num_key_value_heads": 1}  # fmt: skip
    assert Geometry.from_config(base).heads == 1
    for value in (MOST_DIMENSION + 1, HUGE, -HUGE, {"a": {}}, float("inf")):
        with pytest.raises(InputError, match="heads"):
            Geometry.from_config({**base, "num_attention_heads": value})
    geometry = model("deepseek-v3.2")
    for run in (
        {"page_size": MOST + 1}, {"pool_tokens": HUGE}, {"tp": HUGE}, {"mlp": {"tokens": HUGE}},
        {"mqa_budget": {"total_bytes": HUGE}}, {"mqa_budget": {"fixed_bytes": HUGE}}, {"safety_factor": HUGE},
        {"mqa_budget": {"total_bytes": -1}},
    ):  # fmt: skip
        with pytest.raises(InputError):
            RunContext.from_run(run, geometry)
    for request in (Request(0, MOST + 1), Request(HUGE, 1), Request(0, -HUGE)):
        with pytest.raises(InputError, match="request 0"):
            check_requests([request])
