"""Steps: how long the steps of a replay take: as recorded, fitted to the run's own passes, or by a preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.engines.replay.step_time import DEFAULT_PRESET, PRESETS, StepTimeModel
from estimator.errors import UsageError
from ui.whatif.fit import Fit, fit_step_time
from ui.whatif.measured import read_measured

if TYPE_CHECKING:
    from ui.whatif.recorded import Recorded

RECORDED: Final = "recorded"
FITTED: Final = "fitted"
PRESET: Final = "preset"
CHOICES: Final = (RECORDED, FITTED, PRESET, *sorted(PRESETS))


class Steps(NamedTuple):
    """A step-time model and where it comes from."""

    model: StepTimeModel
    fit: Fit | None
    """None where it was not fitted."""
    new_token_ratio: float
    """What of the output is held back for running requests: as it was recorded, else as the passes show it."""
    words: str
    """Where it comes from, for people."""
    lag_ns: int = 0
    """How long after a step its tokens are out."""


def steps_of(recorded: Recorded, wanted: str | None = None) -> Steps:
    """The model of a run: without a wish the recorded one of a replay, else one fitted to the run's passes.

    `wanted` is one of CHOICES; `preset` is the default preset. Raises UsageError for anything else, or a recorded model
    where the run has none, and what fitting raises.
    """
    if wanted is not None and wanted not in CHOICES:
        raise UsageError(f"--model is {wanted!r}; it is one of {', '.join(CHOICES)}")
    if wanted in (None, RECORDED):
        known = recorded.step_time
        if known is not None:
            return Steps(known, None, recorded.new_token_ratio, f"steps as recorded ({known.name})")
        if wanted == RECORDED:
            raise UsageError(f"run {recorded.name} has no recorded step-time model; use --model fitted or preset")
    if wanted in (None, FITTED):
        measured = read_measured(recorded)
        fit = fit_step_time(measured, recorded.name)
        ratio = measured.reserve_ratio
        if ratio is None or "new_token_ratio" in recorded.words:
            ratio = recorded.new_token_ratio
        return Steps(fit.model, fit, ratio, fit.words(), measured.lag_ns)
    name = DEFAULT_PRESET if wanted == PRESET else str(wanted)
    words = f"steps as on {name}, which is modelled, not measured on this run"
    return Steps(PRESETS[name], None, recorded.new_token_ratio, words)
