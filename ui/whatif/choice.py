"""Choice: the best point of a search with no more changed than matters, and what each change is worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ui.whatif.goal import keeps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ui.whatif.figures import Figures
    from ui.whatif.search import Point, Question
    from ui.whatif.workers import Tried


WORTH: Final = 0.01
"""Changes that together gain less than this share of the best point's goals are taken back."""


@dataclass(frozen=True, slots=True)
class Change:
    """One knob that is changed, and what became of the figures without that."""

    knob: str
    before: Any
    after: Any
    without: Figures | None
    """The chosen point with this knob as it was; None where that cannot be served."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen knobs."""

    values: dict[str, Any]
    """Of the knobs that were searched."""
    figures: Figures
    changes: tuple[Change, ...]
    """Those that differ from the current knobs; none where nothing better was found."""

    @property
    def changed(self) -> dict[str, Any]:
        """The knobs to set, with their values."""
        return {each.knob: each.after for each in self.changes}


def choose(
    best: Point, current: Mapping[str, Any], question: Question, attempt: Callable[[Mapping[str, Any]], Tried]
) -> Choice:
    """Take back, one by one, the changes without which the best point is almost as good, and weigh what is left."""
    values, figures = dict(best.values), best.figures

    @cache
    def tried(knobs: frozenset[tuple[str, Any]]) -> Figures | None:
        return attempt(dict(knobs)).figures

    def without(knob: str) -> Figures | None:
        return tried(frozenset({**values, knob: current[knob]}.items()))

    for knob in _differing(values, current):
        answer = without(knob)
        if answer is not None and _as_good(answer, best.figures, question):
            values[knob], figures = current[knob], answer
    changes = tuple(Change(knob, current[knob], values[knob], without(knob)) for knob in _differing(values, current))
    return Choice(values, figures, changes)


def _differing(values: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    return [knob for knob, value in values.items() if knob in current and value != current[knob]]


def _as_good(figures: Figures, than: Figures, question: Question) -> bool:
    """Whether figures keep the bounds and reach every goal as well as others do, or almost."""
    if not keeps(question.bounds, figures):
        return False
    for aim in question.aims:
        mine, theirs = aim.of(figures), aim.of(than)
        short = theirs - mine if aim.maximise else mine - theirs
        if not short <= WORTH * abs(theirs):
            return False
    return True
