"""Two runs beside each other in words, for where there is no screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store.words import counted, duration
from ui.app.panels.words import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.alignment import Batch
    from ui.view.beside import Beside

MOST_TOLD: Final = 20
"""Rows that part, at most; all of them are in the JSON."""


def beside_summary(beside: Beside) -> Iterator[str]:
    """What differs, how many rows part, and the first of them."""
    for words, side in (("", beside.left), ("beside ", beside.right)):
        workload = f" ({side.workload})" if side.workload else ""
        yield f"{words}run {side.run}{workload}: {counted(side.batches, 'batch', 'batches')}"
    for name, left, right, unit in beside.knobs:
        yield f"{name}: {value_of(left, unit)} | {value_of(right, unit)}"
    same, parting = len(beside.rows) - len(beside.parting), len(beside.parting)
    yield f"{counted(same, 'row is', 'rows are')} the same, {counted(parting, 'row parts', 'rows part')}"
    for place in beside.parting[:MOST_TOLD]:
        row = beside.rows[place]
        at = duration(max(0, row.start_ns - beside.start_ns))
        yield f"  +{at}: {_batch(row.left, row.right)} | {_batch(row.right, row.left)}: {', '.join(row.parts)}"
    if parting > MOST_TOLD:
        yield f"  and {parting - MOST_TOLD:,} more; --json has them all"


def _batch(batch: Batch | None, other: Batch | None) -> str:
    """One side; the reason is told where it alone sets the two gates apart."""
    if batch is None:
        return "no batch"
    told_by_reason = other is not None and batch.gate == other.gate and batch.reason != other.reason
    reason = f" ({batch.reason})" if told_by_reason else ""
    closed = f", closed by {batch.gate}{reason}" if batch.gate else ""
    return f"pass {batch.number:,} with {counted(len(batch.members), 'member')}{closed}"
