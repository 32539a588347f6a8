"""Bytes of temporary device buffers for a prefill batch, computed on the CPU.

The controller's seam is `BatchEstimator`; `estimate_batch` says the same of a whole batch at once; `Estimate`
explains it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from estimator.batch import BatchEstimator, BatchState
    from estimator.buffers import BUFFERS, PARTS
    from estimator.context import MlpSpec, MqaBudget, RunContext
    from estimator.estimate import Estimate, estimate_batch
    from estimator.geometry import Geometry
    from estimator.presets import PRESETS, model, preset
    from estimator.timeline import PHASES, TIMELINE, Window

__all__ = [
    "BUFFERS",
    "PARTS",
    "PHASES",
    "PRESETS",
    "TIMELINE",
    "BatchEstimator",
    "BatchState",
    "Estimate",
    "Geometry",
    "MlpSpec",
    "MqaBudget",
    "RunContext",
    "Window",
    "estimate_batch",
    "model",
    "preset",
]

_MODULES = {
    "batch": ("BatchEstimator", "BatchState"),
    "buffers": ("BUFFERS", "PARTS"),
    "context": ("MlpSpec", "MqaBudget", "RunContext"),
    "estimate": ("Estimate", "estimate_batch"),
    "geometry": ("Geometry",),
    "presets": ("PRESETS", "model", "preset"),
    "timeline": ("PHASES", "TIMELINE", "Window"),
}


def __getattr__(name: str) -> Any:
    """A public name, its module imported with the first use: the launcher and an engine's entry need none of them."""
    for module, names in _MODULES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(f"estimator.{module}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
