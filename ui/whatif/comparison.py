"""Comparison: a span as it was, replayed under the recorded knobs, and replayed under others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.engines.replay import Progress
from controller.limits import CLAMPED, DEAD, RAISED, effective, explain
from ui.whatif.fidelity import FLOOR, Fidelity, fidelity_of
from ui.whatif.figures import Figures, figures_of
from ui.whatif.happened import read_happened
from ui.whatif.played import Passed, Played, knobs_at, play, with_changes
from ui.whatif.recorded import Recorded, read_recorded
from ui.whatif.span import Span, read_span
from ui.whatif.steps import Steps, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.knobs import Knobs
    from controller.limits import EffectiveKnob

MOST_PARTED: Final = 200
"""How many of the places where two replays part are told."""


@dataclass(frozen=True, slots=True)
class Parted:
    """One place where the batches of two replays differ, counted from the span's start."""

    place: int
    recorded: Passed | None
    """Under the recorded knobs; None past the last one."""
    changed: Passed | None
    """Under the other knobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a change of knobs does to a span, as far as a replay can tell; see `fidelity` first."""

    run: str
    engine: str
    since_ns: int
    until_ns: int
    warmed: str
    """From where the span was replayed, in words."""
    steps: Steps
    changes: dict[str, tuple[Any, Any]]
    """By knob, its recorded value at the start of the span and the new one."""
    not_as_set: tuple[EffectiveKnob, ...]
    """Those set anew that are not in force as they were set."""
    fidelity: Fidelity
    recorded: Figures
    """What happened."""
    replayed: Figures
    """Under the recorded knobs."""
    changed: Figures
    """Under the new ones."""
    limit_bytes: tuple[int | None, int | None]
    """`max_buffer_bytes` in force before and after, None where there is none."""
    smoke_bytes: int | None
    """What the start-up allocation reached."""
    same_passes: int
    """Batches from the span's start on that are the same in both replays."""
    parted: tuple[Parted, ...]
    """The first places where they differ."""
    unended: int
    """Requests of the span of which the record holds no end: `recorded` counts what is known of them, such as nothing
    for those that waited where the record of a live run stops; the replays serve them to their end."""
    wall_s: float
    """What the replays took."""

    def check(self, floor: float = FLOOR) -> None:
        """Raise FidelityError where no conclusion can be drawn."""
        self.fidelity.check(floor)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "run": self.run,
            "engine": self.engine,
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "warmed": self.warmed,
            "steps": self.steps.words,
            "fit": None if self.steps.fit is None else self.steps.fit.as_dict(),
            "changes": {name: {"recorded": old, "new": new} for name, (old, new) in self.changes.items()},
            "not_as_set": [asdict(each) for each in self.not_as_set],
            "fidelity": self.fidelity.as_dict(),
            "recorded": self.recorded.as_dict(),
            "replayed": self.replayed.as_dict(),
            "what_if": self.changed.as_dict(),
            "max_buffer_bytes": {"recorded": self.limit_bytes[0], "what_if": self.limit_bytes[1]},
            "smoke_bytes": self.smoke_bytes,
            "same_passes": self.same_passes,
            "parted": [
                {"place": each.place, "recorded": _pass(each.recorded), "what_if": _pass(each.changed)}
                for each in self.parted
            ],
            "unended": self.unended,
            "wall_seconds": self.wall_s,
        }


class Baseline(NamedTuple):
    """What a change is held against: a span as it was, and replayed under the recorded knobs."""

    happened: Played
    replayed: Played
    fidelity: Fidelity


Tell = Callable[[str, Progress], None]
"""Is told which of the replays goes on, and how far it is."""


def baseline_of(
    recorded: Recorded, span: Span, steps: Steps, *, tell: Tell | None = None, stopped: Callable[[], bool] | None = None
) -> Baseline:
    """Replay a span under the recorded knobs, and hold it against what happened. Arguments are those of `compare`."""
    happened = read_happened(recorded, span)
    replayed = play(recorded, span, steps, progress=_of("as recorded", tell), stopped=stopped)
    return Baseline(happened, replayed, fidelity_of(happened, replayed))


def compare(
    recorded: Recorded,
    span: Span,
    changes: Mapping[str, Any],
    steps: Steps,
    *,
    baseline: Baseline | None = None,
    tell: Tell | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Comparison:
    """Replay a span under the recorded knobs, unless `baseline` has that already, and with `changes` set anew.

    `tell` is told how far each of the two is, `stopped` asked whether to end early. Raises KnobError for changes that
    cannot be, and what reading the record raises.
    """
    old, new = knobs_at(recorded, span.since_ns), with_changes(recorded, span, changes)
    limits = tuple(effective(knobs, recorded.setting).max_buffer for knobs in (old, new))
    if baseline is None:
        baseline = baseline_of(recorded, span, steps, tell=tell, stopped=stopped)
    happened, replayed, fidelity = baseline
    changed = replayed
    if changes:
        changed = play(recorded, span, steps, changes, progress=_of("what if", tell), stopped=stopped)
    same, parted = _parted(replayed, changed)
    return Comparison(
        run=recorded.name,
        engine=recorded.engine,
        since_ns=span.since_ns,
        until_ns=span.until_ns,
        warmed=span.words,
        steps=steps,
        changes=_differing(old, new, changes),
        not_as_set=tuple(
            each
            for each in explain(new, recorded.setting)
            if each.name in changes and each.state in (CLAMPED, DEAD, RAISED)
        ),
        fidelity=fidelity,
        recorded=figures_of(happened, span),
        replayed=figures_of(replayed, span),
        changed=figures_of(changed, span),
        limit_bytes=(limits[0], limits[1]),
        smoke_bytes=recorded.smoke_bytes,
        same_passes=same,
        parted=parted,
        unended=sum(
            each.end_ns is None and span.since_ns <= each.arrival_ns <= span.until_ns for each in span.requests
        ),
        wall_s=replayed.wall_s + (changed.wall_s if changes else 0.0),
    )


def preview(
    database: Path,
    run: str | None,
    changes: Mapping[str, Any],
    since: str | int | None = None,
    until: str | int | None = None,
    *,
    rank: int | None = None,
    model: str | None = None,
    tell: Tell | None = None,
) -> Comparison:
    """What a change of knobs would have done to a stretch of a run; see `process.PreviewProcess` for a screen.

    `since` and `until` are moments (`span.moment`), `rank` is the lowest unless it is given, `model` one of
    `steps.CHOICES`; `tell` is that of `compare`. Raises what reading the record, fitting and replaying raise; see
    `read_recorded`, `read_span`, `steps_of` and `compare`.
    """
    recorded = read_recorded(database, run, rank)
    span = read_span(recorded, since, until)
    return compare(recorded, span, changes, steps_of(recorded, model), tell=tell)


def _of(what: str, tell: Tell | None) -> Callable[[Progress], None] | None:
    """What is told of one replay."""
    return None if tell is None else lambda standing: tell(what, standing)


def _differing(old: Knobs, new: Knobs, changes: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (getattr(old, name), getattr(new, name)) for name in changes}


def _parted(replayed: Played, changed: Played) -> tuple[int, tuple[Parted, ...]]:
    """How many batches are the same from the start on, and the first places where they are not."""
    pairs = list(zip_longest(replayed.passes, changed.passes))
    differing = [place for place, (one, other) in enumerate(pairs) if not _same(one, other)]
    if not differing:
        return len(pairs), ()
    return differing[0], tuple(Parted(place, *pairs[place]) for place in islice(differing, MOST_PARTED))


def _same(one: Passed | None, other: Passed | None) -> bool:
    if one is None or other is None:
        return False
    return one.members == other.members and one.extend_tokens == other.extend_tokens


def _pass(each: Passed | None) -> dict[str, Any] | None:
    if each is None:
        return None
    return {
        "pass": each.number,
        "start_ns": each.start_ns,
        "members": list(each.members),
        "extend_tokens": each.extend_tokens,
        "cached_tokens": each.cached_tokens,
        "closed_by": each.closed_by,
    }
