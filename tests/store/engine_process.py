"""An engine in a process of its own that nobody collects: arguments FOLDER RUN RANK SESSIONS PAUSE_MS.

It replays the built-in workload into a run's journal, and rests for PAUSE_MS after each 20 frames.
"""

import sys
import time
from pathlib import Path

from controller.engines.replay import ReplayEngine, agent_sessions, step_time_model
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.run_directory import RunDirectory

folder, name, rank, sessions, pause_ms = sys.argv[1:]
run = RunDirectory.create(Path(folder), engine="replay", version="1", run_id=name, rank=int(rank))


class Paced:
    """A journal that takes its time."""

    def __init__(self, journal: JournalWriter) -> None:
        self.journal = journal
        self.frames = 0

    def append(self, payload: bytes) -> int:
        """Append one frame, after a rest if one is due."""
        self.frames += 1
        if self.frames % 20 == 0:
            time.sleep(int(pause_ms) / 1000)
        return self.journal.append(payload)


with JournalWriter(
    run.journal, run_id=name, rank=int(rank), on_full="raise", stall="wait", max_bytes=8 << 20, segment_bytes=1 << 16
) as writer:
    sys.stdout.write(f"{run.path}\n")
    sys.stdout.flush()
    ReplayEngine(
        agent_sessions(seed=int(rank), sessions=int(sessions)),
        knobs=Knobs(page_size=64, max_extend_tokens=32_768),
        step_time=step_time_model(),
        recorder=Recorder(Paced(writer)),
        device_tokens=150_000,
        host_tokens=400_000,
        run=name,
    ).run()
run.end()
