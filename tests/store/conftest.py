"""A small serving loop whose every moment a test sets, recorded by the real pass and the real recorder."""

import dataclasses
from pathlib import Path

import pytest

from controller.admission import AdmissionPass, LoadAnswer
from controller.journal.frames import DATA, OVERHEAD_BYTES, Frame
from controller.knobs import Knobs
from controller.limits import Setting, effective, explain
from controller.recorder import Recorder
from controller.records import Abort, Arrival, Finish, KnobsInForce, Retract, RunEnd, RunStart, StepEnd
from controller.request import ActiveChunk, Candidate, Capacity, PrefixMatch
from controller.vocabulary import Outcome
from store.ingest import Ingest

MS = 1_000_000


class Tape:
    """A journal in memory: what was appended, as a reader would hand it over."""

    def __init__(self):
        self.frames = []
        self.offset = 0

    def append(self, payload):
        """Keep one frame."""
        seq = len(self.frames)
        self.frames.append(Frame(seq, DATA, payload, 1, self.offset))
        self.offset += len(payload) + OVERHEAD_BYTES
        return seq


class World:
    """An engine whose queue, pool and clock a test moves by hand. Times are ms of its clock, tokens otherwise."""

    def __init__(self, run="run-1", *, pool=1_000_000, wall_ns=1_700_000_000_000_000_000, simulated=False,
                 slots=2048, **knobs):  # fmt: skip
        self.run, self.pool = run, pool
        self.knobs = Knobs(**{"page_size": 64, **knobs})
        self.setting = Setting(has_model=False)
        self.tape = Tape()
        self.recorder = Recorder(self.tape)
        self.queue, self.numbers, self.chunk = [], {}, None
        self.free, self.reserved, self.running = pool, 0, 0
        self.load_answer = None
        self.limits = effective(self.knobs, self.setting)
        self.recorder.note(
            RunStart(run, "test", "1", 0, "", "", 0, wall_ns, simulated, pool, 0, slots, pool - 66, {"lanes": 1})
        )
        self.recorder.note(
            KnobsInForce(0, 0, tuple(dataclasses.astuple(each) for each in explain(self.knobs, self.setting)))
        )

    def arrive(self, name, at, prompt, output=16, **match):
        """A request joins the queue."""
        number = len(self.numbers)
        self.numbers[name] = number
        self.recorder.note(Arrival(number, name, int(at * MS), prompt, output))
        self.queue.append(Candidate(number, prompt, output, PrefixMatch(**match)))
        return number

    def step(self, at, *, free=None, reserved=None):
        """One pass; `free` and `reserved` set the pool first."""
        self.free = self.free if free is None else free
        self.reserved = self.reserved if reserved is None else reserved
        capacity = Capacity(
            pool_tokens=self.pool, free_tokens=self.free, reserved_tokens=self.reserved, running=self.running
        )
        deciding = AdmissionPass(self.limits, capacity)
        waiting = len(self.queue)
        result = deciding.run(list(self.queue), self, self.chunk)
        number = self.recorder.passed(
            capacity, result, start_ns=int(at * MS), decide_ns=1000, queue=waiting,
            queued_tokens=sum(each.prompt_tokens for each in self.queue),
        )  # fmt: skip
        gone = {d[0] for d in result.decisions if d[1] in (Outcome.ADMIT, Outcome.ADMIT_CHUNK, Outcome.REFUSE)}
        for member, outcome, extend, hit, loaded, done in result.batch:
            if outcome == Outcome.ADMIT_CHUNK:
                known = [*self.queue, self.chunk] if self.chunk else self.queue
                whole = next(each for each in known if each.number == member)
                prompt, output = whole.prompt_tokens, whole.output_tokens
                self.chunk = ActiveChunk(member, prompt, done + extend + hit + loaded, output)
            elif self.chunk is not None and self.chunk.number == member:
                self.chunk = None
        self.queue = [each for each in self.queue if each.number not in gone]
        return number, result

    def load_back(self, _candidate, tokens):
        """Answer as the test wants, else load all."""
        return self.load_answer or LoadAnswer(tokens)

    def commit(self, candidate, plan):
        """Nothing is held: the test sets the pool."""

    def first_token(self, name, at, passed=1):
        """A request has its first token."""
        self.recorder.note(StepEnd(passed, int(at * MS) - MS, int(at * MS), (self.numbers[name],)))

    def finish(self, name, at, tokens=16):
        """A request is done."""
        self.recorder.note(Finish(self.numbers[name], int(at * MS), tokens))

    def abort(self, name, at, why="client went away"):
        """A request leaves the queue unserved."""
        number = self.numbers[name]
        self.queue = [each for each in self.queue if each.number != number]
        self.recorder.note(Abort(number, int(at * MS), why))

    def retract(self, name, at, prompt, generated=5):
        """A running request waits again, at the head of the queue."""
        number = self.numbers[name]
        self.recorder.note(Retract(number, int(at * MS), generated, 100))
        self.queue.insert(0, Candidate(number, prompt, 16))

    def end(self, at):
        """The run ends in good order."""
        self.recorder.end_repeats()
        self.recorder.note(RunEnd(int(at * MS), "finished", self.recorder.passes, len(self.numbers)))

    def frames(self):
        """Everything recorded so far."""
        self.recorder.flush()
        return list(self.tape.frames)

    def into(self, database: Path) -> Path:
        """Put everything into a database."""
        with Ingest(database, self.run) as ingest:
            ingest.feed(self.frames()[ingest.cursor.seq if ingest.cursor else 0 :])
        return database


@pytest.fixture(scope="session")
def world():
    """Makes a World."""
    return World


@pytest.fixture
def database(tmp_path):
    """A path for a database that is not there yet."""
    return tmp_path / "glassgate.db"
