"""The command as a user runs it, with a home of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store.collect import collect_run

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command() -> tuple[str, ...]:
    """The words that start `glassgate` in this installation."""
    return (sys.executable, "-m", "ui")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has set nothing, with a home in tmp_path."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("GLASSGATE")}
    return {
        **bare,
        "GLASSGATE_HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "COLUMNS": "200",
    }


@pytest.fixture
def glassgate(command: tuple[str, ...], environment: dict[str, str], tmp_path: Path) -> Run:
    """Run `glassgate` with arguments; `stdin`, and environment variables as keywords."""

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments],
            input=stdin,
            env={**environment, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small Mooncake trace: 200 requests in 20 conversations, too fast for a small pool."""
    lines = []
    for number in range(200):
        conversation, turn = number % 20, number // 20
        blocks = [conversation * 1_000 + block for block in range(2 + turn)]
        lines.append(
            {"timestamp": number * 40, "input_length": 512 * len(blocks) - 7, "output_length": 20, "hash_ids": blocks}
        )
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed recording as a run's folder under `runs`, with its database beside it; it is only to be read."""
    run = tmp_path_factory.mktemp("home") / "runs" / "recording"
    shutil.copytree(Path(__file__).with_name("recording") / "run", run)
    collect_run(run, run / "glassgate.db")
    return run
