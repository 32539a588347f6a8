"""A run told record by record, for what the replay engine never does. Times are seconds of its clock."""

from controller.journal.frames import DATA, OVERHEAD_BYTES, Frame
from controller.records import Abort, Arrival, KnobsInForce, Pass, Repeat, RunEnd, RunStart, StepEnd, encode
from controller.vocabulary import Gate, HostHit, Outcome, Reason, Verdict
from store.ingest import Ingest
from tests.ui.view.showing import S

WALL_NS = 1_767_225_600 * S
PROMPT = 1_000
LIMIT = 5_000


class Story:
    """Records in order of telling; `into` puts those that are new into the database."""

    def __init__(self, path, run="story", *, rank=0, simulated=False, wall_ns=WALL_NS, knobs=()):
        self.path, self.run, self.rank = path, run, rank
        self.numbers, self.waiting = {}, []
        self.passes = self.whole = self.revision = 0
        self.pending, self.frames, self.offset = [], [], 0
        words = {"context_parallel": False, "data_parallel": 1, "lanes": 1, "has_model": False}
        self.note(
            RunStart(run, "test", "1", rank, "", "", 0, wall_ns, simulated, 100_000, 0, 64, 99_000, words),
            KnobsInForce(0, 0, tuple(knobs)),
        )

    def note(self, *records):
        """Tell something."""
        self.pending += records

    def flush(self):
        """End the frame."""
        if self.pending:
            payload = encode(self.pending)
            self.frames.append(Frame(len(self.frames), DATA, payload, 1, self.offset))
            self.offset += len(payload) + OVERHEAD_BYTES
            self.pending = []

    def arrive(self, name, at):
        """A request joins the queue."""
        self.numbers[name] = len(self.numbers)
        self.waiting.append(name)
        self.note(Arrival(self.numbers[name], name, int(at * S), PROMPT, 16))

    def decision(self, name, outcome, stop=None, would=None):
        """A request as a pass decided about it; `would` is a gate that only recorded what it would have done."""
        checks = [int(Verdict.PASS), PROMPT, LIMIT] * 9
        gate, reason = stop or (-1, -1)
        numbers = (LIMIT + 100, LIMIT, 101) if stop else (0, 0, 0)
        if stop and gate < 9:
            checks[3 * gate : 3 * gate + 3] = [int(Verdict.REFUSE), *numbers[:2]]
        if would is not None:
            checks[3 * would : 3 * would + 3] = [int(Verdict.WOULD_REFUSE), LIMIT + 100, LIMIT]
        return (
            self.numbers[name], int(outcome), int(gate), int(reason), *numbers, PROMPT, 0, 0, PROMPT, 16,
            int(HostHit.NONE_RESIDENT), 0, 0, 0, 0, *checks,
        )  # fmt: skip

    def passed(self, at, enter=(), wait=(), stop=(Gate.KV_CAPACITY, Reason.POOL), running=1, spent=None, would=None):
        """A pass that lets some enter and turns others away; the last of those closes it, else the budget `spent`."""
        self.passes += 1
        self.whole = self.passes
        decisions = [self.decision(name, Outcome.ADMIT, would=would) for name in enter]
        decisions += [self.decision(name, Outcome.WAIT, stop) for name in wait]
        gate, reason = stop if wait else spent or (-1, -1)
        queue = len(self.waiting)
        batch = tuple((self.numbers[name], int(Outcome.ADMIT), PROMPT, 0, 0, 0) for name in enter)
        self.note(
            Pass(
                self.passes, int(at * S), 1_000, self.revision, queue, queue * PROMPT, queue - len(decisions), batch,
                int(gate), int(reason), -1, (), (50_000, 10_000, 1_000, running), (40_000, 30_000), tuple(decisions),
            )
        )  # fmt: skip
        gone = set(enter)
        self.waiting = [name for name in self.waiting if name not in gone]
        self.flush()
        return self.passes

    def repeat(self, name, first, last, count, *, ended=False):
        """The last pass again, so many times between two times."""
        passed = self.whole
        self.note(
            Repeat(
                passed, passed + count, count, int(first * S), int(last * S), self.numbers[name],
                int(Gate.KV_CAPACITY), int(Reason.POOL), (LIMIT + 100, LIMIT + 50, LIMIT + 50, LIMIT + 100),
                (LIMIT,) * 4, len(self.waiting), len(self.waiting) - 1, self.revision, ended,
            )
        )  # fmt: skip
        self.passes = passed + count
        self.flush()

    def stepped(self, passed, begin, end, *names):
        """A batch was computed; some have their first token."""
        self.note(StepEnd(passed, int(begin * S), int(end * S), tuple(self.numbers[name] for name in names)))

    def abort(self, name, at, why="client went away"):
        """A request leaves unserved."""
        self.waiting.remove(name)
        self.note(Abort(self.numbers[name], int(at * S), why))

    def end(self, at):
        """The run ends in good order."""
        self.note(RunEnd(int(at * S), "finished", self.passes, len(self.numbers)))

    def into(self):
        """The database with everything told so far."""
        self.flush()
        with Ingest(self.path, self.run, self.rank) as ingest:
            ingest.feed(self.frames[ingest.cursor.seq if ingest.cursor else 0 :])
        return self.path
