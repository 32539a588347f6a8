"""Played: what a replay of a span did."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from controller.engines.replay import KnobsAt, ReplayEngine
from controller.engines.replay.quiet import QuietPass, QuietRecorder, QuietSummary
from controller.knob_turning import FIXED
from controller.knobs import Knobs
from controller.limits import effective
from controller.vocabulary import Gate
from store.garbage import no_garbage
from ui.whatif.requests import workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.engines.replay import Progress
    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span
    from ui.whatif.steps import Steps

GATE_WORDS: Final = {int(gate): gate.word for gate in Gate}
WHO: Final = "record"
"""Who turned the knobs of a replayed record, for its own record."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One batch as it was formed, in the record or in a replay. Request numbers are the record's."""

    start_ns: int
    members: tuple[int, ...]
    """Numbers of the requests in it, the continuing chunk first."""
    extend_tokens: int
    cached_tokens: int
    loaded_tokens: int
    closed_gate: int
    """-1 when nothing closed the pass."""
    peak_bytes: int
    """-1 where it is not known."""
    number: int = field(default=0, compare=False)
    """In the record or in the replay, counted from the run's or the replay's start."""

    @property
    def closed_by(self) -> str | None:
        """The gate that closed the pass, None for none."""
        return None if self.closed_gate < 0 else GATE_WORDS.get(self.closed_gate, str(self.closed_gate))


@dataclass(frozen=True, slots=True)
class Life:
    """When things happened to one request, ns of the run's clock; None where they did not."""

    arrival_ns: int
    admit_ns: int | None
    first_token_ns: int | None
    end_ns: int | None
    prompt_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Played:
    """What happened in a span, in the record or in a replay of it."""

    passes: tuple[Passed, ...]
    """Those that admitted somebody."""
    lives: dict[int, Life]
    """By number, the requests that arrived in the span."""
    refused: int
    """Requests that could never fit."""
    retractions: int
    wall_s: float
    """What the replay took; 0 for the record."""


def knobs_at(recorded: Recorded, at_ns: int) -> Knobs:
    """The knobs that were in force at a time."""
    return recorded.revisions[_in_force(recorded, at_ns)].knobs


def with_changes(recorded: Recorded, span: Span, changes: Mapping[str, Any]) -> Knobs:
    """The knobs in force at the span's start with some set anew.

    Raises KnobError where they cannot be, then or with what the record turns later.
    """
    first = _in_force(recorded, span.since_ns)
    wanted = [Knobs.parse(changes, revision.knobs) for revision in recorded.revisions[first:]]
    for knobs in wanted:
        effective(knobs, recorded.setting)
    return wanted[0]


def values_of(recorded: Recorded, span: Span, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values that changes stand for, however they were written. Raises KnobError as `with_changes` does."""
    knobs = with_changes(recorded, span, changes)
    return {name: getattr(knobs, name) for name in changes}


def begun_with(recorded: Recorded, span: Span, values: Mapping[str, Any]) -> Knobs:
    """The knobs with which a replay of a span begins; what of `values` cannot wait for the span holds at once."""
    knobs = replace(knobs_at(recorded, span.begin_ns), revision=0)
    return Knobs.parse(values, knobs) if values and _at_once(span, values) else knobs


def _in_force(recorded: Recorded, at_ns: int) -> int:
    """The place of the revision in force at a time."""
    place = 0
    for number, revision in enumerate(recorded.revisions):
        if revision.at_ns <= at_ns:
            place = number
    return place


def turned(recorded: Recorded, span: Span, changes: Mapping[str, Any] | None = None) -> list[KnobsAt]:
    """The knobs that are turned after the replay's beginning: those of the record, and `changes` at the span's start.

    From there on the record's own changes leave them alone. In a replay of a whole run each recorded change is turned
    just before the pass that was first decided under it, as far as the passes are the recorded ones; else by the clock.
    """
    changes = changes or {}
    found = []
    first = _in_force(recorded, span.begin_ns)
    for before, after in zip(recorded.revisions[first:], recorded.revisions[first + 1 :], strict=False):
        old, new = before.knobs.as_dict(), after.knobs.as_dict()
        as_recorded = not changes or (after.at_ns <= span.since_ns and not _at_once(span, changes))
        values = {name: new[name] for name in new if new[name] != old[name] and (as_recorded or name not in changes)}
        passes = after.first_pass - 1 if span.whole and as_recorded and after.first_pass else 0
        if values:
            found.append(KnobsAt(after.at_ns - span.begin_ns, passes, values, WHO))
    if changes and not _at_once(span, changes):
        since_ns = span.since_ns - span.begin_ns
        place = sum(each.at_ns <= since_ns for each in found)
        found.insert(place, KnobsAt(since_ns, 0, dict(changes), WHO))
    return found


def _at_once(span: Span, changes: Mapping[str, Any]) -> bool:
    """Whether changes hold from the replay's beginning: with the span, or where they cannot be turned on the way."""
    return span.begin_ns >= span.since_ns or not FIXED.keys().isdisjoint(changes)


def play(
    recorded: Recorded,
    span: Span,
    steps: Steps,
    changes: Mapping[str, Any] | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Played:
    """Replay a span under the recorded knobs with `changes` set anew from its start, and return what happened in it.

    `progress` is told about every tenth of a second; where `stopped` then says so the replay ends early. Raises
    KnobError for changes that cannot be, ReplayStuck where nothing can ever be admitted.
    """
    values = values_of(recorded, span, changes or {})
    knobs = begun_with(recorded, span, values)
    numbers = arrival_order(span)
    recorder = QuietRecorder(span.since_ns - span.begin_ns)
    engine = ReplayEngine(
        workload_of(recorded, span.requests, span.before, span.begin_ns, knobs.page_size),
        knobs=knobs,
        step_time=steps.model,
        recorder=recorder,
        setting=recorded.setting,
        device_tokens=recorded.pool_tokens,
        host_tokens=recorded.host_tokens,
        role=recorded.role,
        write_policy=recorded.write_policy,
        new_token_ratio=steps.new_token_ratio,
        estimator=recorded.estimator(knobs.page_size),
        stretch_ns=recorded.stretch_ns,
        changes=turned(recorded, span, values),
        hashes=False,
        summary=QuietSummary(),
    )

    def tell(standing: Progress) -> None:
        if progress is not None:
            progress(standing)
        if stopped is not None and stopped():
            engine.stop()

    began = time.perf_counter()
    with no_garbage():
        engine.run(None if progress is None and stopped is None else tell)
    return _gathered(recorder, span, numbers, steps.lag_ns, time.perf_counter() - began)


def arrival_order(span: Span) -> list[int]:
    """The record's numbers of a span's requests in the order in which they arrive in a replay."""
    begin_ns = span.begin_ns
    return [
        each.number for each in sorted(span.requests, key=lambda each: (max(begin_ns, each.arrival_ns), each.number))
    ]


def _gathered(recorder: QuietRecorder, span: Span, numbers: list[int], lag_ns: int, wall_s: float) -> Played:
    """What a replay kept, in the record's numbers and times."""
    begin_ns, until_ns = span.begin_ns, span.until_ns - span.begin_ns
    asked = {each.number: each for each in span.requests}
    admits: dict[int, int] = {}
    passes = []
    for seen in recorder.seen:
        for member in seen.batch:
            admits.setdefault(member[0], seen.start_ns)
        if seen.start_ns <= until_ns:
            passes.append(_passed(seen, numbers, begin_ns))
    lives = {}
    for place, number in enumerate(numbers):
        request = asked[number]
        if not span.since_ns <= request.arrival_ns <= span.until_ns:
            continue
        end = recorder.ends.get(place)
        lives[number] = Life(
            request.arrival_ns,
            _back(admits.get(place), begin_ns),
            _back(recorder.first_tokens.get(place), begin_ns + lag_ns),
            _back(end[0] if end else None, begin_ns + lag_ns),
            request.prompt_tokens,
            end[1] if end else 0,
        )
    refused = sum(numbers[place] in lives for place in recorder.refused)
    return Played(tuple(passes), lives, refused, recorder.retractions, wall_s)


def _passed(seen: QuietPass, numbers: list[int], begin_ns: int) -> Passed:
    extend = cached = loaded = 0
    for _, _, extends, hit, load, done in seen.batch:
        extend += extends
        cached += hit + load + done
        loaded += load
    members = tuple([numbers[member[0]] for member in seen.batch])
    return Passed(
        seen.start_ns + begin_ns, members, extend, cached, loaded, seen.closed_gate, seen.peak_bytes, seen.number
    )


def _back(at_ns: int | None, begin_ns: int) -> int | None:
    return None if at_ns is None else at_ns + begin_ns
