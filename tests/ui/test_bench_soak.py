"""`glassgate bench --soak`: a load beside the collector, and what became of every decision."""

import csv
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.recorder import Recorder
from controller.records import Pass, Repeat, decode
from estimator.batch import BatchEstimator
from tests.waiting import wait_until
from ui.bench.data import read_rows
from ui.bench.load import MODEL, WAITING, Load
from ui.bench.soak import FOR_DRIFTS, LEAST_SAMPLES, Sample, drifts

Run = Callable[..., subprocess.CompletedProcess[str]]


class Tape:
    """A journal in memory."""

    def __init__(self) -> None:
        self.records = []

    def append(self, payload: bytes) -> int:
        """Keep one frame's records."""
        self.records += decode(payload)
        return 0


def played(seed: int, passes: int) -> tuple[Tape, Load]:
    """A load with its record, its clock moving 5 ms a pass."""
    tape, now = Tape(), iter(range(0, 1 << 60, 2_500_000))
    load = Load(Recorder(tape, BatchEstimator.for_model(MODEL)), seed=seed, clock=lambda: next(now))
    load.begin("load", "1", 0)
    for _ in range(passes):
        load.step()
    load.end()
    return tape, load


def test_a_load_counts_the_decisions_its_record_holds():
    """The decisions a load says it made are those of the passes written, and each of them began with a full queue."""
    tape, load = played(1, 600)
    passes = [record for record in tape.records if isinstance(record, Pass)]
    assert sum(len(each.decisions) for each in passes) == load.decisions > 600
    assert {each.queue for each in passes} == {WAITING}
    repeated = sum(each.count for each in tape.records if isinstance(each, Repeat) and each.ended)
    assert len(passes) + repeated == load.passes == 600


def test_a_load_is_stopped_by_every_limit_and_the_pool():
    """Each soft gate and the pool close some of a load's batches, and what runs stays within the pool."""
    tape, _ = played(2, 1_500)
    passes = [record for record in tape.records if isinstance(record, Pass)]
    closed = {each.closed_gate for each in passes}
    assert len(closed - {-1}) >= 5
    assert all(min(each.before) >= 0 for each in passes)


def test_the_same_seed_makes_the_same_decisions():
    """A load can be repeated."""
    first, second, other = (
        [each.decisions for each in played(seed, 50)[0].records if isinstance(each, Pass)] for seed in (3, 3, 4)
    )
    assert first == second != other


def test_a_soak_accounts_for_every_decision(glassgate: Run, tmp_path: Path):
    """After a soak every decision is in the database, pruned or counted as lost, and the samples are in a file."""
    done = glassgate(
        "bench", "--soak", "0.1", "--rate", "1000", "--max-size", "2MiB", "--plot", str(tmp_path / "plots"), "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["made"] > 0
    assert said["made"] == said["kept"] + said["pruned"] + said["lost"]
    with (tmp_path / "plots" / "soak.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == Sample._fields
    assert 1 <= len(rows) <= LEAST_SAMPLES
    assert [int(row["decisions"]) for row in rows] == sorted(int(row["decisions"]) for row in rows)
    assert bool(said["drifts"]) == (len(rows) >= FOR_DRIFTS)


def test_growth_is_told_by_the_slope():
    """A figure that grows by a byte a second drifts by 3,600 an hour, one that stays by nothing."""
    samples = [Sample(*[0.0] * len(Sample._fields))._replace(at_s=at, journal_bytes=at, segments=2) for at in range(40)]
    found = {each.what: each for each in drifts(samples)}
    assert found["journal"].per_hour == pytest.approx(3600)
    assert found["journal"].greatest == 39
    assert found["database"].per_hour == 0
    assert set(found) >= {"engine memory", "collector memory", "lag of the database", "write-ahead log"}
    assert drifts(samples[: FOR_DRIFTS - 1]) == []


def test_a_soak_that_is_stopped_ends_in_good_order(
    command: tuple[str, ...], environment: dict[str, str], tmp_path: Path
):
    """SIGTERM ends engine and collector, accounts for what was decided, and leaves no folder and no process behind."""
    home = tmp_path / "tmp"
    home.mkdir()
    with subprocess.Popen(
        [*command, "bench", "--soak", "10", "--rate", "500", "--plot", str(tmp_path / "plots"), "--json"],
        env={**environment, "TMPDIR": str(home)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_until(lambda: len(read_rows(tmp_path / "plots" / "soak.csv", Sample)) >= 1, seconds=60)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    said = json.loads(out)
    assert said["made"] > 0
    assert said["unaccounted"] == 0
    assert said["drifts"] == []
    assert list(home.iterdir()) == []
