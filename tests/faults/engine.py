"""An engine that nobody collects, to be run in a process of its own."""

import os
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from controller.engines.replay import ReplayEngine, agent_sessions, step_time_model
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError


class Watched:
    """A journal that takes its time, and says what it has taken where a killed process cannot take it back."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.journal: JournalWriter | None = None
        self.frames = self.lost = 0
        self._pause_s = asked.get("pause_ms", 0) / 1000
        self._jumps: list[list[int]] = asked.get("jumps", [])
        self._acknowledged = os.open(asked["acknowledged"], os.O_RDWR | os.O_CREAT, 0o600)

    def append(self, payload: bytes) -> int:
        """Append one frame, after a rest if one is due."""
        assert self.journal is not None
        if self.frames % 20 == 0:
            time.sleep(self._pause_s)
        number = self.journal.append(payload)
        self.frames += 1
        self.lost += number < 0
        os.pwrite(self._acknowledged, struct.pack("<QQ", self.frames, self.lost), 0)
        return number

    def jumped(self, clock: int) -> int:
        """A clock after the last jump so far."""
        by = [by for at, by in self._jumps if at <= self.frames]
        return clock + by[-1] if by else clock


class JumpingRecorder(Recorder):
    """Records passes at the times that the jumping clock tells."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._watched = watched

    def passed(self, capacity: Any, result: Any, *, start_ns: int, **more: Any) -> int:
        """Write a pass."""
        return super().passed(capacity, result, start_ns=self._watched.jumped(start_ns), **more)


def serve(asked: dict[str, Any]) -> None:
    """Replay the built-in workload into a run's journal, until it ends or the file `stop` is there.

    `folder` and `name` say where, `sessions` and `seed` what; `pause_ms` is rested after each 20 frames. With `lose` it
    counts what it cannot write, as a real engine does, instead of stopping. `jumps` are [frame, ns]: from that frame on
    its clocks are so much further than they should be. `acknowledged` is a file that holds how many frames append
    returned for, and how many of them it called lost. `segment_bytes` and `database` are as in the product.
    """
    watched = Watched(asked)
    run = RunDirectory.create(
        Path(asked["folder"]), engine="replay", version="1", run_id=asked["name"],
        context={"database": asked["database"]} if "database" in asked else {},
    )  # fmt: skip
    with JournalWriter(
        run.journal,
        run_id=asked["name"],
        on_full="lose" if asked.get("lose") else "raise",
        stall="wait",
        segment_bytes=asked.get("segment_bytes"),
        clock=lambda: watched.jumped(time.monotonic_ns()),
        wall_clock=lambda: watched.jumped(time.time_ns()),
        retry_ns=20_000_000,
    ) as writer:
        watched.journal = writer
        engine = ReplayEngine(
            agent_sessions(seed=asked.get("seed", 0), sessions=asked.get("sessions", 1_000_000)),
            knobs=Knobs(page_size=64, max_extend_tokens=32_768),
            step_time=step_time_model(),
            recorder=JumpingRecorder(watched),
            device_tokens=150_000,
            host_tokens=400_000,
            run=asked["name"],
        )

        def stop_when_told() -> None:
            while not Path(asked["stop"]).exists():
                time.sleep(0.02)
            engine.stop()

        threading.Thread(target=stop_when_told, daemon=True).start()
        sys.stdout.write(f"{run.path}\n")
        sys.stdout.flush()
        engine.run()
    try:
        run.end()
    except GlassgateError as error:  # a full disk or a folder that has gone, which is what a test is about
        sys.stderr.write(f"{error}\n")
