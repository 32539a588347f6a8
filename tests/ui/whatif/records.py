"""Runs of the replay engine with a database, made small and quickly."""

import json
import sqlite3
from pathlib import Path

from controller.engines.replay import ReplayEngine, Workload, open_trace
from controller.engines.replay.step_time import StepTimeModel
from controller.journal import JournalWriter
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.run_directory import RunDirectory
from estimator import BatchEstimator, RunContext, model
from store.collect import collect_run
from tests.controller.replay.small_engine import ask

STEPS = StepTimeModel(
    name="test", basis="made up", prefill_overhead_ns=500, decode_overhead_ns=100, token_fs=10**9, pair_fs=10**6,
    load_token_fs=10**7, load_latency_ns=3,
)  # fmt: skip
"""1,000 ns a prefill token, 100 ns a decode step, 10 ns to move a token."""
DECIDED = (
    """SELECT number, start_ns, revision, queue, queued_tokens, not_reached, members, cut, extend_tokens,
    device_hit_tokens, host_loaded_tokens, closed_gate, closed_reason, peak_bytes, parts, free_tokens,
    evictable_tokens, reserved_tokens, running, quota_after, room_after, lanes FROM passes ORDER BY number""",
    "SELECT * FROM decisions ORDER BY pass, position",
    "SELECT * FROM repeats ORDER BY first_pass",
    "SELECT * FROM steps ORDER BY start_ns, pass",
    "SELECT request, at_ns, kind, generated_tokens, freed_tokens FROM retractions ORDER BY 1, 2",
    """SELECT number, arrival_ns, prompt_tokens, output_tokens, first_token_ns, end_ns, ended, generated_tokens,
    like_request, shared_tokens, known_tokens, ignore_eos FROM requests ORDER BY number""",
    "SELECT at_ns, revision, knob, old, new FROM knob_changes WHERE accepted ORDER BY id",
)
"""Everything that was decided and that followed from it, real time and names aside."""


def estimator(knobs):
    """An estimator for a built-in model."""
    geometry = model("llama-3.1-8b")
    return BatchEstimator(geometry, RunContext.default_for(geometry, page_size=knobs.page_size))


def record(folder: Path, workload: Workload, *, name="one", knobs=None, progress=None, ranks_model="", **more):
    """Serve a workload, keep its record, and return the run's folder; its database is beside its journal."""
    knobs = Knobs(page_size=4, chunked_prefill_size=64) if knobs is None else knobs
    arguments = {"step_time": STEPS, "device_tokens": 400, "host_tokens": 0, "salt": b"salt"} | more
    found = arguments.get("estimator")
    run = RunDirectory.create(folder, engine="replay", version="test", knobs=knobs.as_dict(), run_id=name)
    made: list[ReplayEngine] = []

    def now():
        return made[0].loop.now_ns if made else 0

    with JournalWriter(
        run.journal, run_id=name, on_full="raise", stall="wait", clock=now,
        wall_clock=lambda: 10**18 + now(),
    ) as journal:  # fmt: skip
        engine = ReplayEngine(
            workload, knobs=knobs, recorder=Recorder(journal), run=name, version="test", model=ranks_model,
            context="" if found is None else json.dumps(found.context.as_run()), began_wall_ns=10**18, **arguments,
        )  # fmt: skip
        made.append(engine)
        engine.run(None if progress is None else lambda standing: progress(engine, standing))
    run.end("finished")
    collect_run(run, run.path / "glassgate.db")
    return run


def served(requests, block=4):
    """A workload of requests that stand in a list."""
    return Workload(name="test", block_tokens=block, requests=iter(requests))


def many(count=60, every=4_000):
    """Requests that come a little too fast for batches of one."""
    return [ask(number, 20, 1, at=number * every) for number in range(count)]


def database_of(run):
    """A run's database."""
    return run.path / "glassgate.db"


def record_again(folder: Path, trace: Path, **more):
    """Serve a trace as the run was that it was exported from."""
    with open_trace(trace) as workload:
        exported = workload.exported
        return record(
            folder, workload, knobs=exported.started(), setting=exported.served(), step_time=exported.steps(),
            device_tokens=exported.device_tokens, host_tokens=exported.host_tokens, role=exported.role,
            write_policy=exported.write_policy, new_token_ratio=exported.new_token_ratio,
            estimator=exported.estimator(), stretch_ns=exported.stretch_ns, changes=exported.turned(), **more,
        )  # fmt: skip


def decided(run: RunDirectory):
    """What a run's database holds of what was decided."""
    with sqlite3.connect(run.path / "glassgate.db") as database:
        found = [database.execute(sql).fetchall() for sql in DECIDED]
    database.close()
    return found
