"""What a forked child does before it becomes the program a test wants."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PRELOADED = (
    "estimator.launch", "ui.cli", "ui.commands.replay", "ui.commands.collect", "ui.commands.query", "ui.commands.db",
    "ui.commands.trace", "ui.commands.knobs", "ui.commands.ui", "ui.app.main", "store.otlp", "store.metrics",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter", "requests",
)  # fmt: skip
"""Modules that the commands under test import, and which the process they are forked from has already."""


class Setup(NamedTuple):
    """Where a child finds itself."""

    environment: dict[str, str]
    folder: Path
    limit_bytes: int | None
    """Of any file it writes."""
    terminal: str
    """The device of its terminal; without one it reads nothing and writes into files."""


def begin(target: Callable[..., object], arguments: tuple[Any, ...], out: Path, err: Path, setup: Setup) -> None:
    """Become a program: its environment, folder and streams, the signals as they are at a program's start."""
    os.environ.clear()
    os.environ.update(setup.environment)
    os.chdir(setup.folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if setup.terminal:
        os.setsid()
        terminal = os.open(setup.terminal, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(terminal, stream)
        sys.stdin, sys.__stdin__ = (open(0, closefd=False) for _ in range(2))  # noqa: SIM115 - descriptors
        sys.stdout, sys.__stdout__ = (open(1, "w", closefd=False) for _ in range(2))  # noqa: SIM115
        sys.stderr, sys.__stderr__ = (open(2, "w", closefd=False) for _ in range(2))  # noqa: SIM115
    else:
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    if setup.limit_bytes is not None:
        import resource  # noqa: PLC0415 - there is none outside Unix

        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (setup.limit_bytes, hard))
    target(*arguments)


def glassgate(*words: str) -> None:
    """The command, as its launcher begins it."""
    from estimator.launch import main  # noqa: PLC0415 - in the child, after its environment

    sys.argv = ["glassgate", *words]
    sys.exit(main())


def glassgate_with_jumping_clock(seed: int, *words: str) -> None:
    """The command under a wall clock that is set anew now and then, as NTP or an operator does."""
    import random  # noqa: PLC0415 - in the child
    import time  # noqa: PLC0415 - in the child

    draw, real, shift = random.Random(seed), time.time_ns, [0]  # noqa: S311 - to be had again, not to be secret

    def now() -> int:
        if draw.random() < 0.01:
            shift[0] = draw.randrange(-(10**15), 10**15)
        return real() + shift[0]

    time.time_ns, time.time = now, lambda: now() / 1e9
    glassgate(*words)


def hold_lock(database: str, statement: str) -> None:
    """Hold a lock on a database until killed."""
    import sqlite3  # noqa: PLC0415 - in the child

    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute(statement)
    sys.stdout.write("locked\n")
    sys.stdout.flush()
    signal.pause()


def ask_for_knobs(run: str, questions: str, answers: str) -> None:
    """What a screen does once an operator confirms, for each line that is added to a file, until killed."""
    import json  # noqa: PLC0415 - in the child
    import time  # noqa: PLC0415 - in the child

    from controller.run_directory import RunDirectory  # noqa: PLC0415 - in the child
    from ui.turning import turn  # noqa: PLC0415 - in the child

    with Path(questions).open(encoding="utf-8") as asked, Path(answers).open("w", encoding="utf-8") as told:
        while True:
            line = asked.readline()
            if not line.endswith("\n"):
                time.sleep(0.001)
                continue
            value, revision, who = json.loads(line)
            change = turn(RunDirectory(run), {"max_requests": value}, who, seconds=60, expect_revision=revision).change
            told.write(json.dumps([change.accepted, change.revision, change.why]) + "\n")
            told.flush()
