"""The timeline of an estimate, drawn in the terminal: windows against phases, and the sum each phase holds."""

from collections.abc import Iterator
from typing import Final

from estimator.estimate import Estimate
from store.words import size

STREAM_MARKS: Final = {"compute": "█", "transfer": "▒", "gather": "▓", "prefetch": "░"}
_BAR_CELLS: Final = 40
_COLUMN: Final = 2


def timeline_lines(estimate: Estimate) -> Iterator[str]:
    """One line a window, its mark under every phase it spans; then one bar a phase, the peak pointed at.

    The shape of a mark is the stream: █ compute, ▒ transfer, ▓ gather, ░ prefetch.
    """
    phases = [phase for phase in estimate.phases if estimate.phases[phase]]
    windows = sorted(estimate.windows, key=lambda window: -estimate.window_bytes(window))
    width = max((len(window.name) for window in windows), default=0)
    for number, phase in enumerate(phases):
        yield " " * (width + 1) + "│ " * number + f"┌ {phase}"
    for window in windows:
        spans = set(window.phases)
        marks = "".join(
            (STREAM_MARKS[window.stream] if phase in spans else "·") + " " * (_COLUMN - 1) for phase in phases
        )
        yield f"{window.name:<{width}} {marks} {size(estimate.window_bytes(window))}"
    yield ""
    most = max(estimate.phases.values(), default=0)
    name_width = max((len(phase) for phase in phases), default=0)
    for phase in phases:
        held = estimate.phases[phase]
        cells = -(-held * _BAR_CELLS // most) if most else 0
        mark = "  <- peak" if phase == estimate.peak_phase else ""
        yield f"{phase:<{name_width}} {'█' * cells:<{_BAR_CELLS}} {size(held)}{mark}"
