"""`glassgate estimate`, `glassgate smoke`, and the smoke allocation of a replay."""

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
CASES = Path(__file__).resolve().parents[1] / "estimator" / "buffer_cases.json"
CASE = {"name": "one", "model": "deepseek-v3.2", "requests": [[32768, 1024], [0, 512]], "run": {"tp": 8}}


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A case in a file."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(CASE))
    return path


def limited_memory() -> None:
    """Three GiB of address space, so that a large allocation fails at once."""
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


def test_estimate_answers_every_case_of_the_fact_sheet_to_the_byte(glassgate: Run):
    """With --json the answer has the nested keys of each case's expected figures, and their values."""
    answers = json.loads(glassgate("estimate", str(CASES), "--json").stdout)
    cases = json.loads(CASES.read_text())
    assert len(answers) == len(cases) > 0
    for answer, expected in zip(answers, cases, strict=True):
        for path, value in expected["expected"].items():
            found = answer
            for key in path.split("/"):
                found = found[key]
            assert found == value, (expected["name"], path)


def test_estimate_prints_buffers_windows_and_the_peak(glassgate: Run, case: Path):
    """The table names each buffer with its window, the timeline points at the peak, the allocator's view is below."""
    done = glassgate("estimate", str(case), "--limit", "1GiB")
    assert done.returncode == 0, done.stderr
    for words in ("mqa_logits", "scores (compute)", "<- peak", "reserved by a fresh allocator", "hold a prompt of"):
        assert words in done.stdout


def test_what_fits_a_limit_really_fits_it(glassgate: Run, case: Path):
    """The largest batch and prompt that --limit names stay within it, and one more request does not."""
    fits = json.loads(glassgate("estimate", str(case), "--limit", "1GiB", "--json").stdout)["fits"]
    count = fits["batch"]["largest"]
    assert 0 < fits["batch"]["peak_bytes"] <= 1 << 30
    assert 0 < fits["prompt"]["peak_bytes"] <= 1 << 30
    case.write_text(json.dumps({**CASE, "requests": [[32768, 1024]] * (count + 1)}))
    peak = json.loads(glassgate("estimate", str(case), "--json").stdout)["peak"]
    assert peak["with_safety_bytes"] > 1 << 30


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        ("[", 4, "not JSON"),
        ('{"model": "deepseek-v3.2", "requests": [[0, 1]], "requests": [[0, 2]]}', 4, "'requests' stands twice"),
        ('{"requests": []}', 4, "model is missing"),
        ('{"model": "deepseek-v3.2", "requests": [[0]]}', 4, "requests"),
        ('{"model": "deepseek-v3.2", "requests": [[0, -1]]}', 4, "-1"),
        ('{"model": "deepseek-v9", "requests": []}', 4, "deepseek-v9"),
        ('{"model": "deepseek-v3.2", "requests": [], "run": {"tpp": 1}}', 4, "tpp"),
        ('{"model": {"hidden_size": 8}, "requests": []}', 4, "missing"),
    ],
)
def test_a_bad_case_is_one_line(glassgate: Run, case: Path, content: str, code: int, words: str):
    """A case that cannot be estimated gives one line that names what is wrong, and the documented code."""
    case.write_text(content)
    done = glassgate("estimate", str(case))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_limit_and_a_name_that_cannot_be(glassgate: Run, case: Path):
    """A size that is none and a case that is not in the file have their own codes."""
    assert glassgate("estimate", str(case), "--limit", "lots").returncode == 3
    assert glassgate("estimate", str(case), "--name", "two").returncode == 7


def test_smoke_allocates_touches_and_gives_back(glassgate: Run):
    """`glassgate smoke --bytes` holds what it was asked, says what the allocator says, and gives it back."""
    done = glassgate("smoke", "--bytes", "64MiB", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["passed"]
    assert result["asked"] == result["requested"] == result["largest"] == 64 << 20
    assert result["reserved"] >= 64 << 20


def test_smoke_that_does_not_fit_says_what_did(glassgate: Run):
    """What does not fit has exit code 9, and says how much was asked, free and possible, and what to set."""
    done = glassgate("smoke", "--bytes", "1GiB", "--keep-free", "900TiB")
    assert done.returncode == 9
    for words in ("asked 1.00 GiB", "free", "kept free"):
        assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_smoke_alone_tells_the_device(glassgate: Run):
    """Without --bytes the device is described: its name, its memory, its driver."""
    told = json.loads(glassgate("smoke", "--json").stdout)
    assert told["device"] == "cpu"
    assert told["total"] > 0
    assert glassgate("smoke", "--device", "tpu").returncode == 9


def test_a_replay_carries_what_its_smoke_allocation_found(glassgate: Run, trace: Path):
    """With --smoke the start-up allocation stands beside each estimate in the record."""
    done = glassgate("replay", str(trace), "--max-buffer-bytes", "32MiB", "--smoke", "require", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(glassgate("query", "estimate-vs-smoke", "--json").stdout)
    assert rows
    assert all(row["smoke_bytes"] >= 32 << 20 and row["limit_bytes"] == 32 << 20 for row in rows)


@pytest.mark.parametrize(("smoke", "code"), [("require", 9), ("warn", 0)])
def test_a_failed_smoke_allocation_refuses_the_run_unless_told_to_warn(
    command: tuple[str, ...], environment: dict[str, str], trace: Path, smoke: str, code: int
):
    """`require` refuses the run before it begins and leaves none behind; `warn` says so and goes on."""
    done = subprocess.run(
        [*command, "replay", str(trace), "--max-buffer-bytes", "64GiB", "--smoke", smoke, "--json"],
        env=environment, capture_output=True, text=True, check=False, preexec_fn=limited_memory,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "asked 64.00 GiB" in done.stderr
    assert bool(done.stdout) == (code == 0)
    assert bool(list(Path(environment["GLASSGATE_HOME"]).glob("runs/*"))) == (code == 0)
