"""Makes the recording beside it again: `python tests/ui/recording/make.py`.

A prefill-and-decode engine with a small pool serves a few agent sessions and some requests that do not fit well, while
an operator turns knobs. Everything but the time deciding took and the journal's sync marks comes out the same.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from unittest import mock

from controller.engines.replay import ReplayEngine
from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.step_time import step_time_model
from controller.engines.replay.workload import Workload, WorkloadRequest
from controller.journal import JournalWriter
from controller.knob_requests import KnobRequest
from controller.knob_turning import asked_change
from controller.knobs import Knobs
from controller.limits import Setting
from controller.recorder import Recorder
from controller.records import Smoke
from controller.run_directory import RunDirectory
from controller.vocabulary import HostHit
from estimator import BatchEstimator, RunContext, model

RUN = "recording"
MODEL = "deepseek-v3.2"
BEGAN_WALL_NS = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z."""
S = 1_000_000_000
KNOBS = Knobs.parse(
    {
        "page_size": 64,
        "max_requests": 4,
        "max_extend_tokens": 6_144,
        "max_cached_tokens": 60_000,
        "max_buffer_bytes": "1400MiB",
        "chunked_prefill_size": 8_192,
        "load_back_threshold": 4_096,
    }
)
DEVICE_TOKENS = 90_112
HOST_TOKENS = 600_000
PREFILL_TOKENS_PER_S = 3_000
"""Slow, so that a queue forms."""
SMOKE_BYTES = 1_400 << 20
FAILS = 84
"""The request whose load-back fails."""
TURNS = (
    (150, {"max_extend_tokens": 12_288}, "ops"),
    (170, {"page_size": 128}, "ops"),
    (300, {"max_buffer_bytes": "off", "max_requests": 2}, "night shift"),
    (415, {"enforce": False}, "night shift"),
    (515, {"enforce": True, "max_requests": 8}, "ops"),
)
"""Seconds at which a change of knobs is asked for, what, and by whom."""


def odd_requests() -> Iterator[WorkloadRequest]:
    """Requests that do not fit well: one that never can, one that fills most of the pool, and a burst of small ones."""
    yield WorkloadRequest("too-long", 40 * S, 200_000, 64)
    for number in range(8):
        yield WorkloadRequest(f"ticker-{number}", 58 * S + number * 10_000_000, 200, 620 * (number + 1))
    yield WorkloadRequest("wide", 60 * S, 62_000, 5_400)
    for number in range(12):
        yield WorkloadRequest(f"burst-{number:02}", 200 * S + number * 20_000_000, 300 + 37 * number, 48)
    for number in range(14):
        yield WorkloadRequest(f"talker-{number:02}", 420 * S + number * 400_000_000, 1_500, 4_200)


def workload() -> Workload:
    """Sessions and the odd requests among them, in order of arrival."""
    sessions = agent_sessions(
        seed=7, sessions=14, sessions_per_second=0.05, agents=2, mean_turns=6.0, max_context_tokens=40_000
    )
    requests = merge(sessions.requests, odd_requests(), key=lambda request: request.arrival_ns)
    return Workload(name="recording", block_tokens=sessions.block_tokens, requests=requests)


def make(base: Path) -> RunDirectory:
    """Record the run into a folder of its own under base."""
    geometry = model(MODEL)
    estimator = BatchEstimator(geometry, RunContext.default_for(geometry, page_size=KNOBS.page_size))
    run = RunDirectory.create(
        base, engine="replay", version="recording", model=MODEL, knobs=KNOBS.as_dict(), run_id=RUN,
        context={"workload": "recording"},
    )  # fmt: skip
    found: list[ReplayEngine] = []

    def now() -> int:
        return found[0].loop.now_ns if found else 0

    with JournalWriter(
        run.journal, run_id=RUN, on_full="raise", stall="wait", clock=now, wall_clock=lambda: BEGAN_WALL_NS + now()
    ) as journal:
        engine = ReplayEngine(
            workload(),
            knobs=KNOBS,
            step_time=step_time_model("h200-dsv3.2-cp8", prefill_tokens_per_second=PREFILL_TOKENS_PER_S),
            recorder=Recorder(journal),
            setting=Setting(slots=64),
            device_tokens=DEVICE_TOKENS,
            host_tokens=HOST_TOKENS,
            new_token_ratio=0.05,
            estimator=estimator,
            run=RUN,
            version="recording",
            model=MODEL,
            context=json.dumps(estimator.context.as_run()),
            fail_load=lambda number: HostHit.ALLOCATOR if number == FAILS else None,
            smoke=Smoke(0, "cuda:0", SMOKE_BYTES, SMOKE_BYTES, SMOKE_BYTES, 96 << 30, passed=True),
            began_wall_ns=BEGAN_WALL_NS,
            salt=RUN.encode(),
        )
        found.append(engine)
        left = list(TURNS)

        def turn(_progress: object) -> None:
            while left and now() >= left[0][0] * S:
                at, changes, who = left.pop(0)
                content = {**asked_change(changes, who), "left_unix_ns": BEGAN_WALL_NS + at * S}
                engine.turn(KnobRequest(f"{at:020d}-1-recording.json", content, None))

        with mock.patch("controller.engines.replay.engine.PROGRESS_NS", 0):
            engine.run(turn)
    run.end("finished")
    return run


def keep(run: RunDirectory, folder: Path) -> None:
    """Copy what of a run is kept in the repository: run.json and the journal."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "journal").mkdir(parents=True)
    for path in (run.path / "run.json", *run.journal.glob("*.journal")):
        shutil.copyfile(path, folder / path.relative_to(run.path))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as base:
        keep(make(Path(base)), Path(__file__).with_name("run"))
