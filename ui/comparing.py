"""A comparison as the commands print it: side by side, with what changed."""

from collections.abc import Iterable

from ui.output import data, knob_value, print_table
from ui.whatif.comparison import Comparison
from ui.whatif.side_by_side import Row, figure_rows, limit_rows, remarks, stop_rows


def print_comparison(found: Comparison) -> None:
    """The three columns and what changed, then what stopped the batches."""
    changed = bool(found.changes)
    if changed:
        print_table(
            ("knob", "recorded", "what if"),
            [(name, knob_value(old), knob_value(new)) for name, (old, new) in found.changes.items()],
        )
        data().print()
    columns = ("recorded", "replayed", *(("what if", "change") if changed else ()))
    for first, rows in (("", [*figure_rows(found), *limit_rows(found)]), ("batches closed by", stop_rows(found))):
        if rows:  # nothing closed a batch where each took the whole queue
            print_table((first, *columns), _cells(rows, changed=changed))
            data().print()
    for line in remarks(found):
        data().print(line, markup=False, soft_wrap=True)


def _cells(rows: Iterable[Row], *, changed: bool) -> list[tuple[str, ...]]:
    """What stands in the columns; without a change of knobs two of them say nothing."""
    told = [(row.words, row.recorded, row.replayed, row.changed, row.change) for row in rows]
    return [row[: 5 if changed else 3] for row in told]
