"""A comparison as people read it: side by side, with what changed."""

from collections.abc import Callable
from typing import Any, Final

from store.words import counted, duration, size
from ui.output import cell, data, print_table
from ui.whatif.comparison import Comparison
from ui.whatif.figures import Figures

_S: Final = 1_000_000_000


def _time(value: float | None) -> str:
    return "-" if value is None else duration(round(value * _S))


def _size(value: float | None) -> str:
    return "-" if value is None else size(round(value))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"


ROWS: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("tokens a second", "tokens_per_second", _number),
    ("requests answered", "answered", _number),
    ("refused for good", "refused", _number),
    ("batches", "passes", _number),
    ("batch size, mean", "batch_size_mean", _number),
    ("batch size, p99", "batch_size_p99", _number),
    ("queue, p50", "queue_p50", _time),
    ("queue, p90", "queue_p90", _time),
    ("queue, p99", "queue_p99", _time),
    ("TTFT, p50", "ttft_p50", _time),
    ("TTFT, p90", "ttft_p90", _time),
    ("TTFT, p99", "ttft_p99", _time),
    ("host hits used", "host_hits", _number),
    ("tokens from host", "host_tokens", _number),
    ("tokens computed", "computed_tokens", _number),
    ("retractions", "retractions", _number),
    ("peak of buffers", "peak_buffer", _size),
)
"""What is compared: the words, the figure's name, and how it is written."""


def print_comparison(found: Comparison) -> None:
    """The three columns and what changed, then what stopped the batches."""
    changed = bool(found.changes)
    if changed:
        print_table(
            ("knob", "recorded", "what if"),
            [(name, cell(old), cell(new)) for name, (old, new) in found.changes.items()],
        )
        data().print()
    columns = ("", "recorded", "replayed", *(("what if", "change") if changed else ()))
    print_table(columns, [_row(found, *row, changed=changed) for row in ROWS])
    data().print()
    gates = dict.fromkeys([*found.changed.stops, *found.replayed.stops, *found.recorded.stops])
    print_table(
        ("batches closed by", *columns[1:]),
        [
            _cells(gate, [each.stops.get(gate, 0) for each in _figures(found)], _number, changed=changed)
            for gate in gates
        ],
    )
    data().print()
    for line in _remarks(found):
        data().print(line, markup=False, soft_wrap=True)


def _figures(found: Comparison) -> tuple[Figures, Figures, Figures]:
    return found.recorded, found.replayed, found.changed


def _row(found: Comparison, words: str, name: str, shown: Callable[[Any], str], *, changed: bool) -> tuple[str, ...]:
    return _cells(words, [getattr(each, name) for each in _figures(found)], shown, changed=changed)


def _cells(words: str, values: list[Any], shown: Callable[[Any], str], *, changed: bool) -> tuple[str, ...]:
    recorded, replayed, new = values
    row = (words, shown(recorded), shown(replayed))
    return (*row, shown(new), _change(replayed, new)) if changed else row


def _change(before: float | None, after: float | None) -> str:
    """By how much a figure changes, the replay under the recorded knobs being the measure."""
    if before is None or after is None or before == after:
        return "" if before == after else "-"
    if not before:
        return f"+{after:,.0f}" if after >= 1 else "-"
    share = 100 * (after - before) / before
    return f"{share:+,.0f} %" if abs(share) >= 1 else f"{share:+.1f} %"


def _remarks(found: Comparison) -> list[str]:
    """What the table does not say."""
    remarks = []
    limit, smoke, peak = found.limit_bytes[1], found.smoke_bytes, found.changed.peak_buffer
    if peak is not None and limit is not None and peak > limit:
        remarks.append(f"the peak of buffers is above max_buffer_bytes of {size(limit)}: a lone request passes it")
    if peak is not None and smoke is not None and peak > smoke:
        remarks.append(f"the peak of buffers is above the {size(smoke)} that the start-up allocation reached")
    if found.changes and not found.parted:
        remarks.append(f"no batch changes: all {counted(found.same_passes, 'batch', 'batches')} are the same")
    elif found.changes:
        first = found.parted[0]
        at = first.recorded or first.changed
        moment = "" if at is None else f", from {duration(max(0, at.start_ns - found.since_ns))} into the span on"
        same = f"{counted(found.same_passes, 'batch', 'batches')} as recorded, then" if found.same_passes else "at once"
        remarks.append(f"{same} they differ{moment}")
    return remarks
