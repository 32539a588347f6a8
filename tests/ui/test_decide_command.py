"""`glassgate decide`: JSON on stdout, one line on stderr and the documented code for a bad case."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
CASE = {
    "capacity": {"pool_tokens": 76640},
    "queue": [{"id": "x", "prompt_tokens": 100000}, {"id": "y", "prompt_tokens": 500}],
}


def test_the_answer_is_json_from_a_file_and_from_standard_input(glassgate: Run, tmp_path: Path):
    """A case decides alike from a file and from standard input, and stdout is one JSON document."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(CASE))
    from_file, from_stdin = glassgate("decide", str(path)), glassgate("decide", "-", stdin=json.dumps(CASE))
    assert from_file.returncode == from_stdin.returncode == 0
    answer = json.loads(from_file.stdout)
    assert answer == json.loads(from_stdin.stdout)
    assert [row["outcome"] for row in answer["decisions"]] == ["refuse", "admit"]
    assert answer["decisions"][0]["reason"] == "can_never"
    assert from_file.stderr == ""


def test_the_table_shows_every_decision_and_what_closed_the_pass(glassgate: Run, tmp_path: Path):
    """--table prints batch, decisions, what closed the pass and knobs that are not in force as set."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps({**CASE, "data_parallel": 8, "knobs": {"chunked_prefill_size": 32768}}))
    done = glassgate("decide", str(path), "--table")
    assert done.returncode == 0
    for words in ("can_never", "76,640", "closed by nothing", "4,096", "8 data-parallel ranks"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("{", 4, "not JSON"),
        (
            '{"queue": [], "knobs": {"max_requests": 1, "page_size": 1, "max_requests": 2}}',
            4,
            "'max_requests' stands twice",
        ),
        ('{"new_token_ratio": NaN}', 4, "not JSON (NaN is no number of JSON's)"),
        ("[" * 100_000, 4, "not JSON"),
        ('{"foo": 1}', 4, "`foo`"),
        ('{"queue": [{"id": "a", "prompt_tokens": -4}]}', 4, "queue[0].prompt_tokens is -4"),
        ('{"knobs": {"max_requests": 0}}', 3, "max_requests is 0"),
        ('{"model": "gpt-9"}', 4, "gpt-9"),
        ('{"model": "deepseek-v3.2", "run": {"tpp": 8}}', 4, "tpp"),
        ('{"capacity": {"pool_tokens": 5, "free_tokens": 9}}', 4, "more than pool_tokens 5"),
    ],
)
def test_a_bad_case_is_one_line_and_the_documented_code(
    glassgate: Run, tmp_path: Path, content: str, code: int, words: str
):
    """A case that cannot be decided gives one line on stderr that names what is wrong, and nothing on stdout."""
    path = tmp_path / "case.json"
    path.write_text(content)
    done = glassgate("decide", str(path))
    assert done.returncode == code
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_case_and_a_missing_argument_differ(glassgate: Run):
    """A file that is not there is bad input; no file at all is bad usage."""
    assert glassgate("decide", "nowhere.json").returncode == 4
    assert glassgate("decide").returncode == 2


def test_a_full_output_is_said(command: tuple[str, ...]):
    """When stdout cannot take the answer, one line says so, with the storage code."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, "decide", "-"], input="{}", stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 6
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
