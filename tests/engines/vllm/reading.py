"""Reading back what a watched scheduler has recorded, straight from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.decision import Decision
from controller.journal import JournalReader
from controller.journal.frames import DATA
from controller.records import AnyRecord, Arrival, Pass, decode
from controller.vocabulary import Gate, Outcome, Reason

if TYPE_CHECKING:
    from pathlib import Path


class Record:
    """The record of one scheduler so far."""

    def __init__(self, scheduler: Any) -> None:
        self._watch = scheduler._glassgate

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._watch.record.run.path

    @property
    def records(self) -> list[AnyRecord]:
        """Every record, in order; what is pending is appended first."""
        watch = self._watch
        if watch.record._recorder is not None:
            watch.record._recorder.flush()
        with JournalReader(watch.record.run.journal) as reader:
            return [record for frame in reader if frame.kind == DATA for record in decode(frame.payload)]

    def of(self, kind: type) -> list[Any]:
        """Every record of a kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def passes(self) -> list[Pass]:
        """Every pass that was written whole."""
        return self.of(Pass)

    def decisions(self, passed: Pass) -> dict[str, Decision]:
        """What a pass decided, by the request's id."""
        names = {record.number: record.id for record in self.of(Arrival)}
        return {names[flat[0]]: Decision.read(flat) for flat in passed.decisions}

    def told(self, passed: Pass) -> dict[str, tuple[str, str | None, int, int]]:
        """(outcome, gate/reason, observed, limit) of each decision of a pass, by the request's id."""
        return {
            name: (each.outcome.word, stop_of(each.gate, each.reason), each.observed, each.limit)
            for name, each in self.decisions(passed).items()
        }


def stop_of(gate: Gate | None, reason: Reason | None) -> str | None:
    """A stop as `gate/reason`."""
    return None if gate is None or reason is None else f"{gate.word}/{reason.word}"


def closed_by(passed: Pass) -> str | None:
    """What closed a pass, as `gate/reason`."""
    return None if passed.closed_gate < 0 else stop_of(Gate(passed.closed_gate), Reason(passed.closed_reason))


def assert_counts_add_up(passed: Pass) -> None:
    """Admitted, waiting, refused and not reached are the queue that the pass began with."""
    looked = [flat for flat in passed.decisions if not (flat[8] or flat[1] == Outcome.PARK)]
    assert len(looked) + passed.not_reached == passed.queue, passed
