"""A search as people see it: its progress, its frontier, and why the chosen point was chosen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn

from controller.knobs import SPEC_BY_NAME
from store.words import counted, size
from ui.output import cell, data, narrate, print_table
from ui.progress import LongProgress
from ui.whatif.choice import WORTH, Choice
from ui.whatif.comparison import Comparison
from ui.whatif.figures import Figures
from ui.whatif.goal import Aim, is_bytes, is_time
from ui.whatif.search import Found, Point, Question
from ui.whatif.side_by_side import ROWS

MOST_SHOWN: Final = 12
"""Points of the frontier that are shown."""
_SHOWN_AS: Final = {name: shown for _, name, shown, _ in ROWS}
_TIME, _BYTES, _NUMBER = (_SHOWN_AS[name] for name in ("ttft_p50", "peak_buffer", "tokens_per_second"))


class SearchProgress(LongProgress):
    """The progress of a search."""

    def __init__(self, points: int, aim: Aim) -> None:
        super().__init__(BarColumn(bar_width=24), MofNCompleteColumn(), begins="", total=points)
        self._aim = aim
        self._points = points

    def show(self, done: int, best: Point | None) -> None:
        """Tell how many points were tried, and the best so far."""
        words = "no point keeps the bounds yet"
        if best is not None:
            words = f"best {self._aim.metric} {shown(self._aim.metric, self._aim.of(best.figures))}"
        self.tell(done, words, f"{done:,} of {counted(self._points, 'point')}, {words}")


def shown(metric: str, value: float | None) -> str:
    """A figure as people read it."""
    if is_time(metric):
        return _TIME(value)
    return _BYTES(value) if is_bytes(metric) else _NUMBER(value)


def _metrics(question: Question) -> list[str]:
    """The figures that were searched by, and the usual two beside them."""
    wanted = [aim.metric for aim in question.aims] + [bound.metric for bound in question.bounds]
    return list(dict.fromkeys([*wanted, "ttft_p50", "batch_size_mean"]))


def print_found(found: Found, question: Question) -> None:
    """The knobs as they were, and the points that no other one is better than."""
    metrics = _metrics(question)
    points: list[tuple[str, Point]] = [("current", found.current)]
    points += [
        (str(point.number), point) for point in found.frontier or found.nearest if point.values != found.current.values
    ][:MOST_SHOWN]
    print_table(
        ("point", *metrics, "knobs that differ"),
        [
            (
                words,
                *(shown(metric, getattr(point.figures, metric)) for metric in metrics),
                _differing(point.values, found.current.values),
            )
            for words, point in points
        ],
        title=f"{'The frontier' if found.frontier else 'Nearest to the bounds'} of {counted(found.tried, 'point')}",
    )
    if len(found.frontier) > MOST_SHOWN:
        narrate(f"{counted(len(found.frontier), 'point')} are on the frontier, the first are shown; --json shows all")
    data().print()


def _differing(values: dict[str, Any], current: dict[str, Any]) -> str:
    """The knobs of a point that are not as they were."""
    found = [f"{knob} {_knob(knob, value)}" for knob, value in values.items() if current.get(knob) != value]
    return ", ".join(found) or "-"


def _knob(knob: str, value: Any) -> str:
    """A knob's value as people read it."""
    if value is None:
        return "off"
    spec = SPEC_BY_NAME.get(knob)
    return size(value) if spec is not None and spec.unit == "bytes" else cell(value)


def told_choice(found: Found, question: Question, choice: Choice | None) -> list[str]:
    """Why the chosen point was chosen, in lines."""
    aim = question.aims[0]
    bounds = " and ".join(bound.text for bound in question.bounds)
    if choice is None:
        return [f"none of {counted(found.tried, 'point')} keeps {bounds}; loosen a bound, or search further knobs"]
    now, best = (aim.of(each.figures) for each in (found.current, found.best or found.current))
    if not choice.changes:
        as_it_is = f"{aim.metric} is {shown(aim.metric, now)} with the knobs as they are"
        return [f"nothing gains more than {100 * WORTH:.0f} %: {as_it_is}, and {shown(aim.metric, best)} at best"]
    reached = aim.of(choice.figures)
    told = [
        f"chosen: {_set(choice)}: {aim.metric} {shown(aim.metric, reached)}, with the knobs as they are "
        f"{shown(aim.metric, now)}" + (f", keeping {bounds}" if bounds else "")
    ]
    broken = [bound.text for bound in question.bounds if bound.excess(found.current.figures) > 0]
    if broken:
        told.append(f"the knobs as they are do not keep {' and '.join(broken)}")
    told += [
        f"  {each.knob} {_knob(each.knob, each.before)} -> {_knob(each.knob, each.after)}: "
        + _without(each.without, question)
        for each in choice.changes
    ]
    if gate := _stops(found.current.figures):
        told.append(f"most batches were stopped by {gate}, and are now by {_stops(choice.figures) or 'nothing'}")
    return told


def _set(choice: Choice) -> str:
    return ", ".join(f"{each.knob} {_knob(each.knob, each.after)}" for each in choice.changes)


def _without(figures: Figures | None, question: Question) -> str:
    """What becomes of a point without one of its changes."""
    if figures is None:
        return "without it the requests cannot be served"
    aim = question.aims[0]
    broken = [bound for bound in question.bounds if bound.excess(figures) > 0]
    told = f"without it {aim.metric} {shown(aim.metric, aim.of(figures))}"
    if broken:
        values = [f"{each.metric} {shown(each.metric, getattr(figures, each.metric))}" for each in broken]
        told += f" and {', '.join(values)}"
    return told


def _stops(figures: Figures) -> str:
    """The gate that closed most batches, with its share."""
    if not figures.stops or not figures.passes:
        return ""
    gate, count = next(iter(figures.stops.items()))
    return f"{gate} ({100 * count / figures.passes:.0f} % of batches)"


def found_dict(
    found: Found, question: Question, choice: Choice | None, confirmed: Comparison | None, path: Path | None
) -> dict[str, Any]:
    """Everything, for JSON."""

    def points(some: Sequence[Point]) -> list[dict[str, Any]]:
        return [{"point": each.number, "knobs": each.values, "figures": each.figures.as_dict()} for each in some]

    return {
        "aims": [{"figure": aim.metric, "maximise": aim.maximise} for aim in question.aims],
        "bounds": [bound.text for bound in question.bounds],
        "tried": found.tried,
        "failed": found.failed,
        "current": points([found.current])[0],
        "frontier": points(found.frontier),
        "nearest": points(found.nearest),
        "chosen": None
        if choice is None
        else {
            "knobs": choice.values,
            "changes": [
                {
                    "knob": each.knob,
                    "before": each.before,
                    "after": each.after,
                    "without": None if each.without is None else each.without.as_dict(),
                }
                for each in choice.changes
            ],
            "figures": choice.figures.as_dict(),
        },
        "confirmed": None if confirmed is None else confirmed.as_dict(),
        "config": None if path is None else str(path),
    }
