"""A comparison in words, side by side: what each figure was, would be, and by how much that is another.

It is made without a terminal, so that the command and the screen say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from store.words import amount, counted, duration, size
from ui.whatif.fidelity import FLOOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.whatif.comparison import Comparison

NOT_ESTIMATED: Final = (
    "the record does not describe the model, so buffers are not estimated and max_buffer_bytes does nothing"
)
_S: Final = 1_000_000_000
Good = Literal["more", "less", ""]
"""Which way a figure is better; empty where that depends on what is wanted."""


class Row(NamedTuple):
    """One figure: its words, and what it was and would be."""

    words: str
    recorded: str
    """What happened."""
    replayed: str
    """Under the recorded knobs, replayed."""
    changed: str
    """Under the others."""
    change: str
    """By how much `changed` differs from `replayed`; empty where it does not."""
    better: bool | None = None
    """Whether the change is to the good; None for none, or where that depends."""


def _time(value: float | None) -> str:
    return "-" if value is None else duration(round(value * _S))


def _size(value: float | None) -> str:
    return "-" if value is None else size(round(value))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"


ROWS: Final[tuple[tuple[str, str, Callable[[Any], str], Good], ...]] = (
    ("tokens a second", "tokens_per_second", _number, "more"),
    ("requests answered", "answered", _number, "more"),
    ("refused for good", "refused", _number, "less"),
    ("batches", "passes", _number, ""),
    ("batch size, mean", "batch_size_mean", _number, ""),
    ("batch size, p99", "batch_size_p99", _number, ""),
    ("queue, p50", "queue_p50", _time, "less"),
    ("queue, p90", "queue_p90", _time, "less"),
    ("queue, p99", "queue_p99", _time, "less"),
    ("TTFT, p50", "ttft_p50", _time, "less"),
    ("TTFT, p90", "ttft_p90", _time, "less"),
    ("TTFT, p99", "ttft_p99", _time, "less"),
    ("host hits used", "host_hits", _number, ""),
    ("tokens from host", "host_tokens", _number, ""),
    ("tokens computed", "computed_tokens", _number, ""),
    ("retractions", "retractions", _number, "less"),
    ("peak of buffers", "peak_buffer", _size, ""),
)
"""What is compared: the words, the figure's name, how it is written, and which way it is better."""


def figure_rows(found: Comparison) -> list[Row]:
    """Every figure of a comparison."""
    figures = found.recorded, found.replayed, found.changed
    return [_row(words, [getattr(each, name) for each in figures], told, good) for words, name, told, good in ROWS]


def stop_rows(found: Comparison) -> list[Row]:
    """How many batches each gate closed."""
    figures = found.recorded, found.replayed, found.changed
    gates = dict.fromkeys(gate for each in reversed(figures) for gate in each.stops)
    return [_row(gate, [each.stops.get(gate, 0) for each in figures], _number, "") for gate in gates]


def _row(words: str, values: list[Any], told: Callable[[Any], str], good: Good) -> Row:
    recorded, replayed, changed = values
    better = None
    if good and None not in (replayed, changed) and replayed != changed:
        better = (changed > replayed) is (good == "more")
    return Row(words, told(recorded), told(replayed), told(changed), _change(replayed, changed), better)


def _change(before: float | None, after: float | None) -> str:
    """By how much a figure changes, the replay under the recorded knobs being the measure."""
    if before is None or after is None or before == after:
        return "" if before == after else "-"
    if not before:
        return f"+{after:,.0f}" if after >= 1 else "-"
    share = 100 * (after - before) / before
    return f"{share:+,.0f} %" if abs(share) >= 1 else f"{share:+.1f} %"


def remarks(found: Comparison) -> list[str]:
    """What the rows do not say."""
    told = [
        f"{each.name} is {_value(each.set_to, each.unit)}, in force {_value(each.effective, each.unit)} "
        f"({each.state}): {each.why}"
        for each in found.not_as_set
    ]
    limit, smoke, peak = found.limit_bytes[1], found.smoke_bytes, found.changed.peak_buffer
    if peak is not None and limit is not None and peak > limit:
        told.append(f"the peak of buffers is above max_buffer_bytes of {size(limit)}: a lone request passes it")
    if peak is not None and smoke is not None and peak > smoke:
        told.append(f"the peak of buffers is above the {size(smoke)} that the start-up allocation reached")
    if found.changes and not found.parted:
        told.append(f"no batch changes: all {counted(found.same_passes, 'batch', 'batches')} are the same")
    elif found.changes:
        first = found.parted[0]
        at = first.recorded or first.changed
        moment = "" if at is None else f", from {duration(max(0, at.start_ns - found.since_ns))} into the span on"
        same = f"{counted(found.same_passes, 'batch', 'batches')} as recorded, then" if found.same_passes else "at once"
        told.append(f"{same} they differ{moment}")
    if found.unended:
        told.append(
            f"the record holds no end (yet) of {found.unended:,} of {counted(found.recorded.requests, 'request')}: "
            "recorded counts what is known of them, the replays serve them to their end"
        )
    return told


def _value(value: int | bool | None, unit: str) -> str:
    """A knob's value for people."""
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return amount(value, unit)


class SideBySide(NamedTuple):
    """A comparison as plain words, that a screen can show as it is. Times are ns of the run's clock."""

    since_ns: int
    until_ns: int
    warmed: str
    """From where the span was replayed."""
    steps: str
    """Where the step times come from."""
    score: float
    """The fidelity, 0 to 1."""
    fidelity: str
    """In words."""
    holds: bool
    """The fidelity is not below the floor. Where it is there are neither rows nor remarks: nothing is concluded."""
    rows: tuple[Row, ...]
    stops: tuple[Row, ...]
    limits: tuple[Row, ...]
    """What the peak of buffers is to be held against: the limit, and what the start-up allocation reached."""
    remarks: tuple[str, ...]
    wall_s: float
    """What the replays took."""


def side_by_side(found: Comparison, floor: float = FLOOR) -> SideBySide:
    """A comparison in words; without its figures where its fidelity is below `floor`."""
    holds = found.fidelity.score >= floor
    return SideBySide(
        since_ns=found.since_ns,
        until_ns=found.until_ns,
        warmed=found.warmed,
        steps=found.steps.words,
        score=found.fidelity.score,
        fidelity=found.fidelity.words(),
        holds=holds,
        rows=tuple(figure_rows(found)) if holds else (),
        stops=tuple(stop_rows(found)) if holds else (),
        limits=limit_rows(found) if holds else (),
        remarks=(*_unknown(found), *remarks(found)) if holds else (),
        wall_s=found.wall_s,
    )


def _unknown(found: Comparison) -> list[str]:
    """What the replay could not take into account; the command says so before it replays."""
    if found.recorded.peak_buffer is None or found.replayed.peak_buffer is not None:
        return []
    return [NOT_ESTIMATED]


def limit_rows(found: Comparison) -> tuple[Row, ...]:
    """What the peak of buffers is to be held against."""
    before, after = ("off" if each is None else size(each) for each in found.limit_bytes)
    smoke = "none" if found.smoke_bytes is None else size(found.smoke_bytes)
    return Row("its limit", before, before, after, ""), Row("smoke reached", smoke, smoke, smoke, "")
