"""StepLedger: when the steps of one scheduler ended: a pass's one by one, those that only decode in stretches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.records import StepEnd

if TYPE_CHECKING:
    from controller.engines.plugin import EngineRecord

STRETCH_NS: Final = 1_000_000_000
"""A stretch of decode steps ends after so long at the latest."""
_MOST_IN_FLIGHT: Final = 256


class StepLedger:
    """The steps that are in flight, by the scheduler's output that began them. Times are ns of the run's clock."""

    def __init__(self, record: EngineRecord) -> None:
        self._record = record
        self.in_flight: dict[int, tuple[Any, int, int, tuple[int, ...]]] = {}
        self.decoding_since = 0
        """When the stretch of steps that only decode began; 0 without one."""
        self.decoded_until = 0
        """When the last step of that stretch ended."""

    def began(self, output: Any, passed: int, start_ns: int, complete: tuple[int, ...]) -> None:
        """A pass's step begins; `complete` are the requests that will have their first token when it ends."""
        self.end_stretch()
        if len(self.in_flight) >= _MOST_IN_FLIGHT:
            self.in_flight.clear()  # an engine that never takes its outputs in
        self.in_flight[id(output)] = (output, passed, start_ns, complete)

    def ended(self, output: Any) -> None:
        """A step's output has come."""
        now = self._record.now
        step = self.in_flight.pop(id(output), None)
        if step is not None:
            _, passed, start_ns, complete = step
            self._record.note(StepEnd(passed, start_ns, now, complete))
        elif self.decoding_since:
            self.decoded_until = now
            if now - self.decoding_since >= STRETCH_NS:
                self.end_stretch()

    def end_stretch(self) -> None:
        """Record the decode steps since the last pass, if there were any."""
        if self.decoding_since and self.decoded_until > self.decoding_since:
            self._record.note(StepEnd(-1, self.decoding_since, self.decoded_until, ()))
        self.decoding_since = 0
