"""The long form: every target as often as told, each in a process of its own, and what was found as a table.

`make fuzz` runs it. FUZZ_RUNS is how often a target of cost 1 is executed (a dearer one less often), FUZZ_SEED the
seed, which is printed. Exit code 1 where anything was found.
"""

import argparse
import faulthandler
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import targets_cases  # noqa: E402, F401 - they register themselves
import targets_records  # noqa: E402, F401
import targets_words  # noqa: E402, F401
from guard import Guard, HangError  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import seed as seeded  # noqa: E402
from quiet import quietly  # noqa: E402
from samples import make_room  # noqa: E402
from target import TARGETS, Room, Target  # noqa: E402

LIMIT_BYTES: Final = 8 << 30
"""Address space of one target's process."""
STUCK_SECONDS: Final = 900
"""Sixty-four inputs that take so long, wherever they are stuck, end their target's process with the traceback."""
FEWEST: Final = 20

Finds = dict[str, tuple[int, str]]
"""By the place where something went wrong: how often, and the first of it with its input."""


def add(finds: Finds, error: BaseException, value: Any) -> None:
    """Keep the first find of its kind in words, count the others."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(ROOT)]
    frames = [each for each in frames if ".venv" not in each.filename and Path(each.filename).parent != HERE] or frames
    place = f"{type(error).__name__} in {Path(frames[-1].filename).name}:{frames[-1].name}"
    count, words = finds.get(place, (0, ""))
    if not count:
        told = "".join(traceback.format_exception(error))[-2_500:]
        words = f"{ascii(str(error))[:400]}\n    for {ascii(value)[:1_500]}\n{told}"
    finds[place] = (count + 1, words)


def run_one(target: Target, room: Room, runs: int, seed: int) -> tuple[int, int, float, Finds]:
    """Executions of a target, how many were refused in words, the seconds they took, and what was found."""
    finds: Finds = {}
    aim = target.aim(room)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))

    @seeded(seed)
    @settings(
        max_examples=max(FEWEST, runs // target.cost), database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(aim.inputs)
    def try_one(value: Any) -> None:
        if guard.executions % 64 == 0:
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        try:
            guard(aim.parse, value)
        except (Exception, HangError) as error:  # noqa: BLE001 - whatever it is, it is a find
            add(finds, error, value)

    began = time.monotonic()
    with Guard() as guard:
        try_one()
    faulthandler.cancel_dump_traceback_later()
    return guard.executions, guard.refused, time.monotonic() - began, finds


def in_child(sender: Connection, name: str, room: Room, runs: int, seed: int) -> None:
    """The same in a process of its own, with a copy of the room."""
    folder = Path(tempfile.mkdtemp(prefix="glassgate-fuzz-"))
    try:
        shutil.copytree(room.folder, folder, dirs_exist_ok=True)
        own = Room(folder, folder / room.run.relative_to(room.folder), folder / room.database.name)
        os.environ["GLASSGATE_HOME"] = str(own.home)
        os.chdir(folder)
        sender.send(run_one(TARGETS[name], own, runs, seed))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell(line: str) -> None:
    """A line of the table."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run every target, print the table, and say whether anything was found."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=int(os.environ.get("FUZZ_RUNS") or 20_000))
    arguments.add_argument("--seed", type=int, default=int(os.environ.get("FUZZ_SEED") or time.time_ns() % 2**32))
    arguments.add_argument("--only", action="append", help="a target, by name or a part of it; give it repeatedly")
    asked = arguments.parse_args()
    chosen = [name for name in TARGETS if not asked.only or any(each in name for each in asked.only)]
    sys.stderr.write(f"seed {asked.seed}, {asked.runs:,} executions of a quick parser\n")
    tell("| parser | executions | refused in words | found | s |\n| --- | ---: | ---: | ---: | ---: |")
    fork = multiprocessing.get_context("fork")
    found = False
    with tempfile.TemporaryDirectory(prefix="glassgate-fuzz-") as folder:
        rooms: list[Room] = []
        quietly(lambda: rooms.append(make_room(Path(folder))))
        for name in chosen:
            receiver, sender = fork.Pipe(duplex=False)
            child = fork.Process(target=in_child, args=(sender, name, rooms[0], asked.runs, asked.seed))
            child.start()
            sender.close()
            try:
                executions, refused, seconds, finds = receiver.recv()
            except EOFError:
                child.join()
                found = True
                tell(f"| {name} | - | - | its process ended with {child.exitcode} | - |")
                continue
            child.join()
            found = found or bool(finds)
            tell(f"| {name} | {executions:,} | {refused:,} | {len(finds)} | {seconds:.0f} |")
            for place, (times, words) in finds.items():
                sys.stderr.write(f"{name}: {place}, {times} times: {words}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
