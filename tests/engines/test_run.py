"""What `make engines` makes of a machine without room, of a registry that fails, and of tests that fail."""

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = """#!/bin/sh
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip") echo "$*" >>"$SAID" && exit "$PIP_ENDS" ;;
  "-m pytest") echo "$*" >>"$SAID" && exit "$PYTEST_ENDS" ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    """Run run.sh for the engines named, with a Python and a df that do as they are told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    said = tmp_path / "said"
    said.touch()

    def run(*engines, pip=0, pytest=0, free_gb=100):
        for name, text in {"python3.11": PYTHON, "df": f"#!/bin/sh\necho Avail\necho {free_gb << 20}\n"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}", "ENGINES": str(tmp_path / "engines"), "SAID": str(said),
            "PIP_ENDS": str(pip), "PYTEST_ENDS": str(pytest), "ENGINE_RETRY_SECONDS": "0",
        }  # fmt: skip
        done = subprocess.run([HERE / "run.sh", *engines], env=environ, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr, said.read_text().splitlines()

    return run


def test_each_engine_is_installed_once_and_tested(run):
    """Both engines have their turn; the second time nothing is installed anew."""
    code, told, said = run()
    assert code == 0, told
    assert [line.rsplit("/", 1)[1] for line in said if "pytest -c" in line] == ["sglang", "vllm"]
    assert "passed in" in told
    _, _, again = run()
    assert [line for line in again[len(said) :] if "-m pip" in line] == []


def test_a_failing_test_fails_and_the_other_engine_has_its_turn(run):
    """The end is a failure that names the engines, after both were tested."""
    code, told, said = run(pytest=1)
    assert code == 1
    assert "engines that FAILED: sglang vllm" in told
    assert len([line for line in said if "pytest -c" in line]) == 2


def test_a_machine_without_room_is_told_so(run):
    """Nothing is installed or tested, and that is said loudly; it is no failure."""
    code, told, said = run(free_gb=3)
    assert code == 0
    assert said == []
    assert "engines NOT TESTED: sglang vllm" in told
    assert "has 3 GiB free, and an engine wants 12" in told


def test_a_registry_that_fails_is_asked_twice(run):
    """A package that cannot be had is asked for once more, and then the engine counts as failed, with pip's words."""
    code, told, said = run("vllm", pip=1)
    assert code == 1
    assert [line.split()[-1] for line in said] == ["torch", "torch"]
    assert "it could not be installed" in told
    assert "pip install torch failed; once more" in told
