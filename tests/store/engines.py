"""Engines in processes of their own, whose runs nobody collects yet."""

import subprocess
import sys
from pathlib import Path

from controller.journal import Cursor, write_cursor
from controller.run_directory import RunDirectory

_PROGRAM = Path(__file__).with_name("engine_process.py")


def start(
    folder: Path, name: str = "r1", *, rank: int = 0, sessions: int = 60, pause_ms: int = 0, hold: bool = True
) -> subprocess.Popen:
    """Start an engine, and return when its run is there. With `hold` its journal keeps what has been collected."""
    words = [sys.executable, str(_PROGRAM), str(folder), name, str(rank), str(sessions), str(pause_ms)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    assert path
    if hold:
        write_cursor(Path(path) / "journal", "held", Cursor(0, 0, 0))
    return process


def recorded(folder: Path, name: str = "r1", **more: int) -> RunDirectory:
    """A run that has ended: some 600 requests in 1,560 passes."""
    with start(folder, name, hold=False, **more) as process:
        assert process.wait(timeout=120) == 0
    rank = more.get("rank", 0)
    return RunDirectory(folder / (f"{name}-{rank}" if rank else name))
