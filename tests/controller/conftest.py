"""What the tests of the deciding core share: an engine that notes what it is asked, and answers that read well."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import Decision, PassResult
from controller.knobs import Knobs
from controller.limits import Setting, effective
from controller.request import ActiveChunk, Candidate, Capacity
from controller.vocabulary import HostHit

Told = tuple[str, str | None, str | None]


@dataclass
class FakeEngine:
    """An engine that keeps a log of its calls; a load of a request in `failures` fails and evicts that many tokens."""

    failures: dict[int, tuple[HostHit, int]] = field(default_factory=dict)
    loads: list[tuple[int, int]] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """All of it, or none with the reason the test gave."""
        self.loads.append((candidate.number, tokens))
        if candidate.number in self.failures:
            why, evicted = self.failures[candidate.number]
            return LoadAnswer(0, why, evicted)
        return LoadAnswer(tokens)

    def commit(self, candidate: Candidate, _plan: Any) -> None:
        """Note who entered."""
        self.commits.append(candidate.number)


class FlatState(NamedTuple):
    """Bytes of a batch under `FlatEstimator`."""

    peak_bytes: int


class FlatEstimator:
    """A buffer estimate that can be done in the head: so many bytes a token computed, prefixed and loaded."""

    empty = FlatState(0)

    def __init__(self, extend: int = 1, prefix: int = 0, load: int = 0) -> None:
        self.rates = extend, prefix, load
        self.added: list[tuple[int, int, int]] = []

    def add(self, state: FlatState, prefix: int, extend: int, load: int) -> FlatState:
        """The batch with one more member."""
        self.added.append((prefix, extend, load))
        of_extend, of_prefix, of_load = self.rates
        return FlatState(state.peak_bytes + extend * of_extend + prefix * of_prefix + load * of_load)

    def parts(self, state: FlatState) -> tuple[int, ...]:
        """One part, the whole."""
        return (state.peak_bytes,)


@dataclass
class Driven:
    """One pass that was driven by hand."""

    result: PassResult
    engine: FakeEngine
    drawn: int
    """Candidates taken from the queue's iterator."""

    @property
    def decisions(self) -> list[Decision]:
        """The decisions in order, the continuing chunk first."""
        return [Decision.read(flat) for flat in self.result.decisions]

    @property
    def told(self) -> dict[int, Told]:
        """Outcome, gate and reason by request number."""
        return {
            d.number: (d.outcome.word, d.gate and d.gate.word, d.reason and d.reason.word)
            if d.gate is not None and d.reason is not None
            else (d.outcome.word, None, None)
            for d in self.decisions
        }

    @property
    def closed(self) -> tuple[str, str] | None:
        """Gate and reason that closed the pass."""
        by = self.result.closed_by
        return None if by is None else (by[0].word, by[1].word)


def drive_pass(
    queue: Iterable[Candidate],
    *,
    knobs: Knobs | None = None,
    setting: Setting | None = None,
    capacity: Capacity | None = None,
    chunk: ActiveChunk | None = None,
    estimator: Any = None,
    engine: FakeEngine | None = None,
) -> Driven:
    """One pass over a queue with a noted engine; a pool of 1,000,000 free tokens unless said."""
    drawn = 0

    def draw() -> Iterable[Candidate]:
        nonlocal drawn
        for candidate in queue:
            drawn += 1
            yield candidate

    limits = effective(knobs or Knobs(), setting or Setting())
    capacity = capacity or Capacity(pool_tokens=1_000_000, free_tokens=1_000_000)
    engine = engine or FakeEngine()
    result = AdmissionPass(limits, capacity, estimator).run(draw(), engine, chunk)
    return Driven(result, engine, drawn)


@dataclass
class Answer:
    """What `decide` printed, with short ways to its parts."""

    data: dict[str, Any]

    @property
    def told(self) -> dict[str, Told]:
        """Outcome, gate and reason of each request looked at."""
        return {d["id"]: (d["outcome"], d["gate"], d["reason"]) for d in self.data["decisions"]}

    @property
    def extends(self) -> dict[str, int]:
        """Tokens each member computes, in batch order."""
        return {m["id"]: m["extend_tokens"] for m in self.data["batch"]}

    @property
    def closed(self) -> tuple[str, str] | None:
        """Gate and reason that closed the pass."""
        by = self.data["closed_by"]
        return None if by is None else (by["gate"], by["reason"])

    @property
    def not_reached(self) -> list[str]:
        """Ids never looked at."""
        return list(self.data["not_reached"])

    def of(self, name: str) -> dict[str, Any]:
        """The decision about one request."""
        return next(d for d in self.data["decisions"] if d["id"] == name)

    def numbers(self, name: str) -> tuple[Any, ...]:
        """Observed, limit, short by and unit of one decision."""
        found = self.of(name)
        return found["observed"], found["limit"], found["short_by"], found["unit"]

    def check(self, name: str, gate: str) -> dict[str, Any]:
        """One gate's check of one request."""
        return next(c for c in self.of(name)["checks"] if c["gate"] == gate)

    def verdict(self, name: str, gate: str) -> str:
        """What one gate said of one request."""
        return str(self.check(name, gate)["verdict"])

    def hit(self, name: str) -> tuple[str, str | None]:
        """Status and reason of one request's host hit."""
        found = self.of(name)["host_hit"]
        return found["status"], found["reason"]


def decide_case(queue: Iterable[dict[str, Any]] = (), **case: Any) -> Answer:
    """`decide` on a case; requests without an id are named a, b, c in order, and generate nothing unless said."""
    from controller.case import decide  # noqa: PLC0415 - the rest of this room needs no estimator

    names = [{"id": chr(ord("a") + place), "output_tokens": 0, **item} for place, item in enumerate(queue)]
    return Answer(decide({"queue": names, **case}))


@pytest.fixture(scope="session")
def drive() -> Callable[..., Driven]:
    """See `drive_pass`."""
    return drive_pass


@pytest.fixture(scope="session")
def decided() -> Callable[..., Answer]:
    """See `decide_case`."""
    return decide_case


@pytest.fixture(scope="session")
def fake_engine() -> type[FakeEngine]:
    """The class of an engine that notes its calls."""
    return FakeEngine


@pytest.fixture(scope="session")
def flat_estimator() -> type[FlatEstimator]:
    """The class of an estimator that can be done in the head."""
    return FlatEstimator
