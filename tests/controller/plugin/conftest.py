"""A plug-in's record as an engine process has it, with a home of its own and nothing set from outside."""

import os

import pytest

from controller.admission import AdmissionPass
from controller.engines.plugin import EngineIdentity, EngineRecord, Faults, PluginSettings
from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.knobs import Knobs
from controller.limits import Setting, effective
from controller.records import decode
from controller.request import Candidate, Capacity

KNOBS = Knobs(page_size=64)
SETTING = Setting(has_model=False)


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """Nothing of Glassgate is set in the environment, and the working folder is empty."""
    for name in list(os.environ):
        if name.startswith("GLASSGATE"):
            monkeypatch.delenv(name)
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


class Engine:
    """One rank of an engine, reduced to what its record is made of."""

    def __init__(self, home, **more):
        settings = more.pop("settings", {})
        self.faults = Faults("Engine")
        identity = {"engine": "sglang", "version": "0.5.23", "model": "tiny", "setting": SETTING,
                    "replaced": ("schedule_policy.PrefillAdder",), "pool_tokens": 100_000, **more}  # fmt: skip
        run_id, estimator = identity.pop("run_id", None), identity.pop("estimator", None)
        self.record = EngineRecord.begin(
            EngineIdentity(**identity),
            PluginSettings(**{"knobs": KNOBS, "home": home, "collector": False, **settings}),
            self.faults,
            run_id=run_id,
            estimator=estimator,
        )

    def step(self, *prompts, free=100_000):
        """One pass over waiting prompts; what was decided."""
        limits = effective(self.record.knobs, SETTING)
        capacity = Capacity(pool_tokens=100_000, free_tokens=free, running=1)
        queue = [Candidate(number, prompt, 16) for number, prompt in enumerate(prompts, 1)]
        result = AdmissionPass(limits, capacity).run(queue, self, None)
        self.record.passed(
            capacity, result, start_ns=self.record.now, decide_ns=1000, queue=len(queue), queued_tokens=sum(prompts)
        )
        return result

    def commit(self, candidate, plan):
        """Nothing is held."""


@pytest.fixture
def engine(tmp_path):
    """Makes ranks of an engine, and ends their records."""
    made = []

    def make(**more):
        made.append(Engine(tmp_path / "home", **more))
        return made[-1]

    yield make
    for each in made:
        each.record.close()


@pytest.fixture
def records_of():
    """Reads every record of a run's journal."""

    def read(run):
        with JournalReader(run.journal) as reader:
            return [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]

    return read
